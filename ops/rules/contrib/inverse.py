"""The inverse of matrices."""

from __future__ import annotations

from typing import Any

from ....jacobians import Array, Contraction
from ...node import Node
from ...registry import Blocks, defines, jacobian
from ..factors import minors


@defines("com.microsoft::Inverse")
def inverse(op: Any, node: Node) -> tuple[Array]:
    """Y = cofactors(X)ᵀ / det X."""
    rank = len(node.x_shape)
    turned = (*range(rank - 2), rank - 1, rank - 2)
    adjugate = op.Transpose(minors(op, node.x, node.x_shape[-1]), perm=turned)
    return (op.Div(adjugate, op.Unsqueeze(op.Det(node.x), (-2, -1))),)


@jacobian("com.microsoft::Inverse")
def inverse_blocks(op: Any, node: Node) -> Blocks:
    """dY = -Y dX Y."""
    labels = "abcdefgh"[: len(node.x_shape) - 2]
    n = node.x_shape[-1]
    sizes = {**dict(zip(labels, node.x_shape, strict=False)), **dict.fromkeys("ijkl", n)}
    factors = ((op.Neg(node.y), f"{labels}ik"), (node.y, f"{labels}lj"))
    return {(0, 0): Contraction(factors, f"{labels}kl", f"{labels}ij", sizes)}
