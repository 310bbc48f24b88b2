"""Fused products: MatMul with transpositions, Gemm and Conv with an activation."""

from __future__ import annotations

from typing import Any

from ....jacobians import Array, shape_of
from ...node import Node
from ...numbers.windows import AUTO_PADS
from ...registry import defines
from .activations import activated


@defines("com.microsoft::FusedMatMul")
def fused_matmul(op: Any, node: Node) -> tuple[Array]:
    """y = α A' B', both operands transposed where the flags say so."""
    a = turned(op, node.x, node.transA, node.transBatchA)
    b = turned(op, node.inputs[1], node.transB, node.transBatchB)
    y = op.MatMul(a, b)
    return (y if node.alpha is None else op.Mul(y, node.alpha),)


def turned(op: Any, x: Array, matrix: int | None, batch: int | None) -> Array:
    """The first axis behind the batch axes, then the last two exchanged."""
    rank = len(shape_of(x))
    order = list(range(rank))
    if batch and rank > 2:
        order = [*order[1:-1], 0, rank - 1]
    if matrix and rank > 1:
        order[-2:] = order[:-3:-1]
    return op.Transpose(x, perm=tuple(order))


@defines("com.microsoft::FusedGemm")
def fused_gemm(op: Any, node: Node) -> tuple[Array]:
    """y = f(α A' B' + β C)."""
    fused = ("activation", "activation_alpha", "activation_beta", "activation_gamma")
    y = op.Gemm(*node.inputs, **{k: v for k, v in node.step.attrs.items() if k not in fused})
    given = (node.activation_alpha, node.activation_beta)
    return (activated(op, y, node.activation, tuple(v for v in given if v is not None)),)


@defines("com.microsoft::FusedConv", auto_pad=AUTO_PADS)
def fused_conv(op: Any, node: Node) -> tuple[Array]:
    """y = f(w ∗ x + b + z)."""
    fused = ("activation", "activation_params")
    y = op.Conv(*node.inputs[:3], **{k: v for k, v in node.step.attrs.items() if k not in fused})
    z = node.input(3)
    y = y if z is None else op.Add(y, z)
    return (activated(op, y, node.activation, node.activation_params or ()),)
