"""GridSample and AffineGrid: images seen through a grid of points."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Eye,
    Jacobian,
    Permutation,
    Reshape,
    Shape,
    dtype_of,
    implicit_kron,
    shape_of,
    size,
)
from ..node import Node
from ..registry import Blocks, choices, jacobian
from .interpolation import SUPPORT
from .sampling import Line, Samples, line

MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""How opset 16 spelt the modes."""


choices(
    "GridSample",
    mode=("nearest", *MODES, *SUPPORT),
    padding_mode=("zeros", "border", "reflection"),
)


@jacobian("GridSample")
def grid_sample(op: Any, node: Node) -> Blocks:
    """y = Σ weight(grid) · neighbour in x; the grid names the last axis of x first."""
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
    last = op.Transpose(node.x, perm=(0, *range(2, d + 2), 1))
    rows = op.Reshape(last, (n * size(tuple(lengths)), c))
    lines, gains = [], []
    for k, length in enumerate(lengths):
        at, gain = placed(op, node, op.Gather(grid, d - 1 - k, axis=-1), length)
        lines.append(sampled(op, node, at, length, mode))
        gains.append(gain)
    start = np.arange(n).reshape(n, *(1,) * (len(shape_of(grid)) - 2)) * size(tuple(lengths))
    return Samples(op, rows, lines, start), gains


def placed(op: Any, node: Node, g: Array, n: int) -> tuple[Array, Array]:
    """The position on an axis of length n of a coordinate in [-1, 1], and the slope of that."""
    gain = np.asarray((n - 1) / 2 if node.align_corners else n / 2, dtype_of(g))
    at = op.Add(op.Mul(g, gain), (n - 1) / 2)
    if node.mode == "nearest":
        at = op.Round(at)
    gain = op.Expand(gain, shape_of(g))
    cubic = MODES.get(node.mode, node.mode) == "cubic"
    if node.padding_mode == "zeros" or (cubic and node.padding_mode == "border"):
        return at, gain
    low, high = borders(node, n)
    outside = op.Or(op.Less(at, low), op.Greater(at, high))
    if node.padding_mode == "border":
        return op.Where(outside, op.Clip(at, 0.0, n - 1.0), at), op.Where(outside, 0.0, gain)
    back, slope = reflected(op, at, low, high)
    return op.Where(outside, back, at), op.Where(outside, op.Mul(gain, slope), gain)


def sampled(op: Any, node: Node, at: Array, n: int, mode: str) -> Line:
    """The samples along one axis, by the padding mode."""
    low, high = borders(node, n)
    reindex = {
        "zeros": None,
        "border": lambda op, index: index,
        "reflection": lambda op, index: inside(op, index, low, high),
    }[node.padding_mode]
    return line(op, at, n, mode, reindex)


def inside(op: Any, index: Array, low: float, high: float) -> Array:
    """Neighbours reflected at the borders where they lie beyond."""
    outside = op.Or(op.Less(index, low), op.Greater(index, high))
    return op.Where(outside, op.Round(reflected(op, index, low, high)[0]), index)


def borders(node: Node, n: int) -> tuple[float, float]:
    """Where reflection happens: at the centres of the outermost pixels, or at their edges."""
    return (0.0, n - 1.0) if node.align_corners else (-0.5, n - 0.5)


def reflected(op: Any, at: Array, low: float, high: float) -> tuple[Array, Array]:
    """The triangular wave between low and high, and its slope ±1."""
    if high <= low:
        zero = op.Mul(at, 0.0)
        return op.Add(zero, low), zero
    turns = op.Mul(op.Sub(at, low), 1 / (high - low))
    rest = op.Sub(turns, op.Mul(op.Round(op.Mul(turns, 0.5)), 2.0))
    return op.Add(op.Mul(op.Abs(rest), high - low), low), op.Sign(rest)


def channels_last(shape: Shape, dtype: Any) -> Permutation:
    """(N, C, *S) -> (N, *S, C)."""
    return Permutation((0, *range(2, len(shape)), 1), shape, dtype)


@jacobian("AffineGrid")
def affine_grid(op: Any, node: Node) -> Blocks:
    """y[n, p] = θ[n] (coordinates of p, 1): linear in θ."""
    lengths = (node.ints(1) or ())[2:]
    base = base_grid(lengths, bool(node.align_corners)).astype(node.dtype)
    n, d = node.x_shape[:2]
    turned = Permutation((0, 2, 1), node.x_shape, node.dtype)
    J = implicit_kron(base, Eye(d), (n,)) @ turned
    return {(0, 0): Reshape(node.y_shape, J.out_shape, node.dtype) @ J}


def base_grid(lengths: Shape, align_corners: bool) -> np.ndarray:
    """The homogeneous coordinates of all points, last axis first: (points, D + 1).

    >>> base_grid((1, 2), False).tolist()
    [[-0.5, 0.0, 1.0], [0.5, 0.0, 1.0]]
    """
    along = [coordinates(n, align_corners) for n in lengths]
    axes = np.meshgrid(*along, indexing="ij")[::-1]
    return np.stack([a.ravel() for a in (*axes, np.ones(lengths))], axis=-1)


def coordinates(n: int, align_corners: bool) -> np.ndarray:
    """n points of [-1, 1]: from end to end, or the centres of n equal parts."""
    if align_corners:
        return np.linspace(-1, 1, n) if n > 1 else np.array([-1.0])
    return (2 * np.arange(n) + 1) / n - 1
