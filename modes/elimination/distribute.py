"""Distribute: factors that go into the terms of a sum, where products get cheaper by that."""

from __future__ import annotations

from functools import reduce

from ...jacobians import Diagonal, Identity, Jacobian, Scalar, Sum
from ...jacobians.products import factors_of
from .chain import Factors, product, swaps
from .cost import seconds
from .smaller import times
from .terms import plus

MANY = 6
"""So many products of terms are looked at."""


@swaps(Diagonal, Sum)
def _(d: Diagonal, S: Sum) -> Factors | None:
    return shared(d, S, [product(d, term) for term in S.terms])


@swaps(Sum, Diagonal)
def _(S: Sum, d: Diagonal) -> Factors | None:
    return shared(d, S, [product(term, d) for term in S.terms])


@swaps(Scalar, Sum)
def _(c: Scalar, S: Sum) -> Factors | None:
    return shared(c, S, [product(c, term) for term in S.terms])


@swaps(Sum, Scalar)
def _(S: Sum, c: Scalar) -> Factors | None:
    return shared(c, S, [product(term, c) for term in S.terms])


@swaps(Diagonal, Sum, Scalar)
def _(d: Diagonal, S: Sum, c: Scalar) -> Factors:
    """d S c = (c d) S: as behind a softmax of scaled scores."""
    return Diagonal(times(d.d, c.factor), d.out_shape), S


@swaps(Scalar, Sum, Diagonal)
def _(c: Scalar, S: Sum, d: Diagonal) -> Factors:
    return S, Diagonal(times(d.d, c.factor), d.in_shape)


def shared(factor: Jacobian, S: Sum, terms: list[Jacobian]) -> Factors | None:
    """The terms of a sum after a factor went into each, where that is cheaper."""
    spread = plus(*terms)
    return (spread,) if seconds(spread) < seconds(factor) + seconds(S) else None


@swaps(Sum, Sum)
def _(S: Sum, T: Sum) -> Factors | None:
    """S (I + H W) = S + (S H) W, where S H is so much less than S that it becomes cheaper."""
    if len(S.terms) * len(T.terms) > MANY or not any(isinstance(t, Identity) for t in T.terms):
        return None
    spread = plus(*(times_first(S, factors_of(term)) for term in T.terms))
    return (spread,) if seconds(spread) < seconds(S) + seconds(T) else None


def times_first(S: Sum, factors: Factors) -> Jacobian:
    """S times a product, from its first factor on: there the terms of S may cancel."""
    first = plus(*(product(term, factors[0]) for term in S.terms))
    return reduce(product, factors[1:], first)
