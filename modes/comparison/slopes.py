"""Slopes: σ₁ of the difference of two Jacobians, and the direction in which they differ most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, svds

from ...jacobians import Jacobian
from ..estimators.estimate import Probed
from ..estimators.lanczos import svd

FORMED_ROWS = 48
"""Up to this many rows or columns the matrix is formed by products."""

RTOL = 1e-3
"""The relative error at which the iteration for σ₁ ends."""


@dataclass(frozen=True)
class Worst:
    """D v = σ u, the largest change of y per change of x: v and u are unit vectors."""

    sigma: float
    v: np.ndarray
    u: np.ndarray


def difference_of(A: Jacobian, B: Jacobian) -> LinearOperator:
    """A − B as a lazy operator in double precision; each multiplies in its own.

    >>> from onnxjac.jacobians import Diagonal
    >>> D = difference_of(Diagonal(np.array([3.0, 4.0])), Diagonal(np.array([3.0, 5.0], "f4")))
    >>> D @ np.eye(2)
    array([[ 0.,  0.],
           [ 0., -1.]])
    """

    def product(left: Jacobian, right: Jacobian, V: np.ndarray) -> np.ndarray:
        one, other = (np.asarray(J @ V.astype(J.dtype), np.float64) for J in (left, right))
        return one - other

    def forward(V: np.ndarray) -> np.ndarray:
        return product(A, B, V)

    def backward(U: np.ndarray) -> np.ndarray:
        return product(A.T, B.T, U)

    return LinearOperator(A.shape, forward, backward, forward, np.float64, backward)


def worst_of(D: Any, seed: int = 0) -> Worst:
    """σ₁ of an operator with its vectors: by the matrix where a side is short, else by Lanczos.

    σ₁ is infinite where products are not finite.

    >>> found = worst_of(np.diag([1.0, -3.0, 2.0]))
    >>> found.sigma, found.v.round(6)
    (3.0, array([0., 1., 0.]))
    """
    P = Probed(D)
    m, n = P.shape
    v, u = np.zeros(n), np.zeros(m)
    if not min(m, n):
        return Worst(0.0, v, u)
    start = np.random.default_rng(seed).standard_normal(min(m, n))
    image = P @ start if n <= m else P.adjoint(start)
    if not np.isfinite(image).all():
        return Worst(np.inf, v, u)
    if not image.any():  # almost surely D = 0
        return Worst(0.0, v, u)
    if min(m, n) <= FORMED_ROWS:
        matrix = P @ np.eye(n) if n <= m else P.adjoint(np.eye(m)).T
        U, values, Vt = np.linalg.svd(matrix, full_matrices=False)
    else:
        U, values, Vt = leading_triplet(P, start, seed)
    k = int(np.argmax(values))
    sign = np.sign(Vt[k, np.argmax(abs(Vt[k]))]) or 1.0
    return Worst(float(values[k]), sign * Vt[k], sign * U[:, k])


def leading_triplet(P: Probed, start: np.ndarray, seed: int) -> tuple[Any, Any, Any]:
    """The leading triplet by Lanczos; where that does not converge, by random projections."""
    A: Any = LinearOperator(P.shape, P.__matmul__, P.adjoint, P.__matmul__, float, P.adjoint)
    try:
        found: tuple[Any, Any, Any] = svds(A, 1, v0=start, tol=RTOL)
    except ArpackError:
        U, values, V = svd(P, min(16, *P.shape), 8)
        return U, values, V.T
    return found
