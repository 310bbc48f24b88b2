"""Differences: the slope of a model along a line, from its values alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..model.primal.inputs import is_float
from ..model.primal.model import Model

Tensors = dict[str, np.ndarray]
Run = Callable[[dict[str, Any]], Tensors]

STEPS = (1e-4, 1e-6, 1e-3, 1e-7, 1.0)
"""For a smooth operator, near a kink, for a rough operator, at a kink, for a linear operator."""

SINGLE = (1e-2, 1.0, 1e-1, 1e-3)
"""For operators that compute in single precision."""

SCALE = 1e-2
"""The error of a smaller derivative is relative to this."""


def slope_error(
    run: Run, point: Mapping[str, Any], direction: Tensors, pushed: Tensors,
    steps: tuple[float, ...], enough: float,
) -> float:  # fmt: skip
    """The error of `pushed`, J · direction, against the slope at the best of some steps."""
    best = np.inf
    for h in steps:
        slopes = central(run, point, direction, h)
        best = min(best, max(mismatch(dy, slopes[name]) for name, dy in pushed.items()))
        if best <= enough:
            break
    return best


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


def is_single(model: Model) -> bool:
    """Whether a model in double precision has single precision inside."""
    specs = {**model.inputs, **model.intermediates, **model.outputs}.values()
    return any(s.dtype is not None and is_float(s.dtype) and s.dtype.itemsize < 8 for s in specs)
