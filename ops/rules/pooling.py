"""Pooling: a selection for the maximum, a convolution with ones for the average."""

from __future__ import annotations

from functools import reduce
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
    take_flat,
)
from ..node import Node
from ..registry import Blocks, jacobian
from .windows import explicit_pads, steps


@jacobian("MaxPool")
def max_pool(op: Any, node: Node) -> Blocks:
    """y takes the greatest entry of each window; the first one where several tie."""
    pads = explicit_pads(node, node.x_shape[2:], node.y_shape[2:], node.kernel_shape)
    if any(np.any(counts == 0) for counts in window_counts(node, pads, padding=False)):
        raise ValueError(f"pads {pads} leave windows {node.kernel_shape} nothing but padding")
    return {(0, 0): take_flat(max_positions(op, node), node.x_shape, node.dtype)}


def max_positions(op: Any, node: Node) -> Array:
    """The row-major position in x of every entry of y: the operator's own second output."""
    indices = node.output(1)
    if indices is not None and not node.storage_order:
        return indices
    said = {name: value for name, value in node.step.attrs.items() if name != "storage_order"}
    _, positions = op.MaxPool(node.x, **said, outputs=2)
    return positions


@jacobian("AveragePool")
def average_pool(op: Any, node: Node) -> Blocks:
    """y = window sums over the number of entries that each window counts."""
    pads = explicit_pads(node, node.x_shape[2:], node.y_shape[2:], node.kernel_shape)
    counts = window_counts(node, pads, padding=bool(node.count_include_pad))
    average = Diagonal((1 / reduce(np.multiply.outer, counts)).astype(node.dtype), node.y_shape)
    return {(0, 0): average @ window_sums(node, pads)}


def window_sums(node: Node, pads: Shape) -> Jacobian:
    """Σ over each window: a convolution with ones, every channel by itself."""
    (n, c, *size), (_, _, *out), d = node.x_shape, node.y_shape, len(node.kernel_shape)
    strides, dilations = steps(node, d)
    ones = np.ones((1, 1, *node.kernel_shape), node.dtype)
    ends = (
        (o - 1) * s + r * (k - 1) + 1 - before - m
        for o, s, r, k, before, m in zip(
            out, strides, dilations, node.kernel_shape, pads, size, strict=False
        )
    )
    g = Geometry(
        (n * c, 1, *size), ones.shape, (n * c, 1, *out), strides, dilations,
        (*pads[:d], *(max(e, 0) for e in ends)), 1,
    )  # fmt: skip
    split = Reshape(g.x, node.x_shape, node.dtype)
    return Reshape(node.y_shape, g.u, node.dtype) @ convolution_of(ones, "x", "u", g) @ split


def window_counts(node: Node, pads: Shape, *, padding: bool) -> list[np.ndarray]:
    """Per axis, how many entries each window counts: those of x, or also those of the padding."""
    strides, dilations = steps(node, len(node.kernel_shape))
    counts = []
    for k, kernel in enumerate(node.kernel_shape):
        n, before, after = node.x_shape[2 + k], pads[k], pads[k + len(node.kernel_shape)]
        at = strides[k] * np.arange(node.y_shape[2 + k])[:, None] + dilations[k] * np.arange(kernel)
        low, high = (0, n + before + after) if padding else (before, before + n)
        counts.append(((at >= low) & (at < high)).sum(axis=1))
    return counts


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
    pixels = int(np.prod(rest))
    ones = np.ones((1, 1, node.size, 1), node.dtype)
    image = (n, 1, c, pixels)
    g = Geometry(image, ones.shape, image, (1, 1), (1, 1), (before, 0, after, 0), 1)
    split = Reshape(image, node.x_shape, node.dtype)
    return split.T @ convolution_of(ones, "x", "u", g) @ split
