"""Resampling: the positions of a resized axis's entries on the axis of x, and their neighbours."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...jacobians import Array, dtype_of
from ...jacobians.symint import if_negative, largest
from ..node import Node
from .indexing import counted
from .interpolation import SUPPORT, kernel

Slopes = dict[str, Array]
"""Derivatives in the parameters of the positions: `scale`, and the region's `start` and `end`."""

Weights = tuple[Array, Array, Slopes]
"""Neighbours and their weights, both (m, taps), and the slopes of the weights."""


class Axis(Protocol):
    """A resized axis: from n entries to m, by a factor `scale`."""

    node: Node
    n: int
    m: int
    scale: Array
    index: Array
    weight: Array | None
    slopes: Slopes

    def roi(self, op: Any, part: int) -> Array:
        """The start (0) or the end (1) of the region."""


TRANSFORMS = {
    "half_pixel": (0.5, -0.5),
    "half_pixel_symmetric": (0.5, -0.5),
    "pytorch_half_pixel": (0.5, -0.5),
    "tf_half_pixel_for_nn": (0.5, 0.0),
    "asymmetric": (0.0, 0.0),
    "align_corners": (0.0, 0.0),
    "tf_crop_and_resize": (0.0, 0.0),
}
"""(a, b) in the position (j + a) / scale + b of entry j; half_pixel_symmetric replaces them, and
the last two modes have their own formulas.
"""

ROUNDED = {
    "round_prefer_floor": lambda op, at: op.Ceil(op.Sub(at, 0.5)),
    "round_prefer_ceil": lambda op, at: op.Floor(op.Add(at, 0.5)),
    "floor": lambda op, at: op.Floor(at),
    "ceil": lambda op, at: op.Ceil(at),
}


def positions(op: Any, axis: Axis) -> tuple[Array, Slopes]:
    """The position of each entry of y on the axis of x, and its derivatives in the parameters."""
    mode, n, m = axis.node.coordinate_transformation_mode, axis.n, axis.m
    crops = mode == "tf_crop_and_resize"
    j = op.CastLike(counted(op, m), axis.roi(op, 0) if crops else axis.scale)
    single = if_negative(m - 2, 1, 0)
    if mode == "align_corners":
        return op.Mul(op.Div(j, largest(m - 1, 1)), n - 1), {}
    if crops:
        t = op.Div(op.Add(j, 0.5 * single), largest(m - 1, 1))
        slopes = {"start": op.Mul(op.Sub(1.0, t), n - 1), "end": op.Mul(t, n - 1)}
        ends = op.Mul(slopes["start"], axis.roi(op, 0)), op.Mul(slopes["end"], axis.roi(op, 1))
        return op.Add(*ends), slopes
    first, shift = TRANSFORMS[mode]
    if mode == "half_pixel_symmetric":  # the centres of x and y coincide
        first, shift = (1 - m) / 2, (n - 1) / 2
    ratio = op.Div(op.Add(j, first), axis.scale)
    at, slope = op.Add(ratio, shift), op.Neg(op.Div(ratio, axis.scale))
    if mode == "pytorch_half_pixel":  # a single entry lies at the start
        at, slope = (op.Mul(x, 1 - single) for x in (at, slope))
    return at, {"scale": slope}


def nearest(op: Any, node: Node, at: Array, n: int) -> Array:
    """The nearest neighbour, which each entry copies."""
    rounded = ROUNDED[node.nearest_mode](op, at)
    return op.Clip(op.CastLike(rounded, np.zeros((), np.int64)), 0, n - 1)


def weights(op: Any, axis: Axis, at: Array, slopes: Slopes) -> Weights:
    """Neighbours, their weights, and the derivatives of the weights in the parameters.

    w = φ(s (neighbour - at)) with s = min(scale, 1) if antialiased, else 1.
    """
    node, n = axis.node, axis.n
    spread = largest(-(-n // largest(axis.m, 1)), 1) if node.antialias else 1
    reach = SUPPORT[node.mode] * spread
    below = op.Reshape(op.Floor(at), (-1, 1))
    taps = op.Sub(counted(op, 2 * reach), reach - 1)
    neighbour = op.Add(below, op.CastLike(taps, at))
    distance, squeeze = op.Sub(neighbour, op.Reshape(at, (-1, 1))), squeezing(op, axis)
    w, slope = kernel(op, node.mode, op.Mul(distance, squeeze), node.cubic_coeff_a)
    resting = {"scale": op.Mul(at, 0.0)} if node.antialias else {}
    columns = {name: op.Reshape(d, (-1, 1)) for name, d in (resting | slopes).items()}
    moved = {name: op.Neg(op.Mul(op.Mul(slope, squeeze), d)) for name, d in columns.items()}
    if node.antialias:
        shrinks = op.CastLike(op.Less(axis.scale, 1.0), at)
        moved["scale"] = op.Add(moved["scale"], op.Mul(op.Mul(slope, distance), shrinks))
    index = op.CastLike(neighbour, np.zeros((), np.int64))
    if node.exclude_outside:
        there = op.And(op.GreaterOrEqual(index, 0), op.Less(index, n))
        w, moved = (op.Where(there, w, 0.0), {k: op.Where(there, d, 0.0) for k, d in moved.items()})
    if node.exclude_outside or node.antialias:
        w, moved = normalized(op, w, moved)
    return op.Clip(index, 0, n - 1), w, moved


def squeezing(op: Any, axis: Axis) -> Array:
    """The factor of the kernel's argument: min(scale, 1) widens it if antialiased, else 1."""
    one = np.ones((), dtype_of(axis.scale))
    return op.Min(axis.scale, one) if axis.node.antialias else one


def normalized(op: Any, w: Array, slopes: Slopes) -> tuple[Array, Slopes]:
    """Weights that add up to 1, w / Σw, and their derivatives."""
    total = op.ReduceSum(w, (-1,), keepdims=1)
    w = op.Div(w, total)
    corrected = {
        name: op.Div(op.Sub(d, op.Mul(w, op.ReduceSum(d, (-1,), keepdims=1))), total)
        for name, d in slopes.items()
    }
    return w, corrected


def inside(op: Any, axis: Axis, at: Array) -> Weights:
    """Weights that are zero outside of x, where y is the extrapolation value, a constant."""
    out = op.Or(op.Less(at, 0.0), op.Greater(at, axis.n - 1))
    keep = op.Reshape(op.CastLike(op.Not(out), at), (-1, 1))
    if axis.weight is None:
        return op.Reshape(axis.index, (-1, 1)), keep, {}
    slopes = {name: op.Mul(d, keep) for name, d in axis.slopes.items()}
    return axis.index, op.Mul(axis.weight, keep), slopes
