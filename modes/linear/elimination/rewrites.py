"""Rewrites of neighbouring factors while vertices are eliminated: the rules behind `chain.meet`.

Diagonals and scalars commute with operators that move numbers, are absorbed by matrices, kernels
and the terms of sums, and merge with the weights of inner and outer products. A matrix or kernel is
rescaled only if its copy is not much larger than the tensor that is spared a multiplication; a
diagonal that acts along the identity factor moves to the smaller side.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from ....jacobians import (
    Array,
    BlockDiagonal,
    Broadcast,
    Convolution,
    Diagonal,
    Embed,
    Eye,
    Identity,
    Inner,
    Jacobian,
    Kron,
    Outer,
    Permutation,
    Reshape,
    Scalar,
    Shape,
    Slice,
    Sum,
    SumTo,
    Take,
    Zero,
    reading_of,
    shape_of,
    size,
)
from ....jacobians.layout import summed_axes
from ....jacobians.matrices import Factor
from ....jacobians.mixed import adjacent, is_free, mixed
from ....jacobians.products import COPIES, factors_of
from ....jacobians.selection import bounds
from .chain import Factors, product, rewrites, rewrites_both
from .cost import seconds
from .sums import plus, vanishes

MANY = 6
"""Largest number of products of terms that are tried."""


# -- operators that move, repeat or sum numbers ----------------------------------------------


def scalar_after(c: Scalar, A: Jacobian) -> Factors:
    return A, rescaled(c, A.in_shape)


def scalar_before(A: Jacobian, c: Scalar) -> Factors:
    return rescaled(c, A.out_shape), A


for later in (Permutation, Reshape, Broadcast, Embed):
    rewrites(Scalar, later)(scalar_after)
for earlier in (SumTo, Slice):
    rewrites(earlier, Scalar)(scalar_before)


@rewrites(Diagonal, Permutation)
def _(d: Diagonal, P: Permutation) -> Factors:
    op, inverse = reading_of(d.d), P.T
    assert isinstance(inverse, Permutation)
    moved = op.Transpose(op.Reshape(d.d, padded(d.d, len(P.perm))), perm=inverse.perm)
    return P, Diagonal(moved, P.in_shape)


@rewrites(Diagonal, Reshape)
def _(d: Diagonal, R: Reshape) -> Factors | None:
    shape = regrouped(padded(d.d, len(R.out_shape)), R.out_shape, R.in_shape)
    if shape is None:
        return None
    return R, Diagonal(reading_of(d.d).Reshape(d.d, shape), R.in_shape)


@rewrites_both(Diagonal, Broadcast)
def _(d: Diagonal, B: Broadcast) -> Factors:
    small = narrowed(d.d, B.in_shape, B.out_shape)
    if small is None:
        return (Outer(d.d, B.out_shape, B.in_shape),)
    return B, Diagonal(small, B.in_shape)


@rewrites_both(Slice, Diagonal)
def _(S: Slice, d: Diagonal) -> Factors:
    return Diagonal(cut(d.d, S), S.out_shape), S


@rewrites_both(Take, Diagonal)
def _(T: Take, d: Diagonal) -> Factors | None:
    if size(T.out_shape) >= size(T.in_shape):
        return None
    return Diagonal(taken(d.d, T), T.out_shape), T


@rewrites(Take, Reshape, Diagonal)
def _(T: Take, R: Reshape, d: Diagonal) -> Factors | None:
    if size(T.out_shape) >= size(T.in_shape):
        return None
    op = reading_of(d.d)
    whole = op.Reshape(op.Expand(d.d, R.in_shape), R.out_shape)
    return Diagonal(taken(whole, T), T.out_shape), T, R


# -- inner and outer products ----------------------------------------------------------------


@rewrites_both(Scalar, Outer)
def _(c: Scalar, U: Outer) -> Factors:
    return (Outer(times(U.u, c.factor), U.out_shape, U.in_shape),)


@rewrites_both(Outer, Scalar)
def _(U: Outer, c: Scalar) -> Factors:
    return (Outer(times(U.u, c.factor), U.out_shape, U.in_shape),)


@rewrites_both(Diagonal, Outer)
def _(d: Diagonal, U: Outer) -> Factors | None:
    if not grows(d.d, U.u, d.d, U.u):
        return (Outer(times(d.d, U.u), U.out_shape, U.in_shape),)
    small = narrowed(d.d, U.in_shape, U.out_shape)
    return None if small is None else (U, Diagonal(small, U.in_shape))


@rewrites_both(Outer, Diagonal)
def _(U: Outer, d: Diagonal) -> Factors | None:
    if grows(d.d, U.u, U.u):
        return None
    return (Outer(times(U.u, d.d), U.out_shape, U.in_shape),)


@rewrites_both(Outer, Broadcast)
def _(U: Outer, B: Broadcast) -> Factors:
    return (Outer(U.u, U.out_shape, B.in_shape),)


@rewrites_both(Inner, Broadcast)
def _(W: Inner, B: Broadcast) -> Factors | None:
    return contracted(W.w, W, B)


@rewrites(Inner, Outer)
def _(W: Inner, U: Outer) -> Factors | None:
    return contracted(times(W.w, U.u), W, U)


# -- matrices --------------------------------------------------------------------------------


@rewrites(Kron, Kron)
def _(K: Kron, H: Kron) -> Factors | None:
    """(A ⊗ I)(I ⊗ B) = A ⊗ B."""
    return (mixed(K, H),) if is_free(K, H) else None


@rewrites(Kron, Permutation, Kron)
@rewrites(Kron, Reshape, Kron)
def _(K: Kron, layout: Jacobian, H: Kron) -> Factors | None:
    if (found := adjacent(K, layout, H)) is None or not is_free(*found[:2]):
        return None
    merged, L, is_first = mixed(*found[:2]), *found[2:]
    return (merged, L) if is_first else (L, merged)


@rewrites(Kron, Scalar)
def scaled(K: Kron, c: Scalar) -> Factors | None:
    """c (A ⊗ B), with c in the smaller factor."""
    factors = [f for f in (K.left, K.right) if small_enough(f, K.in_shape, K.out_shape)]
    if not factors:
        return None
    least = min(factors, key=lambda f: size(shape_of(f)))
    left, right = (times(f, c.factor) if f is least else f for f in (K.left, K.right))
    return (Kron(left, right, K.batch),)


@rewrites(BlockDiagonal, Scalar)
def scaled_blocks(B: BlockDiagonal, c: Scalar) -> Factors | None:
    """c · B, with c in the blocks."""
    if not small_enough(B.blocks, B.in_shape, B.out_shape):
        return None
    return (BlockDiagonal(times(B.blocks, c.factor)),)


rewrites(Scalar, Kron)(lambda c, K: scaled(K, c))
rewrites(Scalar, BlockDiagonal)(lambda c, B: scaled_blocks(B, c))


@rewrites(Diagonal, Kron)
def _(d: Diagonal, K: Kron) -> Factors | None:
    *_, rows, columns = shape = padded(d.d, len(K.out_shape))
    if isinstance(K.left, Eye) and rows == 1 and small_enough(K.right, K.out_shape):
        return with_right(K, reading_of(d.d).Reshape(d.d, (*shape[:-2], columns, 1)))
    if isinstance(K.right, Eye) and columns == 1 and small_enough(K.left, K.out_shape):
        return with_left(K, reading_of(d.d).Reshape(d.d, shape))
    if along_identity(K, rows, columns) and size(K.in_shape) < size(K.out_shape):
        return K, Diagonal(d.d, K.in_shape)
    return None


@rewrites(Kron, Diagonal)
def _(K: Kron, d: Diagonal) -> Factors | None:
    *_, rows, columns = shape = padded(d.d, len(K.in_shape))
    if isinstance(K.left, Eye) and rows == 1 and small_enough(K.right, K.in_shape):
        return with_right(K, reading_of(d.d).Reshape(d.d, shape))
    if isinstance(K.right, Eye) and columns == 1 and small_enough(K.left, K.in_shape):
        return with_left(K, reading_of(d.d).Reshape(d.d, (*shape[:-2], 1, rows)))
    if along_identity(K, rows, columns) and size(K.out_shape) < size(K.in_shape):
        return Diagonal(d.d, K.out_shape), K
    return None


def along_identity(K: Kron, rows: int, columns: int) -> bool:
    """Whether a diagonal of this many rows and columns commutes with K along its identity."""
    return columns == 1 if isinstance(K.left, Eye) else rows == 1 and isinstance(K.right, Eye)


def with_right(K: Kron, d: Array) -> Factors | None:
    """I ⊗ (d ∘ B), unless d differs where B is shared."""
    B = times(K.right, d)
    return (Kron(K.left, B, K.batch),) if size(shape_of(B)) == size(shape_of(K.right)) else None


def with_left(K: Kron, d: Array) -> Factors | None:
    """(d ∘ A) ⊗ I, unless d differs where A is shared."""
    A = times(K.left, d)
    return (Kron(A, K.right, K.batch),) if size(shape_of(A)) == size(shape_of(K.left)) else None


# -- convolutions ----------------------------------------------------------------------------


@rewrites_both(Scalar, Convolution)
def _(c: Scalar, C: Convolution) -> Factors | None:
    """c · C: c scales the kernel, whether C holds it or is applied to it."""
    if C.target == "w":  # c acts on the kernel already
        return None
    if C.source == "w":
        return C, rescaled(c, C.in_shape)
    if not small_enough(C.held, C.in_shape, C.out_shape):
        return None
    return (Convolution(times(C.held, c.factor), C.source, C.target, C.geometry),)


@rewrites_both(Diagonal, Convolution)
def _(d: Diagonal, C: Convolution) -> Factors | None:
    """A diagonal over the output channels scales the rows of the kernel."""
    kernel = rows_of_kernel(d, C)
    if C.target != "u" or kernel is None:
        return None
    if C.source == "w":
        return C, Diagonal(kernel, C.in_shape)
    if not small_enough(C.held, C.out_shape):
        return None
    return (Convolution(times(C.held, kernel), "x", "u", C.geometry),)


def rows_of_kernel(d: Diagonal, C: Convolution) -> Array | None:
    """A diagonal over the output channels as one over the first axis of the kernel."""
    shape, rank = padded(d.d, len(C.geometry.u)), len(C.geometry.w)
    if size(shape) != shape[1]:
        return None
    return reading_of(d.d).Reshape(d.d, (shape[1], *(1,) * (rank - 1)))


# -- sums ------------------------------------------------------------------------------------


@rewrites(Diagonal, Sum)
@rewrites(Scalar, Sum)
def _(f: Jacobian, S: Sum) -> Factors | None:
    return distributed(f, S, [product(f, term) for term in S.terms])


@rewrites(Sum, Diagonal)
@rewrites(Sum, Scalar)
def _(S: Sum, f: Jacobian) -> Factors | None:
    return distributed(f, S, [product(term, f) for term in S.terms])


@rewrites(Diagonal, Sum, Scalar)
def _(d: Diagonal, S: Sum, c: Scalar) -> Factors:
    """d S c = (c d) S: as in a softmax of scaled scores."""
    return Diagonal(times(d.d, c.factor), d.out_shape), S


@rewrites(Scalar, Sum, Diagonal)
def _(c: Scalar, S: Sum, d: Diagonal) -> Factors:
    return S, Diagonal(times(d.d, c.factor), d.in_shape)


@rewrites(Sum, Sum)
def _(S: Sum, T: Sum) -> Factors | None:
    """S (I + H W) = S + (S H) W, if S H is so much smaller than S that this is cheaper."""
    if len(S.terms) * len(T.terms) > MANY or not any(isinstance(t, Identity) for t in T.terms):
        return None
    return distributed(S, T, [times_first(S, factors_of(term)) for term in T.terms])


def distributed(factor: Jacobian, S: Sum, terms: list[Jacobian]) -> Factors | None:
    """The sum with a factor multiplied into each of its terms; None if that is not cheaper."""
    spread = plus(*terms)
    return (spread,) if seconds(spread) < seconds(factor) + seconds(S) else None


def times_first(S: Sum, factors: Factors) -> Jacobian:
    """S times a product, first factor first, since terms of S may cancel there."""
    first = plus(*(product(term, factors[0]) for term in S.terms))
    return reduce(product, factors[1:], first)


# -- entries of diagonals and weights --------------------------------------------------------


def times(a: Array, b: Array | float) -> Array:
    """a ∘ b, in the reading of the operands."""
    op = reading_of(a) if isinstance(b, float) else reading_of(a, b)
    return op.Mul(a, b)


def rescaled(c: Scalar, shape: Shape) -> Scalar:
    """The scalar on tensors of another shape."""
    return Scalar(c.factor, shape, c.dtype)


def small_enough(factor: Factor, *tensors: Shape) -> bool:
    """Whether copying a matrix or kernel is worth saving a pass over a tensor."""
    if isinstance(factor, Eye):
        return False
    return size(shape_of(factor)) <= COPIES * max(map(size, tensors))


def grows(a: Array, b: Array, *held: Array) -> bool:
    """Whether the product of two arrays is larger than each array that is held anyway."""
    full = size(np.broadcast_shapes(shape_of(a), shape_of(b)))
    return full > max(size(shape_of(x)) for x in held)


def contracted(a: Array, left: Jacobian, right: Jacobian) -> Factors | None:
    """Σ · diag(a) · bcast = diag(Σ a), or zero if the sums are rounding errors."""
    small, large = left.out_shape, left.in_shape
    if small != right.in_shape:
        return None
    op, axes = reading_of(a), summed_axes(small, large)
    a = op.Expand(a, large)
    sums, sizes = (op.Reshape(op.ReduceSum(x, axes, keepdims=1), small) for x in (a, op.Abs(a)))
    if vanishes(sums, sizes):
        return (Zero(small, small, left.dtype),)
    return (Diagonal(sums, small),)


def padded(d: Array, rank: int) -> Shape:
    """The shape of an array with axes of length 1 in front."""
    shape = shape_of(d)
    return (1,) * (rank - len(shape)) + shape


def narrowed(d: Array, small: Shape, large: Shape) -> Array | None:
    """d on a large tensor as entries on the small tensor that is broadcast to it, if possible."""
    shape = padded(d, len(large))
    if any(shape[axis] != 1 for axis in summed_axes(small, large)):
        return None
    return reading_of(d).Reshape(d, shape[len(large) - len(small) :])


def cut(d: Array, S: Slice) -> Array:
    """The part of d inside a slice."""
    shape, n = shape_of(d), len(S.in_shape)
    axes = tuple(a for a in range(-len(shape), 0)
                 if shape[a] != 1 and S.spans[n + a] != (0, 1, shape[a]))  # fmt: skip
    if not axes:
        return d
    starts, ends, steps = zip(*(bounds(S.spans[n + a], shape[a]) for a in axes), strict=True)
    return reading_of(d).Slice(d, starts, ends, axes, steps)


def taken(d: Array, T: Take) -> Array:
    """d at the entries that are taken."""
    op, shape = reading_of(d), padded(d, len(T.in_shape))
    axis = T.axis % len(shape)
    if shape[axis] == 1:
        ones = (1,) * len(shape_of(T.index))
        return op.Reshape(d, (*shape[:axis], *ones, *shape[axis + 1 :]))
    return op.Gather(op.Reshape(d, shape), T.index, axis=axis)


def regrouped(d: Shape, before: Shape, after: Shape) -> Shape | None:
    """The shape of d when its tensor is reshaped; None if d is neither full nor 1 in a group.

    >>> regrouped((1, 1, 6), (4, 2, 6), (8, 2, 3)), regrouped((1, 2, 1), (4, 2, 6), (8, 6))
    ((1, 2, 3), None)
    """
    shape: list[int] = []
    for old, new in groups(before, after):
        part = tuple(d[k] for k in old)
        if size(part) == 1:
            shape += [1] * len(new)
        elif part == tuple(before[k] for k in old):
            shape += [after[k] for k in new]
        else:
            return None
    return tuple(shape)


def groups(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes of two shapes with the same number of entries.

    >>> groups((4, 2, 6), (8, 2, 3))
    [([0, 1], [0]), ([2], [1, 2])]
    """
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(after):
        old: list[int] = []
        new: list[int] = []
        m = n = 1
        while not (old or new) or m != n:
            if j >= len(after) or (i < len(before) and m <= n):
                old.append(i)
                m, i = m * before[i], i + 1
            else:
                new.append(j)
                n, j = n * after[j], j + 1
        found.append((old, new))
    return found
