"""Rewrites of two neighbouring factors; every kind of pair needs an example here."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import (
    Broadcast,
    Diagonal,
    Identity,
    Inner,
    Outer,
    Permutation,
    Product,
    Reshape,
    Scalar,
    Scatter,
    Sum,
    SumTo,
    Take,
    Zero,
    take_flat,
)
from onnxjac.jacobians.products import factors_of
from onnxjac.modes.linear.elimination.cost import seconds
from onnxjac.modes.linear.elimination.deferred import deferred, forced
from onnxjac.modes.linear.elimination.rewrites import factored, meet, plus, product, rewrites
from onnxjac.modes.linear.elimination.vertex_elimination import canonical

FLOAT = np.dtype(float)
rng = np.random.default_rng(17)


def N(*shape):
    return rng.standard_normal(shape)


def C(*shape):
    return Scalar(-0.5, shape, FLOAT)


def D(*shape, of=None):
    return Diagonal(N(*shape), of)


WIDE, ROW = (3, 5, 4), (3, 5, 1)
B, S = Broadcast(WIDE, ROW, FLOAT), SumTo(ROW, WIDE, FLOAT)
FULL, WEIGHT = Outer(N(*WIDE), WIDE, ROW), Inner(N(*WIDE), ROW, WIDE)
P = Permutation((2, 0, 1), WIDE, FLOAT)
FEW, MANY = (Take(np.arange(n) % 4, 1, WIDE, FLOAT) for n in (3, 5))
TOTAL = Broadcast((32, 64), (32, 1), FLOAT) @ Inner(N(32, 64), (32, 1), (32, 64))
CENTRED = Identity(WIDE, FLOAT) - B @ WEIGHT

PAIRS = {
    "c reshape": (C(15, 4), Reshape((15, 4), WIDE, FLOAT), (Reshape, Scalar)),
    "c bcast": (C(*WIDE), B, (Broadcast, Scalar)),
    "sum c": (S, C(*WIDE), (Scalar, SumTo)),
    "c outer": (C(*WIDE), FULL, (Outer,)),
    "outer c": (FULL, C(*ROW), (Outer,)),
    "c inner": (C(*ROW), WEIGHT, (Inner,)),
    "inner c": (WEIGHT, C(*WIDE), (Inner,)),
    "d P": (D(4, 3, 5), P, (Permutation, Diagonal)),
    "row P": (D(5, of=(4, 3, 5)), P, (Permutation, Diagonal)),
    "d reshape": (D(15, 4), Reshape((15, 4), WIDE, FLOAT), (Reshape, Diagonal)),
    "column reshape": (D(15, 1, of=(15, 4)), Reshape((15, 4), WIDE, FLOAT), (Reshape, Diagonal)),
    "part of a column reshape": (
        D(5, 1, of=WIDE), Reshape(WIDE, (15, 4), FLOAT), None),
    "d bcast": (D(*WIDE), B, (Outer,)),
    "column bcast": (D(5, 1, of=WIDE), B, (Broadcast, Diagonal)),
    "column bcast of a vector": (
        D(1, 4, of=(3, 4)), Broadcast((3, 4), (4,), FLOAT), (Broadcast, Diagonal)),
    "sum d": (S, D(*WIDE), (Inner,)),
    "sum column": (S, D(5, 1, of=WIDE), (Diagonal, SumTo)),
    "take d": (FEW, D(*WIDE), (Diagonal, Take)),
    "take row": (FEW, D(4, of=WIDE), (Diagonal, Take)),
    "take as many, d": (MANY, D(*WIDE), None),
    "d scatter": (D(*WIDE), FEW.T, (Scatter, Diagonal)),
    "d scatter of as many": (D(*WIDE), MANY.T, None),
    "d outer": (D(*WIDE), FULL, (Outer,)),
    "column outer of a row": (D(*ROW, of=WIDE), Outer(N(4), WIDE, ROW), (Outer, Diagonal)),
    "outer d": (FULL, D(*ROW), (Outer,)),
    "outer of a row d": (Outer(N(4), WIDE, ROW), D(*ROW), None),
    "inner d": (WEIGHT, D(*WIDE), (Inner,)),
    "inner of a row, column": (Inner(N(4), ROW, WIDE), D(*ROW, of=WIDE), (Diagonal, Inner)),
    "d inner": (D(*ROW), WEIGHT, (Inner,)),
    "d inner of a row": (D(*ROW), Inner(N(4), ROW, WIDE), None),
    "inner bcast": (WEIGHT, B, (Diagonal,)),
    "inner of a row bcast": (Inner(N(4), ROW, WIDE), B, (Diagonal,)),
    "inner bcast of less": (WEIGHT, Broadcast(WIDE, (5, 1), FLOAT), None),
    "sum outer": (S, FULL, (Diagonal,)),
    "d sum, dearer": (D(32, 64), Identity((32, 64), FLOAT) + TOTAL, None),
    "d sum": (D(*WIDE), Sum((D(*ROW, of=WIDE), FULL @ WEIGHT)), (Sum,)),
    "sum d of terms": (Sum((D(*ROW, of=WIDE), FULL @ WEIGHT)), D(*WIDE), (Sum,)),
}  # fmt: skip


def over_numbers(parts):
    """The product of some factors, with their arrays computed."""
    return forced(parts[0] if len(parts) == 1 else Product(tuple(parts)))


@pytest.mark.parametrize("name", PAIRS)
def test_pair(name):
    left, right, kinds = PAIRS[name]
    ground = {}
    met = meet(deferred(left, ground), deferred(right, ground))
    assert (None if met is None else tuple(map(type, met))) == kinds
    if met is None:
        return
    expected = left.toarray() @ right.toarray()
    J = over_numbers(met)
    assert (J.out_shape, J.in_shape) == (left.out_shape, right.in_shape)
    assert_allclose(J.toarray(), expected, rtol=1e-11, atol=1e-12)
    assert_allclose(J.T.toarray(), expected.T, rtol=1e-11, atol=1e-12)
    assert seconds(J) <= (seconds(left) + seconds(right)) * (1 + 1e-9)


@pytest.mark.parametrize("name", PAIRS)
def test_pair_of_numbers(name):
    """The rewrites hold in every reading: over plain arrays they give the same kinds."""
    left, right, kinds = PAIRS[name]
    met = meet(left, right)
    assert (None if met is None else tuple(map(type, met))) == kinds


def test_what_moved_lies_in_order():
    ground = {}
    (_, d) = meet(*(deferred(J, ground) for J in (D(4, 3, 5), P)))
    assert forced(d).d.flags.c_contiguous


def test_every_pair_has_an_example():
    shown = {(type(left), type(right)) for left, right, _ in PAIRS.values()}
    threes = {(Take, Reshape, Diagonal), (Diagonal, Sum, Scalar)}
    assert shown | threes | {(Sum, Sum)} >= rewrites.keys()


@pytest.mark.parametrize("d", [D(*WIDE), D(5, 1, of=WIDE)])
@pytest.mark.parametrize("count", [7, 60])
def test_a_diagonal_passes_a_reshape_to_where_few_entries_are_taken(d, count):
    """In whichever order the products are formed."""
    T, R = factors_of(take_flat(np.arange(count)[::-1] % 9, WIDE, FLOAT))
    for made in (product(product(T, R), d), product(T, Product((R, d)))):
        kinds = (Diagonal, Take, Reshape) if count == 7 else (Take, Reshape, Diagonal)
        assert tuple(map(type, factors_of(made))) == kinds
        assert_allclose(made.toarray(), T.toarray() @ d.toarray())


def standardized(cancels):
    """I - bcast · inner(w) with Σ w = 1 in each row, or Σ w = 2."""
    w = np.abs(N(*WIDE))
    w /= w.sum(-1, keepdims=True) / (1 if cancels else 2)
    return Identity(WIDE, FLOAT) - B @ Inner(w, ROW, WIDE)


def test_a_multiple_passes_a_sum_to_the_diagonal_behind_it():
    """As for softmax, d (I + 1 wᵀ) c = (c d) (I + 1 wᵀ): one pass less, for any terms."""
    factors = D(32, 64), Identity((32, 64), FLOAT) + TOTAL, C(32, 64)
    met = rewrites.rewritten(*factors)
    assert {type(f) for f in met} == {Diagonal, Sum}
    assert_allclose(Product(met).toarray(), Product(factors).toarray())


@pytest.mark.parametrize("cancels", [True, False])
def test_sums_are_multiplied_out_where_terms_cancel(cancels):
    """(I - 1 wᵀ)(I - 1 hᵀ) = I - 1 wᵀ where wᵀ 1 = 1."""
    left, right = standardized(cancels), CENTRED
    ground = {}
    met = meet(canonical(deferred(left, ground)), canonical(deferred(right, ground)))
    assert (met is not None) == cancels
    if met is not None:
        assert [len(factors_of(term)) for term in met[0].terms] == [1, 2]
        assert_allclose(over_numbers(met).toarray(), left.toarray() @ right.toarray(), atol=1e-12)


def test_a_diagonal_in_a_sum_goes_to_the_diagonal_of_the_sum_around_it():
    """D + c (A + e) = (D + c e) + c A, as in u + c (Δu - 4 u) - u³."""
    roll = Take(np.roll(np.arange(5), 1), 1, WIDE, FLOAT)
    whole, c, inner = D(*WIDE), D(of=WIDE), Sum((roll, D(of=WIDE)))
    J = plus(whole, product(c, inner))
    assert [[type(f) for f in factors_of(term)] for term in J.terms] == [
        [Diagonal], [Diagonal, Take]]  # fmt: skip
    assert_allclose(J.toarray(), whole.toarray() + c.toarray() @ inner.toarray())


@pytest.mark.parametrize("same", [True, False])
def test_a_common_diagonal_comes_to_the_front(same):
    d, r = N(*WIDE), N(*ROW)
    u = d * r if same else d * r + 1e-9
    J = Sum((Diagonal(d), Outer(u, WIDE, ROW) @ WEIGHT))
    found = forced(factored(deferred(J, {})))
    assert type(found) is (Product if same else Sum)
    assert_allclose(found.toarray(), J.toarray(), rtol=1e-12, atol=1e-12)


def test_terms_meet_between_what_they_share():
    """P d P' + P e P' = P (d + e) P', and bcast c inner - bcast c inner = 0."""
    Q = P.T
    d, e = D(4, 3, 5), D(4, 3, 5)
    J = plus(Q @ d @ P, Q @ e @ P)
    assert type(J) is Diagonal or len(factors_of(J)) == 3
    assert_allclose(J.toarray(), (Q @ d @ P).toarray() + (Q @ e @ P).toarray())
    again = B @ C(*ROW) @ WEIGHT
    assert type(plus(again, -1 * again)) is Zero
