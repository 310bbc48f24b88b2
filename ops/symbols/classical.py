"""Operators of `ai.onnx.ml`, as their documentation describes them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from .number import kernel, nearby_closed_form
from .pointwise import det, softmax


def exact_rationals(values: Any, *shape: int) -> Any:
    made = np.array([nearby_closed_form(float(v)) for v in values], object)
    return made.reshape(shape) if shape else made


def transform_scores(scores: Any, name: str) -> Any:
    """The scores after the post transform."""
    if name == "NONE":
        return scores
    if name == "LOGISTIC":
        return 1 / (1 + np.exp(-scores))
    if name == "SOFTMAX":
        return softmax(scores)
    raise NotImplementedError(name)


@kernel("ai.onnx.ml::LinearRegressor")
def linear_regressor(
    x: Any, *, coefficients: Any, intercepts: Any = (0.0,), targets: int = 1,
    post_transform: str = "NONE",
) -> Any:  # fmt: skip
    """f(x Aᵀ + b)."""
    a = exact_rationals(coefficients, targets, -1)
    return transform_scores(np.matmul(x, a.T) + exact_rationals(intercepts), post_transform)


@kernel("ai.onnx.ml::LinearClassifier")
def linear_classifier(
    x: Any, *, coefficients: Any, intercepts: Any = (0.0,), post_transform: str = "NONE", **_: Any
) -> Any:
    """A label, and the scores f(x Aᵀ + b)."""
    a = exact_rationals(coefficients, -1, x.shape[-1])
    scores = transform_scores(np.matmul(x, a.T) + exact_rationals(intercepts), post_transform)
    return np.zeros(len(x), np.int64), scores


def kernel_value(x: Any, v: Any, name: str, params: Any) -> Any:
    """k(x, v)."""
    gamma, coefficient, degree = exact_rationals(params)
    inner = sum(a * b for a, b in zip(x, v, strict=True))
    if name == "RBF":
        return (-sum((a - b) * (a - b) for a, b in zip(x, v, strict=True)) * gamma).exp()
    if name == "POLY":
        return (inner * gamma + coefficient) ** int(degree)
    return (inner * gamma + coefficient).tanh() if name == "SIGMOID" else inner


def kernels(
    x: Any, vectors: Any, kernel_type: str = "LINEAR", kernel_params: Any = (0.0, 0.0, 0.0),
    **_: Any,
) -> Any:  # fmt: skip
    """k(x, v) for every support vector."""
    rows = exact_rationals(vectors, -1, len(x))
    return np.array([kernel_value(x, v, kernel_type, kernel_params) for v in rows], object)


@kernel("ai.onnx.ml::SVMClassifier")
def svm_classifier(
    x: Any, *, coefficients: Any, rho: Any, support_vectors: Any = (), vectors_per_class: Any = (),
    prob_a: Any = (), prob_b: Any = (), post_transform: str = "NONE", **how: Any,
) -> Any:  # fmt: skip
    """A label, and scores per pair of classes, scores per class, or probabilities."""
    if vectors_per_class:
        held = [kernels(row, support_vectors, **how) for row in x]
        scores = np.stack(
            [pairwise(k, exact_rationals(coefficients), vectors_per_class) for k in held]
        )
        scores = scores + exact_rationals(rho)
    else:
        scores = x @ exact_rationals(coefficients, -1, x.shape[1]).T + exact_rationals(rho)[0]
    if prob_a:
        r = 1 / (1 + np.exp(scores * exact_rationals(prob_a) + exact_rationals(prob_b)))
        scores = np.stack([coupled_probabilities(row, len(vectors_per_class)) for row in r])
    elif scores.shape[1] == 1:
        scores = np.concatenate([-scores, scores], axis=1)
    return np.zeros(len(x), np.int64), transform_scores(scores, post_transform)


def pairwise(k: Any, coefficients: Any, counts: list[int]) -> Any:
    """sᵢⱼ = Σ c k(x, v) over the vectors of class i against j and of class j against i."""
    weights = coefficients.reshape(len(counts) - 1, -1)
    owner = np.repeat(np.arange(len(counts)), counts)
    return np.array([
        weights[j - 1, owner == i] @ k[owner == i] + weights[i, owner == j] @ k[owner == j]
        for i, j in combinations(range(len(counts)), 2)
    ], object)  # fmt: skip


def coupled_probabilities(r: Any, count: int) -> Any:
    """The p with Σ p = 1 that minimises ½ Σ (rⱼᵢ pᵢ - rᵢⱼ pⱼ)², by Cramer's rule."""
    system = np.zeros((count + 1, count + 1), object)
    system[:count, count] = system[count, :count] = 1
    for rij, (i, j) in zip(r, combinations(range(count), 2), strict=True):
        q = {i: 1 - rij, j: -rij}
        for a in q:
            for b in q:
                system[a, b] = system[a, b] + q[a] * q[b]
    right = np.eye(count + 1, dtype=int)[count].astype(object)
    return np.array([det(replace_column(system, k, right)) for k in range(count)]) / det(system)


def replace_column(matrix: Any, k: int, column: Any) -> Any:
    made = matrix.copy()
    made[:, k] = column
    return made
