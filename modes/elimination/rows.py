"""Rows: what inner and outer products take in, and what they become when they meet."""

from __future__ import annotations

import numpy as np

from ...jacobians import (
    Array,
    Broadcast,
    Diagonal,
    Inner,
    Jacobian,
    Outer,
    Scalar,
    SumTo,
    Zero,
    reading_of,
    shape_of,
    size,
)
from ...jacobians.layout import summed_axes
from .cancellation import vanishes
from .chain import Factors, swaps
from .smaller import narrowed, times


def grows(a: Array, b: Array, *held: Array) -> bool:
    """Whether the product of two arrays is larger than the largest of what is held anyway."""
    full = size(np.broadcast_shapes(shape_of(a), shape_of(b)))
    return full > max(size(shape_of(x)) for x in held)


@swaps(Scalar, Outer)
def _(c: Scalar, U: Outer) -> Factors:
    return (Outer(times(U.u, c.factor), U.out_shape, U.in_shape),)


@swaps(Outer, Scalar)
def _(U: Outer, c: Scalar) -> Factors:
    return (Outer(times(U.u, c.factor), U.out_shape, U.in_shape),)


@swaps(Scalar, Inner)
def _(c: Scalar, W: Inner) -> Factors:
    return (Inner(times(W.w, c.factor), W.out_shape, W.in_shape),)


@swaps(Inner, Scalar)
def _(W: Inner, c: Scalar) -> Factors:
    return (Inner(times(W.w, c.factor), W.out_shape, W.in_shape),)


@swaps(Diagonal, Outer)
def _(d: Diagonal, U: Outer) -> Factors | None:
    if not grows(d.d, U.u, d.d, U.u):
        return (Outer(times(d.d, U.u), U.out_shape, U.in_shape),)
    small = narrowed(d.d, U.in_shape, U.out_shape)
    return None if small is None else (U, Diagonal(small, U.in_shape))


@swaps(Inner, Diagonal)
def _(W: Inner, d: Diagonal) -> Factors | None:
    if not grows(d.d, W.w, d.d, W.w):
        return (Inner(times(W.w, d.d), W.out_shape, W.in_shape),)
    small = narrowed(d.d, W.out_shape, W.in_shape)
    return None if small is None else (Diagonal(small, W.out_shape), W)


@swaps(Outer, Diagonal)
def _(U: Outer, d: Diagonal) -> Factors | None:
    if grows(d.d, U.u, U.u):
        return None
    return (Outer(times(U.u, d.d), U.out_shape, U.in_shape),)


@swaps(Diagonal, Inner)
def _(d: Diagonal, W: Inner) -> Factors | None:
    if grows(d.d, W.w, W.w):
        return None
    return (Inner(times(W.w, d.d), W.out_shape, W.in_shape),)


@swaps(Outer, Broadcast)
def _(U: Outer, B: Broadcast) -> Factors:
    return (Outer(U.u, U.out_shape, B.in_shape),)


@swaps(SumTo, Inner)
def _(S: SumTo, W: Inner) -> Factors:
    return (Inner(W.w, S.out_shape, W.in_shape),)


@swaps(Inner, Broadcast)
def _(W: Inner, B: Broadcast) -> Factors | None:
    return contracted(W.w, W, B)


@swaps(SumTo, Outer)
def _(S: SumTo, U: Outer) -> Factors | None:
    return contracted(U.u, S, U)


@swaps(Inner, Outer)
def _(W: Inner, U: Outer) -> Factors | None:
    return contracted(times(W.w, U.u), W, U)


def contracted(a: Array, left: Jacobian, right: Jacobian) -> Factors | None:
    """Σ · diag(a) · bcast = diag(Σ a), and nothing at all where the sums are rounding errors."""
    small, large = left.out_shape, left.in_shape
    if small != right.in_shape:
        return None
    op, axes = reading_of(a), summed_axes(small, large)
    a = op.Expand(a, large)
    sums, sizes = (op.Reshape(op.ReduceSum(x, axes, keepdims=1), small) for x in (a, op.Abs(a)))
    if vanishes(sums, sizes):
        return (Zero(small, small, left.dtype),)
    return (Diagonal(sums, small),)
