"""Diagonals: diag(A) by structure, without a product."""

from __future__ import annotations

from functools import reduce, singledispatch
from itertools import islice, takewhile
from operator import matmul
from typing import Any

import numpy as np

from ...jacobians import (
    Block,
    BlockDiagonal,
    Cast,
    Convolution,
    Dag,
    Dense,
    Diagonal,
    Identity,
    Jacobian,
    Kron,
    LowRank,
    Product,
    Scalar,
    Sum,
    Zero,
)
from ...jacobians.matrices import matrix_shape
from ..sparse.faces import bare
from .squared import own_diagonal, squared
from .ways import as_blocks


@singledispatch
def diagonal_of(operator: Any) -> np.ndarray | None:
    """diag(A) by structure, or None where structure does not tell.

    >>> J = Dense(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> diagonal_of(J.T @ Diagonal(np.array([10.0, 1.0])) @ J)
    array([19., 56.])
    """
    behind = bare(operator) if isinstance(operator, Jacobian) else operator
    return None if behind is operator else diagonal_of(behind)


@diagonal_of.register(Identity)
@diagonal_of.register(Zero)
@diagonal_of.register(Scalar)
@diagonal_of.register(Cast)
@diagonal_of.register(Diagonal)
@diagonal_of.register(Dense)
@diagonal_of.register(LowRank)
def _(operator: Jacobian) -> np.ndarray:
    return operator.diagonal()


@diagonal_of.register
def _(operator: Kron) -> np.ndarray | None:
    """Where both factors are square."""
    shapes = map(matrix_shape, (operator.left, operator.right))
    return operator.diagonal() if all(m == n for m, n in shapes) else None


@diagonal_of.register
def _(operator: Convolution) -> np.ndarray | None:
    return own_diagonal(operator)


@diagonal_of.register
def _(operator: BlockDiagonal) -> np.ndarray | None:
    *_, m, n = operator.blocks.shape
    return np.diagonal(operator.blocks, axis1=-2, axis2=-1).ravel() if m == n else None


@diagonal_of.register
def _(operator: Sum) -> np.ndarray | None:
    found = _all_of([diagonal_of(term) for term in operator.terms])
    return None if found is None else np.sum(found, axis=0)


@diagonal_of.register(Dag)
@diagonal_of.register(Block)
def _(operator: Dag | Block) -> np.ndarray | None:
    """The diagonals of the blocks on the diagonal, where these are square."""
    blocks = as_blocks(operator)
    if blocks is None or len(blocks) != len(blocks[0]):
        return None
    own = [row[k] for k, row in enumerate(blocks)]
    if any(block.shape[0] != block.shape[1] for block in own):
        return None
    found = _all_of([diagonal_of(block) for block in own])
    return None if found is None else np.concatenate(found)


def _all_of(found: list[np.ndarray | None]) -> list[np.ndarray] | None:
    """All that were found; None where one is missing."""
    known = [part for part in found if part is not None]
    return known if len(known) == len(found) else None


@diagonal_of.register
def _(operator: Product) -> np.ndarray | None:
    """diag(D A) = d ∘ diag(A), and diag(Fᵀ M F) = (F ∘ F)ᵀ m where M is diagonal."""
    if operator.shape[0] != operator.shape[1]:
        return None
    first, *_, last = operator.factors
    if isinstance(first, Diagonal | Scalar):
        return _scaled(first, operator.factors[1:])
    if isinstance(last, Diagonal | Scalar):
        return _scaled(last, operator.factors[:-1])
    found = _of_mirrored(operator.factors)
    return own_diagonal(operator) if found is None else found


def _scaled(d: Jacobian, rest: tuple[Jacobian, ...]) -> np.ndarray | None:
    """d ∘ diag(A)."""
    inner = diagonal_of(Product(rest) if len(rest) > 1 else rest[0])
    return None if inner is None else d.diagonal() * inner


def _of_mirrored(factors: tuple[Jacobian, ...]) -> np.ndarray | None:
    """(F ∘ F)ᵀ m for the factors Fᵀ M F."""
    pairs = zip(factors, reversed(factors), strict=True)
    half = len(list(takewhile(lambda pair: mirrored(*pair), islice(pairs, len(factors) // 2))))
    middle = factors[half : len(factors) - half]
    if not half or not all(isinstance(m, Diagonal | Scalar | Identity) for m in middle):
        return None
    square = squared(reduce(matmul, factors[len(factors) - half :]))
    weights = np.ones(factors[-half].shape[0])
    for m in middle:
        weights = weights * m.diagonal()
    return None if square is None else square.T @ weights


def mirrored(left: Jacobian, right: Jacobian) -> bool:
    """Whether one operator was made as the transpose of the other."""
    a, b = bare(left), bare(right)
    same = a is b.T or b is a.T
    return same or getattr(a, "mirror", None) is b or getattr(b, "mirror", None) is a
