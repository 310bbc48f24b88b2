"""A⁺, √A, Cholesky factors, powers, exp A and decompositions, by structure and without one."""

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

from onnxjac import InputError
from onnxjac.jacobians import (
    Block,
    BlockDiagonal,
    Circulant,
    Cumulative,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Eye,
    Identity,
    Jacobian,
    Kron,
    LowRank,
    Permutation,
    Reshape,
    Slice,
    implicit_kron,
)
from onnxjac.jacobians.errors import LimitError

from .examples import Draw
from .test_closed import CLOSE, SHAPE, N, spd

CENTRE = np.eye(6)[0]


def low(d):
    U = d.normal(N, 3)
    return LowRank(U, U.conj(), SHAPE, SHAPE)


def even(d, *shape):
    """A symmetric kernel."""
    c = np.real(d.normal(*shape))
    axes = tuple(range(len(shape)))
    return c + np.roll(np.flip(c, axes), (1,) * len(shape), axes)


POSITIVE = {
    "identity": lambda d: Identity(SHAPE, d.dtype),
    "scalar": lambda d: 2.5 * Identity(SHAPE, d.dtype),
    "diagonal": lambda d: Diagonal(np.abs(d.normal(*SHAPE)) + 1),
    "dense": lambda d: Dense(spd(d, N), SHAPE, SHAPE),
    "blocks": lambda d: BlockDiagonal(spd(d, 6, 4)),
    "blocks + diagonal": lambda d: BlockDiagonal(spd(d, 6, 4)) + Identity(SHAPE, d.dtype),
    "kron": lambda d: implicit_kron(spd(d, 4), spd(d, 6)),
    "kron of negatives": lambda d: implicit_kron(-spd(d, 4), -spd(d, 6)),
    "kron with an identity": lambda d: implicit_kron(Eye(4), spd(d, 6)),
    "3 kron": lambda d: 3 * implicit_kron(spd(d, 4), Eye(6)),
    "P kron Pᵀ": lambda d: Reshape((N,), (6, 4), d.dtype) @ Permutation((1, 0), SHAPE, d.dtype)
    @ implicit_kron(spd(d, 4), spd(d, 6)) @ Permutation((1, 0), (6, 4), d.dtype)
    @ Reshape((6, 4), (N,), d.dtype),
    "dag": lambda d: Dag((SHAPE, SHAPE), (Edge(0, 1, implicit_kron(spd(d, 4), spd(d, 6))),),
                         (0,), (1,), d.dtype),
    "kron + δ I": lambda d: implicit_kron(spd(d, 4), spd(d, 6)) + 0.5 * Identity(SHAPE, d.dtype),
    "Kronecker sum": lambda d: implicit_kron(spd(d, 4), Eye(6)) + implicit_kron(Eye(4), spd(d, 6)),
    "I + low rank": lambda d: 2 * Identity(SHAPE, d.dtype) + low(d),
    "circulant": lambda d: Circulant(even(d, 6) + 20 * CENTRE, SHAPE),
    "circulant of images": lambda d: Circulant(even(d, 4, 6) + 60 * np.eye(N)[0].reshape(SHAPE)),
    "grid": lambda d: Block([[Dense(spd(d, 4)), None], [None, Diagonal(np.arange(1.0, 5))]]),
}  # fmt: skip
"""Hermitian positive definite operators."""

OTHERS = {
    "wide kron": lambda d: Kron(d.normal(2, 3), d.normal(5, 4), ()),
    "kron of batches": lambda d: Kron(d.normal(2, 3, 3), d.normal(4, 2), (2,)),
    "singular kron": lambda d: implicit_kron(np.ones((2, 2)), d.normal(3, 3)),
    "diagonal with a 0": lambda d: Diagonal(np.array([2.0, 0, -1]) * d.normal(3)),
    "wide blocks": lambda d: BlockDiagonal(d.normal(3, 2, 4)),
    "permutation": lambda d: Permutation((1, 0), SHAPE, d.dtype),
    "slice": lambda d: Slice(((3, -1, 4), (0, 2, 3)), SHAPE, d.dtype),
    "embed": lambda d: Slice(((3, -1, 4), (0, 2, 3)), SHAPE, d.dtype).T,
    "low rank": lambda d: LowRank(d.normal(5, 2), d.normal(4, 2)),
    "low rank of less": lambda d: LowRank(np.ones((5, 2)), d.normal(4, 2)),
    "circulant of derivatives": lambda d: Circulant(np.array([1.0, 0, 0, -1])),
    "P kron": lambda d: Permutation((1, 0), (2, 5), d.dtype) @ Kron(d.normal(2, 3), d.normal(5, 4),
                                                                    ()),
    "-2 kron": lambda d: -2 * implicit_kron(d.normal(3, 3), d.normal(2, 2)),
    "two krons": lambda d: implicit_kron(spd(d, 2), spd(d, 3))
    + implicit_kron(spd(d, 2), spd(d, 3)),
}  # fmt: skip

UNFACTORED = ("kron + δ I", "Kronecker sum", "I + low rank", "circulant", "circulant of images",
              "P kron Pᵀ", "kron of negatives")  # fmt: skip
"""The kinds whose Cholesky factor has no structure."""


def power(p):
    return lambda a: scipy.linalg.fractional_matrix_power(a, p)


FUNCTIONS = {
    "pinv": (Jacobian.pinv, np.linalg.inv),
    "sqrt": (Jacobian.sqrt, scipy.linalg.sqrtm),
    "cholesky": (Jacobian.cholesky, np.linalg.cholesky),
    "expm": (Jacobian.expm, scipy.linalg.expm),
    "cube": (lambda J: J.power(3), power(3)),
    "inverse square": (lambda J: J.power(-2), power(-2)),
    "inverse root": (lambda J: J.power(-0.5), power(-0.5)),
    "nothing": (lambda J: J.power(0), lambda a: np.eye(len(a))),
}


@pytest.mark.parametrize("dtype", [np.float64, np.complex128], ids=lambda t: t.__name__)
@pytest.mark.parametrize("kind", POSITIVE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_by_structure_agree_with_scipy(name, kind, dtype, monkeypatch):
    """Each equals SciPy's for the matrix, and follows from the structure."""
    J = POSITIVE[kind](Draw(1, dtype))
    function, expected = FUNCTIONS[name]
    dense = J.toarray()
    with monkeypatch.context() as patch:
        if name != "cholesky" or kind not in UNFACTORED:
            patch.setattr(Jacobian, "toarray", None)  # nothing may be multiplied out
        found = function(J)
    exact = expected(dense)
    close = 1e-9 * np.abs(exact).max()
    assert_allclose(found.toarray(), exact, rtol=1e-9, atol=close)
    assert_allclose(found.T.toarray(), exact.T, rtol=1e-9, atol=close)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128], ids=lambda t: t.__name__)
@pytest.mark.parametrize("kind", POSITIVE | OTHERS)
def test_singular_and_eigenvectors_by_structure_give_the_matrix_back(kind, dtype, monkeypatch):
    J = (POSITIVE | OTHERS)[kind](Draw(1, dtype))
    if dtype is np.complex128 and kind.startswith("circulant"):
        J = Circulant(J.kernel.real, J.in_shape)  # a complex one has another basis
    dense = J.toarray()
    with monkeypatch.context() as patch:
        if kind in OTHERS or not kind.endswith(("δ I", "sum", "low rank", "grid")):
            patch.setattr(Jacobian, "toarray", None if kind != "two krons" else Jacobian.toarray)
        U, values, V = J.svd()
    U, V = U.toarray(), V.toarray()
    assert_allclose((U * values) @ V.conj().T, dense, **CLOSE)
    for side in (U, V):
        assert_allclose(side.conj().T @ side, np.eye(len(values)), **CLOSE)
    assert (values >= 0).all()
    if kind in POSITIVE:
        with monkeypatch.context() as patch:
            if kind not in ("I + low rank", "grid"):
                patch.setattr(Jacobian, "toarray", None)
            values, V = J.eigh()
        V = V.toarray()
        assert_allclose((V * values) @ V.conj().T, dense, **CLOSE)
        assert_allclose(V.conj().T @ V, np.eye(len(dense)), **CLOSE)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128], ids=lambda t: t.__name__)
@pytest.mark.parametrize("kind", OTHERS)
def test_pseudo_inverses_by_structure_agree_with_numpy(kind, dtype, monkeypatch, inside):
    J = OTHERS[kind](Draw(2, dtype))
    dense = J.toarray()
    inside.forbid_columns() if kind != "two krons" else None
    found = J.pinv()
    monkeypatch.undo()
    assert_allclose(found.toarray(), np.linalg.pinv(dense), **CLOSE)


def test_exponentials_of_kronecker_sums_that_are_not_symmetric():
    draw = Draw(3)
    a, b = draw.normal(3, 3), draw.normal(4, 4)
    J = implicit_kron(a, Eye(4)) + implicit_kron(Eye(3), b) + 0.5 * Identity((3, 4), float)
    found = J.expm()
    assert type(found) is Kron
    assert_allclose(found.toarray(), scipy.linalg.expm(J.toarray()), rtol=1e-9, atol=1e-9)


def test_powers_are_never_dense(monkeypatch):
    C = Cumulative(0, (5,), float, exclusive=False, reverse=False)
    expected = np.linalg.matrix_power(C.toarray(), 3)
    with monkeypatch.context() as patch:
        patch.setattr(Jacobian, "toarray", None)
        found = C.power(3)
    assert_allclose(found.toarray(), expected)


def test_half_precision_is_kept():
    draw = Draw(4)
    for dtype in (np.float16, np.float32):
        J = implicit_kron(spd(draw, 3).astype(dtype), spd(draw, 2).astype(dtype))
        dense, close = J.toarray().astype(float), 300 * float(np.finfo(dtype).eps)
        assert J.sqrt().dtype == dtype
        assert_allclose(J.sqrt().toarray(), scipy.linalg.sqrtm(dense), rtol=close, atol=close)


def test_functions_without_structure_have_a_limit_of_memory():
    C = Cumulative(0, (4,), float, exclusive=False, reverse=False)
    G = C.T @ C
    for name in ("sqrt", "cholesky", "expm", "pinv", "eigh", "svd"):
        getattr(G, name)()
        large = Cumulative(0, (30000,), float, exclusive=False, reverse=False)
        with pytest.raises(LimitError, match=r"30000×30000 \(float64\) needs 6.71 GiB"):
            getattr(large, name)()
    assert_allclose(G.sqrt().toarray(), scipy.linalg.sqrtm(G.toarray()))


def test_functions_reject_wrong_matrices():
    skew, wide = Dense(np.array([[0.0, 1], [-1, 0]])), Dense(np.ones((2, 3)))
    negative = implicit_kron(-np.eye(2), Eye(2))
    for name in ("sqrt", "cholesky", "expm", "eigh"):
        with pytest.raises(InputError, match=r"square.*2×3"):
            getattr(wide, name)()
    for J, name in ((skew, "sqrt"), (skew, "cholesky"), (skew, "eigh")):
        with pytest.raises(InputError, match="Hermitian"):
            getattr(J, name)()
    with pytest.raises(InputError, match=r"semi-definite operator, without the eigenvalue -1"):
        negative.sqrt()
    with pytest.raises(InputError, match="positive definite"):
        negative.cholesky()
    with pytest.raises(InputError, match="square"):
        wide.power(2)


def test_pseudo_inverses_of_sums_that_are_not_square():
    draw = Draw(3)
    K, blocks = Kron(Eye(4), draw.normal(2, 3), ()), BlockDiagonal(draw.normal(4, 2, 3))
    low, tall = Kron(draw.normal(4, 2), Eye(3), ()), Dense(draw.normal(12, 6), (4, 3), (2, 3))
    between = Reshape((12,), (4, 3), float) @ (low + tall) @ Reshape((2, 3), (6,), float)
    rotated = Permutation((1, 0), (4, 3), float) @ low @ Permutation((1, 0), (3, 2), float)
    for J in (K + 0.5 * blocks, low + tall, between, rotated + 2 * rotated,
              rotated + Dense(draw.normal(12, 6), (3, 4), (3, 2))):  # fmt: skip
        assert_allclose(J.pinv().toarray(), np.linalg.pinv(J.toarray()), rtol=1e-9, atol=1e-9)
        assert_allclose(J.svdvals(), np.linalg.svd(J.toarray())[1], rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("kind", ["dense", "blocks", "kron", "two blocks", "Kronecker sum"])
def test_pseudo_inverses_ignore_what_is_rounding_in_their_dtype(kind, dtype):
    """A matrix of rank 3, in single precision: σ₄ ≈ 1e-7 is 0."""
    draw = Draw(5, np.complex128 if dtype is np.complex64 else np.float64)
    low, skew = (draw.normal(12, 3) @ draw.normal(3, 12)).astype(dtype), draw.normal(3, 3)
    skew = (skew - skew.T).astype(dtype)
    J = {
        "dense": lambda: Dense(low),
        "blocks": lambda: BlockDiagonal(np.stack([low, 2 * low])),
        "kron": lambda: implicit_kron(low, np.eye(2, dtype=dtype)),
        "two blocks": lambda: Block([[Dense(low), None], [None, Dense(low.T)]]),
        "Kronecker sum": lambda: implicit_kron(skew, Eye(3)) + implicit_kron(Eye(3), skew),
    }[kind]()
    eps = float(np.finfo(dtype).eps)
    exact = np.linalg.pinv(J.toarray().astype(draw.dtype), rtol=300 * eps)
    close = 1e4 * eps * np.abs(exact).max()
    assert_allclose(J.pinv().toarray(), exact, rtol=0, atol=close)


NEGATIVE = {
    "dense": lambda d: Dense(-spd(d, 6)),
    "blocks": lambda d: BlockDiagonal(-spd(d, 3, 4)),
    "circulant": lambda d: Circulant(-even(d, 6) - 20 * CENTRE),
    "kron": lambda d: implicit_kron(-spd(d, 2), spd(d, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", ["sqrt", "cholesky", "inverse root"])
@pytest.mark.parametrize("kind", NEGATIVE)
def test_a_negative_multiple_of_a_negative_definite_operator_has_roots(kind, name):
    J = -0.5 * NEGATIVE[kind](Draw(6))
    function, expected = FUNCTIONS[name]
    assert_allclose(function(J).toarray(), expected(J.toarray()), **CLOSE)


def test_roots_of_large_numbers_do_not_overflow():
    d = np.array([1e20, 3e20])
    for J in (Diagonal(d), Dense(np.diag(d)), implicit_kron(np.diag(d), np.eye(2))):
        assert_allclose(J.power(-0.5).diagonal(), J.diagonal() ** -0.5)


def test_powers_of_a_product_of_wide_and_tall_factors():
    draw = Draw(7)
    K = implicit_kron(draw.normal(2, 3), draw.normal(6, 4))
    for p in (0, 2, 3):
        assert_allclose(K.power(p).toarray(), np.linalg.matrix_power(K.toarray(), p), **CLOSE)
    assert_allclose(K.expm().toarray(), scipy.linalg.expm(K.toarray()))


HALF = {
    "low rank": lambda d: LowRank(*[d.normal(4, 2).astype(np.float16)] * 2),
    "dense": lambda d: Dense(spd(d, 4).astype(np.float16)),
    "permutation": lambda d: Permutation((1, 0), (2, 2), np.float16),
    "cumulative": lambda d: Cumulative(0, (4,), np.float16, exclusive=False, reverse=False),
    "sum": lambda d: Dense(spd(d, 4).astype(np.float16)) - LowRank(
        d.normal(4, 2).astype(np.float16), d.normal(4, 2).astype(np.float16)),
}  # fmt: skip


@pytest.mark.parametrize("kind", HALF)
def test_decompositions_of_half_precision(kind):
    """LAPACK has none: single precision."""
    J = HALF[kind](Draw(8))
    dense = J.toarray().astype(float)
    close = {"rtol": 1e-2, "atol": 1e-2 * np.abs(dense).max()}
    assert_allclose(J.svdvals(), np.linalg.svd(dense)[1], **close)
    assert_allclose(J.norm(), np.linalg.norm(dense), **close)
    U, values, V = J.svd()
    assert_allclose((U.toarray() * values) @ V.toarray().T, dense, **close)
    assert_allclose(np.exp(J.slogdet()[1]), abs(np.linalg.det(dense)), atol=1e-2, rtol=1e-1)
    if np.allclose(dense, dense.T):
        assert_allclose(J.eigvalsh(), np.linalg.eigvalsh(dense), **close)


def test_spectra_of_complex_operators_are_real_and_come_from_structure(monkeypatch):
    draw = Draw(9, np.complex128)
    K = implicit_kron(spd(draw, 3), spd(draw, 4)) + 0.5 * Identity((3, 4), np.complex128)
    exact = np.linalg.eigvalsh(K.toarray())
    identity = Identity((3,), np.complex64)
    monkeypatch.setattr(Jacobian, "toarray", None)
    assert_allclose(K.eigvalsh(), exact)
    assert_allclose(K.svdvals(), exact[::-1])
    assert identity.svd()[1].dtype == np.float32


def test_pseudo_inverses_of_sums_with_low_ranks_that_are_not_square():
    ones = np.ones
    tall = LowRank(ones((5, 1)), ones((3, 1))) + LowRank(2 * ones((5, 1)), ones((3, 1)))
    mixed = LowRank(ones((6, 1)), ones((2, 1))) - 1.5 * Kron(ones((3, 2)), ones((2, 1)), ())
    for J in (tall, mixed):
        assert_allclose(J.pinv().toarray(), np.linalg.pinv(J.toarray()), atol=1e-14)


@pytest.mark.parametrize("kind", ["identity", "permutation"])
def test_decompositions_of_bfloat16_give_the_matrix_back(kind):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    made = {"identity": Identity((3,), bfloat16), "permutation": Permutation((0,), (3,), bfloat16)}
    U, values, V = made[kind].svd()
    assert_allclose((U @ Diagonal(values) @ V.H).toarray().astype(float), np.eye(3))
    K = implicit_kron(2 * np.eye(2, dtype=bfloat16), np.eye(2, dtype=bfloat16))
    assert K.slogdet() == pytest.approx((1.0, 4 * np.log(2)))


def test_an_exponential_of_low_rank_takes_no_singular_values(monkeypatch):
    monkeypatch.setattr(np.linalg, "qr", None)
    J = LowRank(np.ones((3, 1)), np.arange(3.0)[:, None])
    assert_allclose(J.expm().toarray(), scipy.linalg.expm(J.toarray()))


@pytest.mark.parametrize("p", [np.nan, np.inf, "a", 1j])
def test_a_power_that_is_no_number_is_refused(p):
    with pytest.raises(InputError, match="p"):
        Identity((3,), float).power(p)
