"""Terms: sums whose terms meet not only whole, but also between what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ...jacobians import (
    Broadcast,
    Diagonal,
    Identity,
    Jacobian,
    Outer,
    Permutation,
    Reshape,
    Scalar,
    Sum,
    SumTo,
    Zero,
    reading_of,
    shape_of,
    size,
)
from ...jacobians.products import factors_of
from ...jacobians.sums import entries, merge, terms_of
from .cancellation import vanishes
from .chain import product


def plus(*operators: Jacobian) -> Jacobian:
    """Σ operators, with the terms that are alike made one."""
    terms: list[Jacobian] = []
    for operator in operators:
        for term in terms_of(operator):
            absorb(terms, term)
    present = tuple(t for t in terms if not isinstance(t, Zero)) or tuple(terms[:1])
    return present[0] if len(present) == 1 else Sum(present)


def absorb(terms: list[Jacobian], term: Jacobian) -> None:
    """Add a term to the first one that it merges with."""
    for position, present in enumerate(terms):
        merged = merge(present, term) or between(present, term)
        if merged is not None:
            terms[position] = merged
            return
    terms.append(term)


def between(left: Jacobian, right: Jacobian) -> Jacobian | None:
    """H X T + H Y T = H (X + Y) T, where X + Y is one diagonal or one outer product."""
    a, b = list(factors_of(left)), list(factors_of(right))
    head = common(a, b)
    a, b = a[head:], b[head:]
    tail = common(a[::-1], b[::-1])
    middle = joined(a[: len(a) - tail], b[: len(b) - tail])
    if middle is None or (head + tail == 0 and not isinstance(middle, Outer | Zero)):
        return None
    around = factors_of(left)
    return reduce(product, (*around[:head], middle, *around[len(around) - tail :]))


def common(a: Sequence[Jacobian], b: Sequence[Jacobian]) -> int:
    """With how many equal factors two products begin."""
    n = 0
    while n < min(len(a), len(b)) and same(a[n], b[n]):
        n += 1
    return n


def same(a: Jacobian, b: Jacobian) -> bool:
    """Whether two factors are known to be equal: one object, or moves between equal shapes."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, Broadcast | SumTo | Reshape | Permutation):
        return False
    moved = getattr(a, "perm", None) == getattr(b, "perm", None)
    return moved and (a.out_shape, a.in_shape) == (b.out_shape, b.in_shape)


def joined(a: list[Jacobian], b: list[Jacobian]) -> Jacobian | None:
    """The sum of two middles: of diagonals, an empty one being the identity, or outer products."""
    if not a and not b:
        return None
    if len(a) > 1 or len(b) > 1:
        return None
    x, y = (part[0] if part else None for part in (a, b))
    if isinstance(x, Outer) and isinstance(y, Outer):
        return sum_of_outers(x, y)
    like = x if x is not None else y
    assert like is not None
    if like.out_shape != like.in_shape:
        return None
    x, y = (Identity(like.in_shape, like.dtype) if part is None else part for part in (x, y))
    return sum_of_diagonals(x, y)


def sum_of_outers(x: Outer, y: Outer) -> Jacobian | None:
    """(u₁ + u₂) ∘ bcast(x), or nothing where they cancel."""
    if x.in_shape != y.in_shape or x.out_shape != y.out_shape or x.dtype != y.dtype:
        return None
    if size(shape_of(x.u)) != size(shape_of(y.u)):
        return None
    op = reading_of(x.u, y.u)
    total = op.Add(x.u, y.u)
    if vanishes(total, op.Add(op.Abs(x.u), op.Abs(y.u))):
        return Zero(x.out_shape, x.in_shape, x.dtype)
    return Outer(total, x.out_shape, x.in_shape)


def sum_of_diagonals(x: Jacobian, y: Jacobian) -> Jacobian | None:
    """diag(d + e), or nothing where they cancel."""
    total = merge(x, y)
    if isinstance(total, Scalar) and total.factor == 0:
        return Zero(x.out_shape, x.in_shape, x.dtype)
    if not isinstance(total, Diagonal):
        return total
    d, e = entries(x), entries(y)
    op = reading_of(total.d)
    if vanishes(total.d, op.Add(op.Abs(d), op.Abs(e))):
        return Zero(x.out_shape, x.in_shape, x.dtype)
    return total
