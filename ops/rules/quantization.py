"""Quantisation: rounding has a zero derivative, dequantisation does not.

y = (x - zero point) · scale is linear in the scale, and in x where x is a narrow float.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Diagonal, Jacobian, Reshape, Take, broadcast, shape_of
from ..node import Node
from ..numbers.windows import AUTO_PADS
from ..registry import Blocks, jacobian, zero
from .casts import cast_input

ROUNDED = "the result is piecewise constant: it is rounded to few values"
zero(ROUNDED, "QuantizeLinear", "QLinearMatMul")
zero(ROUNDED, "QLinearConv", auto_pad=AUTO_PADS)


@jacobian("DequantizeLinear")
def dequantize(op: Any, node: Node) -> Blocks:
    """∂y/∂scale = diag(x - zero point) · expansion, ∂y/∂x = diag(scale)."""
    expansion = per_block(node, 1)
    offset = op.CastLike(node.x, node.y)
    if node.input(2) is not None:
        shift = op.CastLike(node.inputs[2], node.y)
        offset = op.Sub(offset, per_block(node, 2)._apply(op, shift))
    blocks = {(0, 1): Diagonal(offset, node.y_shape) @ expansion @ cast_input(node, 1)}
    if node.wants(0):
        scale = expansion._apply(op, op.CastLike(node.inputs[1], node.y))
        blocks[0, 0] = Diagonal(scale, node.y_shape) @ cast_input(node, 0)
    return blocks


def per_block(node: Node, i: int) -> Jacobian:
    """The map from a scale or zero point (a scalar, or one per slice or block) to entries of x."""
    shape, dtype = shape_of(node.inputs[i]), node.dtype
    if len(shape) == len(node.x_shape) and node.block_size:
        axis = node.axis % len(shape)
        return Take(np.arange(node.x_shape[axis]) // node.block_size, axis, shape, dtype)
    axis = node.axis % max(len(node.x_shape), 1)
    line = (*shape, *(1,) * (len(node.x_shape) - 1 - axis)) if shape not in ((), (1,)) else shape
    return broadcast(line, node.x_shape, dtype) @ Reshape(line, shape, dtype)
