"""Which products are one operator again: the table behind `products.merge`."""

from __future__ import annotations

import numpy as np

from .arrays import Array, reading_of, shape_of, size
from .base import Jacobian
from .dense import BlockDiagonal, Dense, LowRank
from .diagonal import Diagonal
from .identity import Cast, Identity, Scalar, Zero
from .kron import Eye, Factor, Kron, matrix_shape
from .layout import Broadcast, Permutation, Reshape, SumTo
from .products import rewrites
from .selection import Embed, Scatter, Slice, Span, Take
from .symint import at, is_positive, largest, same, smallest

COPIES = 2
"""A rescaled copy of a matrix may be so many times as large as the tensor whose pass it saves."""


def matmul(a: Array, b: Array) -> Array:
    return reading_of(a, b).MatMul(a, b)


@rewrites(Scalar, Scalar)
def _(c: Scalar, d: Scalar) -> Jacobian:
    factor, dtype = c.factor * d.factor, np.result_type(c.dtype, d.dtype)
    return Identity(c.out_shape, dtype) if same(factor, 1) else Scalar(factor, c.out_shape, dtype)


@rewrites(Scalar, Diagonal)
def _(c: Scalar, d: Diagonal) -> Jacobian:
    return Diagonal(reading_of(d.d).Mul(d.d, c.factor), d.out_shape)


@rewrites(Diagonal, Scalar)
def _(d: Diagonal, c: Scalar) -> Jacobian:
    return Diagonal(reading_of(d.d).Mul(d.d, c.factor), d.out_shape)


@rewrites(Diagonal, Diagonal)
def _(d: Diagonal, e: Diagonal) -> Jacobian:
    product = reading_of(d.d, e.d).Mul(d.d, e.d)
    return Diagonal(product, d.out_shape, chooses=d.chooses and e.chooses)


@rewrites(Cast, Cast)
def _(a: Cast, b: Cast) -> Jacobian | None:
    lossless = np.can_cast(b.source, b.target) and a.target == b.source
    return Identity(a.out_shape, a.target) if lossless else None


@rewrites(Reshape, Reshape)
def _(a: Reshape, b: Reshape) -> Jacobian:
    if same(a.out_shape, b.in_shape):
        return Identity(a.out_shape, a.dtype)
    return Reshape(a.out_shape, b.in_shape, a.dtype)


@rewrites(Permutation, Permutation)
def _(a: Permutation, b: Permutation) -> Jacobian:
    perm = tuple(b.perm[k] for k in a.perm)
    if perm == tuple(range(len(perm))):
        return Identity(b.in_shape, b.dtype)
    return Permutation(perm, b.in_shape, b.dtype)


@rewrites(Broadcast, Broadcast)
def _(a: Broadcast, b: Broadcast) -> Jacobian:
    return Broadcast(a.out_shape, b.in_shape, a.dtype)


@rewrites(SumTo, SumTo)
def _(a: SumTo, b: SumTo) -> Jacobian:
    return SumTo(a.out_shape, b.in_shape, a.dtype)


@rewrites(SumTo, Broadcast)
def _(a: SumTo, b: Broadcast) -> Jacobian | None:
    if not same(a.out_shape, b.in_shape) or same(size(a.out_shape), 0):
        return None
    return Scalar(size(a.in_shape) // size(a.out_shape), a.out_shape, a.dtype)


@rewrites(Kron, Kron)
def _(k: Kron, h: Kron) -> Jacobian | None:
    """(A ⊗ B)(C ⊗ D) = AC ⊗ BD, where that does not make a product dearer."""
    left, right = factor_product(k.left, h.left), factor_product(k.right, h.right)
    merged = Kron(left, right, k.batch)
    return merged if at(merged.flops) <= at(k.flops + h.flops) else None


def factor_product(a: Factor, b: Factor) -> Factor:
    if isinstance(a, Eye):
        return b
    return a if isinstance(b, Eye) else matmul(a, b)


@rewrites(Kron, Diagonal)
def _(k: Kron, d: Diagonal) -> Jacobian | None:
    """(I ⊗ B) diag(d) as dense blocks B diag(dᵢ), where they move fewer bytes than B and d.

    The blocks are not to be much larger than the tensors, or they cost more than passes over d.
    """
    if not isinstance(k.left, Eye) or isinstance(k.right, Eye):
        return None
    rows, columns = matrix_shape(k.right)
    entries = at(size(k.in_shape[:-1]) * rows * columns)
    if entries >= at(size(shape_of(k.right)) + size(k.in_shape)):
        return None
    if entries > COPIES * max(at(size(k.in_shape)), at(size(k.out_shape))):
        return None
    op = reading_of(k.right, d.d)
    one_per_row = op.Reshape(k.right, (*shape_of(k.right)[:-2], 1, rows, columns))
    one_per_block = op.Reshape(op.Expand(d.d, k.in_shape), (*k.in_shape[:-1], 1, columns))
    return BlockDiagonal(op.Mul(one_per_row, one_per_block))


@rewrites(Dense, Dense)
def _(a: Dense, b: Dense) -> Jacobian | None:
    m, n, inner = at((a.shape[0], b.shape[1], a.shape[1]))
    if m * n > inner * (m + n):
        return None
    return Dense(matmul(a.a, b.a), a.out_shape, b.in_shape)


@rewrites(Dense, Diagonal)
def _(a: Dense, d: Diagonal) -> Jacobian:
    op = reading_of(a.a, d.d)
    row = op.Reshape(op.Expand(d.d, d.out_shape), (1, d.shape[0]))
    return Dense(op.Mul(a.a, row), a.out_shape, a.in_shape)


@rewrites(Diagonal, Dense)
def _(d: Diagonal, a: Dense) -> Jacobian:
    op = reading_of(a.a, d.d)
    column = op.Reshape(op.Expand(d.d, d.out_shape), (d.shape[0], 1))
    return Dense(op.Mul(a.a, column), a.out_shape, a.in_shape)


@rewrites(Dense, LowRank)
def _(a: Dense, b: LowRank) -> Jacobian:
    return LowRank(matmul(a.a, b.u), b.v, a.out_shape, b.in_shape)


@rewrites(BlockDiagonal, BlockDiagonal)
def _(a: BlockDiagonal, b: BlockDiagonal) -> Jacobian | None:
    merged = at(size((*a.out_shape, b.in_shape[-1])))
    if merged > at(size(shape_of(a.blocks)) + size(shape_of(b.blocks))):
        return None
    return BlockDiagonal(matmul(a.blocks, b.blocks))


@rewrites(Slice, Slice)
def _(a: Slice, b: Slice) -> Jacobian:
    spans = tuple(
        (start + step * first, step * stride, count)
        for (first, stride, count), (start, step, _) in zip(a.spans, b.spans, strict=True)
    )
    return Slice(spans, b.in_shape, b.dtype)


@rewrites(Slice, Embed)
def _(a: Slice, b: Embed) -> Jacobian | None:
    if same(a.spans, b.spans):
        return Identity(a.out_shape, a.dtype)
    if any(map(disjoint, a.spans, b.spans)):
        return Zero(a.out_shape, b.in_shape, a.dtype)
    return None


def disjoint(a: Span, b: Span) -> bool:
    """Whether two spans of one axis cannot meet: one ends before the other starts."""
    (low, high), (bottom, top) = extent(a), extent(b)
    return is_positive(bottom - high) or is_positive(low - top)


def extent(span: Span) -> tuple[int, int]:
    start, step, count = span
    last = start + step * (count - 1)
    return smallest(start, last), largest(start, last)


@rewrites(Take, Take)
def _(a: Take, b: Take) -> Jacobian | None:
    """Two selections along the same axis are one."""
    if len(shape_of(b.index)) != 1 or a.axis != b.axis:
        return None
    index = reading_of(a.index, b.index).Gather(b.index, a.index, axis=0)
    return Take(index, b.axis, b.in_shape, b.dtype)


@rewrites(Scatter, Scatter)
def _(a: Scatter, b: Scatter) -> Jacobian | None:
    if len(shape_of(a.index)) != 1 or a.axis != b.axis:
        return None
    index = reading_of(a.index, b.index).Gather(a.index, b.index, axis=0)
    return Scatter(index, a.axis, a.out_shape, a.dtype)
