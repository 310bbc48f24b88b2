"""Products and sums simplify on construction: the kind of the result, and its value."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import (
    BlockDiagonal,
    Broadcast,
    Cast,
    Dense,
    Diagonal,
    Embed,
    Eye,
    Identity,
    Kron,
    LowRank,
    Permutation,
    Product,
    Reshape,
    Scalar,
    Scatter,
    Slice,
    Sum,
    SumTo,
    Take,
    Zero,
    broadcast,
    implicit_kron,
    slab,
)
from onnxjac.jacobians.errors import InputError

from .examples import EXAMPLES, Draw

N = Draw(0).normal
FLOAT = np.dtype(float)


def diagonal(*shape, of=None):
    return Diagonal(N(*shape), of)


PRODUCTS = {
    "Scalar Scalar": (Scalar(2, (3,), FLOAT), Scalar(-4, (3,), FLOAT), Scalar),
    "inverse Scalars": (Scalar(2, (3,), FLOAT), Scalar(0.5, (3,), FLOAT), Identity),
    "Scalar Diagonal": (Scalar(2, (3,), FLOAT), diagonal(3), Diagonal),
    "Diagonal Scalar": (diagonal(1, of=(4,)), Scalar(2, (4,), FLOAT), Diagonal),
    "Diagonal Diagonal": (diagonal(2, 3), diagonal(2, 3), Diagonal),
    "row Diagonal, column Diagonal": (
        diagonal(3, of=(2, 3)), diagonal(2, 1, of=(2, 3)), Diagonal),
    "Diagonals of other shapes": (diagonal(6), diagonal(2, 3), Product),
    "Reshape and back": (Reshape((6,), (2, 3), FLOAT), Reshape((2, 3), (6,), FLOAT), Identity),
    "Reshape Reshape": (Reshape((6,), (2, 3), FLOAT), Reshape((2, 3), (3, 2), FLOAT), Reshape),
    "Permutation and back": (
        Permutation((1, 2, 0), (2, 3, 4), FLOAT), Permutation((1, 2, 0), (2, 3, 4), FLOAT).T,
        Identity),
    "Permutation Permutation": (
        Permutation((1, 0, 2), (4, 2, 3), FLOAT), Permutation((2, 0, 1), (2, 3, 4), FLOAT),
        Permutation),
    "Broadcast Broadcast": (
        Broadcast((5, 2, 3), (2, 3), FLOAT), Broadcast((2, 3), (3,), FLOAT), Broadcast),
    "SumTo SumTo": (SumTo((1,), (2, 1), FLOAT), SumTo((2, 1), (4, 2, 3), FLOAT), SumTo),
    "SumTo of its Broadcast": (
        SumTo((2, 1), (4, 2, 3), FLOAT), Broadcast((4, 2, 3), (2, 1), FLOAT), Scalar),
    "SumTo of another Broadcast": (
        SumTo((2, 1), (2, 3), FLOAT), Broadcast((2, 3), (1, 3), FLOAT), Product),
    "(A ⊗ B)(C ⊗ D)": (implicit_kron(N(2, 3), N(3, 3)), implicit_kron(N(3, 3), N(3, 2)), Kron),
    "(A ⊗ I)(I ⊗ B)": (implicit_kron(N(2, 3), Eye(4)), implicit_kron(Eye(3), N(4, 2)), Kron),
    "batched Krons": (implicit_kron(N(5, 2, 2), N(2, 2)), implicit_kron(N(2, 2), N(5, 2, 2)), Kron),
    "Krons that would be dearer": (
        implicit_kron(Eye(3), N(9, 1)), implicit_kron(Eye(3), N(1, 9)), Product),
    "(I ⊗ B) Diagonal, one row per entry": (
        implicit_kron(Eye(1), N(4, 3, 2)), diagonal(4, 1, 2), BlockDiagonal),
    "(I ⊗ b) Diagonal, several rows": (
        implicit_kron(Eye(3), N(4, 1, 5)), diagonal(4, 3, 5), BlockDiagonal),
    "(I ⊗ B) Diagonal of a row": (
        implicit_kron(Eye(3), N(4, 1, 5)), diagonal(5, of=(4, 3, 5)), BlockDiagonal),
    "(I ⊗ B) Diagonal, one sample": (
        implicit_kron(Eye(1), N(4, 9)), diagonal(1, 9), Product),
    "(I ⊗ B) Diagonal, too many rows": (
        implicit_kron(Eye(9), N(4, 3)), diagonal(9, 3), Product),
    "Dense Dense": (Dense(N(2, 9)), Dense(N(9, 3)), Dense),
    "Dense Dense through a narrow waist": (Dense(N(9, 1)), Dense(N(1, 9)), Product),
    "Dense Diagonal": (Dense(N(4, 6), (4,), (2, 3)), diagonal(2, 1, of=(2, 3)), Dense),
    "Diagonal Dense": (diagonal(3, of=(2, 3)), Dense(N(6, 4), (2, 3), (4,)), Dense),
    "Dense LowRank": (Dense(N(2, 4)), LowRank(N(4, 1), N(5, 1)), LowRank),
    "BlockDiagonal BlockDiagonal": (
        BlockDiagonal(N(3, 2, 4)), BlockDiagonal(N(3, 4, 2)), BlockDiagonal),
    "BlockDiagonals that would grow": (
        BlockDiagonal(N(3, 4, 1)), BlockDiagonal(N(3, 1, 4)), Product),
    "Slice Slice": (
        Slice(((1, 2, 2),), (4,), FLOAT), Slice(((9, -2, 4),), (10,), FLOAT), Slice),
    "Slice of its Embed": (slab((5, 4), 1, 1, 3, FLOAT), slab((5, 4), 1, 1, 3, FLOAT).T, Identity),
    "Slice of a disjoint Embed": (
        slab((5, 4), 1, 0, 2, FLOAT), slab((5, 4), 1, 2, 4, FLOAT).T, Zero),
    "Slice of an Embed before it": (
        slab((9,), 0, 6, 8, FLOAT), Embed(((4, -2, 3),), (9,), FLOAT), Zero),
    "Slice of an overlapping Embed": (
        slab((5, 4), 1, 0, 2, FLOAT), slab((5, 4), 1, 1, 4, FLOAT).T, Product),
    "Take Take": (
        Take(np.array([[2, 0], [1, 1]]), 1, (2, 3), FLOAT),
        Take(np.array([4, 1, 1]), 1, (2, 5), FLOAT), Take),
    "Take Take of other axes": (
        Take(np.array([1, 1]), 0, (2, 3), FLOAT), Take(np.array([4, 1, 1]), 1, (2, 5), FLOAT),
        Product),
    "Scatter Scatter": (
        Scatter(np.array([4, 1, 1]), 1, (2, 5), FLOAT),
        Scatter(np.array([[2, 0], [1, 1]]), 1, (2, 3), FLOAT), Scatter),
    "Identity": (Identity((2, 3), FLOAT), implicit_kron(N(2, 2), Eye(3)), Kron),
    "Identity at the end": (implicit_kron(N(2, 2), Eye(3)), Identity((2, 3), FLOAT), Kron),
    "Identity of another shape": (Identity((6,), FLOAT), Diagonal(N(2, 3)), Product),
    "Zero": (Zero((3,), (2, 2), FLOAT), implicit_kron(N(2, 2), Eye(2)), Zero),
    "Zero at the end": (implicit_kron(N(2, 2), Eye(2)), Zero((2, 2), (3,), FLOAT), Zero),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_product(name):
    left, right, kind = PRODUCTS[name]
    J = left @ right
    assert type(J) is kind
    assert (J.out_shape, J.in_shape) == (left.out_shape, right.in_shape)
    expected = left.toarray() @ right.toarray()
    assert_allclose(J.toarray(), expected, rtol=1e-12, atol=1e-12)
    assert_allclose(J.T.toarray(), expected.T, rtol=1e-12, atol=1e-12)


SUMS = {
    "Identity - Identity": (Identity((3,), FLOAT), Scalar(-1, (3,), FLOAT), Scalar),
    "Identity + Diagonal": (Identity((2, 3), FLOAT), diagonal(2, 3), Diagonal),
    "Diagonal + Scalar": (diagonal(3, of=(2, 3)), Scalar(2, (2, 3), FLOAT), Diagonal),
    "row + column": (diagonal(3, of=(2, 3)), diagonal(2, 1, of=(2, 3)), Diagonal),
    "Zero + x": (Zero((3,), (3,), FLOAT), implicit_kron(N(3, 3), Eye(1)), Product),
    "x + Zero": (BlockDiagonal(N(2, 3, 3)), Zero((2, 3), (2, 3), FLOAT), BlockDiagonal),
    "Dense + Dense": (Dense(N(2, 3)), Dense(N(2, 3)), Dense),
    "Dense + Diagonal": (Dense(N(3, 3)), diagonal(3), Sum),
}


@pytest.mark.parametrize("name", SUMS)
def test_sum(name):
    left, right, kind = SUMS[name]
    J = left + right
    assert type(J) is kind
    assert_allclose(J.toarray(), left.toarray() + right.toarray(), rtol=1e-12, atol=1e-12)


def test_like_terms_of_a_longer_sum_meet():
    D, A = diagonal(3), Dense(N(3, 3))
    J = (D + A) + (Identity((3,), FLOAT) + A)
    assert [type(term) for term in J.terms] == [Diagonal, Dense]


def test_factors_meet_across_products():
    """(… A⁻¹)(A …): cancellation in the middle makes its neighbours adjacent."""
    P = Permutation((1, 0), (2, 3), FLOAT)
    d, e = diagonal(3, 2), diagonal(3, 2)
    assert type((Diagonal(d.d) @ P) @ (P.T @ Diagonal(e.d))) is Diagonal


@pytest.mark.parametrize("name", EXAMPLES)
def test_identities_vanish_around_every_kind(name):
    kind, example = EXAMPLES[name]
    J, _ = example(Draw(1))
    before, after = Identity(J.out_shape, J.dtype), Identity(J.in_shape, J.dtype)
    assert type(before @ J @ after) is kind


@pytest.mark.parametrize("name", EXAMPLES)
def test_zero_swallows_every_kind(name):
    J, _ = EXAMPLES[name][1](Draw(1))
    assert type(Zero((2,), J.out_shape, J.dtype) @ J) is Zero
    assert type(J @ Zero(J.in_shape, (2,), J.dtype)) is Zero


def test_a_diagonal_is_stored_as_small_as_it_is():
    J = 2 * diagonal(3, of=(1000, 3)) + Identity((1000, 3), FLOAT)
    assert J.d.shape == (3,)


def test_casts_cancel_only_where_nothing_is_rounded():
    widen = Cast((3,), np.float32, np.float64)
    assert type(widen.T @ widen) is Identity
    assert type(widen @ widen.T) is Product


def test_broadcast_is_the_least_that_does_it():
    assert type(broadcast((2, 3), (2, 3), FLOAT)) is Identity
    assert type(broadcast((2, 3), (1, 2, 3), FLOAT)) is Reshape
    assert type(broadcast((3,), (1, 2, 3), FLOAT)) is Broadcast


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="multiply operators of shape"):
        diagonal(3) @ diagonal(4)
    with pytest.raises(InputError, match="add operators of shape"):
        diagonal(3) + diagonal(4)
    with pytest.raises(InputError, match="Reshape: "):
        Reshape((2, 3), (5,), FLOAT)
    with pytest.raises(InputError, match="two identities"):
        implicit_kron(Eye(2), Eye(3))
