"""Quantisation: rounding has a zero derivative, dequantisation does not.

y = (x - zero point) · scale is linear in the scale, and in x where x is a narrow float.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Array, Diagonal, Jacobian, Reshape, Take, broadcast, dtype_of, shape_of
from ..conventions import ORDER, PARTS, kinks
from ..node import Node
from ..numbers.windows import AUTO_PADS
from ..registry import Blocks, jacobian, zero
from .elementwise import cast_input

ROUNDED = "the result is piecewise constant: it is rounded to few values"
zero(ROUNDED, "QuantizeLinear", "QLinearMatMul")
zero(ROUNDED, "QLinearConv", auto_pad=AUTO_PADS)


kinks("DynamicQuantizeLinear", where=ORDER, given=PARTS)  # a function of ONNX


@jacobian("DequantizeLinear")
def dequantize(op: Any, node: Node) -> Blocks:
    """∂y/∂scale = diag(x - zero point) · expansion, ∂y/∂x = diag(scale)."""
    expansion = per_block(node, 1, node.dtype)
    offset = op.CastLike(node.x, node.y)
    if node.input(2) is not None:
        shift = op.CastLike(node.inputs[2], node.y)
        offset = op.Sub(offset, per_block(node, 2, node.dtype)._apply(op, shift))
    blocks = {(0, 1): Diagonal(offset, node.y_shape) @ expansion @ cast_input(node, 1)}
    if node.wants(0):
        scale = expansion._apply(op, op.CastLike(node.inputs[1], node.y))
        blocks[0, 0] = Diagonal(scale, node.y_shape) @ cast_input(node, 0)
    return blocks


def per_block(node: Node, i: int, dtype: np.dtype) -> Jacobian:
    """The map from a scale or zero point (a scalar, or one per slice or block) to entries of x."""
    shape = shape_of(node.inputs[i])
    if len(shape) == len(node.x_shape) and node.block_size:
        axis = node.axis % len(shape)
        return Take(np.arange(node.x_shape[axis]) // node.block_size, axis, shape, dtype)
    axis = node.axis % max(len(node.x_shape), 1)
    line = (*shape, *(1,) * (len(node.x_shape) - 1 - axis)) if shape not in ((), (1,)) else shape
    return broadcast(line, node.x_shape, dtype) @ Reshape(line, shape, dtype)


def exact(op: Any, q: Array, scale: Array, zero_point: Array | None, axis: int = -1) -> Array:
    """(q - zero) scale, in the precision of the scale, which may be one for each index of an axis.

    Written in arithmetic: DequantizeLinear has no double precision.
    """
    if shape_of(scale) not in ((), (1,)):
        line = (*shape_of(scale), *(1,) * (-1 - axis))
        scale, zero_point = (x if x is None or shape_of(x) in ((), (1,)) else op.Reshape(x, line)
                             for x in (scale, zero_point))  # fmt: skip
    x = op.CastLike(q, scale)
    return op.Mul(x if zero_point is None else op.Sub(x, op.CastLike(zero_point, scale)), scale)


def real(op: Any, node: Node, i: int, axis: int = -1) -> Array:
    """Input i as real numbers, by the scale and the zero point that follow it."""
    return exact(op, node.inputs[i], node.inputs[i + 1], node.input(i + 2), axis)


def kernel_and_bias(op: Any, node: Node) -> tuple[Array, Array | None]:
    """The kernel w of QLinearConv, and its bias, which counts in units of both scales."""
    w, bias = real(op, node, 3, -len(node.x_shape)), node.input(8)
    if bias is None:
        return w, None
    return w, exact(op, bias, op.Mul(node.inputs[1], node.inputs[4]), None)


def stored(op: Any, node: Node, y: Array, i: int, like: Array) -> tuple[Array]:
    """y, rounded by the scale in input i and the zero point behind it, in the dtype of an input."""
    zero_point = node.input(i + 1)
    zero_point = np.zeros((), dtype_of(like)) if zero_point is None else zero_point
    return (op.QuantizeLinear(y, node.inputs[i], zero_point),)
