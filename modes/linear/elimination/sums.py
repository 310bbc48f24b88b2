"""Sums whose terms merge, as a whole or between their common factors.

Terms that cancel up to rounding vanish, such as derivatives along directions that a normalisation
removes. A diagonal shared by all terms is factored out: diag(d) + outer(u) W with u = d ∘ r is
diag(d) (I + bcast · diag(r) · W), where u need not be read or kept. A softmax and its relatives
have this form when they are written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from ....jacobians import (
    Broadcast,
    Diagonal,
    Identity,
    Jacobian,
    Outer,
    Permutation,
    Product,
    Reshape,
    Scalar,
    Shape,
    Sum,
    SumTo,
    Zero,
    dtype_of,
    reading_of,
    shape_of,
    size,
)
from ....jacobians.lapack import eps_of
from ....jacobians.layout import summed_axes
from ....jacobians.products import factors_of
from ....jacobians.sums import absorb, entries, merge, terms_of
from .chain import product
from .deferred import Deferred, decided

DIAGONALS = Diagonal, Identity, Scalar

ROUNDINGS = 8
"""Largest remainder of cancelling terms, in units in the last place."""


def plus(*operators: Jacobian) -> Jacobian:
    """Σ operators, with like terms merged."""
    terms: list[Jacobian] = []
    given = [term for operator in operators for term in terms_of(operator)]
    if any(isinstance(term, DIAGONALS) for term in given):
        given = [part for term in given for part in opened(term)]
    for term in given:
        absorb(terms, term, merged)
    present = tuple(t for t in terms if not isinstance(t, Zero)) or tuple(terms[:1])
    return present[0] if len(present) == 1 else Sum(present)


def opened(term: Jacobian) -> tuple[Jacobian, ...]:
    """d e and d A for a term d (A + e) whose diagonal d e merges with one beside it."""
    match tuple(factors_of(term)):
        case d, Sum() as S if isinstance(d, DIAGONALS):
            e = [t for t in S.terms if isinstance(t, DIAGONALS)]
            A = [t for t in S.terms if not isinstance(t, DIAGONALS)]
            if e and A:
                return product(d, plus(*e)), product(d, plus(*A))
    return (term,)


def merged(left: Jacobian, right: Jacobian) -> Jacobian | None:
    """The sum as one simpler operator, or None."""
    return merge(left, right) or between(left, right)


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
    """The number of equal leading factors of two products."""
    n = 0
    while n < min(len(a), len(b)) and same(a[n], b[n]):
        n += 1
    return n


def same(a: Jacobian, b: Jacobian) -> bool:
    """Whether two factors are surely equal: one object, or the same move between equal shapes."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, Broadcast | SumTo | Reshape | Permutation):
        return False
    moved = getattr(a, "perm", None) == getattr(b, "perm", None)
    return moved and (a.out_shape, a.in_shape) == (b.out_shape, b.in_shape)


def joined(a: list[Jacobian], b: list[Jacobian]) -> Jacobian | None:
    """The sum of two middle parts: diagonals (an empty part is the identity) or outer products."""
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
    """(u₁ + u₂) ∘ bcast(x), or zero if u₁ and u₂ cancel."""
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
    """diag(d + e), or zero if d and e cancel."""
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


def vanishes(total: Any, sizes: Any) -> bool:
    """|Σ aᵢ| ≤ 8 ε Σ |aᵢ| everywhere: the sum may as well be zero.

    Half precision rounds too coarsely to tell.

    >>> vanishes(np.array([1e-17, 0.0]), np.array([1.0, 2.0])), vanishes(np.ones(1), np.ones(1))
    (True, False)
    """
    if (dtype := dtype_of(total)).kind != "f" or dtype.itemsize < 4:
        return False
    return bool(decided(is_rounding, total, sizes))


def is_rounding(total: np.ndarray, sizes: np.ndarray) -> bool:
    """Whether sums are within rounding error of zero, given the sums of absolute values."""
    limit = ROUNDINGS * eps_of(dtype_of(total)) * sizes
    return bool(((abs(total) <= limit) & (sizes < np.inf)).all())


def factored(operator: Jacobian) -> Jacobian:
    """The operator with the common diagonal of each sum factored out."""
    if isinstance(operator, Product):
        parts = tuple(map(factored, operator.factors))
        return operator if parts == operator.factors else Product(flat(parts))
    if not isinstance(operator, Sum):
        return operator
    whole = next((t for t in operator.terms if isinstance(t, Diagonal)), None)
    if whole is None or size(shape_of(whole.d)) < whole.shape[0]:
        return operator
    shares = [share(whole, term) for term in operator.terms]
    if any(term is None for term in shares):
        return operator
    return Product((whole, plus(*(term for term in shares if term is not None))))


def flat(parts: tuple[Jacobian, ...]) -> tuple[Jacobian, ...]:
    """The factors of all parts, in order."""
    return tuple(factor for part in parts for factor in factors_of(part))


def share(d: Diagonal, term: Jacobian) -> Jacobian | None:
    """T with term = d · T, or None if there is no cheap T."""
    if term is d:
        return Identity(d.out_shape, d.dtype)
    first, *rest = factors_of(term)
    if not isinstance(first, Outer) or size(shape_of(first.u)) < first.shape[0]:
        return None
    if d.d.dtype.kind != "f" or d.d.dtype.itemsize < 4:
        return None
    shapes = first.in_shape, first.out_shape
    if not decided(partial(is_multiple, *shapes), first.u, d.d):
        return None
    repeat = Broadcast(first.out_shape, first.in_shape, first.dtype)
    dtype = np.result_type(first.u.dtype, d.d.dtype)
    r = Deferred(first.in_shape, dtype, partial(ratio, *shapes), (first.u, d.d))
    small: Jacobian = product(repeat, Diagonal(r))
    for factor in rest:
        small = product(small, factor)
    return small


def ratio(small: Shape, large: Shape, u: np.ndarray, d: np.ndarray) -> np.ndarray:
    """r over the small tensor, by least squares in u = d ∘ bcast(r) over the large one.

    >>> ratio((1, 1), (1, 2), np.array([[2.0, 4.0]]), np.array([[1.0, 2.0]]))
    array([[2.]])
    """
    u, d, axes = u.reshape(large), d.reshape(large), summed_axes(small, large)
    with np.errstate(all="ignore"):
        above, below = (x.sum(axes, keepdims=True) if axes else x for x in (u * d, d * d))
        ratios: np.ndarray = (above / below).reshape(small)
    return ratios


def is_multiple(small: Shape, large: Shape, u: np.ndarray, d: np.ndarray) -> bool:
    """Whether u = d ∘ bcast(r) for some finite r, up to rounding."""
    r = ratio(small, large, u, d)
    with np.errstate(all="ignore"):
        off = abs(u.reshape(large) - d.reshape(large) * r)
        near = off <= ROUNDINGS * eps_of(dtype_of(d)) * abs(u.reshape(large))
    return bool(near.all() and (abs(r) < np.inf).all())
