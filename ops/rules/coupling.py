"""Probabilities of classes, coupled from those of pairs of classes.

p minimises ½ pᵀQp where Σ p = 1, so that dp = -P dQ p with P the inverse of Q within Σ dp = 0.
Runtimes iterate to the minimum only roughly; this is the derivative of the minimum itself.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from ...jacobians import Array, BlockDiagonal, Diagonal, Jacobian, dtype_of, shape_of, transposed
from ..node import Node


def coupled(op: Any, node: Node, scores: Array, J: Jacobian) -> tuple[Array, Jacobian]:
    """The probability of every class and its derivative, given the scores of pairs and theirs.

    rᵢⱼ = σ(-(a s + b)) is the probability of i against j; Q = Σ over pairs of q qᵀ with
    q = rⱼᵢ eᵢ - rᵢⱼ eⱼ.
    """
    k, dtype = len(node.vectors_per_class), J.dtype
    a, b = (np.asarray(v, dtype) for v in (node.prob_a, node.prob_b))
    r = op.Sigmoid(op.Neg(op.Add(op.Mul(scores, a), b)))
    pairs = np.array(list(combinations(range(k), 2)))
    first, second = np.eye(k, dtype=dtype)[pairs.T]
    column = op.Unsqueeze(r, (-1,))
    q = op.Sub(op.Mul(op.Sub(1.0, column), first), op.Mul(column, second))
    inverse = spd_inverse(op, op.Add(op.MatMul(transposed(q), q), np.ones((k, k), dtype)))
    p = op.ReduceSum(inverse, (-1,), keepdims=1)
    share = op.Div(p, op.ReduceSum(p, (-2,), keepdims=1))
    within = op.Sub(inverse, op.MatMul(share, transposed(p)))
    # q turns by -(eᵢ + eⱼ) with r, so that dQ p = -Σ dr ((q·p)(eᵢ + eⱼ) + (pᵢ + pⱼ) q)
    both = first + second
    change = op.Add(op.Mul(op.MatMul(q, share), both), op.Mul(op.MatMul(both, share), q))
    blocks = op.MatMul(within, transposed(change))
    slope = op.Neg(op.Mul(op.Mul(r, op.Sub(1.0, r)), a))
    found = op.Reshape(share, (-1, k))
    return found, BlockDiagonal(blocks) @ Diagonal(slope, shape_of(r)) @ J


def spd_inverse(op: Any, A: Array) -> Array:
    """The inverse of small symmetric positive definite matrices: sweeping every row gives -A⁻¹."""
    k = shape_of(A)[-1]
    for t in range(k):
        e = np.eye(k, dtype=dtype_of(A))[:, t : t + 1]
        column = op.MatMul(A, e)
        pivot = op.MatMul(e.T, column)
        rest = op.Sub(column, e)
        outer = op.Div(op.MatMul(rest, transposed(rest)), pivot)
        A = op.Sub(op.Sub(A, outer), 2 * e @ e.T)
    return op.Neg(A)
