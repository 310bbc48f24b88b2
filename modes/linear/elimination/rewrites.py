"""Rewrites: products and sums of operators, simplified while vertices are eliminated.

In a `product`, factors are commuted until factors that can merge are adjacent. The table `rewrites`
maps neighbouring factors to their replacement: one operator, or the same operators in another
order. Diagonals and scalars move to the smaller of two tensors, past layout operators towards the
input, and into sums, inner and outer products. Matrices are never multiplied here: the planner
decides that. A rule that made none of the networks of the tests cheaper is not here: matrices and
kernels absorb nothing, for example.

In `plus`, terms merge as a whole or between their common factors. Terms that cancel up to rounding
vanish, such as derivatives along directions that a normalisation removes. A diagonal shared by all
terms is factored out: diag(d) + outer(u) W with u = d ∘ r is diag(d) (I + bcast · diag(r) · W),
where u need not be read or kept. A softmax and its relatives have this form when they are written
out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from ....jacobians import (
    Array,
    BlockDiagonal,
    Broadcast,
    Contraction,
    Convolution,
    Dense,
    Diagonal,
    Embed,
    Identity,
    Inner,
    Jacobian,
    Kron,
    LowRank,
    Outer,
    Permutation,
    Product,
    Reshape,
    Scalar,
    Scatter,
    Shape,
    Slice,
    Sum,
    SumTo,
    Take,
    Zero,
    dtype_of,
    reading_of,
    shape_of,
    size,
)
from ....jacobians.lapack import eps_of
from ....jacobians.layout import summed_axes
from ....jacobians.products import Factors, Rewrites, factors_of, push, simplified
from ....jacobians.sums import absorb, entries, terms_of
from ....jacobians.sums import merge as merge_terms
from .cost import seconds
from .deferred import Deferred, decided

Rule = Callable[..., Factors | None]

rewrites = Rewrites()
"""Kinds of two or three neighbours -> the factors that take their place."""

MATRICES = {BlockDiagonal, Contraction, Convolution, Dense, Kron, LowRank}

TRANSPOSES: dict[type, type] = {
    Broadcast: SumTo, Inner: Outer, Outer: Inner, Slice: Embed, Take: Scatter
}  # fmt: skip
"""Kind -> the kind of its transpose, where it is a different one."""


def rewrites_both(*kinds: type) -> Callable[[Rule], Rule]:
    """Register a rule for A B, and its transpose for Bᵀ Aᵀ."""

    def register(rule: Rule) -> Rule:
        def transposed(*factors: Jacobian) -> Factors | None:
            given = {factor.T: factor for factor in reversed(factors)}
            found = rule(*given)
            return found and tuple(given.get(factor) or factor.T for factor in reversed(found))

        rewrites(*kinds)(rule)
        rewrites(*(TRANSPOSES.get(kind, kind) for kind in reversed(kinds)))(transposed)
        return rule

    return register


def product(left: Jacobian, right: Jacobian) -> Jacobian:
    """left · right, with neighbouring factors merged."""
    chain, others, unmoved = list(factors_of(left)), factors_of(right), 0
    for position, factor in enumerate(others):
        push(chain, factor, meet)
        unmoved = unmoved + 1 if chain[-1] is factor else 0
        if unmoved == 2:  # the rest of `right` is merged with these already
            return as_product([*chain, *others[position + 1 :]])
    return as_product(chain)


def as_product(factors: list[Jacobian]) -> Jacobian:
    """One factor, or the product of several."""
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def meet(*factors: Jacobian) -> Factors | None:
    """The factors that replace two or three neighbours, or None if they stay as they are."""
    found: Factors | None = None
    if len(factors) == 2 and not MATRICES.issuperset(map(type, factors)):
        found = simplified(*factors)
    return rewrites.rewritten(*factors) if found is None else found


# -- sums whose terms merge -------------------------------------------------------------------

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
    return merge_terms(left, right) or between(left, right)


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
    total = merge_terms(x, y)
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


MANY = 6
"""Largest number of products of terms that are tried."""


# -- rules: operators that move, repeat or sum numbers ---------------------------------------


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


# -- rules: inner and outer products ---------------------------------------------------------


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


# -- rules: sums -----------------------------------------------------------------------------


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
