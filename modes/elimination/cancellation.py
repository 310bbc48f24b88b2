"""Cancellation: derivatives that are zero but for rounding, as along what a norm takes out."""

from __future__ import annotations

from typing import Any

import numpy as np

from .deferred import numbers_of

ROUNDINGS = 8
"""So many units in the last place are what remains of terms that cancel."""


def vanishes(total: Any, sizes: Any) -> bool:
    """|Σ aᵢ| ≤ 8 ε Σ |aᵢ| everywhere: the sum could as well be zero.

    Half precision rounds too coarsely to tell.

    >>> vanishes(np.array([1e-17, 0.0]), np.array([1.0, 2.0])), vanishes(np.ones(1), np.ones(1))
    (True, False)
    """
    if total.dtype.kind != "f" or total.dtype.itemsize < 4:
        return False
    total, sizes = map(numbers_of, (total, sizes))
    limit = ROUNDINGS * np.finfo(total.dtype).eps * sizes
    return bool(np.all(np.isfinite(sizes)) and np.all(np.abs(total) <= limit))
