"""Windows: how kernels step over spatial axes, checked against the shapes of the values."""

from __future__ import annotations

from typing import Any

from ...jacobians import Embed, Identity, Jacobian, Shape, shape_of, size
from ...jacobians.symint import agree, is_symbolic
from ..node import Node
from ..numbers.windows import CROPPING, GEOMETRY, Windows, said, transposed_windows, windows
from ..registry import says


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
says("ConvTranspose", memory=spread_bytes)
says("MaxPool", "AveragePool", "LpPool", memory=lambda node: framed_bytes(node, None))
