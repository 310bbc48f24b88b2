"""Algebra: sums, products, scalings and slices of operators, written as for arrays."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from scipy.sparse import linalg

from .arrays import Shape
from .errors import InputError
from .guest import Guest
from .hooks import add, multiply, scale, submatrix
from .symint import is_symbolic


class Algebra(Guest):
    """`J @ K`, `J + K`, `2 * J` and `J[rows, columns]` are operators again; `J @ v` is an array."""

    @abstractmethod
    def _flat_product(self, v: np.ndarray, columns: Shape) -> np.ndarray:
        """J v of a flat vector, or of as many as `columns` says: (*columns, n) -> (*columns, m)."""

    def __matmul__(self, other: Any) -> Any:
        if type(other) is np.ndarray and other.shape == self.shape[1:]:
            return self._flat_product(other, ())  # at once: SciPy's way there takes microseconds
        if np.isscalar(other):
            raise InputError(f"{other!r} is a number: 2 * J scales, J @ v multiplies an array")
        return multiply(self, other) if isinstance(other, Algebra) else super().__matmul__(other)

    def dot(self, x: Any) -> Any:
        if isinstance(x, Algebra):
            return multiply(self, x)
        return scale(self, x) if _is_real_scalar(x) else super().dot(x)

    __mul__ = dot

    def __rmul__(self, x: Any) -> Any:
        return scale(self, x) if _is_real_scalar(x) else super().__rmul__(x)

    def __truediv__(self, x: Any) -> Any:
        return scale(self, 1 / x) if _is_real_scalar(x) else super().__truediv__(x)

    def __neg__(self) -> Any:
        return scale(self, -1.0)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Algebra):
            return add(self, other)
        if isinstance(other, linalg.LinearOperator) and other.shape != self.shape:
            raise InputError(f"cannot add operators of shape {self.shape} and {other.shape}: "
                             f"{self!r} and {other!r}")  # fmt: skip
        return super().__add__(other)

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __getitem__(self, key: Any) -> Any:
        """`J[rows, columns]` with slices or index arrays, again lazy."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        return submatrix(self, rows, columns)


def _is_real_scalar(x: Any) -> bool:
    return is_symbolic(x) or (np.isscalar(x) and np.isrealobj(x) and not isinstance(x, str | bytes))
