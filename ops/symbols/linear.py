"""Products, normalised exponentials, determinants: by their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import kernel


@kernel("MatMul")
def matmul(a: Any, b: Any) -> Any:
    """Σₖ a[…, i, k] b[…, k, j]."""
    return np.matmul(np.asarray(a, object), np.asarray(b, object))


@kernel("Einsum")
def einsum(*inputs: Any, equation: str) -> Any:
    """The sum over products of entries."""
    return np.asarray(np.einsum(equation, *(np.asarray(x, object) for x in inputs)), object)


@kernel("Softmax")
def softmax(x: Any, *, axis: int = -1) -> Any:
    """exp(x) / Σ exp(x)."""
    powers = np.exp(x)
    return powers / powers.sum(axis=axis, keepdims=True)


@kernel("LogSoftmax")
def log_softmax(x: Any, *, axis: int = -1) -> Any:
    """x - log Σ exp(x)."""
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


@kernel("ReduceLogSumExp")
def log_sum_exp(
    x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Any:
    """log Σ exp(x)."""
    given = () if axes is None else tuple(np.ravel(axes).tolist())
    if not given and noop_with_empty_axes:
        return x
    return np.log(np.asarray(np.exp(x).sum(axis=given or None, keepdims=bool(keepdims)), object))


@kernel("Det")
def det(x: Any) -> Any:
    """Laplace's expansion along the first row."""
    n = x.shape[-1]
    if n == 1:
        return x[..., 0, 0]
    rest = [np.delete(x[..., 1:, :], j, axis=-1) for j in range(n)]
    return sum(x[..., 0, j] * np.asarray(det(rest[j]), object) * (-1) ** j for j in range(n))
