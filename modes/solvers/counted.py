"""Counted, Augmented: operators for SciPy's Krylov solvers."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from scipy.sparse.linalg import LinearOperator

Base: Any = LinearOperator


@final
class Counted(Base):
    """A + λI, with λ the damping; `products` counts those with A and with Aᵀ.

    >>> A = Counted(np.diag([1.0, 2.0]), 0.5)
    >>> A @ np.ones(2), A.T @ np.ones(2), A.products
    (array([1.5, 2.5]), array([1.5, 2.5]), 2)
    """

    def __init__(self, A: Any, damping: float = 0.0) -> None:
        super().__init__(A.dtype, A.shape)
        self.A, self.damping, self.products = A, damping, 0

    def _matvec(self, v: np.ndarray) -> np.ndarray:
        self.products += 1
        return self._damped(self.A @ v, v)

    def _rmatvec(self, u: np.ndarray) -> np.ndarray:
        self.products += 1
        return self._damped(self.A.T @ u, u)

    def _damped(self, product: np.ndarray, v: np.ndarray) -> np.ndarray:
        return product + self.damping * v if self.damping else product


@final
class Augmented(Base):
    """[A; diag(d)] R: damped least squares as plain ones, in variables y with x = R y.

    >>> B = Augmented(np.eye(2), np.array([3.0, 4.0]), 2 * np.eye(2))
    >>> B @ np.ones(2), B.T @ np.ones(4)
    (array([2., 2., 6., 8.]), array([ 8., 10.]))
    """

    def __init__(self, A: Any, d: np.ndarray, R: Any) -> None:
        m, n = A.shape
        super().__init__(A.dtype, (m + n, n))
        self.A, self.d, self.R = A, d, R

    def _matvec(self, y: np.ndarray) -> np.ndarray:
        x = self.R @ np.ravel(y)
        return np.concatenate([self.A @ x, self.d * x])

    def _rmatvec(self, u: np.ndarray) -> np.ndarray:
        top, bottom = np.split(np.ravel(u), [self.A.shape[0]])
        found: np.ndarray = self.R.T @ (self.A.T @ top + self.d * bottom)
        return found
