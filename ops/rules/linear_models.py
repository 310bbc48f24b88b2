"""LinearRegressor and LinearClassifier of `ai.onnx.ml`, and the post transforms of scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Eye,
    Identity,
    Jacobian,
    Reshape,
    dtype_of,
    implicit_kron,
    shape_of,
    size,
)  # fmt: skip
from ..formula import derivative
from ..node import Node
from ..registry import Blocks, jacobian
from ..trees import evaluate
from .normalization import spread_total
from .pointwise import cast_input

PROBIT = "1.41421356*sqrt(sqrt(({v})**2 - log(4*x*(1 - x))/0.147) - ({v}))".format(
    v="2/(pi*0.147) + log(4*x*(1 - x))/2"
)
"""|√2 erf⁻¹(2x - 1)| as every runtime approximates it."""


TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
"""The post transforms of scores."""


@jacobian("ai.onnx.ml::LinearRegressor", post_transform=TRANSFORMS)
def linear_regressor(op: Any, node: Node) -> Blocks:
    """y = f(x Aᵀ + b)."""
    A = np.reshape(node.coefficients, (node.targets, -1))
    return {(0, 0): scored(op, node, 0, *linear(op, node, 0, A, node.intercepts))}


@jacobian("ai.onnx.ml::LinearClassifier", post_transform=TRANSFORMS)
def linear_classifier(op: Any, node: Node) -> Blocks:
    """The scores f(x Aᵀ + b) are the second output; the labels have no derivative."""
    A = np.reshape(node.coefficients, (-1, node.x_shape[-1]))
    return {(1, 0): scored(op, node, 1, *linear(op, node, 1, A, node.intercepts))}


def linear(op: Any, node: Node, o: int, A: Any, b: Any) -> tuple[Array, Jacobian]:
    """The scores x Aᵀ + b, one row per sample, and ∂scores/∂x, in the dtype of output o."""
    A = np.asarray(A, dtype_of(node.outputs[o]))
    rows = (size(node.x_shape) // A.shape[1], A.shape[1])
    x = op.Reshape(op.CastLike(node.x, A), rows)
    scores = op.Add(op.MatMul(x, A.T), np.asarray(b or 0.0, A.dtype))
    return scores, implicit_kron(Eye(rows[0]), A) @ Reshape(rows, node.x_shape, A.dtype)


def scored(op: Any, node: Node, o: int, scores: Array, J: Jacobian) -> Jacobian:
    """∂yₒ/∂x, given the scores and ∂scores/∂x; a single score s may stand for the pair (-s, s)."""
    y = node.outputs[o]
    shape, dtype = shape_of(y), J.dtype
    if o and J.out_shape[-1] == 1 and shape[-1] == 2:  # regressors have no pairs
        pair = np.array([[-1.0], [1.0]], dtype)
        J, scores = implicit_kron(Eye(J.out_shape[0]), pair) @ J, op.MatMul(scores, pair.T)
    J = Reshape(shape, J.out_shape, dtype) @ J @ cast_input(node, 0, o)
    return transformed(op, node.post_transform, op.Reshape(scores, shape), y) @ J


def transformed(op: Any, name: str, scores: Array, y: Array) -> Jacobian:
    """∂f/∂scores of a post transform y = f(scores)."""
    shape, dtype = shape_of(y), dtype_of(y)
    if name == "LOGISTIC":
        return Diagonal(op.Mul(y, op.Sub(1.0, y)))
    if name in ("SOFTMAX", "SOFTMAX_ZERO"):
        d = Diagonal(y)
        return d @ (Identity(shape, dtype) - spread_total(shape, (len(shape) - 1,), dtype) @ d)
    if name == "PROBIT":
        slope = evaluate(op, derivative(PROBIT, "x"), {"x": scores}, dtype)
        return Diagonal(op.Mul(op.Sign(y), slope))
    return Identity(shape, dtype)
