"""Rewrites of neighbouring factors while vertices are eliminated: the rules behind `chain.meet`.

Diagonals and scalars commute with operators that move numbers, are absorbed by the terms of sums,
and merge with the weights of inner and outer products. A rule that made none of the networks of the
tests cheaper is not here: matrices and kernels absorb nothing, for example.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from ....jacobians import (
    Array,
    Broadcast,
    Diagonal,
    Identity,
    Inner,
    Jacobian,
    Outer,
    Permutation,
    Reshape,
    Scalar,
    Shape,
    Sum,
    Take,
    reading_of,
    shape_of,
    size,
)
from ....jacobians.layout import summed_axes
from ....jacobians.products import factors_of
from .chain import Factors, product, rewrites, rewrites_both
from .cost import seconds
from .sums import plus

MANY = 6
"""Largest number of products of terms that are tried."""


# -- operators that move, repeat or sum numbers ----------------------------------------------


@rewrites_both(Scalar, Broadcast)
@rewrites(Scalar, Reshape)
def _(c: Scalar, A: Jacobian) -> Factors:
    return A, rescaled(c, A.in_shape)


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


@rewrites_both(Inner, Broadcast)
def _(W: Inner, B: Broadcast) -> Factors | None:
    """Σ · diag(w) · bcast = diag(Σ w)."""
    if W.out_shape != B.in_shape:
        return None
    op, axes = reading_of(W.w), summed_axes(W.out_shape, W.in_shape)
    sums = op.ReduceSum(op.Expand(W.w, W.in_shape), axes, keepdims=1)
    return (Diagonal(op.Reshape(sums, W.out_shape), W.out_shape),)


# -- sums ------------------------------------------------------------------------------------


@rewrites(Diagonal, Sum)
def _(f: Jacobian, S: Sum) -> Factors | None:
    return distributed(f, S, [product(f, term) for term in S.terms])


@rewrites(Sum, Diagonal)
def _(S: Sum, f: Jacobian) -> Factors | None:
    return distributed(f, S, [product(term, f) for term in S.terms])


@rewrites(Diagonal, Sum, Scalar)
def _(d: Diagonal, S: Sum, c: Scalar) -> Factors:
    """d S c = (c d) S: as in a softmax of scaled scores."""
    return Diagonal(times(d.d, c.factor), d.out_shape), S


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


def grows(a: Array, b: Array, *held: Array) -> bool:
    """Whether the product of two arrays is larger than each array that is held anyway."""
    full = size(np.broadcast_shapes(shape_of(a), shape_of(b)))
    return full > max(size(shape_of(x)) for x in held)


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
