"""CumProd and Det."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .table import ints, kernel


@kernel("CumProd")
def cum_prod(x: Array, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """Running products along an axis."""
    (axis,) = ints(axis)
    step = -1 if reverse else 1
    x = np.moveaxis(x, axis, -1)[..., ::step]
    if exclusive:
        x = np.concatenate([np.ones_like(x[..., :1]), x[..., :-1]], axis=-1)
    return np.moveaxis(np.cumprod(x, axis=-1, dtype=x.dtype)[..., ::step], -1, axis)


@kernel("Det")
def det(x: Array) -> Array:
    """The determinant of every matrix."""
    return np.asarray(np.linalg.det(x), x.dtype)
