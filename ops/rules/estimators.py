"""Straight-through estimators: surrogates for derivatives that are zero.

They have their own domain and are used only on request. Source: Bengio, Léonard and Courville
2013; for the scale, Esser et al. 2020 (LSQ).
"""

from __future__ import annotations

from typing import Any

from ...jacobians import Diagonal, Identity
from ..node import Node
from ..registry import Blocks, jacobian
from .casts import cast_input
from .quantization import per_block

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


@jacobian(f"{DOMAIN}::QuantizeDequantize")
def quantize_dequantize(op: Any, node: Node) -> Blocks:
    """As if y = clip(x, low, high), with the integer range times the scale s as bounds.

    ∂y/∂s = (y - x)/s inside the range and y/s where x is clipped.
    """
    expansion = per_block(node, 1)
    x, y = op.CastLike(node.x, node.y), node.y
    scale = expansion._apply(op, op.CastLike(node.inputs[1], y))
    reach = op.Mul(scale, op.CastLike(0.5 + 1e-4, y))
    inside = op.CastLike(op.LessOrEqual(op.Abs(op.Sub(x, y)), reach), y)
    slope = op.Div(op.Sub(y, op.Mul(inside, x)), scale)
    return {
        (0, 0): Diagonal(inside, node.y_shape, chooses=True) @ cast_input(node, 0),
        (0, 1): Diagonal(slope, node.y_shape) @ expansion @ cast_input(node, 1),
    }
