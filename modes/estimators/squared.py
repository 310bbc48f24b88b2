"""Squared: A ∘ A by structure; the sums of its columns are the diagonal of AᵀA.

An entry of a product of operators is a sum over paths through them. Where there is at most one
path, the square of the product is the product of the squares, and no entry is computed.
"""

from __future__ import annotations

from functools import reduce, singledispatch
from itertools import dropwhile
from operator import matmul
from typing import Any

import numpy as np

from ...jacobians import (
    Block,
    BlockDiagonal,
    Broadcast,
    Cast,
    Circulant,
    Contraction,
    Convolution,
    Cumulative,
    Dag,
    Dense,
    Diagonal,
    Embed,
    Eye,
    Identity,
    Jacobian,
    Kron,
    LowRank,
    Permutation,
    Product,
    Reshape,
    Scalar,
    Scatter,
    Slice,
    Sum,
    SumTo,
    Take,
    Zero,
)
from ...jacobians.arrays import times, total
from ...jacobians.dag import Grid, grid_of
from ...jacobians.placing import with_parts
from ...jacobians.sparse import count, entries
from ..linear.elimination.plan import eliminated
from ..sparse.sweep import strip_wrappers, unwrap

SELECTING = Identity, Zero, Cast, Reshape, Permutation, Slice, Embed, Take, Broadcast
"""Operators with at most one entry in each row, which is 1."""

MONOMIAL = *SELECTING, Scalar, Diagonal
"""Operators with at most one entry in each row."""

ZERO_ONE = *SELECTING, SumTo, Scatter, Cumulative
"""Operators whose entries are zeros and ones, which are their own squares."""

DIAGONAL = Diagonal, Identity, Scalar

SEARCHED_ENTRIES = 10**8
"""The most entries of one operator that are searched for the diagonal."""


@singledispatch
def squared(operator: Any) -> Jacobian | None:
    """A ∘ A, the operator with the entries Aᵢⱼ², or None where structure does not determine it.

    >>> squared(Dense(np.array([[1.0, 2.0]])) @ Diagonal(np.array([3.0, 4.0]))).toarray()
    array([[ 9., 64.]])
    """
    behind = strip_wrappers(operator)
    return None if behind is operator else squared(behind)


for kind in ZERO_ONE:
    squared.register(kind, lambda operator: operator)


@squared.register
def _(operator: Scalar) -> Jacobian:
    return Scalar(operator.factor**2, operator.out_shape, operator.dtype)


@squared.register
def _(operator: Diagonal) -> Jacobian:
    return Diagonal(operator.d**2, operator.out_shape)


@squared.register
def _(operator: BlockDiagonal | Circulant | Convolution | Dense | Kron) -> Jacobian:
    """Every entry is a product of entries of the arrays, one of each."""
    return with_parts(operator, lambda a: a if isinstance(a, Eye) else a**2)


@squared.register
def _(operator: LowRank) -> Jacobian:
    """(Σᵣ uᵣ vᵣᵀ) ∘ (Σₛ uₛ vₛᵀ) = Σᵣₛ (uᵣ ∘ uₛ)(vᵣ ∘ vₛ)ᵀ."""
    u, v = (
        (f[:, :, None] * f[:, None]).reshape(len(f), f.shape[1] ** 2)
        for f in (operator.u, operator.v)
    )
    return LowRank(u, v, operator.out_shape, operator.in_shape)


@squared.register
def _(operator: Contraction) -> Jacobian | None:
    """Every entry is one product, unless a label in neither x nor y is summed over."""
    seen = set(operator.in_term + operator.out_term)
    if any(not seen.issuperset(term) for _, term in operator.factors):
        return None
    factors = tuple((a**2, term) for a, term in operator.factors)
    return Contraction(factors, operator.in_term, operator.out_term, operator.sizes)


@squared.register
def _(operator: Product) -> Jacobian | None:
    """Left of one factor, rows must have single entries; right of it, columns must."""
    wide = dropwhile(lambda factor: isinstance(factor, MONOMIAL), operator.factors)
    right = list(wide)[1:]
    squares = [squared(factor) for factor in operator.factors]
    if not all(isinstance(factor.T, MONOMIAL) for factor in right) or None in squares:
        return None
    return reduce(matmul, squares)


@squared.register
def _(operator: Sum) -> Jacobian | None:
    """(A + D) ∘ (A + D) = A ∘ A + D ∘ D + 2 diag(A) D, with D diagonal."""
    diagonals = [term for term in operator.terms if isinstance(term, DIAGONAL)]
    others = [term for term in operator.terms if not isinstance(term, DIAGONAL)]
    if len(others) != 1:
        return None
    square, on_diagonal = squared(others[0]), own_diagonal(others[0])
    if square is None or on_diagonal is None:
        return None
    d = reduce(total, (term._diagonal() for term in diagonals))
    both = times(d, total(d, 2 * on_diagonal))
    return square + Diagonal(both.reshape(operator.out_shape))


@squared.register
def _(operator: Dag | Block) -> Jacobian | None:
    """Block by block, where paths are in series and in parallel."""
    blocks = block_grid(operator)
    squares = [] if blocks is None else [[squared(block) for block in row] for row in blocks]
    return Block(squares) if squares and all(None not in row for row in squares) else None


def block_grid(operator: Dag | Block) -> Grid | None:
    """J between each source and each sink; None where a path branches inside another one."""
    return grid_of(eliminated(operator.dag if isinstance(operator, Block) else operator)) or None


def own_diagonal(operator: Jacobian) -> np.ndarray | None:
    """diag(A) of one operator between reshapes, from the positions of its entries."""
    factors = operator.factors if isinstance(operator, Product) else (operator,)
    wide = [f for f in factors if not isinstance(f, Identity | Cast | Reshape)]
    if len(wide) != 1 or foreign(wide[0]) or count(wide[0]) > SEARCHED_ENTRIES:
        return None
    found = entries(unwrap(wide[0]))
    here = found.rows == found.columns
    return np.bincount(found.rows[here], found.values[here], min(operator.shape))


def foreign(operator: Jacobian) -> bool:
    """Whether no rule for the type gives the positions of its entries."""
    return entries.dispatch(type(operator)) is entries.dispatch(object)
