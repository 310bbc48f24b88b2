"""Operators of `ai.onnx.ml`, as their documentation describes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .exact import closed_form
from .linear import softmax
from .table import kernel


def exact(values: Any, *shape: int) -> Any:
    """Attributes as exact numbers."""
    made = np.array([closed_form(float(v)) for v in values], object)
    return made.reshape(shape) if shape else made


@kernel("ai.onnx.ml::Scaler")
def scaler(x: Any, *, offset: Any = (0.0,), scale: Any = (1.0,)) -> Any:
    """(x - offset) · scale."""
    return (x - exact(offset)) * exact(scale)


@kernel("ai.onnx.ml::Imputer")
def imputer(
    x: Any, *, imputed_value_floats: Any, replaced_value_float: float = 0.0, **_: Any
) -> Any:
    """x, but the imputed value where x is the one to be replaced."""
    return np.where(x == replaced_value_float, exact(imputed_value_floats), x)


@kernel("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(x: Any, index: Any) -> Any:
    """Columns of x."""
    return x[..., np.ravel(index)]


@kernel("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(*xs: Any, inputdimensions: Any) -> Any:
    """The inputs side by side."""
    return np.concatenate([x[:, :n] for x, n in zip(xs, inputdimensions, strict=True)], axis=1)


@kernel("ai.onnx.ml::Normalizer")
def normalizer(x: Any, *, norm: str = "MAX") -> Any:
    """Every row over its norm."""
    sizes = {
        "L1": lambda row: sum(abs(a) for a in row),
        "L2": lambda row: sum(a * a for a in row).sqrt(),
        "MAX": lambda row: max(abs(a) for a in row),
    }[norm]
    return np.stack([row / sizes(row) for row in x])


def transformed(scores: Any, name: str) -> Any:
    """The post transform."""
    if name == "NONE":
        return scores
    if name == "LOGISTIC":
        return 1 / (1 + np.exp(-scores))
    if name == "SOFTMAX":
        return softmax(scores)
    raise NotImplementedError(name)


@kernel("ai.onnx.ml::LinearRegressor")
def linear_regressor(
    x: Any,
    *,
    coefficients: Any,
    intercepts: Any = (0.0,),
    targets: int = 1,
    post_transform: str = "NONE",
) -> Any:
    """f(x Aᵀ + b)."""
    a = exact(coefficients, targets, -1)
    return transformed(np.matmul(x, a.T) + exact(intercepts), post_transform)


@kernel("ai.onnx.ml::LinearClassifier")
def linear_classifier(
    x: Any, *, coefficients: Any, intercepts: Any = (0.0,), post_transform: str = "NONE", **_: Any
) -> Any:
    """A label, and the scores f(x Aᵀ + b)."""
    a = exact(coefficients, -1, x.shape[-1])
    scores = transformed(np.matmul(x, a.T) + exact(intercepts), post_transform)
    return np.zeros(len(x), np.int64), scores
