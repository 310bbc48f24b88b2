"""Differences: the slope of a model along a line, from its values alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..model.primal.inputs import is_float

Tensors = dict[str, np.ndarray]
Run = Callable[[dict[str, Any]], Tensors]

SCALE = 1e-2
"""The error of a smaller derivative is relative to this."""


def central(run: Run, point: Mapping[str, Any], direction: Tensors, h: float) -> Tensors:
    """(8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h: the slope with an error of order h⁴."""
    a, b, c, d = (
        run({k: x + t * direction[k] if k in direction else x for k, x in point.items()})
        for t in (h, -h, 2 * h, -2 * h)
    )
    floats = [name for name, y in a.items() if is_float(y.dtype)]
    return {k: (8 * change(a[k], b[k]) - change(c[k], d[k])) / (12 * h) for k in floats}


def change(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a - b; 0 where both are the same infinity, NaN where their shapes differ."""
    return np.where(a == b, 0.0, a - b) if a.shape == b.shape else np.array(np.nan)


def mismatch(found: np.ndarray, expected: np.ndarray, floor: float = SCALE) -> float:
    """The greatest difference over the greatest number; infinite for another shape or NaN."""
    if found.shape != expected.shape:
        return np.inf
    scale = max(floor, float(np.abs(expected).max(initial=0)))
    error = float(np.abs(found - expected).max(initial=0)) / scale
    return error if np.isfinite(error) else np.inf
