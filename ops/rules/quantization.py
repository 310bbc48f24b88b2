"""Quantisation: rounding has a zero derivative, dequantisation does not.

y = (x - zero point) · scale is linear in the scale, and in x where x is a narrow float.

Straight-through estimators are surrogates for zero derivatives. They have their own domain
and are used only on request. Quantised tensors are floating ones that hold the same integers, so
that rounding is the only estimator. Source: Bengio, Léonard and Courville 2013; for the scale,
Esser et al. 2020 (LSQ).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ...jacobians import (
    Array,
    Diagonal,
    Identity,
    Jacobian,
    Op,
    Reshape,
    Take,
    broadcast,
    dtype_of,
    shape_of,
)
from ..conventions import ORDER, PARTS, kinks
from ..indexed import declare_indexed
from ..indices import count_up
from ..node import Node
from ..numbers.windows import AUTO_PADS
from ..registry import Blocks, defines, jacobian, zero

ROUNDED = "the result is piecewise constant: it is rounded to few values"
zero(ROUNDED, "QuantizeLinear", "QLinearMatMul")
zero(ROUNDED, "QLinearConv", auto_pad=AUTO_PADS)


kinks("DynamicQuantizeLinear", where=ORDER, given=PARTS)  # a function of ONNX


def granularity(node: Node) -> str:
    """What has a scale of its own: the tensor, each index of an axis, or each block along it."""
    shape = shape_of(node.inputs[1])
    if len(shape) == len(node.x_shape) and node.block_size:
        return "block"
    return "tensor" if shape in ((), (1,)) else "axis"


def scaled_axis(node: Node) -> dict[str, tuple[int, ...]]:
    """The axis of the scales, of x and of blocks."""
    axis = (node.axis % max(len(node.x_shape), 1),)
    return {} if granularity(node) == "tensor" else {"k": axis, "": axis}


declare_indexed(
    "DequantizeLinear",
    {
        "tensor": "y[*r] = (x[*r] - zero[...])*scale[...]",
        "axis": "y[*r, k] = (x[*r, k] - zero[k])*scale[k]",
        "block": "y[*r, k] = (x[*r, k] - zero[*r, block[k]])*scale[*r, block[k]]",
    },
    inputs=("x", "scale", "zero"),
    by=granularity,
    axes=scaled_axis,
    numbers=lambda op, node: {"block": number_blocks(op, node)} if node.block_size else {},
)


def number_blocks(op: Op, node: Node) -> Array:
    """The block of each index along the axis."""
    n = node.x_shape[node.axis % len(node.x_shape)]
    return op.Div(count_up(op, n), np.array(node.block_size))


def per_block(node: Node, i: int, dtype: np.dtype) -> Jacobian:
    """The map from a scale or zero point (a scalar, or one per slice or block) to entries of x."""
    shape = shape_of(node.inputs[i])
    if len(shape) == len(node.x_shape) and node.block_size:
        axis = node.axis % len(shape)
        return Take(np.arange(node.x_shape[axis]) // node.block_size, axis, shape, dtype)
    axis = node.axis % max(len(node.x_shape), 1)
    line = (*shape, *(1,) * (len(node.x_shape) - 1 - axis)) if shape not in ((), (1,)) else shape
    return broadcast(line, node.x_shape, dtype) @ Reshape(line, shape, dtype)


def exact(op: Op, q: Array, scale: Array, zero_point: Array | None, axis: int = -1) -> Array:
    """(q - zero) scale, in the precision of the scale, which may be one for each index of an axis.

    Written in arithmetic: DequantizeLinear has no double precision.
    """
    scale, zero_point = (
        x
        if x is None or shape_of(x) in ((), (1,))
        else op.Reshape(x, (*shape_of(x), *(1,) * (-1 - axis)))
        for x in (scale, zero_point)
    )
    x = op.CastLike(q, scale)
    return op.Mul(x if zero_point is None else op.Sub(x, op.CastLike(zero_point, scale)), scale)


def real(op: Op, node: Node, i: int, axis: int = -1) -> Array:
    """Input i as real numbers, by the scale and the zero point that follow it."""
    return exact(op, node.inputs[i], node.inputs[i + 1], node.input(i + 2), axis)


def kernel_and_bias(op: Op, node: Node) -> tuple[Array, Array | None]:
    """The kernel w of QLinearConv, and its bias, which counts in units of both scales."""
    w, bias = real(op, node, 3, -len(node.x_shape)), node.input(8)
    if bias is None:
        return w, None
    return w, exact(op, bias, op.Mul(node.inputs[1], node.inputs[4]), None)


def stored(op: Op, node: Node, y: Array, i: int, like: Array) -> tuple[Array]:
    """y, rounded by the scale in input i and the zero point behind it, in the dtype of an input.

    In single precision where it is double, which QuantizeLinear does not take.
    """
    scale, zero_point = node.inputs[i], node.input(i + 1)
    zero_point = np.zeros((), dtype_of(like)) if zero_point is None else zero_point
    if np.dtype(np.float64) in map(dtype_of, (y, scale)):
        y, scale = (op.Cast(x, to=int(ir.DataType.FLOAT)) for x in (y, scale))
    return (op.QuantizeLinear(y, scale, zero_point),)


# -- straight-through estimators -------------------------------------------------------------------

DOMAIN = "onnxjac.straight_through"
"""Operators of this domain occur in linearisations only, never in a model file."""


@jacobian(f"{DOMAIN}::Round", f"{DOMAIN}::Floor", f"{DOMAIN}::Ceil")
def rounding(op: Op, node: Node) -> Blocks:
    """As if y = x."""
    return {(0, 0): Identity(node.y_shape, node.dtype)}


@jacobian(f"{DOMAIN}::Sign")
def sign(op: Op, node: Node) -> Blocks:
    """As if y = clip(x, -1, 1)."""
    inside = op.LessOrEqual(op.Abs(node.x), op.CastLike(1.0, node.x))
    return {(0, 0): Diagonal(op.CastLike(inside, node.y), node.y_shape, chooses=True)}


@defines(f"{DOMAIN}::QuantizeLinear")
def quantize_through(op: Op, node: Node) -> tuple[Array]:
    """As if y = clip(x / scale + zero, low, high), where the integers are floating numbers.

    A narrow float is a cast of x / scale.
    """
    x, zero = node.x, node.input(2)
    unsigned = ir.DataType(node.output_dtype or ir.DataType.UINT8)
    dtype = np.dtype(unsigned.numpy()) if zero is None else dtype_of(zero)
    y = op.Div(x, broadcast_scale(op, node, 1, x))
    if dtype.kind not in "iuV" or "float" in dtype.name:
        return (op.CastLike(y, np.zeros((), dtype)),)
    y = op.Round(y) if zero is None else op.Add(op.Round(y), broadcast_scale(op, node, 2, x))
    bounds = ml_dtypes.iinfo(dtype)
    low, high = (np.asarray(bound, dtype_of(x)) for bound in (bounds.min, bounds.max))
    return (op.Clip(y, low, high),)


@defines(f"{DOMAIN}::DequantizeLinear")
def dequantize_through(op: Op, node: Node) -> tuple[Array]:
    """As if y = (q - zero) scale, for floating numbers q."""
    scale = node.inputs[1]
    q = op.CastLike(node.x, scale)
    q = q if node.input(2) is None else op.Sub(q, broadcast_scale(op, node, 2, scale))
    return (op.Mul(q, broadcast_scale(op, node, 1, scale)),)


@defines(f"{DOMAIN}::MatMulInteger")
def matmul_integer(op: Op, node: Node) -> tuple[Array]:
    """As if y = (A - zero) (B - zero), of floating numbers A, B or both."""
    a, b = (without_zero_point(op, node, i, axis) for i, axis in ((0, -2), (1, -1)))
    return (as_product(op, node, op.MatMul(a, b)),)


@defines(f"{DOMAIN}::ConvInteger", auto_pad=AUTO_PADS)
def conv_integer(op: Op, node: Node) -> tuple[Array]:
    """As if y = (w - zero) ∗ (x - zero), of floating numbers x, w or both."""
    x, w = (without_zero_point(op, node, i, -len(shape_of(node.inputs[1]))) for i in (0, 1))
    return (as_product(op, node, op.Conv(x, w, None, **node.step.attrs)),)


def without_zero_point(op: Op, node: Node, i: int, axis: int) -> Array:
    """Factor i of a product of integers, less its zero point, as floating numbers."""
    kinds = [dtype_of(x) for x in node.inputs[:2] if dtype_of(x).kind == "f"]
    one = np.ones((), kinds[0] if kinds else np.float32)
    return exact(op, node.inputs[i], one, node.input(i + 2), axis)


def as_product(op: Op, node: Node, y: Array) -> Array:
    """A product of integers: floating where a factor is."""
    floating = any(dtype_of(x).kind == "f" for x in node.inputs[:2])
    return y if floating else op.Cast(y, to=int(ir.DataType.INT32))


def broadcast_scale(op: Op, node: Node, i: int, like: Array) -> Array:
    """A scale or zero point, one for each entry or broadcast to them, in the type of a tensor."""
    return per_block(node, i, dtype_of(like))._apply(op, op.CastLike(node.inputs[i], like))


@defines(f"{DOMAIN}::QLinearMatMul")
def qlinear_matmul(op: Op, node: Node) -> tuple[Array]:
    """As if y = clip(A B / scale + zero, low, high)."""
    return stored(op, node, op.MatMul(real(op, node, 0, -2), real(op, node, 3)), 6, node.x)


@defines(f"{DOMAIN}::QLinearConv")
def qlinear_conv(op: Op, node: Node) -> tuple[Array]:
    """As if y = clip((w ∗ x + b) / scale + zero, low, high); b counts in units of both scales."""
    w, bias = kernel_and_bias(op, node)
    y = op.Conv(real(op, node, 0), w, bias, **node.step.attrs)
    return stored(op, node, y, 6, node.x)
