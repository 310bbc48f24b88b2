"""SVMRegressor and SVMClassifier of `ai.onnx.ml`: weighted sums of kernels at support vectors."""

from __future__ import annotations

from itertools import accumulate, combinations
from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    BlockDiagonal,
    Diagonal,
    Jacobian,
    Reshape,
    dtype_of,
    shape_of,
    transposed,
)
from ..node import Node
from ..registry import Blocks, jacobian
from .linear_models import TRANSFORMS, linear, scored

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@jacobian("ai.onnx.ml::SVMRegressor", kernel_type=KERNELS, post_transform=TRANSFORMS)
def svm_regressor(op: Any, node: Node) -> Blocks:
    """y = Σ cᵥ k(x, v) + ρ; for `one_class` its sign, which is piecewise constant."""
    if node.one_class:
        return {}
    if not node.n_supports:
        return {(0, 0): scored(op, node, 0, *linear(op, node, 0, [node.coefficients], node.rho))}
    return {(0, 0): scored(op, node, 0, *supported(op, node, 0, np.array([node.coefficients])))}


@jacobian("ai.onnx.ml::SVMClassifier", kernel_type=KERNELS, post_transform=TRANSFORMS)
def svm_classifier(op: Any, node: Node) -> Blocks:
    """The scores are the second output: one per class or per pair of classes, or probabilities."""
    labels = node.classlabels_ints or node.classlabels_strings or (1,)
    if not node.vectors_per_class:
        A = np.reshape(node.coefficients, (len(labels), -1))
        return {(1, 0): scored(op, node, 1, *linear(op, node, 1, A, node.rho[:1]))}
    scores, J = supported(op, node, 1, pairwise_weights(node))
    if node.prob_a:
        scores, J = coupled(op, node, scores, J)
    return {(1, 0): scored(op, node, 1, scores, J)}


def pairwise_weights(node: Node) -> np.ndarray:
    """One row per pair of classes (i, j): the coefficients of the vectors of i and of j."""
    counts = node.vectors_per_class
    ends = list(accumulate(counts, initial=0))
    given = np.reshape(node.coefficients, (-1, ends[-1]))
    pairs = list(combinations(range(len(counts)), 2))
    weights = np.zeros((len(pairs), ends[-1]))
    for row, (i, j) in zip(weights, pairs, strict=True):
        row[ends[i] : ends[i + 1]] = given[j - 1, ends[i] : ends[i + 1]]
        row[ends[j] : ends[j + 1]] = given[i, ends[j] : ends[j + 1]]
    return weights


def supported(op: Any, node: Node, o: int, weights: np.ndarray) -> tuple[Array, Jacobian]:
    """The scores Σᵥ w[p, v] k(x, v) + ρ[p] and ∂scores/∂x, a dense block per sample."""
    dtype = dtype_of(node.outputs[o])
    w = np.asarray(weights, dtype)
    vectors = np.reshape(np.asarray(node.support_vectors, dtype), (w.shape[1], -1))
    x = op.Reshape(op.CastLike(node.x, vectors), (-1, vectors.shape[1]))
    value, slope = kernel(op, node, x, vectors)
    scores = op.Add(op.MatMul(value, w.T), np.asarray(node.rho[: len(w)], dtype))
    weighted = op.Mul(op.Unsqueeze(slope, (1,)), w)
    blocks = op.MatMul(weighted, vectors)
    if node.kernel_type == "RBF":
        blocks = op.Sub(blocks, op.Mul(op.ReduceSum(weighted, (-1,)), op.Unsqueeze(x, (1,))))
    J = BlockDiagonal(blocks)
    return scores, J @ Reshape(J.in_shape, node.x_shape, dtype)


def kernel(op: Any, node: Node, x: Array, vectors: np.ndarray) -> tuple[Array, Array]:
    """k(x, v) and a factor s of its slope: ∂k/∂x = s v, or s (v - x) for a radial kernel."""
    gamma, coefficient, degree = node.kernel_params or (0.0, 0.0, 0.0)
    inner = op.MatMul(x, vectors.T)
    if node.kernel_type == "RBF":
        squares = op.ReduceSum(op.Mul(x, x), (-1,))
        distance = op.Sub(op.Add(squares, np.sum(vectors**2, axis=1)), op.Mul(inner, 2.0))
        value = op.Exp(op.Mul(distance, -gamma))
        return value, op.Mul(value, 2 * gamma)
    s = op.Add(op.Mul(inner, gamma), coefficient)
    if node.kernel_type == "POLY":
        lower = op.Pow(s, np.asarray(int(degree) - 1, vectors.dtype))
        return op.Mul(lower, s), op.Mul(lower, gamma * int(degree))
    if node.kernel_type == "SIGMOID":
        value = op.Tanh(s)
        return value, op.Mul(op.Sub(1.0, op.Mul(value, value)), gamma)
    return inner, op.Expand(np.ones((), vectors.dtype), shape_of(inner))


def coupled(op: Any, node: Node, scores: Array, J: Jacobian) -> tuple[Array, Jacobian]:
    """Class probabilities and their Jacobian, given the pairwise scores and their Jacobian J.

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
    # ∂q/∂r = -(eᵢ + eⱼ), so that dQ p = -Σ dr ((q·p)(eᵢ + eⱼ) + (pᵢ + pⱼ) q)
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
