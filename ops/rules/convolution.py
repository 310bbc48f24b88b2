"""Conv and ConvTranspose: one trilinear form, read from two sides."""

from __future__ import annotations

from typing import Any

from ...jacobians import Geometry, Jacobian, Reshape, broadcast, convolution_of, shape_of
from ...jacobians.symint import largest, smallest
from ..node import Node
from ..numbers.windows import AUTO_PADS, whole
from ..registry import Blocks, jacobian
from .padding import in_front
from .windows import in_margin, transposed_windows_of, windows_of


@jacobian("Conv", auto_pad=AUTO_PADS, grows=True)
def conv(op: Any, node: Node) -> Blocks:
    """∂/∂x is a convolution with a fixed kernel, ∂/∂w one with a fixed signal."""
    x, w = node.inputs[:2]
    grid = whole(windows_of(node, shape_of(w)[2:]))
    margin, pads = in_margin(node.x_shape, (*grid.begins, *grid.ends), node.dtype)
    g = Geometry(
        margin.out_shape, shape_of(w), node.y_shape, grid.strides, grid.dilations, pads, node.group
    )
    check_channels(g)
    blocks: dict[tuple[int, int], Jacobian] = {
        (0, 0): convolution_of(w, "x", "u", g) @ margin,
        (0, 1): convolution_of(margin._apply(op, x), "w", "u", g),
    }
    return with_bias(node, blocks)


@jacobian("ConvTranspose", auto_pad=AUTO_PADS, grows=True)
def conv_transpose(op: Any, node: Node) -> Blocks:
    """The adjoint of a convolution of y: the input x plays the role of the cotangent."""
    x, w = node.inputs[:2]
    grid = transposed_windows_of(node, shape_of(w)[2:])
    full = (grid.covered(axis, n) for axis, n in enumerate(grid.count))
    ends = [f - a - n for f, a, n in zip(full, grid.begins, grid.space, strict=True)]
    inside = (n + smallest(e, 0) for n, e in zip(grid.space, ends, strict=True))
    reached, pads = (*node.y_shape[:2], *inside), (*grid.begins, *(largest(e, 0) for e in ends))
    g = Geometry(reached, shape_of(w), node.x_shape, grid.strides, grid.dilations, pads, node.group)
    check_channels(g)
    rest = in_front(reached, node.y_shape, node.dtype)
    blocks = {
        (0, 0): rest @ convolution_of(w, "u", "x", g),
        (0, 1): rest @ convolution_of(x, "w", "x", g),
    }
    return with_bias(node, blocks)


def check_channels(g: Geometry) -> None:
    """Raises `ValueError` for shapes that do not fit, which engines would accept."""
    if len(g.x) < 3:
        raise ValueError(f"a signal of shape {g.x} has no axis that a kernel moves along")
    if g.group < 1 or g.w[0] % g.group or (g.x[1], g.u[1]) != (g.w[1] * g.group, g.w[0]):
        raise ValueError(f"a kernel of shape {g.w} in {g.group} groups joins no {g.x} with {g.u}")


def with_bias(node: Node, blocks: dict[tuple[int, int], Jacobian], i: int = 2) -> Blocks:
    """Adds ∂y/∂b, the broadcast of a bias per channel, input i."""
    if node.input(i) is not None:
        channels = shape_of(node.inputs[i])
        gain = (1, *channels, *(1,) * (len(node.y_shape) - 2))
        lift = broadcast(gain, node.y_shape, node.dtype)
        blocks[0, i] = lift @ Reshape(gain, channels, node.dtype)
    return blocks
