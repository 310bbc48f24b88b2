"""Smaller: a diagonal or a scalar on the other side of an operator that only moves numbers."""

from __future__ import annotations

from ...jacobians import (
    Array,
    Broadcast,
    Diagonal,
    Embed,
    Inner,
    Jacobian,
    Outer,
    Permutation,
    Reshape,
    Scalar,
    Shape,
    Slice,
    SumTo,
    reading_of,
    shape_of,
    size,
)
from ...jacobians.layout import summed_axes
from ...jacobians.selection import bounds
from .chain import Factors, swaps


def times(a: Array, b: Array | float) -> Array:
    """a ∘ b, in the reading that they belong to."""
    op = reading_of(a) if isinstance(b, float) else reading_of(a, b)
    return op.Mul(a, b)


def rescaled(c: Scalar, shape: Shape) -> Scalar:
    """The same multiple on tensors of another shape."""
    return Scalar(c.factor, shape, c.dtype)


def scalar_after(c: Scalar, A: Jacobian) -> Factors:
    return A, rescaled(c, A.in_shape)


def scalar_before(A: Jacobian, c: Scalar) -> Factors:
    return rescaled(c, A.out_shape), A


for later in (Permutation, Reshape, Broadcast, Embed):
    swaps(Scalar, later)(scalar_after)
for earlier in (SumTo, Slice):
    swaps(earlier, Scalar)(scalar_before)


@swaps(Diagonal, Permutation)
def _(d: Diagonal, P: Permutation) -> Factors:
    op, inverse = reading_of(d.d), P.T
    assert isinstance(inverse, Permutation)
    moved = op.Transpose(op.Reshape(d.d, padded(d.d, len(P.perm))), perm=inverse.perm)
    return P, Diagonal(moved, P.in_shape)


@swaps(Diagonal, Reshape)
def _(d: Diagonal, R: Reshape) -> Factors | None:
    shape = regrouped(padded(d.d, len(R.out_shape)), R.out_shape, R.in_shape)
    if shape is None:
        return None
    return R, Diagonal(reading_of(d.d).Reshape(d.d, shape), R.in_shape)


@swaps(Diagonal, Broadcast)
def _(d: Diagonal, B: Broadcast) -> Factors:
    small = narrowed(d.d, B.in_shape, B.out_shape)
    if small is None:
        return (Outer(d.d, B.out_shape, B.in_shape),)
    return B, Diagonal(small, B.in_shape)


@swaps(SumTo, Diagonal)
def _(S: SumTo, d: Diagonal) -> Factors:
    small = narrowed(d.d, S.out_shape, S.in_shape)
    if small is None:
        return (Inner(d.d, S.out_shape, S.in_shape),)
    return Diagonal(small, S.out_shape), S


@swaps(Slice, Diagonal)
def _(S: Slice, d: Diagonal) -> Factors:
    return Diagonal(cut(d.d, S), S.out_shape), S


@swaps(Diagonal, Embed)
def _(d: Diagonal, E: Embed) -> Factors:
    S = E.T
    assert isinstance(S, Slice)
    return E, Diagonal(cut(d.d, S), E.in_shape)


def padded(d: Array, rank: int) -> Shape:
    """The shape of an array with axes of length 1 in front."""
    shape = shape_of(d)
    return (1,) * (rank - len(shape)) + shape


def narrowed(d: Array, small: Shape, large: Shape) -> Array | None:
    """d over a large tensor as one over the small tensor that is broadcast to it, if it is one."""
    shape = padded(d, len(large))
    if any(shape[axis] != 1 for axis in summed_axes(small, large)):
        return None
    return reading_of(d).Reshape(d, shape[len(large) - len(small) :])


def cut(d: Array, S: Slice) -> Array:
    """What a slice leaves of d."""
    shape, n = shape_of(d), len(S.in_shape)
    axes = tuple(a for a in range(-len(shape), 0)
                 if shape[a] != 1 and S.spans[n + a] != (0, 1, shape[a]))  # fmt: skip
    if not axes:
        return d
    starts, ends, steps = zip(*(bounds(S.spans[n + a], shape[a]) for a in axes), strict=True)
    return reading_of(d).Slice(d, starts, ends, axes, steps)


def regrouped(d: Shape, before: Shape, after: Shape) -> Shape | None:
    """The shape of d when its tensor is reshaped; None where d is neither whole nor 1 in a group.

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
    """The least runs of axes of two shapes that hold equally many entries.

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
