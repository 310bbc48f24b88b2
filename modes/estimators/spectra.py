"""Spectra: all eigenvalues or singular values of an operator, where structure tells them."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import numpy as np

from ...jacobians import BlockDiagonal, Dense, Diagonal, Identity, Jacobian, Kron, Scalar, shape_of
from ...jacobians.errors import InputError
from ...jacobians.matrices import Eye, Factor
from ..sparse.faces import bare
from .probes import Probed, is_symmetric

DENSE = 2000
"""Up to so many rows and columns a dense decomposition takes less than seconds."""

Solve = Callable[[np.ndarray], np.ndarray | None]
"""(*batch, m, n) -> (*batch, min(m, n)), or None where the matrices are not what it takes."""


def eigenvalues(matrices: np.ndarray) -> np.ndarray | None:
    """λ of symmetric matrices."""
    if not is_symmetric(matrices, float(np.finfo(matrices.dtype).eps)):
        return None
    return np.linalg.eigvalsh(matrices)


def singular_values(matrices: np.ndarray) -> np.ndarray | None:
    """σ = √λ(AᵀA)."""
    return np.linalg.svd(matrices, compute_uv=False)


def by_products(P: Probed, solve: Solve) -> np.ndarray | None:
    """The spectrum of the dense matrix, from as many products as the smaller side has."""
    m, n = P.shape
    matrix = P @ np.eye(n) if n <= m else P.adjoint(np.eye(m)).T
    if solve is not eigenvalues:
        return solve(matrix)
    if not is_symmetric(matrix, P.eps):
        raise InputError("this needs a symmetric operator: its matrix and the transpose differ")
    return solve((matrix + matrix.T) / 2)


@singledispatch
def spectrum(operator: Any, solve: Solve) -> np.ndarray | None:
    """All of λ or σ in no order, or None where structure does not tell.

    >>> K = Kron(np.diag([1.0, 2.0]), np.diag([3.0, 5.0]), ())
    >>> spectrum(K, eigenvalues)
    array([ 3.,  5.,  6., 10.])
    """
    behind = bare(operator) if isinstance(operator, Jacobian) else operator
    return None if behind is operator else spectrum(behind, solve)


@spectrum.register(Identity)
@spectrum.register(Scalar)
@spectrum.register(Diagonal)
def _(operator: Jacobian, solve: Solve) -> np.ndarray | None:
    found = solve(operator.diagonal()[:, None, None])
    return None if found is None else found.ravel()


@spectrum.register
def _(operator: Dense, solve: Solve) -> np.ndarray | None:
    return solve(operator.a) if min(operator.shape) <= DENSE else None


@spectrum.register
def _(operator: BlockDiagonal, solve: Solve) -> np.ndarray | None:
    """Those of all blocks."""
    found = solve(operator.blocks) if min(operator.blocks.shape[-2:]) <= DENSE else None
    return None if found is None else found.ravel()


@spectrum.register
def _(operator: Kron, solve: Solve) -> np.ndarray | None:
    """All products of one of A and one of B; those that a rectangular factor lacks are zero."""
    left, right = _of_factor(operator.left, solve), _of_factor(operator.right, solve)
    if left is None or right is None:
        return None
    values = left[..., :, None] * right[..., None, :]
    values = np.broadcast_to(values, (*operator.batch, *values.shape[-2:])).ravel()
    return np.concatenate([values, np.zeros(min(operator.shape) - len(values))])


def _of_factor(factor: Factor, solve: Solve) -> np.ndarray | None:
    if isinstance(factor, Eye):
        return np.ones(factor.n)
    return solve(factor) if min(shape_of(factor)[-2:]) <= DENSE else None
