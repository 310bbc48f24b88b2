"""Sum: terms applied to the same input and added, with terms merged where that simplifies."""

from __future__ import annotations

import numpy as np

from .arrays import Array, Op, common, reading_of
from .base import Jacobian
from .elementwise import Diagonal, Identity, Scalar, Zero
from .errors import InputError
from .hooks import add
from .matrices import Dense
from .symint import agree, at, is_symbolic
from .text import joined


class Sum(Jacobian):
    """y = T₁ x + T₂ x + …"""

    holds = ("terms",)

    def __init__(self, terms: tuple[Jacobian, ...]) -> None:
        if len({(at(t.out_shape), at(t.in_shape)) for t in terms}) != 1:
            shapes = ", ".join(f"{list(t.in_shape)} to {list(t.out_shape)}" for t in terms)
            raise InputError(f"Sum: the terms map between different tensors: {shapes or 'none'}")
        dtype = common(*(t.dtype for t in terms))
        super().__init__(terms[0].out_shape, terms[0].in_shape, dtype)
        self.terms = terms

    def _apply(self, op: Op, v: Array) -> Array:
        first, *others = self.terms
        total = first._apply(op, v)
        for term in others:
            total = op.Add(total, term._apply(op, v))
        return total

    def _transpose(self) -> Jacobian:
        return Sum(tuple(t.T for t in self.terms))

    @property
    def flops(self) -> int:
        return sum(t.flops for t in self.terms) + (len(self.terms) - 1) * self.shape[0]

    def diagonal(self) -> np.ndarray:
        return np.sum([t.diagonal() for t in self.terms], axis=0)

    def __repr__(self) -> str:
        return joined(self.terms, " + ").replace("+ -1 · ", "- ").replace("+ -", "- ")


@add.register(Jacobian)
def _add(left: Jacobian, right: Jacobian) -> Jacobian:
    if not agree(left.shape, right.shape):
        raise InputError(
            f"cannot add operators of shape {left.shape} and {right.shape}: {left!r} and {right!r}"
        )
    right = as_shaped(right, left)
    terms = list(terms_of(left))
    for term in terms_of(right):
        absorb(terms, term)
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


def as_shaped(operator: Jacobian, like: Jacobian) -> Jacobian:
    """The operator with the tensor shapes of another one of the same flat sizes."""
    if not agree(operator.out_shape, like.out_shape):
        operator = Identity(like.out_shape, operator.dtype) @ operator
    if not agree(operator.in_shape, like.in_shape):
        operator = operator @ Identity(like.in_shape, operator.dtype)
    return operator


def terms_of(operator: Jacobian) -> tuple[Jacobian, ...]:
    """The terms of a sum, or the operator alone."""
    return operator.terms if isinstance(operator, Sum) else (operator,)


def absorb(terms: list[Jacobian], term: Jacobian) -> None:
    """Merge a term into the first one that it simplifies with, else append it."""
    for position, present in enumerate(terms):
        merged = merge(present, term)
        if merged is not None:
            terms[position] = merged
            return
    terms.append(term)


def merge(left: Jacobian, right: Jacobian) -> Jacobian | None:
    """The sum as one simpler operator, or None."""
    if left.dtype != right.dtype:
        return None
    if isinstance(right, Zero):
        return left
    if isinstance(left, Zero):
        return right
    factor, other = multiple(left), multiple(right)
    if factor is not None and other is not None and not is_symbolic((factor, other)):
        return Scalar(factor + other, left.out_shape, left.dtype)
    if (d := entries(left)) is not None and (e := entries(right)) is not None:
        return Diagonal(reading_of(d, e).Add(d, e), left.out_shape)
    if isinstance(left, Dense) and isinstance(right, Dense):
        total = reading_of(left.a, right.a).Add(left.a, right.a)
        return Dense(total, left.out_shape, left.in_shape)
    return None


def multiple(operator: Jacobian) -> float | None:
    """c where the operator is c · I."""
    if isinstance(operator, Identity):
        return 1.0
    return operator.factor if isinstance(operator, Scalar) else None


def entries(operator: Jacobian) -> Array | None:
    """The diagonal of a diagonal operator, not broadcast."""
    if isinstance(operator, Diagonal):
        return operator.d
    factor = multiple(operator)
    known = factor is not None and not is_symbolic(factor)
    return np.asarray(factor, operator.dtype) if known else None
