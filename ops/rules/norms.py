"""Operators around ‖x‖ₚ = (Σ |x|ᵖ)^(1/p); where the norm is 0 their derivative is said to be 0."""

from __future__ import annotations

from typing import Any

from ...jacobians import Array, Diagonal, Identity, Jacobian, broadcast
from ..node import Node
from ..numbers.windows import AUTO_PADS
from ..registry import Blocks, jacobian
from .pooling import window_sums
from .reductions import kept_shape, spatial, total
from .windows import windows_of


@jacobian("LpPool", auto_pad=AUTO_PADS)
def lp_pool(op: Any, node: Node) -> Blocks:
    """The norm of each window."""
    return {(0, 0): norm_block(op, node, window_sums(node, windows_of(node, node.kernel_shape)))}


@jacobian("GlobalLpPool")
def global_lp_pool(op: Any, node: Node) -> Blocks:
    """The norm over all spatial axes."""
    return {(0, 0): norm_block(op, node, total(node.x_shape, spatial(node.x_shape), node.dtype))}


def norm_block(op: Any, node: Node, sums: Jacobian) -> Jacobian:
    """J = diag(y^(1-p)) S diag(sign(x) |x|^(p-1)), with y = (S |x|ᵖ)^(1/p)."""
    none = op.Equal(node.y, 0.0)
    outer = op.Where(none, 0.0, power(op, op.Where(none, 1.0, node.y), 1 - node.p))
    return Diagonal(outer) @ sums @ Diagonal(slope(op, node.x, node.p))


@jacobian("LpNormalization", p=(1, 2))
def lp_normalization(op: Any, node: Node) -> Blocks:
    """y = x / ‖x‖: J = 1/‖x‖ (I - diag(y) 1 sᵀ) along the axis, with s = sign(y) |y|^(p-1)."""
    axis, x = node.axis % len(node.x_shape), node.x
    sizes = op.Abs(x) if node.p == 1 else op.Mul(x, x)
    norm = op.ReduceSum(sizes, (axis,), keepdims=1)
    norm = norm if node.p == 1 else op.Sqrt(norm)
    none = op.Equal(norm, 0.0)
    inverse = op.Where(none, 0.0, op.Reciprocal(op.Where(none, 1.0, norm)))
    spread = broadcast(kept_shape(node.x_shape, (axis,)), node.x_shape, node.dtype)
    y = op.Mul(x, inverse)
    rest = Diagonal(y) @ spread @ spread.T @ Diagonal(slope(op, y, node.p))
    return {(0, 0): Diagonal(inverse, node.x_shape) @ (Identity(node.x_shape, node.dtype) - rest)}


def slope(op: Any, x: Array, p: int) -> Array:
    """sign(x) |x|^(p-1)."""
    if p == 1:
        return op.Sign(x)
    return x if p == 2 else op.Mul(op.Sign(x), power(op, op.Abs(x), p - 1))


def power(op: Any, x: Array, exponent: int) -> Array:
    """x to an integer."""
    return op.Pow(x, op.CastLike(float(exponent), x))
