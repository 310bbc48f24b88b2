"""Conv and ConvTranspose: one trilinear form, read from two sides; and the windows of pooling."""

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
    size,
)
from ...jacobians.symint import agree, is_symbolic, largest, smallest
from ..node import Node
from ..numbers.windows import (
    AUTO_PADS,
    CROPPING,
    GEOMETRY,
    Windows,
    said,
    transposed_windows,
    whole,
    windows,
)
from ..registry import Blocks, jacobian, says
from .layout import in_front


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


def windows_of(node: Node, kernel: Shape) -> Windows:
    """The windows of a convolution or a pool over its first input."""
    grid = windows(node.x_shape[2:], kernel, **said(node.step.attrs, *GEOMETRY))
    return settled(node, grid, "count")


def transposed_windows_of(node: Node, kernel: Shape) -> Windows:
    """The windows of a transposed convolution over its output."""
    attributes = said(node.step.attrs, *GEOMETRY, *CROPPING)
    grid = transposed_windows(node.x_shape[2:], kernel, **attributes)
    return settled(node, grid, "space")


def settled(node: Node, grid: Windows, what: str) -> Windows:
    """The windows; raises `ValueError` if they imply another output shape than the value has."""
    lengths = getattr(grid, what)
    if not agree(lengths, node.y_shape[2:]):
        raise ValueError(f"its attributes lead to an output of lengths {lengths}, and its value "
                         f"has the lengths {node.y_shape[2:]}; try engine='numpy'")  # fmt: skip
    return grid


def in_margin(shape: Shape, pads: Shape, dtype: Any) -> tuple[Jacobian, Shape]:
    """The embedding of the signal in zeros for symbolic pads, which no attribute can hold; and the
    pads that remain.
    """
    if not is_symbolic(pads):
        return Identity(shape, dtype), pads
    d = len(pads) // 2
    inside = [(a, 1, n) for a, n in zip(pads[:d], shape[2:], strict=True)]
    full = (a + n + b for (a, _, n), b in zip(inside, pads[d:], strict=True))
    whole = tuple((0, 1, n) for n in shape[:2])
    return Embed((*whole, *inside), (*shape[:2], *full), dtype), (0,) * len(pads)


def framed_bytes(node: Node, weight: int | None = 1) -> int:
    """Bytes of the padded input of a convolution, or without weights of a pool."""
    kernel = node.kernel_shape if weight is None else shape_of(node.inputs[weight])[2:]
    grid = windows(node.x_shape[2:], kernel, **said(node.step.attrs, *GEOMETRY))
    return size((*node.x_shape[:2], *grid.framed)) * int(node.x.itemsize)


def spread_bytes(node: Node) -> int:
    """Bytes of the output of a transposed convolution before cropping."""
    w, attributes = shape_of(node.inputs[1]), said(node.step.attrs, *GEOMETRY, *CROPPING)
    grid = transposed_windows(node.x_shape[2:], w[2:], **attributes)
    return size((node.x_shape[0], w[1] * node.group, *grid.framed)) * int(node.x.itemsize)


says("Conv", "ConvInteger", memory=framed_bytes)
says("QLinearConv", "com.microsoft::QLinearConv", "onnxjac.straight_through::QLinearConv",
     grows=True, memory=lambda node: framed_bytes(node, 3))  # fmt: skip
says("ConvTranspose", memory=spread_bytes,
     by_hand="the index of y is s·i + t, and index notation computes indices of inputs only"
)  # fmt: skip
says("MaxPool", "AveragePool", "LpPool", memory=lambda node: framed_bytes(node, None))
