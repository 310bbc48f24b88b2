"""Windows: how kernels step over spatial axes, as the values have it."""

from __future__ import annotations

from typing import Any

from ...jacobians import Shape
from ...jacobians.symint import agree
from ..node import Node
from ..numbers.windows import CROPPING, GEOMETRY, Windows, filled, transposed_windows, windows


def windows_of(node: Node, kernel: Shape) -> Windows:
    """The windows of a convolution or a pool over its first input."""
    return settled(node, windows(node.x_shape[2:], kernel, **said(node, *GEOMETRY)), "count")


def transposed_windows_of(node: Node, kernel: Shape) -> Windows:
    """The windows of a transposed convolution over its output."""
    attributes = said(node, *GEOMETRY, *CROPPING)
    grid = transposed_windows(node.x_shape[2:], kernel, **attributes)
    return settled(node, grid, "space")


def said(node: Node, *names: str) -> dict[str, Any]:
    """Those of the attributes that the node has."""
    return {name: node.step.attrs[name] for name in names if name in node.step.attrs}


def settled(node: Node, grid: Windows, what: str) -> Windows:
    """The windows, whose shape of the output is the shape that the values have."""
    lengths = getattr(grid, what)
    if not agree(lengths, node.y_shape[2:]):
        raise ValueError(f"its attributes lead to an output of lengths {lengths}, and its value "
                         f"has the lengths {node.y_shape[2:]}; try engine='numpy'")  # fmt: skip
    return grid


def steps(node: Node, d: int) -> tuple[Shape, Shape]:
    """Strides and dilations, 1 where they are not given."""
    return filled(node.strides, 1, d), filled(node.dilations, 1, d)
