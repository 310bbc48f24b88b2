"""Sampling between pixels, as in GridSample: derivatives in the image and in the positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from ...jacobians import (
    Array,
    BlockDiagonal,
    Diagonal,
    Jacobian,
    Op,
    Permutation,
    Reshape,
    Shape,
    Take,
    broadcast,
    dtype_of,
    reading,
    shape_of,
    size,
)
from ...jacobians.arrays import like
from ...jacobians.readings import module_of
from ...jacobians.symint import Number, agree, largest
from ..conventions import LINE, ON_LINE, crossed, kinks, marked
from ..indexed import declare_indexed
from ..indices import count_up
from ..node import Node, node_of
from ..numbers import numbers, table
from ..registry import Blocks, Count, jacobian


@dataclass(frozen=True)
class Line:
    """The samples along one axis of length n: neighbours, weights and their slopes, (*Q, taps)."""

    n: Number
    index: Array
    weight: Array
    slope: Array


def sample_line(
    op: Op, at: Array, n: Number, mode: str, reindex: Callable[..., Array] | None = None
) -> Line:
    """Samples at positions `at`; neighbours outside get weight 0, or `reindex` moves them."""
    at = op.Unsqueeze(at, (-1,))
    if mode == "nearest":
        neighbour = op.Round(at)
        w, slope = (op.Expand(np.full((), c, dtype_of(at)), shape_of(at)) for c in (1, 0))
    else:
        offsets = np.arange(1.0 - SUPPORT[mode], 1.0 + SUPPORT[mode])
        neighbour = op.Add(op.Floor(at), offsets.astype(dtype_of(at)))
        w, slope = interpolation_kernel(op, mode, op.Sub(neighbour, at))
    if reindex is None:
        there = op.And(op.GreaterOrEqual(neighbour, 0.0), op.LessOrEqual(neighbour, n - 1))
        w, slope = op.Where(there, w, 0.0), op.Where(there, slope, 0.0)
    else:
        neighbour = reindex(op, neighbour)
    index = op.Clip(op.CastLike(neighbour, np.zeros((), np.int64)), 0, n - 1)
    return Line(n, index, w, op.Neg(slope))


class Samples:
    """Σ over neighbours of weight · row, for rows (R, C): values of shape (*Q, C).

    The rows of all images are concatenated; `start` is the first row of the image of each sample.
    """

    def __init__(self, op: Op, rows: Array, lines: Sequence[Line], start: Array) -> None:
        self.op, self.rows, self.lines = op, rows, lines
        at: Array = op.Unsqueeze(start, (-1,))
        weight: Array = np.ones((), dtype_of(rows))
        for k, along in enumerate(lines):
            step = size(tuple(later.n for later in lines[k + 1 :]))
            at = combine_outer(op, op.Add, at, op.Mul(along.index, step))
            weight = combine_outer(op, op.Mul, weight, along.weight)
        self.index, self.weight = at, weight

    @property
    def shape(self) -> Shape:
        """(*Q, C)."""
        return (*shape_of(self.index)[:-1], shape_of(self.rows)[-1])

    def weighted(self, weight: Array) -> Array:
        """The sums over the neighbours with the given weights."""
        picked = self.op.Gather(self.rows, self.index, axis=0)
        products = self.op.Mul(picked, self.op.Unsqueeze(weight, (-1,)))
        return self.op.ReduceSum(products, (-2,), keepdims=0)

    @property
    def value(self) -> Array:
        return self.weighted(self.weight)

    def in_rows(self) -> Jacobian:
        """∂value/∂rows."""
        dtype = dtype_of(self.rows)
        take = Take(self.index, 0, shape_of(self.rows), dtype)
        scaled = Diagonal(self.op.Unsqueeze(self.weight, (-1,)), take.out_shape) @ take
        kept = (*self.shape[:-1], 1, self.shape[-1])
        total = broadcast(kept, take.out_shape, dtype).T
        return Reshape(self.shape, kept, dtype) @ total @ scaled

    def slope(self, k: int) -> Array:
        """∂value/∂position along axis k, (*Q, C): its slopes times the weights of other axes."""
        factors = [a.slope if j == k else a.weight for j, a in enumerate(self.lines)]
        return self.weighted(reduce(partial(combine_outer, self.op, self.op.Mul), factors))

    def in_positions(self, gains: Sequence[Array], order: Sequence[int]) -> Jacobian:
        """∂value/∂coordinates (*Q, D): coordinate j moves positions along axis order[j]."""
        op = self.op
        columns = [op.Mul(self.slope(k), op.Unsqueeze(gains[k], (-1,))) for k in order]
        return BlockDiagonal(op.Concat(*(op.Unsqueeze(c, (-1,)) for c in columns), axis=-1))


def combine_outer(op: Op, combine: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """The outer `combine`, (*Q, m) and (*Q, n) -> (*Q, m n); b alone if a is a scalar."""
    if not shape_of(a):
        return b
    pairs = combine(op.Unsqueeze(a, (-1,)), op.Unsqueeze(b, (-2,)))
    return op.Reshape(pairs, (*shape_of(pairs)[:-2], size(shape_of(pairs)[-2:])))


Kernel = tuple[Array, Array]
"""φ(u) and φ'(u), where u = neighbour - sample."""

SUPPORT = {"linear": 1, "cubic": 2}
"""The number of neighbours on either side."""


def interpolation_kernel(op: Op, mode: str, u: Array, a: float = -0.75) -> Kernel:
    """The tent of linear interpolation, or Keys' cubic with parameter a."""
    return tent(op, u) if mode == "linear" else cubic(op, u, a)


def tent(op: Op, u: Array) -> Kernel:
    """φ = 1 - |u|; at a kink, the slope for samples just right of a grid point."""
    size, sign = magnitude(op, u)
    near = op.LessOrEqual(size, 1.0)
    return op.Where(near, op.Sub(1.0, size), 0.0), op.Where(near, op.Neg(sign), 0.0)


def cubic(op: Op, u: Array, a: float) -> Kernel:
    """φ = (a+2)|u|³ - (a+3)|u|² + 1 up to |u| = 1, a(|u|³ - 5|u|² + 8|u| - 4) up to 2."""
    size, sign = magnitude(op, u)
    inner = evaluate_polynomial(op, size, a + 2, -(a + 3), 0.0, 1.0)
    outer = evaluate_polynomial(op, size, a, -5 * a, 8 * a, -4 * a)
    (near, near_slope), (far, far_slope) = inner, outer
    first, second = op.LessOrEqual(size, 1.0), op.Less(size, 2.0)
    value = op.Where(first, near, op.Where(second, far, 0.0))
    slope = op.Where(first, near_slope, op.Where(second, far_slope, 0.0))
    return value, op.Mul(sign, slope)


def evaluate_polynomial(op: Op, x: Array, *coefficients: float) -> Kernel:
    """A polynomial and its derivative, by Horner's scheme."""
    value, slope = op.Mul(x, 0.0), op.Mul(x, 0.0)
    for c in coefficients:
        slope = op.Add(op.Mul(slope, x), value)
        value = op.Add(op.Mul(value, x), c)
    return value, slope


def magnitude(op: Op, u: Array) -> tuple[Array, Array]:
    """|u| and its slope, -1 at 0."""
    one = np.ones((), dtype_of(u))
    sign = op.Where(op.Greater(u, 0.0), one, -one)
    return op.Mul(sign, u), sign


MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""The names of the modes in opset 16."""


@jacobian(
    "GridSample",
    mode=("linear", "nearest", "cubic", *MODES),
    padding_mode=("zeros", "border", "reflection"),
)
def grid_sample(op: Op, node: Node) -> Blocks:
    """y = Σ weight(grid) · neighbour in x; grid coordinates begin with the last axis of x."""
    dtype, (samples, gains) = node.dtype, grid_samples(op, node)
    last = channels_last(node.x_shape, dtype)
    points = (node.x_shape[0], *node.y_shape[2:], node.x_shape[1])
    first = channels_last(node.y_shape, dtype).T @ Reshape(points, samples.shape, dtype)
    rows = Reshape(shape_of(samples.rows), last.out_shape, dtype) @ last
    blocks: dict[tuple[int, int], Jacobian] = {(0, 0): first @ samples.in_rows() @ rows}
    if node.wants(1) and node.mode != "nearest":
        order = tuple(reversed(range(len(gains))))
        blocks[0, 1] = first @ samples.in_positions(gains, order)
    return blocks


def grid_samples(op: Op, node: Node) -> tuple[Samples, list[Array]]:
    """The samples (N, *P, C), and ∂position/∂grid along each axis of x."""
    (n, c, *lengths), grid = node.x_shape, node.inputs[1]
    mode, d = MODES.get(node.mode, node.mode), len(node.x_shape) - 2
    if not agree((n, d), (shape_of(grid)[0], shape_of(grid)[-1])):
        raise ValueError(f"a grid {list(shape_of(grid))} does not fit images {list(node.x_shape)}")
    last = op.Transpose(node.x, perm=(0, *range(2, d + 2), 1))
    rows = op.Reshape(last, (n * size(tuple(lengths)), c))
    lines, gains = [], []
    for k, length in enumerate(lengths):
        at, gain = place_coordinate(op, node, op.Gather(grid, d - 1 - k, axis=-1), length)
        reindex = {"zeros": None, "border": lambda op, index: index,
                   "reflection": partial(reindexed, node=node, n=length)}  # fmt: skip
        lines.append(sample_line(op, at, length, mode, reindex[node.padding_mode]))
        gains.append(gain)
    images = op.Reshape(count_up(op, n), (n, *(1,) * (len(shape_of(grid)) - 2)))
    return Samples(op, rows, lines, op.Mul(images, size(tuple(lengths)))), gains


def place_coordinate(op: Op, node: Node, g: Array, n: Number) -> tuple[Array, Array]:
    """The position on an axis of length n of a coordinate in [-1, 1], and its derivative."""
    gain = op.CastLike((n - 1) / 2 if node.align_corners else n / 2, g)
    at = op.Add(op.Mul(g, gain), (n - 1) / 2)
    if node.mode == "nearest":
        at = op.Round(at)
    gain = op.Expand(gain, shape_of(g))
    cubic = MODES.get(node.mode, node.mode) == "cubic"
    if node.padding_mode == "zeros" or (cubic and node.padding_mode == "border"):
        return at, gain
    outside = beyond(op, node, at, n)
    if node.padding_mode == "border":
        return op.Where(outside, op.Clip(at, 0.0, n - 1), at), op.Where(outside, 0.0, gain)
    back, slope = reflected(op, node, at, n)
    return op.Where(outside, back, at), op.Where(outside, op.Mul(gain, slope), gain)


def reindexed(op: Op, index: Array, node: Node, n: Number) -> Array:
    """Neighbour indices, reflected at the borders if they lie outside."""
    back = op.Round(reflected(op, node, index, n)[0])
    return op.Where(beyond(op, node, index, n), back, index)


def beyond(op: Op, node: Node, at: Array, n: Number) -> Array:
    """Whether positions lie beyond the borders: the centres of the outermost pixels, or their
    edges.
    """
    low, high = (0.0, n - 1) if node.align_corners else (-0.5, (2 * n - 1) / 2)
    return op.Or(op.Less(at, low), op.Greater(at, high))


def reflected(op: Op, node: Node, at: Array, n: Number) -> tuple[Array, Array]:
    """The triangular wave between the borders, and its slope ±1."""
    low, length = (0.0, n - 1) if node.align_corners else (-0.5, n)
    turns = op.Mul(op.Sub(at, low), 1 / largest(length, 1))
    rest = op.Sub(turns, op.Mul(op.Round(op.Mul(turns, 0.5)), 2.0))
    return op.Add(op.Mul(op.Abs(rest), length), low), op.Sign(rest)


def channels_last(shape: Shape, dtype: np.dtype) -> Permutation:
    """(N, C, *S) -> (N, *S, C)."""
    return Permutation((0, *range(2, len(shape)), 1), shape, dtype)


declare_indexed(
    "AffineGrid",
    "y[n, p, i] = sum(base[p, j]*theta[n, i, j], j)",
    inputs=("theta",),
    grows=True,
    numbers=lambda op, node: {
        "base": base_grid(op, node.y_shape[1:-1], bool(node.align_corners), node.dtype)
    },
)


def base_grid(op: Op, lengths: Shape, align_corners: bool, dtype: np.dtype) -> Array:
    """The homogeneous coordinates of all points, last axis first: (points, D + 1).

    >>> from onnxjac.ops.numbers import numbers
    >>> base_grid(numbers, (1, 2), False, np.float64).tolist()
    [[-0.5, 0.0, 1.0], [0.5, 0.0, 1.0]]
    """
    along = [
        op.Reshape(grid_coordinates(op, n, align_corners), (-1, *(1,) * (len(lengths) - 1 - k), 1))
        for k, n in enumerate(lengths)
    ]
    columns = [op.Expand(c, (*lengths, 1)) for c in (*along[::-1], np.ones(1))]
    base = op.Reshape(op.Concat(*columns, axis=-1), (size(lengths), len(columns)))
    return op.CastLike(base, np.zeros((), dtype))


def grid_coordinates(op: Op, n: Number, align_corners: bool) -> Array:
    """n points of [-1, 1]: from end to end, or the centres of n equal parts."""
    j = op.CastLike(count_up(op, n), np.zeros(()))
    if align_corners:
        return op.Sub(op.Div(op.Mul(j, 2.0), largest(n - 1, 1)), 1.0)
    return op.Sub(op.Div(op.Add(op.Mul(j, 2.0), 1.0), n), 1.0)


@table.kernel("GridSample", tensors=True)
def grid_sampled(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:  # fmt: skip
    """Weighted sums of the neighbours of each point of the grid."""
    grid = table.as_type(grid, dtype_of(x))
    how = {"align_corners": align_corners, "mode": mode, "padding_mode": padding_mode}
    samples, _ = grid_samples(reading(x), node_of("GridSample", (x, grid), how))
    return module_of(x).moveaxis(samples.value, -1, 1)


@table.kernel("AffineGrid", tensors=True, hosted=True)
def affine_gridded(theta: Array, size: Array, *, align_corners: int = 0) -> Array:
    """θ applied to the coordinates of every point."""
    lengths = table.as_ints(size)[2:]
    base = base_grid(reading(theta), lengths, bool(align_corners), dtype_of(theta))
    points = module_of(theta).matmul(like(base, theta), theta.swapaxes(1, 2))
    return points.reshape(len(theta), *lengths, len(lengths))


@kinks("GridSample", where=ON_LINE, given=LINE, moves=(1,))
def points_on_lines(node: Node) -> Count:
    """Points of a grid; outside the image, a reflection has lines everywhere."""
    grid = np.asarray(node.inputs[1])
    if not node.wants(1) or MODES.get(node.mode, node.mode) != "linear":
        return 0, int(np.prod(grid.shape[:-1]))
    step = replace(node.step, attrs={**node.step.attrs, "padding_mode": "zeros"})
    axes = []
    for k, n in enumerate(node.x_shape[2:]):
        at, _ = place_coordinate(numbers, Node(step, node.inputs, ()), grid[..., -1 - k], n)
        reach = {"zeros": (-1.0, n), "border": (0.0, n - 1), "reflection": (-np.inf, np.inf)}
        if n > 1 or not node.align_corners:  # else the whole axis is one point
            axes.append((at, *reach[node.padding_mode]))
    return marked(crossed(axes, inside=node.padding_mode == "zeros"))
