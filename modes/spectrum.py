"""Spectrum: the largest singular values, from products alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, svds

from ..jacobians import Jacobian
from .progress import Tick

DENSE = 6
"""Up to so many rows or columns the dense SVD is as cheap as the iteration, and takes any k."""


@dataclass(frozen=True)
class Spectrum:
    """Singular values, largest first, and the products with J and Jᵀ that they took.

    `why` says what went wrong where there are fewer than were asked for.
    """

    values: np.ndarray
    products: int
    why: str = ""


class Watched(LinearOperator):
    """J as it is, with every product counted; narrow floats are widened to what ARPACK knows."""

    def __init__(self, J: Jacobian, tick: Tick) -> None:
        super().__init__(np.result_type(J.dtype, np.float32), J.shape)
        self.J, self.tick, self.products = J, tick, 0

    def _count(self, n: int) -> None:
        self.products += n
        self.tick(n)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        self._count(1)
        return self.J.matvec(x.astype(self.dtype, copy=False))

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        self._count(1)
        return self.J.T.matvec(x.astype(self.dtype, copy=False))

    def _matmat(self, X: np.ndarray) -> np.ndarray:
        self._count(X.shape[1])
        return self.J.matmat(X.astype(self.dtype, copy=False))

    def _rmatmat(self, X: np.ndarray) -> np.ndarray:
        self._count(X.shape[1])
        return self.J.T.matmat(X.astype(self.dtype, copy=False))


def largest(J: Jacobian, k: int = 5, *, seed: int = 0, tick: Tick = lambda n: None) -> Spectrum:
    """σ₁ ≥ σ₂ ≥ ... ≥ σₖ by `svds`; for a small side, by the dense SVD.

    >>> from ..jacobians import Diagonal
    >>> largest(Diagonal(np.arange(9.0), (9,)), 3).values.round(6)
    array([8., 7., 6.])
    """
    k = min(k, *J.shape)
    operator = Watched(J, tick)
    start = np.random.default_rng(seed).standard_normal(J.shape[1]).astype(operator.dtype)
    probe = operator.matvec(start) if k else start[:0]
    if not np.isfinite(probe).all():
        return Spectrum(np.empty(0), operator.products, "J holds values that are not finite")
    if not probe.any():  # almost surely J = 0, of which ARPACK finds no Krylov space
        return Spectrum(np.zeros(k), operator.products)
    if min(J.shape) <= max(DENSE, k):
        return dense(operator, k)
    return iterated(operator, k, seed)


def dense(operator: Watched, k: int) -> Spectrum:
    """By unit vectors on the smaller side."""
    m, n = operator.shape
    small = np.eye(min(m, n), dtype=operator.dtype)
    matrix = operator.matmat(small) if n <= m else operator.rmatmat(small)
    return Spectrum(np.linalg.svd(matrix, compute_uv=False)[:k], operator.products)


def iterated(operator: Watched, k: int, seed: int) -> Spectrum:
    """By implicitly restarted Lanczos, from a random start."""
    v0 = np.random.default_rng(seed).standard_normal(min(operator.shape)).astype(operator.dtype)
    try:
        values = svds(operator, k=k, v0=v0, return_singular_vectors=False)
    except ArpackNoConvergence as error:
        found = np.sqrt(np.maximum(error.eigenvalues, 0))
        return Spectrum(np.sort(found)[::-1], operator.products, "the iteration did not converge")
    except ArpackError as error:
        return Spectrum(np.empty(0), operator.products, str(error))
    return Spectrum(np.sort(values)[::-1], operator.products)
