"""Pooling: a selection for the maximum, a convolution with ones for the average."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Geometry,
    Jacobian,
    Reshape,
    Shape,
    convolution_of,
    size,
    take_flat,
)
from ...jacobians.symint import is_symbolic, largest, same
from ..conventions import FIRST, NO_ORDER, ORDER, convention, kinks, tied
from ..node import Node
from ..numbers.pooling import members
from ..numbers.table import lowest
from ..numbers.windows import AUTO_PADS, Windows, padded
from ..registry import Blocks, Count, jacobian, says
from .convolution import in_margin, windows_of


@jacobian("MaxPool", auto_pad=AUTO_PADS, grows=True)
def max_pool(op: Any, node: Node) -> Blocks:
    """y = the maximum of each window, taken at its first occurrence."""
    grid = windows_of(node, node.kernel_shape)
    if not is_symbolic(grid.space) and not members(grid, False).all():
        raise ValueError(f"some windows {grid.kernel} of {grid.space} with the pads "
                         f"{(*grid.begins, *grid.ends)} have nothing but padding")  # fmt: skip
    at, planes = max_positions(op, node, grid), node.x_shape[:2]
    return {(0, 0): take_flat(at, node.x_shape, node.dtype, planes, grid.apart)}


def max_positions(op: Any, node: Node, grid: Windows) -> Array:
    """The row-major position in x of every entry of y: the operator's own second output."""
    indices = node.output(1)
    if indices is not None and not node.storage_order:
        return indices
    how: dict[str, Any] = {"ceil_mode": 1} if node.ceil_mode else {}
    how["pads"] = (*grid.begins, *grid.ends)
    if node.ceil_mode and grid.drops:
        how = {"pads": tuple(np.transpose(grid.frame).ravel().tolist())}
    if is_symbolic(how["pads"]):
        how = {"auto_pad": node.auto_pad}
    _, positions = op.MaxPool(
        node.x, kernel_shape=grid.kernel, strides=grid.strides, dilations=grid.dilations,
        outputs=2, **how,
    )  # fmt: skip
    return positions


@kinks("MaxPool", where=ORDER, given=FIRST)
def ties_of_windows(node: Node) -> Count:
    """Results that more than one entry of their window attains."""
    grid = windows_of(node, node.kernel_shape)
    framed = padded(node.x, grid, lowest(node.x.dtype))
    return tied(sum((framed[(..., *reach)] == node.y).astype(np.int64) for _, reach in grid.taps()))


convention("MaxPool", "max pool [1, 1]", ([[[1.0, 1.0]]],), ([[[1.0, 0.0]]],), FIRST,
           "lambda x: F.max_pool1d(x, 2, 1)", attrs={"kernel_shape": [2]})  # fmt: skip


says("MaxPool", by_hand=NO_ORDER)


@jacobian("AveragePool", auto_pad=AUTO_PADS, grows=True)
def average_pool(op: Any, node: Node) -> Blocks:
    """y = window sums divided by the number of entries that count in each window."""
    grid = windows_of(node, node.kernel_shape)
    sums = window_sums(node, grid)
    return {(0, 0): Diagonal(inverse_counts(op, node, grid, sums), node.y_shape) @ sums}


def inverse_counts(op: Any, node: Node, grid: Windows, sums: Jacobian) -> Array:
    """1 / the number of entries that count in each window."""
    if not is_symbolic(grid.space):
        counts = np.maximum(members(grid, node.count_include_pad), 1)
        return (1 / counts).astype(node.dtype)
    one, pads = np.ones((), node.dtype), (*grid.begins, *grid.ends)
    if not node.ceil_mode and (node.count_include_pad or same(pads, (0,) * len(pads))):
        return one / size(grid.kernel)
    if node.count_include_pad:  # but not the entries beyond the padding
        space = tuple(map(sum, zip(grid.space, grid.begins, grid.ends, strict=True)))
        beyond = (largest(b - a, 0) for (_, b), a in zip(grid.frame, grid.ends, strict=True))
        sums = sums_over(node, grid, space, (*(0 for _ in space), *beyond))
    return op.Div(one, op.Max(sums._apply(op, op.Expand(one, sums.in_shape)), one))


def window_sums(node: Node, grid: Windows) -> Jacobian:
    """Σ over each window."""
    begins, ends = grid.begins, grid.ends
    if node.ceil_mode or not is_symbolic(grid.space):  # else all windows lie in the padded signal
        begins, ends = zip(*grid.frame, strict=True)
    return sums_over(node, grid, grid.space, (*begins, *ends))


def sums_over(node: Node, grid: Windows, space: Shape, pads: Shape) -> Jacobian:
    """Σ over each window of images of shape `space`: a convolution with ones per channel."""
    ones, images = np.ones((1, 1, *grid.kernel), node.dtype), (size(node.x_shape[:2]), 1)
    split = Reshape((*images, *space), (*node.x_shape[:2], *space), node.dtype)
    margin, pads = in_margin(split.out_shape, pads, node.dtype)
    g = Geometry(
        margin.out_shape, ones.shape, (*images, *grid.count), grid.strides, grid.dilations, pads, 1
    )
    sums = convolution_of(ones, "x", "u", g) @ margin @ split
    return Reshape(node.y_shape, g.u, node.dtype) @ sums


says("LRN", by_hand="its windows of channels are cut off at both ends")


@jacobian("LRN")
def lrn(op: Any, node: Node) -> Blocks:
    """y = x / s^β with s = bias + α/size W x², W the window sum over channels:
    J = diag(s^-β) - 2 α β / size · diag(x s^(-β-1)) W diag(x).
    """
    window, x = channel_window(node), node.x
    rate = node.alpha / node.size
    s = op.Add(op.Mul(window._apply(op, op.Mul(x, x)), rate), node.bias)
    power = op.Pow(s, op.CastLike(-node.beta, x))
    slope = op.Mul(op.Div(op.Mul(x, power), s), -2 * rate * node.beta)
    return {(0, 0): Diagonal(power) + Diagonal(slope) @ window @ Diagonal(x)}


def channel_window(node: Node) -> Jacobian:
    """Sums over `size` neighbouring channels."""
    n, c, *rest = node.x_shape
    before, after = (node.size - 1) // 2, node.size // 2
    pixels = size(tuple(rest))
    ones = np.ones((1, 1, node.size, 1), node.dtype)
    image = (n, 1, c, pixels)
    g = Geometry(image, ones.shape, image, (1, 1), (1, 1), (before, 0, after, 0), 1)
    split = Reshape(image, node.x_shape, node.dtype)
    return split.T @ convolution_of(ones, "x", "u", g) @ split
