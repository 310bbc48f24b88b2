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
    convolution_of,
    size,
    take_flat,
)
from ...jacobians.symint import is_symbolic
from ..node import Node
from ..numbers.pooling import members
from ..numbers.windows import AUTO_PADS, Windows
from ..registry import Blocks, jacobian
from .windows import windows_of


@jacobian("MaxPool", auto_pad=AUTO_PADS)
def max_pool(op: Any, node: Node) -> Blocks:
    """y takes the greatest entry of each window; the first one where several tie."""
    grid = windows_of(node, node.kernel_shape)
    if not is_symbolic(grid.space) and not members(grid, False).all():
        raise ValueError(f"some windows {grid.kernel} of {grid.space} with the pads "
                         f"{(*grid.begins, *grid.ends)} have nothing but padding")  # fmt: skip
    at, planes = max_positions(op, node, grid), node.x_shape[:2]
    return {(0, 0): take_flat(at, node.x_shape, node.dtype, planes)}


def max_positions(op: Any, node: Node, grid: Windows) -> Array:
    """The row-major position in x of every entry of y: the operator's own second output."""
    indices = node.output(1)
    if indices is not None and not node.storage_order:
        return indices
    how, pads = {"ceil_mode": 1} if node.ceil_mode else {}, (*grid.begins, *grid.ends)
    if node.ceil_mode and grid.drops:
        how, pads = {}, tuple(np.transpose(grid.frame).ravel().tolist())
    _, positions = op.MaxPool(
        node.x, kernel_shape=grid.kernel, strides=grid.strides, dilations=grid.dilations,
        pads=pads, outputs=2, **how,
    )  # fmt: skip
    return positions


@jacobian("AveragePool", auto_pad=AUTO_PADS)
def average_pool(op: Any, node: Node) -> Blocks:
    """y = window sums over the number of entries that each window counts."""
    grid = windows_of(node, node.kernel_shape)
    sums = window_sums(node, grid)
    return {(0, 0): Diagonal(inverse_counts(op, node, grid, sums), node.y_shape) @ sums}


def inverse_counts(op: Any, node: Node, grid: Windows, sums: Jacobian) -> Array:
    """1 over the number of entries that each window counts."""
    if not is_symbolic(grid.space):
        counts = np.maximum(members(grid, node.count_include_pad), 1)
        return (1 / counts).astype(node.dtype)
    one = np.ones((), node.dtype)
    if not node.ceil_mode and (node.count_include_pad or not any((*grid.begins, *grid.ends))):
        return one / size(grid.kernel)
    return op.Div(one, op.Max(sums._apply(op, op.Expand(one, node.x_shape)), one))


def window_sums(node: Node, grid: Windows) -> Jacobian:
    """Σ over each window: a convolution with ones, every channel by itself."""
    ones = np.ones((1, 1, *grid.kernel), node.dtype)
    begins, ends = grid.begins, grid.ends
    if node.ceil_mode or not is_symbolic(grid.space):  # or all windows lie in the padded signal
        begins, ends = zip(*grid.frame, strict=True)
    images = (size(node.x_shape[:2]), 1)
    g = Geometry(
        (*images, *grid.space), ones.shape, (*images, *grid.count), grid.strides, grid.dilations,
        (*begins, *ends), 1,
    )  # fmt: skip
    split = Reshape(g.x, node.x_shape, node.dtype)
    return Reshape(node.y_shape, g.u, node.dtype) @ convolution_of(ones, "x", "u", g) @ split


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
