"""GridSample and AffineGrid: images sampled at a grid of points."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Eye,
    Jacobian,
    Permutation,
    Reshape,
    Shape,
    implicit_kron,
    reading,
    shape_of,
    size,
)
from ...jacobians.symint import Number, agree, largest
from ..conventions import LINE, ON_LINE, crossed, kinks, marked
from ..node import Node, node_of
from ..numbers import numbers, table
from ..registry import Blocks, Count, jacobian
from .indexing import counted
from .sampling import Samples, line

MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""The names of the modes in opset 16."""


@jacobian(
    "GridSample",
    mode=("linear", "nearest", "cubic", *MODES),
    padding_mode=("zeros", "border", "reflection"),
)
def grid_sample(op: Any, node: Node) -> Blocks:
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


def grid_samples(op: Any, node: Node) -> tuple[Samples, list[Array]]:
    """The samples (N, *P, C), and ∂position/∂grid along each axis of x."""
    (n, c, *lengths), grid = node.x_shape, node.inputs[1]
    mode, d = MODES.get(node.mode, node.mode), len(node.x_shape) - 2
    if not agree((n, d), (shape_of(grid)[0], shape_of(grid)[-1])):
        raise ValueError(f"a grid {list(shape_of(grid))} does not fit images {list(node.x_shape)}")
    last = op.Transpose(node.x, perm=(0, *range(2, d + 2), 1))
    rows = op.Reshape(last, (n * size(tuple(lengths)), c))
    lines, gains = [], []
    for k, length in enumerate(lengths):
        at, gain = placed(op, node, op.Gather(grid, d - 1 - k, axis=-1), length)
        reindex = {"zeros": None, "border": lambda op, index: index,
                   "reflection": partial(reindexed, node=node, n=length)}  # fmt: skip
        lines.append(line(op, at, length, mode, reindex[node.padding_mode]))
        gains.append(gain)
    images = op.Reshape(counted(op, n), (n, *(1,) * (len(shape_of(grid)) - 2)))
    return Samples(op, rows, lines, op.Mul(images, size(tuple(lengths)))), gains


def placed(op: Any, node: Node, g: Array, n: Number) -> tuple[Array, Array]:
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


def reindexed(op: Any, index: Array, node: Node, n: Number) -> Array:
    """Neighbour indices, reflected at the borders if they lie outside."""
    back = op.Round(reflected(op, node, index, n)[0])
    return op.Where(beyond(op, node, index, n), back, index)


def beyond(op: Any, node: Node, at: Array, n: Number) -> Array:
    """Whether positions lie beyond the borders: the centres of the outermost pixels, or their
    edges.
    """
    low, high = (0.0, n - 1) if node.align_corners else (-0.5, (2 * n - 1) / 2)
    return op.Or(op.Less(at, low), op.Greater(at, high))


def reflected(op: Any, node: Node, at: Array, n: Number) -> tuple[Array, Array]:
    """The triangular wave between the borders, and its slope ±1."""
    low, length = (0.0, n - 1) if node.align_corners else (-0.5, n)
    turns = op.Mul(op.Sub(at, low), 1 / largest(length, 1))
    rest = op.Sub(turns, op.Mul(op.Round(op.Mul(turns, 0.5)), 2.0))
    return op.Add(op.Mul(op.Abs(rest), length), low), op.Sign(rest)


def channels_last(shape: Shape, dtype: Any) -> Permutation:
    """(N, C, *S) -> (N, *S, C)."""
    return Permutation((0, *range(2, len(shape)), 1), shape, dtype)


@jacobian("AffineGrid", grows=True)
def affine_grid(op: Any, node: Node) -> Blocks:
    """y[n, p] = θ[n] (coordinates of p, 1): linear in θ."""
    base = base_grid(op, node.y_shape[1:-1], bool(node.align_corners), node.dtype)
    n, d = node.x_shape[:2]
    turned = Permutation((0, 2, 1), node.x_shape, node.dtype)
    J = implicit_kron(base, Eye(d), (n,)) @ turned
    return {(0, 0): Reshape(node.y_shape, J.out_shape, node.dtype) @ J}


def base_grid(op: Any, lengths: Shape, align_corners: bool, dtype: Any) -> Array:
    """The homogeneous coordinates of all points, last axis first: (points, D + 1).

    >>> from onnxjac.ops.numbers import numbers
    >>> base_grid(numbers, (1, 2), False, np.float64).tolist()
    [[-0.5, 0.0, 1.0], [0.5, 0.0, 1.0]]
    """
    along = [
        op.Reshape(coordinates(op, n, align_corners), (-1, *(1,) * (len(lengths) - 1 - k), 1))
        for k, n in enumerate(lengths)
    ]
    columns = [op.Expand(c, (*lengths, 1)) for c in (*along[::-1], np.ones(1))]
    base = op.Reshape(op.Concat(*columns, axis=-1), (size(lengths), len(columns)))
    return op.CastLike(base, np.zeros((), dtype))


def coordinates(op: Any, n: Number, align_corners: bool) -> Array:
    """n points of [-1, 1]: from end to end, or the centres of n equal parts."""
    j = op.CastLike(counted(op, n), np.zeros(()))
    if align_corners:
        return op.Sub(op.Div(op.Mul(j, 2.0), largest(n - 1, 1)), 1.0)
    return op.Sub(op.Div(op.Add(op.Mul(j, 2.0), 1.0), n), 1.0)


@table.kernel("GridSample")
def grid_sampled(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:  # fmt: skip
    """Weighted sums of the neighbours of each point of the grid."""
    grid = grid.astype(x.dtype, copy=False)
    how = {"align_corners": align_corners, "mode": mode, "padding_mode": padding_mode}
    samples, _ = grid_samples(reading(x), node_of("GridSample", (x, grid), how))
    return np.moveaxis(samples.value, -1, 1)


@table.kernel("AffineGrid")
def affine_gridded(theta: Array, size: Any, *, align_corners: int = 0) -> Array:
    """θ applied to the coordinates of every point."""
    lengths = table.ints(size)[2:]
    base = base_grid(reading(theta), lengths, bool(align_corners), theta.dtype)
    return (base @ theta.swapaxes(1, 2)).reshape(len(theta), *lengths, len(lengths))


@kinks("GridSample", where=ON_LINE, given=LINE, moves=(1,))
def points_on_lines(node: Node) -> Count:
    """Points of a grid; outside the image, a reflection has lines everywhere."""
    grid = np.asarray(node.inputs[1])
    if not node.wants(1) or MODES.get(node.mode, node.mode) != "linear":
        return 0, int(np.prod(grid.shape[:-1]))
    step = replace(node.step, attrs={**node.step.attrs, "padding_mode": "zeros"})
    axes = []
    for k, n in enumerate(node.x_shape[2:]):
        at, _ = placed(numbers, Node(step, node.inputs, ()), grid[..., -1 - k], n)
        reach = {"zeros": (-1.0, n), "border": (0.0, n - 1), "reflection": (-np.inf, np.inf)}
        if n > 1 or not node.align_corners:  # else the whole axis is one point
            axes.append((at, *reach[node.padding_mode]))
    return marked(crossed(axes, inside=node.padding_mode == "zeros"))
