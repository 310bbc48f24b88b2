"""Feature preprocessing in `ai.onnx.ml`: scaling, imputing, selecting, joining, normalising."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from ...jacobians import Array, Diagonal, Identity, Reshape, Take, dtype_of, shape_of, size, slab
from ..conventions import ORDER, SHARED, ZERO_NORM, kinks, marked, tied, zeros
from ..node import Node
from ..registry import Blocks, Count, jacobian
from .normalization import spread_total
from .pointwise import cast_input


@jacobian("ai.onnx.ml::Scaler")
def scaler(op: Any, node: Node) -> Blocks:
    """y = (x - offset) · scale."""
    scale = np.asarray(node.scale or 1.0, node.dtype)
    return {(0, 0): Diagonal(scale, node.y_shape) @ cast_input(node)}


@jacobian("ai.onnx.ml::Imputer")
def imputer(op: Any, node: Node) -> Blocks:
    """y = x, except where x equals a given value, often NaN, that a constant replaces."""
    missing = node.replaced_value_float
    replaced = op.IsNaN(node.x) if np.isnan(missing) else op.Equal(node.x, missing)
    return {(0, 0): Diagonal(op.CastLike(op.Not(replaced), node.y), chooses=True)}


@kinks("ai.onnx.ml::Imputer", where="where an entry is the replaced value",
       given="0: a constant stands there")  # fmt: skip
def replaced_entries(node: Node) -> Count:
    """Entries that equal the value to be replaced."""
    value = node.replaced_value_float
    return marked(np.isnan(node.x) if np.isnan(value) else node.x == value)


@jacobian("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(op: Any, node: Node) -> Blocks:
    """y = x[..., index]."""
    J = Take(op.Reshape(node.inputs[1], (-1,)), -1, node.x_shape, node.dtype)
    return {(0, 0): Reshape(node.y_shape, J.out_shape, node.dtype) @ J}


@jacobian("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(op: Any, node: Node) -> Blocks:
    """The concatenated columns of all inputs, each truncated or zero-padded to its width."""
    widths = node.inputdimensions
    return {
        (0, i): columns(node, i, start, width)
        for i, (start, width) in enumerate(zip(accumulate(widths, initial=0), widths, strict=False))
        if node.wants(i)
    }


def columns(node: Node, i: int, start: int, width: int) -> Any:
    """Input i embedded in y as the columns from `start` on."""
    x = node.inputs[i]
    rows = (node.y_shape[0], size(shape_of(x)) // max(node.y_shape[0], 1))
    kept = min(width, rows[1])
    cut = slab(rows, 1, 0, kept, node.dtype) @ Reshape(rows, shape_of(x), dtype_of(x))
    return slab(node.y_shape, 1, start, start + kept, node.dtype).T @ cut @ cast_input(node, i)


@jacobian("ai.onnx.ml::Normalizer", norm=("MAX", "L1", "L2"))
def normalizer(op: Any, node: Node) -> Blocks:
    """y = x / m(x) with a norm m of the row: J = (I - y gᵀ) / m, where g = ∂m/∂x and m = gᵀx."""
    shape, x = node.y_shape, op.CastLike(node.x, node.y)
    g = norm_slope(op, node, x)
    norm = op.ReduceSum(op.Mul(g, x), (-1,), keepdims=1)
    inverse = op.Reciprocal(op.Where(op.Equal(norm, 0.0), 1.0, norm))
    total = spread_total(shape, (len(shape) - 1,), node.dtype)
    J = Identity(shape, node.dtype) - Diagonal(node.y) @ total @ Diagonal(g)
    return {(0, 0): Diagonal(inverse, shape) @ J @ cast_input(node)}


def norm_slope(op: Any, node: Node, x: Array) -> Array:
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
    return zeros(node) if node.norm == "L1" else marked(np.all(node.x == 0, axis=-1))
