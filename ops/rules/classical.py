"""`ai.onnx.ml`: preprocessing of features, linear models, support vector machines."""

from __future__ import annotations

from itertools import accumulate, combinations

import numpy as np

from ...jacobians import (
    Array,
    BlockDiagonal,
    Diagonal,
    Eye,
    Identity,
    Jacobian,
    Op,
    Reshape,
    dtype_of,
    implicit_kron,
    shape_of,
    size,
    slab,
    transposed,
)
from ..conventions import ORDER, SHARED, ZERO_NORM, are_zero, kinks, marked, tied
from ..indexed import declare_indexed
from ..node import Node
from ..registry import Blocks, Count, jacobian
from ..trees import evaluate_tree
from .elementwise import slope_of, slope_tree
from .normalization import normalised, spread_total

declare_indexed(
    "ai.onnx.ml::Scaler",
    "y[*n, c] = (x[*n, c] - offset[c])*scale[c]",
    inputs="x",
    numbers=lambda op, node: {
        "offset": np.asarray(node.offset or [0.0], node.dtype),
        "scale": np.asarray(node.scale or [1.0], node.dtype),
    },
)
declare_indexed(
    "ai.onnx.ml::Imputer",
    {
        False: "y[*n] = 0 if x[*n] == replaced_value_float else x[*n]",
        True: "y[*n] = 0 if missing[*n] > 0 else x[*n]",
    },
    inputs="x",
    by=lambda node: bool(np.isnan(node.replaced_value_float)),
    numbers=lambda op, node: {"missing": op.IsNaN(node.x)},
)


@kinks("ai.onnx.ml::Imputer", where="where an entry is the replaced value",
       given="0: a constant stands there")  # fmt: skip
def replaced_entries(node: Node) -> Count:
    """Entries that equal the value to be replaced."""
    value = node.replaced_value_float
    return marked(np.isnan(node.x) if np.isnan(value) else node.x == value)


declare_indexed(
    "ai.onnx.ml::ArrayFeatureExtractor",
    "y[*n, *t] = x[*n, index[*t]]",
    axes=lambda node: {"": (len(node.x_shape) - 1,)},
)


@jacobian("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(op: Op, node: Node) -> Blocks:
    """The concatenated columns of all inputs, each truncated or zero-padded to its width."""
    widths = node.inputdimensions
    return {
        (0, i): embed_columns(node, i, start, width)
        for i, (start, width) in enumerate(zip(accumulate(widths, initial=0), widths, strict=False))
        if node.wants(i)
    }


def embed_columns(node: Node, i: int, start: int, width: int) -> Jacobian:
    """Input i embedded in y as the columns from `start` on."""
    x = node.inputs[i]
    rows = (node.y_shape[0], size(shape_of(x)) // max(node.y_shape[0], 1))
    kept = min(width, rows[1])
    cut = slab(rows, 1, 0, kept, node.dtype) @ Reshape(rows, shape_of(x), node.dtype)
    return slab(node.y_shape, 1, start, start + kept, node.dtype).T @ cut


@jacobian("ai.onnx.ml::Normalizer", norm=("MAX", "L1", "L2"))
def normalizer(op: Op, node: Node) -> Blocks:
    """y = x / m(x) with a norm m of the row."""
    x = op.CastLike(node.x, node.y)
    g = norm_slope(op, node, x)
    norm = op.ReduceSum(op.Mul(g, x), (-1,), keepdims=1)
    inverse = op.Reciprocal(op.Where(op.Equal(norm, 0.0), 1.0, norm))
    axis = len(node.y_shape) - 1
    return {(0, 0): normalised(node, inverse, node.y, g, axis)}


def norm_slope(op: Op, node: Node, x: Array) -> Array:
    """∂m/∂x: sign(x) for L1, y for L2, and ±1 at the largest |x| for MAX, split among ties."""
    if node.norm == "L1":
        return op.Sign(x)
    if node.norm == "L2":
        return node.y
    hits = op.CastLike(op.Equal(op.Abs(node.y), 1.0), x)
    count = op.ReduceSum(hits, (-1,), keepdims=1)
    return op.Div(op.Mul(hits, op.Sign(node.y)), op.Max(count, 1.0))


@kinks("ai.onnx.ml::Normalizer",
       where=f"{ZERO_NORM}; for L1, where an entry is 0; for MAX, {ORDER}",
       given=f"a norm of 0 counts as 1, |0| has 0, and a maximum is {SHARED}")  # fmt: skip
def kinks_of_norms(node: Node) -> Count:
    """Entries that are 0 for L1, rows of zeros for L2, rows with two greatest entries for MAX."""
    if node.norm == "MAX":
        sizes = np.abs(node.x)
        return tied((sizes == sizes.max(axis=-1, keepdims=True)).sum(axis=-1))
    return are_zero(node) if node.norm == "L1" else marked(np.all(node.x == 0, axis=-1))


PROBIT = "1.41421356*sqrt(sqrt(({v})**2 - log(4*x*(1 - x))/0.147) - ({v}))".format(
    v="2/(pi*0.147) + log(4*x*(1 - x))/2"
)
"""|√2 erf⁻¹(2x - 1)| as every runtime approximates it."""


TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
"""The post transforms of scores."""


@jacobian("ai.onnx.ml::LinearRegressor", post_transform=TRANSFORMS)
def linear_regressor(op: Op, node: Node) -> Blocks:
    """y = f(x Aᵀ + b)."""
    A = np.reshape(node.coefficients, (node.targets, -1))
    return {(0, 0): scored(op, node, 0, *linear_scores(op, node, 0, A, node.intercepts))}


@jacobian("ai.onnx.ml::LinearClassifier", post_transform=TRANSFORMS)
def linear_classifier(op: Op, node: Node) -> Blocks:
    """The scores f(x Aᵀ + b) are the second output; the labels have no derivative."""
    A = np.reshape(node.coefficients, (-1, node.x_shape[-1]))
    return {(1, 0): scored(op, node, 1, *linear_scores(op, node, 1, A, node.intercepts))}


def linear_scores(op: Op, node: Node, o: int, A: Array, b: Array) -> tuple[Array, Jacobian]:
    """The scores x Aᵀ + b, one row per sample, and ∂scores/∂x, in the dtype of output o."""
    A = np.asarray(A, dtype_of(node.outputs[o]))
    rows = (size(node.x_shape) // A.shape[1], A.shape[1])
    x = op.Reshape(op.CastLike(node.x, A), rows)
    scores = op.Add(op.MatMul(x, A.T), np.asarray(b or 0.0, A.dtype))
    return scores, implicit_kron(Eye(rows[0]), A) @ Reshape(rows, node.x_shape, A.dtype)


def scored(op: Op, node: Node, o: int, scores: Array, J: Jacobian) -> Jacobian:
    """∂yₒ/∂x, given the scores and ∂scores/∂x; a single score s may stand for the pair (-s, s)."""
    y = node.outputs[o]
    shape, dtype = shape_of(y), J.dtype
    if o and J.out_shape[-1] == 1 and shape[-1] == 2:  # regressors have no pairs
        pair = np.array([[-1.0], [1.0]], dtype)
        J, scores = implicit_kron(Eye(J.out_shape[0]), pair) @ J, op.MatMul(scores, pair.T)
    J = Reshape(shape, J.out_shape, dtype) @ J
    return transformed(op, node.post_transform, op.Reshape(scores, shape), y) @ J


def transformed(op: Op, name: str, scores: Array, y: Array) -> Jacobian:
    """∂f/∂scores of a post transform y = f(scores)."""
    shape, dtype = shape_of(y), dtype_of(y)
    if name == "LOGISTIC":
        return Diagonal(slope_of(op, "Sigmoid", scores, y))
    if name in ("SOFTMAX", "SOFTMAX_ZERO"):
        d = Diagonal(y)
        return d @ (Identity(shape, dtype) - spread_total(shape, (len(shape) - 1,), dtype) @ d)
    if name == "PROBIT":
        slope = evaluate_tree(op, slope_tree(PROBIT, "x"), {"x": scores}, dtype)
        return Diagonal(op.Mul(op.Sign(y), slope))
    return Identity(shape, dtype)


KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


@jacobian("ai.onnx.ml::SVMRegressor", kernel_type=KERNELS, post_transform=TRANSFORMS)
def svm_regressor(op: Op, node: Node) -> Blocks:
    """y = Σ cᵥ k(x, v) + ρ; for `one_class` its sign, which is piecewise constant."""
    if node.one_class:
        return {}
    if not node.n_supports:
        return {
            (0, 0): scored(op, node, 0, *linear_scores(op, node, 0, [node.coefficients], node.rho))
        }
    return {(0, 0): scored(op, node, 0, *supported(op, node, 0, np.array([node.coefficients])))}


@jacobian("ai.onnx.ml::SVMClassifier", kernel_type=KERNELS, post_transform=TRANSFORMS)
def svm_classifier(op: Op, node: Node) -> Blocks:
    """The scores are the second output: one per class or per pair of classes, or probabilities."""
    labels = node.classlabels_ints or node.classlabels_strings or (1,)
    if not node.vectors_per_class:
        A = np.reshape(node.coefficients, (len(labels), -1))
        return {(1, 0): scored(op, node, 1, *linear_scores(op, node, 1, A, node.rho[:1]))}
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


def supported(op: Op, node: Node, o: int, weights: np.ndarray) -> tuple[Array, Jacobian]:
    """The scores Σᵥ w[p, v] k(x, v) + ρ[p] and ∂scores/∂x, a dense block per sample."""
    dtype = dtype_of(node.outputs[o])
    w = np.asarray(weights, dtype)
    vectors = np.reshape(np.asarray(node.support_vectors, dtype), (w.shape[1], -1))
    x = op.Reshape(op.CastLike(node.x, vectors), (-1, vectors.shape[1]))
    value, slope = svm_kernel(op, node, x, vectors)
    scores = op.Add(op.MatMul(value, w.T), np.asarray(node.rho[: len(w)], dtype))
    weighted = op.Mul(op.Unsqueeze(slope, (1,)), w)
    blocks = op.MatMul(weighted, vectors)
    if node.kernel_type == "RBF":
        blocks = op.Sub(blocks, op.Mul(op.ReduceSum(weighted, (-1,)), op.Unsqueeze(x, (1,))))
    J = BlockDiagonal(blocks)
    return scores, J @ Reshape(J.in_shape, node.x_shape, dtype)


def svm_kernel(op: Op, node: Node, x: Array, vectors: np.ndarray) -> tuple[Array, Array]:
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
        return value, op.Mul(slope_of(op, "Tanh", s, value), gamma)
    return inner, op.Expand(np.ones((), vectors.dtype), shape_of(inner))


def coupled(op: Op, node: Node, scores: Array, J: Jacobian) -> tuple[Array, Jacobian]:
    """Class probabilities and their Jacobian, given the pairwise scores and their Jacobian J.

    rᵢⱼ = σ(-(a s + b)) is the probability of i against j; Q = Σ over pairs of q qᵀ with
    q = rⱼᵢ eᵢ - rᵢⱼ eⱼ.
    """
    k, dtype = len(node.vectors_per_class), J.dtype
    a, b = (np.asarray(v, dtype) for v in (node.prob_a, node.prob_b))
    z = op.Neg(op.Add(op.Mul(scores, a), b))
    r = op.Sigmoid(z)
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
    slope = op.Neg(op.Mul(slope_of(op, "Sigmoid", z, r), a))
    found = op.Reshape(share, (-1, k))
    return found, BlockDiagonal(blocks) @ Diagonal(slope, shape_of(r)) @ J


def spd_inverse(op: Op, A: Array) -> Array:
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
