"""Sums that are one operator: a circulant, blocks, a matrix, or one of these between layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import add, matmul
from typing import Any

import numpy as np

from .arrays import Array, host, rounded, size, wide
from .base import Jacobian
from .convolution import Convolution
from .dag import Block
from .elementwise import Cast, Diagonal, Identity, Scalar
from .layout import Embed, Permutation, Reshape, Scatter, Slice, Take
from .matrices import BlockDiagonal, Dense, Eye, Kron, LowRank
from .placing import with_parts
from .products import Product, commuted, factors_of
from .readings import module_of
from .sums import Sum, coefficient, split_identity, terms_of
from .transforms import Circulant

INVERTED_ROWS = 1000
"""The most rows of an operator that is inverted as a dense matrix where no closed form is known."""

CORRECTED_ROWS = 4000
"""The most rows of an operator whose matrix, in seconds, replaces a closed form that is off."""

HELD = (Dense | LowRank | Diagonal | Scalar | Identity | Reshape | Permutation | Kron
        | BlockDiagonal | Circulant)  # fmt: skip
"""The operators that may be multiplied out, because they are as cheap as the arrays they hold."""

MOVES = Slice | Embed | Take | Scatter | Cast
"""The operators that move entries, and hold no number."""


def is_of_kinds(operator: Jacobian) -> bool:
    """Whether an operator is of these kinds, or a product of them."""
    return all(isinstance(factor, HELD) for factor in factors_of(operator))


def as_matrix(operator: Jacobian, off: bool = False) -> Dense | None:
    """The dense matrix; None for an A that is more than the arrays it holds, and for a large A.

    Where a closed form of A is `off`, larger ones are worth their seconds.
    """
    cheap = all(isinstance(leaf, HELD | MOVES) for leaf in inner_operators(operator))
    small = cheap and operator.shape[0] <= (CORRECTED_ROWS if off else INVERTED_ROWS)
    return Dense(operator.toarray(), operator.out_shape, operator.in_shape) if small else None


def absolute(part: Any) -> Any:
    """|A|, the operator with the magnitudes of the numbers that it holds: nothing cancels in it."""
    if isinstance(part, Scalar):
        return Scalar(abs(part.factor), part.in_shape, part.dtype)
    if isinstance(part, tuple):
        return tuple(map(absolute, part))
    if isinstance(part, HELD | Sum | Product):
        return with_parts(part, absolute)
    return part if isinstance(part, Eye | Jacobian) else abs(part)


def as_one(operator: Sum) -> Jacobian | None:
    """The sum as a circulant, a stack or grid of blocks, a matrix, or between layouts, or None."""
    if (found := as_circulant(operator) or as_blocks(operator) or as_grid(operator)) is not None:
        return found
    own = list(inner_operators(operator))
    matrix = any(isinstance(leaf, Dense) and leaf.shape == operator.shape for leaf in own)
    if matrix and all(isinstance(leaf, HELD | MOVES) for leaf in own):
        return Dense(operator.toarray(), operator.out_shape, operator.in_shape)
    for P in common_layouts(operator):  # P (Σ Pᵀ T P) Pᵀ, where the terms are simpler
        terms = [conjugate_by(term, P) for term in operator.terms]
        if all(term is not None for term in terms):
            return P @ reduce(add, terms) @ P.T
    return None


def inner_operators(operator: Jacobian) -> Iterator[Jacobian]:
    """The operators that an operator is composed of, without composites."""
    parts = [part for part in operator.contents() if isinstance(part, Jacobian)]
    if not parts:
        yield operator
    for part in parts:
        yield from inner_operators(part)


def as_circulant(operator: Jacobian) -> Circulant | None:
    """A sum of circulants and multiples of I as one circulant; None for other operators.

    A convolution of one channel with stride 1 after wrapping selections, Pad(mode="wrap"), is one.
    """
    found, shift = None, 0.0
    for term in terms_of(operator):
        c, others = coefficient(term)
        if not others or isinstance(term, Identity):
            shift += c
            continue
        C: Jacobian | None = others[0] if len(others) == 1 else wrapped(others)
        if C is None and (mirror := wrapped(tuple(f.T for f in reversed(others)))):
            C = mirror.T
        if not isinstance(C, Circulant):
            return None
        if found and (found.kernel.shape, found.dtype) != (C.kernel.shape, C.dtype):
            return None
        found = C.with_spectrum(c * C.spectrum + (found.spectrum if found else 0))
    return found and found.with_spectrum(found.spectrum + shift)


def wrapped(factors: tuple[Jacobian, ...]) -> Circulant | None:
    """The circulant that a convolution after wrapping selections is; its kernel is a column."""
    first, *pads = factors
    if not isinstance(first, Convolution) or (first.source, first.target) != ("x", "u"):
        return None
    g, shape = first.geometry, pads[-1].in_shape
    if set(g.strides) != {1} or any(g.pads) or g.w[:2] != (1, 1) or g.u != shape:
        return None
    takes = [pad for pad in pads if isinstance(pad, Take) and wraps(pad)]
    if len({take.axis for take in takes}) < len(pads):
        return None
    unit = np.zeros((1, *shape), wide(first.dtype))
    unit.reshape(*unit.shape[:3], -1)[..., 0] = 1
    column = reduce(lambda v, factor: factor @ v, reversed(factors), unit.ravel())
    return Circulant(column.reshape(shape)[0, 0].astype(first.dtype), shape)


def wraps(take: Take) -> bool:
    """Whether a selection takes the entries of an axis in turn, modulo its length."""
    n, index = take.in_shape[take.axis], host(take.index)
    spatial = take.axis >= 2 - len(take.in_shape) and index.ndim == 1
    return spatial and not ((index - index[0] - np.arange(index.size)) % n).any()


def as_blocks(operator: Sum) -> BlockDiagonal | None:
    """A sum of blocks, of I ⊗ B, and of diagonals as one stack of blocks that differ."""
    shift, others = split_identity(operator)
    diagonals = [term._diagonal() for term in others if isinstance(term, Diagonal)]
    varied = any(isinstance(f, Diagonal | BlockDiagonal) for t in others for f in factors_of(t))
    stacks = [stack_of(term) for term in others if not isinstance(term, Diagonal)] if varied else []
    if not stacks or any(stack is None for stack in stacks):
        return None
    whole: Any = reduce(add, stacks)
    found = rounded(whole + 0, operator.dtype)  # a copy
    if shift or diagonals:
        at = np.arange(found.shape[-1])
        found[..., at, at] += sum((d.reshape(operator.in_shape) for d in diagonals), shift)
    return BlockDiagonal(found)


def stack_of(term: Jacobian) -> Array | None:
    """The blocks of a multiple of blockdiag(Aᵢ) or of I ⊗ B; None for others, and for large B."""
    c, others = coefficient(term)
    K = others[0] if len(others) == 1 else None
    if isinstance(K, Kron) and isinstance(K.left, Eye) and K.out_shape[-1] <= INVERTED_ROWS:
        right: Any = K.right
        shape = (*K.batch, K.left.n, *right.shape[-2:])
        if size(shape) * term.dtype.itemsize <= term.dense_limit:
            return module_of(right).broadcast_to(c * right[..., None, :, :], shape)
    return c * K.blocks if isinstance(K, BlockDiagonal) else None


def as_grid(operator: Sum) -> Block | None:
    """A block-diagonal grid and a multiple of I as one such grid."""
    shift, others = split_identity(operator)
    if len(others) != 1 or not isinstance(others[0], Block):
        return None
    return of_blocks(lambda block: block + shift * Identity(block.in_shape, block.dtype), others[0])


def of_blocks(function: Callable[[Jacobian], Any], operator: Block) -> Block | None:
    """The function of each block of a block-diagonal grid; None for other grids."""
    own = of_each(function, blocks_on_diagonal(operator)) or []
    grid = [[b if i == j else None for j in range(len(own))] for i, b in enumerate(own)]
    return Block(grid) if grid else None


def of_each(question: Callable[[Jacobian], Any], parts: Iterable[Jacobian]) -> list[Any] | None:
    """The answers for square operators; None where one is not square, or has no answer."""
    parts = list(parts)
    square = all(part.shape[0] == part.shape[1] for part in parts)  # else one may be singular
    found = [question(part) for part in parts] if square else [None]
    return None if any(one is None for one in found) else found


def blocks_on_diagonal(operator: Block) -> list[Jacobian]:
    """The blocks of a grid that has them on its diagonal and nowhere else; else none."""
    rows = operator.rows
    own = [row[k] for k, row in enumerate(rows) if k < len(row)]
    present = [block for row in rows for block in row if block is not None]
    return present if len(rows) == len(rows[0]) and present == own else []


def common_layouts(operator: Sum) -> Iterator[Jacobian]:
    """P of a term P A P⁻¹; the P with A ⊗ I = P (I ⊗ A) Pᵀ, beside diagonals and no I ⊗ B."""
    factors = [coefficient(term)[1] for term in operator.terms]
    for first, *_, last in (several for several in factors if len(several) > 2):
        if isinstance(first, Reshape | Permutation) and are_inverse(first, last):
            yield first
    krons = [one[0] for one in factors if len(one) == 1 and isinstance(one[0], Kron)]
    diagonal = any(isinstance(term, Diagonal) for term in operator.terms)
    if krons and diagonal and all(isinstance(K.right, Eye) for K in krons):
        *batch, m, n = operator.in_shape
        axes = range(len(batch))
        yield Permutation((*axes, len(batch) + 1, len(batch)), (*batch, n, m), operator.dtype)


def are_inverse(P: Jacobian, Q: Jacobian) -> bool:
    """Whether Q P = I."""
    return P.shape[0] == Q.shape[1] and isinstance(Q @ P, Identity)


def conjugate_by(term: Jacobian, P: Jacobian) -> Jacobian | None:
    """Pᵀ T P, where that has no more factors than T; else None."""
    c, factors = coefficient(term)
    if not factors:
        return c * Identity(P.in_shape, term.dtype)
    if isinstance(term, Diagonal):
        return Diagonal((P.T @ term._diagonal()).reshape(P.in_shape))
    pair = commuted(P.T, factors[0]) if isinstance(factors[0], Kron) else None
    found = reduce(matmul, (*(pair or (P.T, factors[0])), *factors[1:], P))
    return c * found if len(factors_of(found)) <= len(factors) else None
