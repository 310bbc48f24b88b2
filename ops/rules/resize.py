"""Resize: along every axis, each entry of y is a weighted sum of neighbours in x.

Sample positions depend on `scales` and `roi`, so that y has derivatives in them too: zero in mode
`nearest`, since the choice of the neighbour is piecewise constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Identity,
    Jacobian,
    Op,
    Reshape,
    Shape,
    Take,
    broadcast,
    dtype_of,
    reading,
    shape_of,
)
from ...jacobians.arrays import host, zeros
from ...jacobians.symint import if_negative, largest, same
from ..conventions import LINE, ON_LINE, kinks
from ..indices import count_up
from ..node import Node, node_of
from ..numbers import numbers, table
from ..registry import Blocks, Count, jacobian
from .sampling import SUPPORT, interpolation_kernel

ROI, SCALES = 1, 2

Slopes = dict[str, Array]
"""Derivatives in the parameters of the positions: `scale`, and the region's `start` and `end`."""

Weights = tuple[Array, Array, Slopes]
"""Neighbours and their weights, both (m, taps), and the slopes of the weights."""

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


@jacobian(
    "Resize",
    coordinate_transformation_mode=tuple(TRANSFORMS),
    keep_aspect_ratio_policy=("stretch", "not_larger", "not_smaller"),
    mode=("nearest", *SUPPORT),
    nearest_mode=tuple(ROUNDED),
    grows=True,
)
def resize(op: Op, node: Node) -> Blocks:
    """∂y/∂x is the product of one interpolation per axis."""
    axes = [AxisOfResize(op, node, k) for k in range(len(resized_axes(node)))]
    moved = [a for a in axes if not a.stays]
    blocks: dict[tuple[int, int], Jacobian] = {(0, 0): interpolation(op, node, moved)}
    for i in (ROI, SCALES):
        given = node.input(i)
        if given is not None and shape_of(given)[0] and node.wants(i):
            blocks |= parameter_block(op, node, i, moved)
    return blocks


def interpolation(
    op: Op, node: Node, axes: list[AxisOfResize], slope: tuple[AxisOfResize, str] | None = None
) -> Jacobian:
    """The product over the axes; for `slope` = (axis, name), with the slope of that weight."""
    J: Jacobian = Identity(node.x_shape, node.dtype)
    for axis in axes:
        weight = axis.slopes[slope[1]] if slope and slope[0] is axis else axis.weight
        J = axis.operator(op, J.out_shape, weight) @ J
    return J


def parameter_block(op: Op, node: Node, i: int, axes: list[AxisOfResize]) -> Blocks:
    """∂y/∂parameter: a column for each entry that positions an axis; the other columns are zero."""
    columns: dict[int, Array] = {}
    for axis in axes:
        for place, name in axis.parameters(i):
            columns[place] = interpolation(op, node, axes, (axis, name))._apply(op, node.x)
    (n,) = shape_of(node.inputs[i])
    terms = [
        Diagonal(column, node.y_shape)
        @ broadcast((1,), node.y_shape, node.dtype)
        @ Take(np.array([place]), 0, (n,), node.dtype)
        for place, column in columns.items()
    ]
    return {(0, i): reduce(add, terms)} if terms else {}


class AxisOfResize:
    """The interpolation along the k-th resized axis: `index` and `weight`, both (m, taps)."""

    def __init__(self, op: Op, node: Node, k: int) -> None:
        self.node, self.k, self.count = node, k, len(resized_axes(node))
        self.axis = resized_axes(node)[k]
        self.n, self.m = node.x_shape[self.axis], node.y_shape[self.axis]
        self.scale = scale_of(op, node, k)
        crops = node.coordinate_transformation_mode == "tf_crop_and_resize"
        self.stays = not crops and same(self.n, self.m) and fixed_scale(op, node, k) == 1
        if not self.stays:
            self.locate(op, crops)

    def locate(self, op: Op, crops: bool) -> None:
        """Finds neighbours, weights, and the derivatives of the weights in their parameters."""
        at, slopes = entry_positions(op, self)
        self.weight: Array | None = None
        self.slopes: dict[str, Array] = {}
        if self.node.mode == "nearest":
            self.index = nearest(op, self.node, at, self.n)
        else:
            self.index, self.weight, self.slopes = weights(op, self, at, slopes)
        if crops:
            self.index, self.weight, self.slopes = mask_outside(op, self, at)

    def parameters(self, i: int) -> Iterator[tuple[int, str]]:
        """(index in input i, name) of the parameters that position this axis."""
        names = {SCALES: ("scale",), ROI: ("start", "end")}[i]
        yield from ((self.k + p * self.count, n) for p, n in enumerate(names) if n in self.slopes)

    def roi(self, op: Op, part: int) -> Array:
        """The start (0) or the end (1) of the region on this axis."""
        return op.Gather(self.node.inputs[ROI], self.k + part * self.count, axis=0)

    def outside(self, rank: int) -> np.ndarray:
        """A mask of the entries of y outside of x, for tensors of that rank; NumPy only."""
        if self.node.coordinate_transformation_mode != "tf_crop_and_resize":
            return np.zeros((), bool)
        beyond = np.asarray(self.weight == 0).all(axis=1)
        return beyond.reshape(-1, *(1,) * (rank - 1 - self.axis))

    def operator(self, op: Op, shape: Shape, weight: Array | None) -> Jacobian:
        """Σ over the taps · diag(weights) · take."""
        dtype, after = self.node.dtype, (1,) * (len(shape) - 1 - self.axis)
        J: Jacobian = Take(self.index, self.axis, shape, dtype)
        if weight is None:
            return J
        weight = op.CastLike(weight, np.zeros((), dtype))
        J = Diagonal(op.Reshape(weight, (*shape_of(weight), *after)), J.out_shape) @ J
        summed = (*shape[: self.axis], self.m, 1, *shape[self.axis + 1 :])
        done = (*shape[: self.axis], self.m, *shape[self.axis + 1 :])
        return Reshape(done, summed, dtype) @ broadcast(summed, J.out_shape, dtype).T @ J


def resized_axes(node: Node) -> tuple[int, ...]:
    """The axes that scales, sizes and roi refer to."""
    rank = len(node.x_shape)
    return tuple(range(rank)) if node.axes is None else tuple(a % rank for a in node.axes)


def scale_of(op: Op, node: Node, k: int) -> Array:
    """The factor of the k-th resized axis; computed from sizes as in ONNX Runtime."""
    given = node.input(SCALES)
    if given is not None and shape_of(given)[0]:
        return op.Gather(given, k, axis=0)
    precision = np.zeros((), np.float64 if dtype_of(node.x) == np.float64 else np.float32)
    lengths = (node.x_shape[a] for a in resized_axes(node))
    ratios = [np.ones_like(precision) if same(m, n)
              else op.Div(op.CastLike(m, precision), op.CastLike(n, precision))
              for m, n in zip(node.ints(3) or (), lengths, strict=True)]  # fmt: skip
    choose = {"not_larger": op.Min, "not_smaller": op.Max}.get(node.keep_aspect_ratio_policy)
    return choose(*ratios) if choose else ratios[k]


def fixed_scale(op: Op, node: Node, k: int) -> float | None:
    """The factor of the k-th resized axis if it is the same at every point, else None."""
    given: Any = node.input(SCALES)
    by_sizes = given is None or not shape_of(given)[0]
    scale = scale_of(op, node, k) if by_sizes else given
    held = getattr(scale, "const_value", scale)
    return None if held is None else float(np.asarray(held).ravel()[0 if by_sizes else k])


def entry_positions(op: Op, axis: AxisOfResize) -> tuple[Array, Slopes]:
    """The position of each entry of y on the axis of x, and its derivatives in the parameters."""
    mode, n, m = axis.node.coordinate_transformation_mode, axis.n, axis.m
    crops = mode == "tf_crop_and_resize"
    j = op.CastLike(count_up(op, m), axis.roi(op, 0) if crops else axis.scale)
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


def nearest(op: Op, node: Node, at: Array, n: int) -> Array:
    """The nearest neighbour, which each entry copies."""
    rounded = ROUNDED[node.nearest_mode](op, at)
    return op.Clip(op.CastLike(rounded, np.zeros((), np.int64)), 0, n - 1)


def weights(op: Op, axis: AxisOfResize, at: Array, slopes: Slopes) -> Weights:
    """Neighbours, their weights, and the derivatives of the weights in the parameters.

    w = φ(s (neighbour - at)) with s = min(scale, 1) if antialiased, else 1.
    """
    node, n = axis.node, axis.n
    spread = largest(-(-n // largest(axis.m, 1)), 1) if node.antialias else 1
    reach = SUPPORT[node.mode] * spread
    below = op.Reshape(op.Floor(at), (-1, 1))
    taps = op.Sub(count_up(op, 2 * reach), reach - 1)
    neighbour = op.Add(below, op.CastLike(taps, at))
    distance, squeeze = op.Sub(neighbour, op.Reshape(at, (-1, 1))), squeezing(op, axis)
    w, slope = interpolation_kernel(op, node.mode, op.Mul(distance, squeeze), node.cubic_coeff_a)
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
    if node.exclude_outside or node.antialias:  # weights that add up to 1
        total = op.ReduceSum(w, (-1,), keepdims=1)
        w = op.Div(w, total)
        moved = {k: op.Div(op.Sub(d, op.Mul(w, op.ReduceSum(d, (-1,), keepdims=1))), total)
                 for k, d in moved.items()}  # fmt: skip
    return op.Clip(index, 0, n - 1), w, moved


def squeezing(op: Op, axis: AxisOfResize) -> Array:
    """The factor of the kernel's argument: min(scale, 1) widens it if antialiased, else 1."""
    one = np.ones((), dtype_of(axis.scale))
    return op.Min(axis.scale, one) if axis.node.antialias else one


def mask_outside(op: Op, axis: AxisOfResize, at: Array) -> Weights:
    """Weights that are zero outside of x, where y is the extrapolation value, a constant."""
    out = op.Or(op.Less(at, 0.0), op.Greater(at, axis.n - 1))
    keep = op.Reshape(op.CastLike(op.Not(out), at), (-1, 1))
    if axis.weight is None:
        return op.Reshape(axis.index, (-1, 1)), keep, {}
    slopes = {name: op.Mul(d, keep) for name, d in axis.slopes.items()}
    return axis.index, op.Mul(axis.weight, keep), slopes


@table.kernel("Resize", tensors=True, hosted=True)
def resized(
    x: Array, roi: Array | None = None, scales: Array | None = None,
    sizes: Array | None = None, *, antialias: int = 0,
    axes: Sequence[int] | None = None, coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:  # fmt: skip
    """Weighted sums of neighbours along each axis."""
    attributes = {
        "antialias": antialias, "axes": axes, "cubic_coeff_a": cubic_coeff_a, "mode": mode,
        "coordinate_transformation_mode": coordinate_transformation_mode,
        "exclude_outside": exclude_outside, "nearest_mode": nearest_mode,
        "keep_aspect_ratio_policy": keep_aspect_ratio_policy,
    }  # fmt: skip
    op, dtype = reading(x), dtype_of(x)
    floating = x if dtype.kind == "f" else op.cast(x, np.dtype(np.float64))
    others = (None if a is None else host(a) for a in (roi, scales, sizes))
    y, outside = interpolated(node_of("Resize", (floating, *others), attributes))
    if outside.any():
        y = op.Where(outside, np.asarray(extrapolation_value, dtype_of(y)), y)
    if dtype_of(y) == dtype:
        return y
    limits = np.iinfo(dtype)
    return op.cast(op.Clip(op.Round(y), float(limits.min), float(limits.max)), dtype)


def interpolated(node: Node) -> tuple[Array, Array]:
    """The interpolated x, and a mask of the entries that lie outside of x."""
    y, outside, op = node.inputs[0], np.zeros((), bool), reading(node.inputs[0])
    assert y is not None
    made = zeros(resized_shape(op, node), dtype_of(y))
    node = Node(node.step, node.inputs, (made,))
    for k in range(len(resized_axes(node))):
        axis = AxisOfResize(op, node, k)
        if not axis.stays:
            y = axis.operator(op, y.shape, axis.weight)._apply(op, y)
            outside = outside | axis.outside(y.ndim)
    return y, outside


def resized_shape(op: Op, node: Node) -> tuple[int, ...]:
    """The shape of the result: from sizes, or ⌊n · scale⌋."""
    axes, shape = resized_axes(node), list(node.x_shape)
    crops = node.coordinate_transformation_mode == "tf_crop_and_resize"
    sizes = node.ints(3)
    roi: Array = node.inputs[ROI] if crops else ()
    for k, axis in enumerate(axes):
        scale: Array = fixed_scale(op, node, k)
        if sizes and node.keep_aspect_ratio_policy == "stretch":
            shape[axis] = sizes[k]
        elif sizes:
            shape[axis] = int(np.floor(scale * shape[axis] + 0.5))
        else:
            extent = roi[k + len(axes)] - roi[k] if crops else 1
            shape[axis] = int(np.floor(shape[axis] * extent * scale))
    return tuple(shape)


@kinks("Resize", where=f"in scales and roi, {ON_LINE}", given=LINE, moves=(SCALES, ROI))
def entries_on_lines(node: Node) -> Count:
    """Places along the axes that are resized."""
    axes = (AxisOfResize(numbers, node, k) for k in range(len(resized_axes(node))))
    found = [bends(node, axis) for axis in axes if not axis.stays]
    return sum(int(f.sum()) for f in found), sum(f.size for f in found)


def bends(node: Node, axis: AxisOfResize) -> np.ndarray:
    """Which places have a neighbour whose weight bends as a parameter moves.

    The weight is a function of u = (neighbour - place) · squeeze, and bends where |u| is 0 or 1.
    """
    names = {n for i in (ROI, SCALES) if node.wants(i) for _, n in axis.parameters(i)}
    if not names or node.mode != "linear":
        return np.zeros(axis.m, bool)
    at, slopes = entry_positions(numbers, axis)
    squeeze = squeezing(numbers, axis)
    reach = int(np.ceil(SUPPORT["linear"] / squeeze))
    distance = np.floor(at)[:, None] + np.arange(-reach, reach + 1) - at[:, None]
    widens = distance if squeeze < 1 else 0.0
    moves = [np.reshape(slopes.get(name, np.zeros(axis.m)), (-1, 1)) * -squeeze
             + (widens if name == "scale" else 0.0) for name in sorted(names)]  # fmt: skip
    bent = np.isin(np.abs(distance * squeeze), (0.0, 1.0)) & np.any(np.not_equal(moves, 0), axis=0)
    return bent.any(axis=1) & (at >= 0) & (at <= axis.n - 1)
