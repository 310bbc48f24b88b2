"""Samples: a point with more or fewer samples in its batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..model import Model
from ..naming.names import is_float


def batch_symbol(model: Model) -> str | None:
    """The symbol that inputs of the model have as their first dimension."""
    tensors = [spec for spec in model.inputs.values() if spec.dtype is not None and spec.shape]
    return next((s.shape[0] for s in tensors if s.shape and isinstance(s.shape[0], str)), None)


def batched(model: Model, symbol: str) -> list[str]:
    """The inputs whose first dimension is that symbol."""
    tensors = [spec for spec in model.inputs.values() if spec.dtype is not None and spec.shape]
    return [spec.name for spec in tensors if spec.shape and spec.shape[0] == symbol]


def at_size(
    model: Model, symbol: str, point: Mapping[str, Any], size: int, spread: float = 0.0
) -> dict[str, Any]:
    """The point with its batch repeated or cut to a size; with a spread no two samples are the
    same.
    """
    rng = np.random.default_rng(size)
    names = batched(model, symbol)
    return {n: spaced(resized(x, size), spread, rng) if n in names else x for n, x in point.items()}


def resized(batch: Any, size: int) -> np.ndarray:
    """The samples repeated or cut to a size; where there is none, zeros."""
    samples = np.asarray(batch)
    if not len(samples):
        return np.zeros((size, *samples.shape[1:]), samples.dtype)
    return samples[np.arange(size) % len(samples)]


def spaced(batch: np.ndarray, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Floating numbers with noise in proportion to them, and a little where they are zero."""
    if not spread or not is_float(batch.dtype):
        return batch
    noise, more = (rng.standard_normal(batch.shape) * spread for _ in range(2))
    return (batch * (1 + noise) + 0.1 * more).astype(batch.dtype)


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float | None = None) -> bool:
    """Whether two arrays agree, but for rounding."""
    if found.shape != wanted.shape:
        return False
    if not is_float(wanted.dtype):
        return bool(np.array_equal(found, wanted))
    exact = np.asarray(wanted, np.float64)
    scale = np.max(np.abs(exact), initial=0.0, where=np.isfinite(exact))
    relative = tolerance or (1e-9 if wanted.dtype == np.float64 else 1e-3)
    return np.allclose(np.asarray(found, np.float64), exact, 0, relative * scale, equal_nan=True)
