"""Estimate: a number, how far it may be off, and what it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...jacobians.hooks import Shown


@dataclass(frozen=True)
class Estimate(Shown):
    """value ± error after so many products, found by `method`.

    `error` is one standard error, of the shape of the value, unless the function says otherwise;
    it is zero where `method` starts with "exact". A product with the transpose counts as one.

    >>> Estimate(12.5, 0.25, 60, "XTrace")
    12.5 ± 0.25 (XTrace, 60 products)
    >>> Estimate(np.ones(3), 0.0, 0, "exact by structure")
    array of shape (3,) (exact by structure, 0 products)
    """

    value: Any
    error: Any
    products: int
    method: str

    @property
    def exact(self) -> bool:
        """Whether nothing was estimated."""
        return self.method.startswith("exact")

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        error = np.max(self.error, initial=0)
        margin = "" if self.exact else f" ± {'up to ' * bool(np.ndim(self.error))}{error:.3g}"
        return f"{_text(self.value)}{margin} ({self.method}, {self.products} products)"


def _text(value: Any) -> str:
    """A number to six digits, an array by its shape, an operator as it prints itself."""
    if isinstance(value, np.ndarray) and value.ndim:
        return f"array of shape {value.shape}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def mean(samples: np.ndarray) -> tuple[Any, Any]:
    """Σ xₖ / m along the last axis, and its standard error √(Σ (xₖ - x̄)² / (m (m - 1)))."""
    m = samples.shape[-1]
    spread = samples.std(axis=-1, ddof=1) if m > 1 else np.full(samples.shape[:-1], np.inf)
    return samples.mean(axis=-1), spread / np.sqrt(m)
