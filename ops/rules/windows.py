"""Windows: how kernels step over spatial axes, with padding made explicit."""

from __future__ import annotations

from ...jacobians import Shape
from ..node import Node


def explicit_pads(node: Node, size: Shape, out: Shape, kernel: Shape) -> Shape:
    """Begin and end padding per spatial axis of a convolution or pooling, auto_pad resolved."""
    d = len(kernel)
    strides, dilations = steps(node, d)
    if node.auto_pad in (None, "NOTSET"):
        return tuple(node.pads or (0,) * (2 * d))
    if node.auto_pad == "VALID":
        return (0,) * (2 * d)
    totals = [
        max((o - 1) * s + r * (k - 1) + 1 - n, 0)
        for n, o, k, s, r in zip(size, out, kernel, strides, dilations, strict=True)
    ]
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return tuple(small + large if node.auto_pad == "SAME_UPPER" else large + small)


def steps(node: Node, d: int) -> tuple[Shape, Shape]:
    """Strides and dilations, 1 where they are not given."""
    return tuple(node.strides or (1,) * d), tuple(node.dilations or (1,) * d)
