"""Counted: an operator that counts its products, for SciPy's Krylov solvers."""

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
