"""Conv and ConvTranspose: one trilinear form, read from two sides."""

from __future__ import annotations

from typing import Any

from ..jacobians import Convolution, Geometry, Jacobian, Reshape, broadcast, shape_of
from .node import Node, Shape
from .registry import Blocks, jacobian
from .windows import explicit_pads, steps


@jacobian("Conv")
def conv(op: Any, node: Node) -> Blocks:
    """∂/∂x is a convolution with the kernel held, ∂/∂w with the signal held."""
    x, w = node.inputs[:2]
    kernel = shape_of(w)[2:]
    pads = explicit_pads(node, node.x_shape[2:], node.y_shape[2:], kernel)
    g = Geometry(node.x_shape, shape_of(w), node.y_shape, *steps(node, len(kernel)), pads, node.group)
    blocks: dict[tuple[int, int], Jacobian] = {
        (0, 0): Convolution(w, "x", "u", g),
        (0, 1): Convolution(x, "w", "u", g),
    }
    return with_bias(node, blocks)


@jacobian("ConvTranspose")
def conv_transpose(op: Any, node: Node) -> Blocks:
    """The adjoint of a convolution of y: the input x plays the cotangent."""
    x, w = node.inputs[:2]
    strides, dilations = steps(node, len(node.x_shape) - 2)
    pads = transposed_pads(node, shape_of(w)[2:], strides, dilations)
    g = Geometry(node.y_shape, shape_of(w), node.x_shape, strides, dilations, pads, node.group)
    blocks: dict[tuple[int, int], Jacobian] = {
        (0, 0): Convolution(w, "u", "x", g),
        (0, 1): Convolution(x, "w", "x", g),
    }
    return with_bias(node, blocks)


def transposed_pads(node: Node, kernel: Shape, strides: Shape, dilations: Shape) -> Shape:
    """Begin and end padding of a ConvTranspose, by the specification's formulas."""
    d = len(kernel)
    if node.auto_pad in (None, "NOTSET") and not node.output_shape:
        return tuple(node.pads or (0,) * (2 * d))
    if node.auto_pad == "VALID":
        return (0,) * (2 * d)
    extra = node.output_padding or (0,) * d
    totals = [
        max(s * (n - 1) + e + r * (k - 1) + 1 - out, 0)
        for n, out, k, s, r, e in zip(
            node.x_shape[2:], node.y_shape[2:], kernel, strides, dilations, extra, strict=True
        )
    ]
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return tuple(large + small if node.auto_pad == "SAME_LOWER" else small + large)


def with_bias(node: Node, blocks: dict[tuple[int, int], Jacobian]) -> Blocks:
    """Adds ∂y/∂b: a bias per channel is broadcast."""
    if node.input(2) is not None:
        channels = shape_of(node.inputs[2])
        gain = (1, *channels, *(1,) * (len(node.y_shape) - 2))
        lift = broadcast(gain, node.y_shape, node.dtype)
        blocks[0, 2] = lift @ Reshape(gain, channels, node.dtype)
    return blocks
