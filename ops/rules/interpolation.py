"""Interpolation: the weights of a sample's neighbours as functions of their distance."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Array, dtype_of

Kernel = tuple[Array, Array]
"""φ(u) and φ'(u), where u = neighbour - sample."""

SUPPORT = {"linear": 1, "cubic": 2}
"""The number of neighbours on either side."""


def kernel(op: Any, mode: str, u: Array, a: float = -0.75) -> Kernel:
    """The tent of linear interpolation, or Keys' cubic with parameter a."""
    return tent(op, u) if mode == "linear" else cubic(op, u, a)


def tent(op: Any, u: Array) -> Kernel:
    """φ = 1 - |u|; at a kink, the slope for samples just right of a grid point."""
    size, sign = magnitude(op, u)
    near = op.LessOrEqual(size, 1.0)
    return op.Where(near, op.Sub(1.0, size), 0.0), op.Where(near, op.Neg(sign), 0.0)


def cubic(op: Any, u: Array, a: float) -> Kernel:
    """φ = (a+2)|u|³ - (a+3)|u|² + 1 up to |u| = 1, a(|u|³ - 5|u|² + 8|u| - 4) up to 2."""
    size, sign = magnitude(op, u)
    inner = polynomial(op, size, a + 2, -(a + 3), 0.0, 1.0)
    outer = polynomial(op, size, a, -5 * a, 8 * a, -4 * a)
    (near, near_slope), (far, far_slope) = inner, outer
    first, second = op.LessOrEqual(size, 1.0), op.Less(size, 2.0)
    value = op.Where(first, near, op.Where(second, far, 0.0))
    slope = op.Where(first, near_slope, op.Where(second, far_slope, 0.0))
    return value, op.Mul(sign, slope)


def polynomial(op: Any, x: Array, *coefficients: float) -> Kernel:
    """A polynomial and its derivative, by Horner's scheme."""
    value, slope = op.Mul(x, 0.0), op.Mul(x, 0.0)
    for c in coefficients:
        slope = op.Add(op.Mul(slope, x), value)
        value = op.Add(op.Mul(value, x), c)
    return value, slope


def magnitude(op: Any, u: Array) -> tuple[Array, Array]:
    """|u| and its slope, -1 at 0."""
    one = np.ones((), dtype_of(u))
    sign = op.Where(op.Greater(u, 0.0), one, -one)
    return op.Mul(sign, u), sign
