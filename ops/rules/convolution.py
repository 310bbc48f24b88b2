"""Conv and ConvTranspose: one trilinear form, read from two sides."""

from __future__ import annotations

from typing import Any

from ...jacobians import (
    Embed,
    Geometry,
    Identity,
    Jacobian,
    Reshape,
    Shape,
    broadcast,
    convolution_of,
    shape_of,
)
from ..node import Node
from ..registry import Blocks, jacobian
from .windows import explicit_pads, steps


@jacobian("Conv")
def conv(op: Any, node: Node) -> Blocks:
    """∂/∂x is a convolution with the kernel held, ∂/∂w with the signal held."""
    x, w = node.inputs[:2]
    kernel = shape_of(w)[2:]
    pads = explicit_pads(node, node.x_shape[2:], node.y_shape[2:], kernel)
    g = Geometry(
        node.x_shape, shape_of(w), node.y_shape, *steps(node, len(kernel)), pads, node.group
    )
    check_channels(g)
    blocks: dict[tuple[int, int], Jacobian] = {
        (0, 0): convolution_of(w, "x", "u", g),
        (0, 1): convolution_of(x, "w", "u", g),
    }
    return with_bias(node, blocks)


@jacobian("ConvTranspose")
def conv_transpose(op: Any, node: Node) -> Blocks:
    """The adjoint of a convolution of y: the input x plays the cotangent."""
    x, w = node.inputs[:2]
    strides, dilations = steps(node, len(node.x_shape) - 2)
    reach = tuple(
        s * (n - 1) + r * (k - 1) + 1
        for s, n, r, k in zip(strides, node.x_shape[2:], dilations, shape_of(w)[2:], strict=True)
    )
    begins = transposed_begins(node, reach)
    ends = tuple(f - a - n for f, a, n in zip(reach, begins, node.y_shape[2:], strict=True))
    reached = (
        *node.y_shape[:2],
        *(n + min(e, 0) for n, e in zip(node.y_shape[2:], ends, strict=True)),
    )
    pads = (*begins, *(max(e, 0) for e in ends))
    g = Geometry(reached, shape_of(w), node.x_shape, strides, dilations, pads, node.group)
    check_channels(g)
    rest = with_margin(reached, node)
    blocks = {
        (0, 0): rest @ convolution_of(w, "u", "x", g),
        (0, 1): rest @ convolution_of(x, "w", "x", g),
    }
    return with_bias(node, blocks)


def check_channels(g: Geometry) -> None:
    """Engines compute something even where signal, kernel and groups do not fit."""
    if len(g.x) < 3:
        raise ValueError(f"a signal of shape {g.x} has no axis that a kernel moves along")
    if g.group < 1 or g.w[0] % g.group or (g.x[1], g.u[1]) != (g.w[1] * g.group, g.w[0]):
        raise ValueError(f"a kernel of shape {g.w} in {g.group} groups joins no {g.x} with {g.u}")


def transposed_begins(node: Node, reach: Shape) -> Shape:
    """What a ConvTranspose cuts off where each axis begins, by the specification's formulas."""
    none = (0,) * len(reach)
    if node.auto_pad in (None, "NOTSET", "VALID") and not node.output_shape:
        return none if node.auto_pad == "VALID" else tuple(node.pads or none)[: len(reach)]
    extra, out = node.output_padding or none, node.y_shape[2:]
    totals = [max(f + e - n, 0) for f, e, n in zip(reach, extra, out, strict=True)]
    return tuple(t // 2 if node.auto_pad == "SAME_UPPER" else t - t // 2 for t in totals)


def with_margin(reached: Shape, node: Node) -> Jacobian:
    """The entries that the kernel reaches, followed by those that output_padding adds."""
    spans = tuple((0, 1, n) for n in reached)
    whole = reached == node.y_shape
    return Identity(reached, node.dtype) if whole else Embed(spans, node.y_shape, node.dtype)


def with_bias(node: Node, blocks: dict[tuple[int, int], Jacobian]) -> Blocks:
    """Adds ∂y/∂b: a bias per channel is broadcast."""
    if node.input(2) is not None:
        channels = shape_of(node.inputs[2])
        gain = (1, *channels, *(1,) * (len(node.y_shape) - 2))
        lift = broadcast(gain, node.y_shape, node.dtype)
        blocks[0, 2] = lift @ Reshape(gain, channels, node.dtype)
    return blocks
