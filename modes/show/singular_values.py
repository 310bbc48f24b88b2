"""Singular values: the largest of J, or the largest eigenvalues, from products alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh, svds

from ...jacobians import Jacobian
from ...jacobians.progress import Tick

DENSE = 6
"""Up to this many rows or columns the dense SVD is as cheap as the iteration, and takes any k."""


@dataclass(frozen=True)
class Spectrum:
    """Singular values or eigenvalues by magnitude, and how many products with J and Jᵀ they took.

    `why` says what went wrong where there are fewer values than were asked for.
    """

    values: np.ndarray
    products: int
    why: str = ""


class Counted:
    """J for SciPy: products are counted, and narrow floats are widened to a type of ARPACK."""

    def __init__(self, J: Jacobian, tick: Tick) -> None:
        self.J, self.tick, self.products = J, tick, 0
        self.dtype = np.result_type(J.dtype, np.float32)
        forward, reverse = self._product(J), self._product(J.T)
        self.operator: LinearOperator = LinearOperator(
            J.shape, forward, reverse, forward, self.dtype, reverse
        )

    def _product(self, J: Jacobian) -> Callable[[np.ndarray], np.ndarray]:
        def product(x: np.ndarray) -> np.ndarray:
            n = x.shape[1] if x.ndim == 2 else 1
            self.products += n
            self.tick(n)
            return J @ x.astype(self.dtype, copy=False)

        return product


def largest(
    J: Jacobian, k: int = 5, *, eigenvalues: bool = False, seed: int = 0,
    tick: Tick = lambda n: None,
) -> Spectrum:  # fmt: skip
    """σ₁ ≥ σ₂ ≥ ... ≥ σₖ by `svds`; for a small side, by the dense SVD.

    With `eigenvalues`, for a symmetric J, |λ₁| ≥ |λ₂| ≥ ... ≥ |λₖ| by `eigsh`.

    >>> from onnxjac.jacobians import Diagonal
    >>> largest(Diagonal(np.arange(9.0), (9,)), 3).values.round(6)
    array([8., 7., 6.])
    """
    k = min(k, *J.shape)
    if k == 0:
        return Spectrum(np.empty(0), 0)
    counted = Counted(J, tick)
    start = np.random.default_rng(seed).standard_normal(max(J.shape)).astype(counted.dtype)
    probe = counted.operator.matvec(start[: J.shape[1]])
    if not np.isfinite(probe).all():
        return Spectrum(np.empty(0), counted.products, "J holds values that are not finite")
    if not probe.any():  # almost surely J = 0, of which ARPACK finds no Krylov space
        return Spectrum(np.zeros(k), counted.products)
    if min(J.shape) <= max(DENSE, k):
        values, why = dense(counted, eigenvalues), ""
    else:
        values, why = iterated(counted, k, eigenvalues, start[: min(J.shape)])
    return Spectrum(values[np.argsort(-np.abs(values))][:k], counted.products, why)


def dense(counted: Counted, eigenvalues: bool) -> np.ndarray:
    """By unit vectors on the smaller side."""
    J = counted.operator
    m, n = J.shape
    unit = np.eye(min(m, n), dtype=counted.dtype)
    matrix = J.matmat(unit) if n <= m else J.rmatmat(unit)
    if eigenvalues:
        return np.linalg.eigvalsh((matrix + matrix.T) / 2)
    return np.linalg.svd(matrix, compute_uv=False)


def iterated(
    counted: Counted, k: int, eigenvalues: bool, v0: np.ndarray
) -> tuple[np.ndarray, str]:
    """Values by implicitly restarted Lanczos, and what went wrong."""
    try:
        if eigenvalues:
            return np.asarray(eigsh(counted.operator, k=k, v0=v0, return_eigenvectors=False)), ""
        values = svds(counted.operator, k=k, v0=v0, return_singular_vectors=False)
        return np.asarray(values), ""
    except ArpackNoConvergence as error:
        found = error.eigenvalues if eigenvalues else np.sqrt(np.maximum(error.eigenvalues, 0))
        return found, "the iteration did not converge"
    except ArpackError as error:
        return np.empty(0), str(error)
