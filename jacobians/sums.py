"""Sum: terms applied to the same input and added, with terms merged where that simplifies."""

from __future__ import annotations

from functools import reduce
from operator import is_

import numpy as np

from .arrays import Array, Op, common, reading_of, total
from .base import Jacobian
from .elementwise import Diagonal, Identity, Scalar, Zero
from .errors import InputError
from .hooks import add
from .matrices import BlockDiagonal, Dense, Eye, Factor, Kron
from .products import Product, factors_of, is_identity
from .symint import agree, at, is_symbolic
from .text import joined


class Sum(Jacobian):
    """y = T₁ x + T₂ x + …, with Tᵢ the `terms`."""

    holds = ("terms",)

    def __init__(self, terms: tuple[Jacobian, ...]) -> None:
        if len({(at(t.out_shape), at(t.in_shape)) for t in terms}) != 1:
            shapes = ", ".join(f"{list(t.in_shape)} to {list(t.out_shape)}" for t in terms)
            raise InputError(f"Sum: the terms map between different tensors: {shapes or 'none'}")
        dtype = common(*(t.dtype for t in terms))
        super().__init__(terms[0].out_shape, terms[0].in_shape, dtype)
        self.terms = terms

    def _apply(self, op: Op, v: Array) -> Array:
        return reduce(op.Add, (term._apply(op, v) for term in self.terms))

    def _transpose(self) -> Jacobian:
        return Sum(tuple(t.T for t in self.terms))

    @property
    def flops(self) -> int:
        return sum(t.flops for t in self.terms) + (len(self.terms) - 1) * self.shape[0]

    def _diagonal(self) -> Array:
        return reduce(total, (t._diagonal() for t in self.terms))

    def __repr__(self) -> str:
        return joined(self.terms, " + ").replace("+ -1 · ", "- ").replace("+ -", "- ")


@add.register(Jacobian)
def _add(left: Jacobian, right: Jacobian) -> Jacobian:
    if not agree(left.shape, right.shape):
        raise InputError(
            f"cannot add operators of shape {left.shape} and {right.shape}: {left!r} and {right!r}"
        )
    if not agree(right.out_shape, left.out_shape):
        right = Identity(left.out_shape, right.dtype) @ right
    if not agree(right.in_shape, left.in_shape):
        right = right @ Identity(left.in_shape, right.dtype)
    terms = list(terms_of(left))
    for term in terms_of(right):
        absorb(terms, term)
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


def terms_of(operator: Jacobian) -> tuple[Jacobian, ...]:
    """The terms of a sum, or the operator alone."""
    return operator.terms if isinstance(operator, Sum) else (operator,)


def merge(left: Jacobian, right: Jacobian) -> Jacobian | None:
    """The sum as one simpler operator, or None."""
    if left.dtype != right.dtype:
        return None
    if isinstance(right, Zero):
        return left
    if isinstance(left, Zero):
        return right
    (a, K), (b, L) = coefficient(left), coefficient(right)
    if is_symbolic((a, b)):
        return None
    if not K and not L:
        return Scalar(a + b, left.out_shape, left.dtype)
    if (d := diagonal_entries(left)) is not None and (e := diagonal_entries(right)) is not None:
        return Diagonal(total(d, e), left.out_shape)
    if isinstance(left, Dense) and isinstance(right, Dense):
        return Dense(total(left.a, right.a), left.out_shape, left.in_shape)
    if isinstance(left, BlockDiagonal) and isinstance(right, BlockDiagonal):
        return BlockDiagonal(total(left.blocks, right.blocks))
    if len(K) == len(L) and all(map(is_, K, L)):  # a K + b K = (a + b) K, the same objects
        if a + b == 0:
            return Zero(left.out_shape, left.in_shape, left.dtype)
        rest = K[0] if len(K) == 1 else Product(K)
        return rest if a + b == 1 else Scalar(a + b, left.out_shape, left.dtype) @ rest
    if len(K) == len(L) == 1 and isinstance(K[0], Kron) and isinstance(L[0], Kron):
        return like_factors(a, K[0], b, L[0])
    return None


def absorb(terms: list[Jacobian], term: Jacobian) -> None:
    """Merge a term into the first one that it simplifies with, else append it."""
    for position, present in enumerate(terms):
        found = merge(present, term)
        if found is not None:
            terms[position] = found
            return
    terms.append(term)


def coefficient(operator: Jacobian) -> tuple[float, tuple[Jacobian, ...]]:
    """The numbers among the factors of a product, multiplied, and its other factors."""
    number, others = 1.0, list[Jacobian]()
    for factor in factors_of(operator):
        if (c := multiple(factor)) is None:
            others.append(factor)
        else:
            number *= c
    return number, tuple(others)


def like_factors(a: float, K: Kron, b: float, L: Kron) -> Jacobian | None:
    """a A ⊗ B + b C ⊗ B = (a A + b C) ⊗ B, and the same on the left."""
    if K.batch != L.batch:
        return None
    if is_same(K.right, L.right) and (whole := add_factors(a, K.left, b, L.left)) is not None:
        return Kron(whole, K.right, K.batch)
    if is_same(K.left, L.left) and (whole := add_factors(a, K.right, b, L.right)) is not None:
        return Kron(K.left, whole, K.batch)
    return None


def scaled_kron(operator: Jacobian) -> tuple[float, Kron] | None:
    """c and K of c K for a Kronecker product K; None for another operator."""
    c, rest = coefficient(operator)
    return (c, rest[0]) if len(rest) == 1 and isinstance(rest[0], Kron) else None


def is_same(a: Factor, b: Factor) -> bool:
    """Whether two factors are one object, or both the identity."""
    return a is b or (isinstance(a, Eye) and isinstance(b, Eye) and a == b)


def add_factors(a: float, A: Factor, b: float, B: Factor) -> Array | None:
    """a A + b B for two matrices, or two stacks of them; None with a symbolic identity."""
    if isinstance(A, Eye) or isinstance(B, Eye):
        return None
    op = reading_of(A, B)
    return op.Add(*(f if c == 1 else op.Mul(f, c) for c, f in ((a, A), (b, B))))


def multiple(operator: Jacobian) -> float | None:
    """c where the operator is c · I."""
    if is_identity(operator):
        return 1.0
    if isinstance(operator, Diagonal):
        one = isinstance(operator.d, np.ndarray) and operator.d.size == 1
        return float(operator.d.item()) if one and operator.d.dtype.kind == "f" else None
    return operator.factor if isinstance(operator, Scalar) else None


def split_identity(operator: Jacobian) -> tuple[float, list[Jacobian]]:
    """δ and the other terms of T₁ + T₂ + … + δ I."""
    shifts = [(multiple(term), term) for term in terms_of(operator)]
    return sum(c or 0 for c, _ in shifts), [term for c, term in shifts if c is None]


def diagonal_entries(operator: Jacobian) -> Array | None:
    """The diagonal of a diagonal operator, not broadcast."""
    if isinstance(operator, Diagonal):
        return operator.d
    factor = multiple(operator)
    known = factor is not None and not is_symbolic(factor)
    return np.asarray(factor, operator.dtype) if known else None
