"""Differences: the slope of a model along a line, from its values alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..model import Model
from ..names import is_float

Tensors = dict[str, np.ndarray]

STEPS = (1e-4, 1e-6, 1e-3, 1e-7, 1.0)
"""For a smooth operator, near a kink, for a rough one, at a kink, for one that is linear."""

SINGLE = (1e-2, 1.0, 1e-1, 1e-3)
"""For what computes in single precision."""

SCALE = 1e-2
"""Derivatives that are smaller are as good as right where they are this far off, relatively."""


def slope_error(
    run: Callable[[Mapping[str, Any]], Tensors],
    point: Mapping[str, Any],
    direction: Tensors,
    pushed: Tensors,
    steps: tuple[float, ...],
    enough: float,
) -> float:
    """How far J · direction is from the slope, at the step where it is nearest."""
    best = np.inf
    for h in steps:
        slopes = central(run, point, direction, h)
        best = min(best, max(mismatch(dy, slopes[name]) for name, dy in pushed.items()))
        if best <= enough:
            break
    return best


def central(
    run: Callable[[Mapping[str, Any]], Tensors],
    point: Mapping[str, Any],
    direction: Tensors,
    h: float,
) -> Tensors:
    """(8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h: the slope up to h⁴."""
    a, b, c, d = (
        run({k: x + t * direction[k] if k in direction else x for k, x in point.items()})
        for t in (h, -h, 2 * h, -2 * h)
    )
    floats = [name for name, y in a.items() if is_float(y.dtype)]
    return {k: (8 * (a[k] - b[k]) - (c[k] - d[k])) / (12 * h) for k in floats}


def mismatch(found: np.ndarray, expected: np.ndarray) -> float:
    """The greatest difference over the greatest number, infinite for another shape or NaN."""
    if found.shape != expected.shape:
        return np.inf
    scale = max(SCALE, float(np.abs(expected).max(initial=0)))
    error = float(np.abs(found - expected).max(initial=0)) / scale
    return error if np.isfinite(error) else np.inf


def steps_for(model: Model) -> tuple[tuple[float, ...], float]:
    """The steps to try and the error that passes: coarse where single precision is met inside."""
    specs = {**model.inputs, **model.intermediates, **model.outputs}.values()
    narrow = any(s.dtype is not None and is_float(s.dtype) and s.dtype.itemsize < 8 for s in specs)
    return (SINGLE, 2e-3) if narrow else (STEPS, 1e-6)
