"""Straight-through estimators: surrogates for derivatives that are zero.

Estimators have their own domain and are used only on request. Quantised tensors are floating ones
that hold the same integers, so that rounding is the only estimator. Source: Bengio, Léonard and
Courville 2013; for the scale, Esser et al. 2020 (LSQ).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Diagonal, Identity, dtype_of
from ..node import Node
from ..registry import Blocks, defines, jacobian
from .quantization import kernel_and_bias, per_block, real, stored

DOMAIN = "onnxjac.straight_through"
"""Operators of this domain occur in linearisations only, never in a model file."""


@jacobian(f"{DOMAIN}::Round", f"{DOMAIN}::Floor", f"{DOMAIN}::Ceil")
def rounding(op: Any, node: Node) -> Blocks:
    """As if y = x."""
    return {(0, 0): Identity(node.y_shape, node.dtype)}


@jacobian(f"{DOMAIN}::Sign")
def sign(op: Any, node: Node) -> Blocks:
    """As if y = clip(x, -1, 1)."""
    inside = op.LessOrEqual(op.Abs(node.x), op.CastLike(1.0, node.x))
    return {(0, 0): Diagonal(op.CastLike(inside, node.y), node.y_shape, chooses=True)}


@defines(f"{DOMAIN}::QuantizeLinear")
def quantize_through(op: Any, node: Node) -> tuple[Array]:
    """As if y = clip(x / scale + zero, low, high), where the integers are floating numbers.

    A narrow float is a cast of x / scale.
    """
    x, zero = node.x, node.input(2)
    dtype = dtype_of(zero) if zero is not None else stored_as(node)
    y = op.Div(x, spread(op, node, 1, x))
    if dtype.kind not in "iuV" or "float" in dtype.name:
        return (op.CastLike(y, np.zeros((), dtype)),)
    y = op.Round(y) if zero is None else op.Add(op.Round(y), spread(op, node, 2, x))
    bounds = ml_dtypes.iinfo(dtype)
    low, high = (np.asarray(bound, dtype_of(x)) for bound in (bounds.min, bounds.max))
    return (op.Clip(y, low, high),)


@defines(f"{DOMAIN}::DequantizeLinear")
def dequantize_through(op: Any, node: Node) -> tuple[Array]:
    """As if y = (q - zero) scale, for floating numbers q."""
    scale = node.inputs[1]
    q = op.CastLike(node.x, scale)
    q = q if node.input(2) is None else op.Sub(q, spread(op, node, 2, scale))
    return (op.Mul(q, spread(op, node, 1, scale)),)


def stored_as(node: Node) -> np.dtype:
    """The type of a quantised tensor without a zero point."""
    return np.dtype(ir.DataType(node.output_dtype or ir.DataType.UINT8).numpy())


def spread(op: Any, node: Node, i: int, like: Array) -> Array:
    """A scale or zero point, one for each entry or broadcast to them, in the type of a tensor."""
    return per_block(node, i, dtype_of(like))._apply(op, op.CastLike(node.inputs[i], like))


@defines(f"{DOMAIN}::QLinearMatMul")
def qlinear_matmul(op: Any, node: Node) -> tuple[Array]:
    """As if y = clip(A B / scale + zero, low, high)."""
    return stored(op, node, op.MatMul(real(op, node, 0, -2), real(op, node, 3)), 6, node.x)


@defines(f"{DOMAIN}::QLinearConv")
def qlinear_conv(op: Any, node: Node) -> tuple[Array]:
    """As if y = clip((w ∗ x + b) / scale + zero, low, high); b counts in units of both scales."""
    w, bias = kernel_and_bias(op, node)
    y = op.Conv(real(op, node, 0), w, bias, **node.step.attrs)
    return stored(op, node, y, 6, node.x)
