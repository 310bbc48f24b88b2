"""Exact: the diagonal of A and the squared norms of its columns, by structure or entry by entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ..elimination.cost import seconds
from ..sparse import sparse
from ..sparse.choice import estimate
from ..sparse.sweep import parts
from ..sparse.unwrap import unwrap
from .diagonals import diagonal_of
from .factored import gram_diagonal
from .probes import Probed
from .squared import foreign, squared

PATIENCE = 30.0
"""Seconds that accumulating a sparse matrix may take."""

TERM = 1.5e-7
"""Seconds for each product of two entries on the way."""

STRUCTURE, SPARSE, PRODUCTS = "exact by structure", "exact by sparse entries", "exact by products"

Found = tuple[np.ndarray, str]
"""Numbers, and how they were found."""


def known_diagonal(A: Any) -> Found | None:
    """diag(A) without a product: by structure, or from sparse entries where these are few."""
    found = diagonal_of(A)
    if found is not None:
        return found, STRUCTURE
    return (np.asarray(sparse(A).diagonal()), SPARSE) if few_entries(A) else None


def exact_diagonal(P: Probed) -> Found:
    """diag(A), by n products if it must be."""
    return known_diagonal(P.A) or (_by_products(P), PRODUCTS)


def _by_products(P: Probed) -> np.ndarray:
    """Aⱼⱼ = eⱼᵀ A eⱼ, some unit vectors at a time."""
    n = min(P.shape)
    found = [(P @ unit)[range(a, b), range(b - a)] for a, b, unit in units(P.shape[1], n)]
    return np.concatenate([np.empty(0), *found])


def column_squares(P: Probed) -> Found:
    """(Σᵢ Aᵢⱼ²)ⱼ = diag(AᵀA): by structure, by sparse entries, or by min(m, n) products."""
    square = squared(P.A)
    if square is not None:
        return square.T @ np.ones(P.shape[0]), STRUCTURE
    gram = gram_diagonal(P.A)
    if gram is not None:
        return gram, STRUCTURE
    if few_entries(P.A):
        matrix = sparse(P.A)  # type: ignore[arg-type]
        return np.bincount(matrix.indices, matrix.data**2, P.shape[1]), SPARSE
    m, n = P.shape
    if n <= m:
        columns = [np.sum((P @ unit) ** 2, axis=0) for _, _, unit in units(n, n)]
        return np.concatenate([np.empty(0), *columns]), PRODUCTS
    rows = (np.sum(P.adjoint(unit) ** 2, axis=1) for _, _, unit in units(m, m))
    return np.sum(list(rows), axis=0), PRODUCTS


def units(n: int, first: int, width: int = 64) -> Iterator[tuple[int, int, np.ndarray]]:
    """The unit vectors e₀, e₁, … of length n as columns, and from where to where."""
    for start in range(0, first, width):
        stop = min(start + width, first)
        yield start, stop, np.eye(n, stop - start, -start)


def few_entries(A: Any) -> bool:
    """Whether all kinds in A say where their entries stand, and these cost less than products."""
    if not isinstance(A, Jacobian) or any(map(foreign, leaves(A))):
        return False
    accumulating = TERM * min(estimate(A)[0], estimate(A.T)[0])
    return accumulating <= min(PATIENCE, min(A.shape) * seconds(unwrap(A)))


def leaves(operator: Jacobian) -> Iterator[Jacobian]:
    """What an operator is composed of, without composites and faces."""
    behind = unwrap(operator)
    inner = parts(behind)
    if behind is not operator:
        yield from leaves(behind)
    elif inner:
        for part in inner:
            yield from leaves(part)
    else:
        yield operator
