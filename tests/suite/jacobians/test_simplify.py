"""Products and sums simplify on construction: the kind of the result, and its value."""

from itertools import permutations
from operator import add, matmul

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
from onnxjac.jacobians.arrays import fits
from onnxjac.jacobians.products import commuted, factors_of
from onnxjac.jacobians.symint import Symbols

from .examples import Draw

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


@pytest.mark.parametrize(("combine", "name"), [
    *((matmul, name) for name in PRODUCTS), *((add, name) for name in SUMS)])  # fmt: skip
def test_products_and_sums_simplify_and_keep_the_matrix(combine, name):
    left, right, kind = (PRODUCTS if combine is matmul else SUMS)[name]
    J = combine(left, right)
    assert type(J) is kind
    if combine is matmul:
        assert (J.out_shape, J.in_shape) == (left.out_shape, right.in_shape)
    expected = combine(left.toarray(), right.toarray())
    assert_allclose(J.toarray(), expected, rtol=1e-12, atol=1e-12)
    assert_allclose(J.T.toarray(), expected.T, rtol=1e-12, atol=1e-12)


def test_like_terms_of_a_longer_sum_meet():
    D, A = diagonal(3), Dense(N(3, 3))
    J = (D + A) + (Identity((3,), FLOAT) + A)
    assert [type(term) for term in J.terms] == [Diagonal, Dense]


def test_factors_meet_across_products():
    """(… A⁻¹)(A …): cancellation in the middle makes its neighbours adjacent."""
    P = Permutation((1, 0), (2, 3), FLOAT)
    d, e = diagonal(3, 2), diagonal(3, 2)
    assert type((Diagonal(d.d) @ P) @ (P.T @ Diagonal(e.d))) is Diagonal


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


# -- Kronecker products across reshapes and permutations ------------------------------------------

CLOSE = {"rtol": 1e-11, "atol": 1e-11}


def shape_pairs(batch, count):
    """Some other shapes of the tensors that a Kronecker product of this batch gives."""
    return (count * 4, 6), (*batch, 1, 4, 6), (count, 4, 6), (*batch, 2, 2, 6), (*batch, 4, 2, 3)


@pytest.mark.parametrize("stack", [(), (1,), (3,), (2, 3), (2, 1)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_layouts_commute_with_kronecker_products(batch, stack):
    """Wherever a matrix still acts on one of the last two axes."""
    if not fits(stack, batch):
        return
    met, A, B = 0, N(*stack, 4, 5), N(*stack, 6, 7)
    for left, right in ((A, Eye(6)), (Eye(4), B), (N(4, 5), B)):
        K = Kron(left, right, batch)
        count = int(np.prod(batch))
        layouts = [Permutation(p, K.out_shape, float) for p in permutations(range(len(batch) + 2))]
        layouts += [Reshape(s, K.out_shape, float) for s in shape_pairs(batch, count)]
        for layout in layouts:
            found = commuted(layout, K)
            if found:
                met += 1
                J = Product((layout, K))
                assert type(found[0]) is Kron
                assert_allclose(Product(found).toarray(), J.toarray(), **CLOSE)
            last = (len(batch), len(batch) + 1)
            assert found or not (isinstance(layout, Permutation) and layout.perm[-2:] == last)
    assert met >= 6


@pytest.mark.parametrize("name", ["transpose", "flat", "batch", "split", "heads"])
def test_products_merge_across_layouts(name):
    """K L H is one Kronecker product and a layout, however the product is bracketed."""
    K, L, H = {
        "transpose": lambda: (Kron(N(4, 3), Eye(5), ()), Permutation((1, 0), (5, 3), float),
                              Kron(Eye(5), N(3, 2), ())),
        "flat": lambda: (Kron(Eye(6), N(4, 3), ()), Reshape((6, 3), (2, 3, 3), float),
                         Kron(Eye(3), N(3, 5), (2,))),
        "batch": lambda: (Kron(N(3, 2, 4, 4), Eye(5), (3, 2)),
                          Permutation((1, 0, 2, 3), (2, 3, 4, 5), float),
                          Kron(N(3, 4, 4), Eye(5), (2, 3))),
        "split": lambda: (Kron(Eye(3), N(4, 3), (2,)), Reshape((2, 3, 3), (6, 3), float),
                          Kron(Eye(6), N(3, 5), ())),
        "heads": lambda: (Kron(N(5, 4), Eye(2), (3,)), Permutation((2, 0, 1), (4, 2, 3), float),
                          Kron(Eye(2), N(3, 3), (4,))),
    }[name]()  # fmt: skip
    dense = K.toarray() @ L.toarray() @ H.toarray()
    for J in ((K @ L) @ H, K @ (L @ H)):
        assert_allclose(J.toarray(), dense, **CLOSE)
        assert sum(isinstance(f, Kron) for f in factors_of(J)) == (2 if name == "heads" else 1)


def test_a_product_takes_the_cheaper_order():
    """A X Bᵀ with the factor first that makes X smaller."""
    wide = Kron(N(100, 2), N(3, 100), ())
    assert wide.flops == 2 * (2 * 100 * 3 + 100 * 2 * 3)
    assert wide.T.flops == 2 * (2 * 100 * 3 + 2 * 3 * 100)
    for K in (wide, wide.T):
        v = N(K.shape[1])
        assert_allclose(K @ v, np.kron(K.left, K.right) @ v, **CLOSE)


def test_sizes_that_are_equal_here_alone_do_not_commute():
    n = Symbols().atom("n", 6, lambda op: None)
    K = Kron(Eye(n), np.ones((6, 4)), ())
    assert commuted(Reshape((3, n, 6), (3 * n, 6), float), Kron(Eye(3 * n), K.right, ()))
    assert commuted(Reshape((6, n), K.out_shape, float), K) is None
