"""Closed forms and the laws of the algebra, on random operators of every invertible kind."""

import re
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose

import onnxjac as oj
from check_operator import check_operator
from kinds import COSTS, PAGE, kinds, table
from onnxjac import InputError
from onnxjac.jacobians import (
    Block,
    BlockDiagonal,
    Cast,
    Circulant,
    Conjugate,
    Convolution,
    Cumulative,
    Dense,
    Diagonal,
    Embed,
    Eye,
    Fourier,
    Geometry,
    Identity,
    Jacobian,
    Kron,
    LowRank,
    Permutation,
    Product,
    Reshape,
    Scalar,
    Scatter,
    Slice,
    Sum,
    Sylvester,
    Take,
    Zero,
    as_one,
    closed,
    implicit_kron,
    inverse_of,
    slogdet_of,
)

from .examples import Draw

SHAPE = (4, 6)
N = 24


def spd(draw, n, *batch):
    a = draw.normal(*batch, n, n)
    return a @ np.conj(a.swapaxes(-1, -2)) / n + np.eye(n)


def hermitian(a):
    """A matrix that is its adjoint without rounding."""
    return (a + a.conj().T) / 2


def regular(draw, n, *batch):
    """Not symmetric, well conditioned."""
    return draw.normal(*batch, n, n) / n + 2 * np.eye(n)


def squares(draw, *shape):
    return Diagonal(draw.normal(*shape) ** 2, SHAPE)


def low_rank(draw, r):
    return LowRank(draw.normal(N, r), draw.normal(N, r) / N, SHAPE, SHAPE)


IMAGE = (1, 1, *SHAPE)


def periodic(kernel):
    """A convolution of an image after Pad(mode="wrap"), as the rules of ONNX give it."""
    rows = Take(np.arange(-1, 5) % 4, 2, IMAGE, kernel.dtype)
    columns = Take(np.arange(7) % 6, 3, rows.out_shape, kernel.dtype)
    g = Geometry(columns.out_shape, kernel.shape, IMAGE, (1, 1), (1, 1), (0, 0, 0, 0), 1)
    return Convolution(kernel, "x", "u", g) @ columns @ rows


KINDS = {
    "identity": lambda d: Identity(SHAPE, d.dtype),
    "scalar": lambda d: Scalar(-1.5, SHAPE, d.dtype),
    "cast": lambda d: Cast(SHAPE, d.dtype, d.dtype),
    "diagonal": lambda d: Diagonal(d.normal(*SHAPE) + 3),
    "diagonal of a row": lambda d: Diagonal(d.normal(6) + 3, SHAPE),
    "reshape": lambda d: Reshape(SHAPE, (8, 3), d.dtype) @ Reshape((8, 3), SHAPE, d.dtype),
    "permutation": lambda d: Permutation((1, 0), (6, 4), d.dtype),
    "reversal": lambda d: Slice(((3, -1, 4), (0, 1, 6)), SHAPE, d.dtype),
    "reversal's transpose": lambda d: Embed(((3, -1, 4), (0, 1, 6)), SHAPE, d.dtype),
    "take": lambda d: Take(d.rng.permutation(6), 1, SHAPE, d.dtype),
    "scatter": lambda d: Scatter(d.rng.permutation(4), 0, SHAPE, d.dtype),
    "dense": lambda d: Dense(regular(d, N), SHAPE, SHAPE),
    "blocks": lambda d: BlockDiagonal(regular(d, 6, 4)),
    "kron": lambda d: implicit_kron(regular(d, 4), regular(d, 6)),
    "kron, definite": lambda d: implicit_kron(hermitian(spd(d, 4)), hermitian(spd(d, 6))),
    "kron with an identity": lambda d: implicit_kron(Eye(4), regular(d, 6)),
    "kron of batches": lambda d: Reshape(SHAPE, (2, 2, 6), d.dtype)
    @ Kron(regular(d, 2, 2), regular(d, 6), (2,)) @ Reshape((2, 2, 6), SHAPE, d.dtype),
    "circulant": lambda d: Circulant(d.normal(6) + 9 * np.eye(6)[0], SHAPE),
    "circulant of images": lambda d: Circulant(d.normal(*SHAPE) + 40 * np.eye(N)[0].reshape(SHAPE)),
    "kron + δ I": lambda d: implicit_kron(spd(d, 4), spd(d, 6)) + 0.5 * Identity(SHAPE, d.dtype),
    "Kronecker sum": lambda d: implicit_kron(spd(d, 4), Eye(6)) + implicit_kron(Eye(4), spd(d, 6)),
    "two krons": lambda d: implicit_kron(spd(d, 4), spd(d, 6))
    - 0.01 * implicit_kron(spd(d, 4), spd(d, 6)),
    "Kronecker sum, not symmetric": lambda d: implicit_kron(regular(d, 4), Eye(6))
    + implicit_kron(Eye(4), regular(d, 6)),
    "kron + δ I, not symmetric": lambda d: implicit_kron(regular(d, 4), regular(d, 6))
    + 0.5 * Identity(SHAPE, d.dtype),
    "two krons, not symmetric": lambda d: implicit_kron(regular(d, 4), regular(d, 6))
    + 0.1 * implicit_kron(regular(d, 4), regular(d, 6)),
    "circulants": lambda d: Circulant(d.normal(6), SHAPE) - 2 * Circulant(d.normal(6), SHAPE)
    + 40 * Identity(SHAPE, d.dtype),
    "periodic convolution": lambda d: Reshape(SHAPE, IMAGE, d.dtype) @ (
        Identity(IMAGE, d.dtype) - 0.02 * periodic(d.normal(1, 1, 3, 2))
    ) @ Reshape(IMAGE, SHAPE, d.dtype),
    "diagonal + low rank": lambda d: Diagonal(d.normal(*SHAPE) ** 2 + 3) + low_rank(d, 3),
    "kron + low rank": lambda d: implicit_kron(regular(d, 4), regular(d, 6)) + low_rank(d, 2),
    "blocks + diagonal": lambda d: BlockDiagonal(regular(d, 6, 4)) + squares(d, *SHAPE),
    "kron with an identity + diagonal": lambda d: implicit_kron(Eye(4), regular(d, 6))
    + squares(d, *SHAPE),
    "kron + diagonal, by exchanged axes": lambda d: 2 * implicit_kron(regular(d, 4), Eye(6))
    + squares(d, *SHAPE),
    "blocks + kron with an identity": lambda d: 0.5 * BlockDiagonal(regular(d, 6, 4))
    + 2 * implicit_kron(Eye(4), regular(d, 6)),
    "kron in a layout + δ I": lambda d: 0.5 * Identity(SHAPE, d.dtype) - 3 * Permutation(
        (1, 0), (6, 4), d.dtype) @ Kron(regular(d, 6), regular(d, 4), ())
    @ Permutation((1, 0), SHAPE, d.dtype),
    "low rank in a layout + diagonal": lambda d: squares(d, *SHAPE) + Identity(SHAPE, d.dtype)
    + Reshape(SHAPE, (8, 3), d.dtype) @ LowRank(d.normal(N, 2), d.normal(N, 2) / N, (8, 3), (8, 3))
    @ Reshape((8, 3), SHAPE, d.dtype),
    "grid + δ I": lambda d: 2 * Identity((N,), d.dtype) + Block(
        [[Dense(regular(d, 10)), None], [None, Diagonal(d.normal(14) + 6)]]),
    "dense + reversal": lambda d: Dense(3 * regular(d, N), SHAPE, SHAPE)
    + Slice(((3, -1, 4), (0, 1, 6)), SHAPE, d.dtype),
    "dense + diagonal": lambda d: Dense(regular(d, N), SHAPE, SHAPE) + squares(d, 6),
    "product": lambda d: Diagonal(d.normal(*SHAPE) + 3) @ implicit_kron(regular(d, 4), Eye(6))
    @ Circulant(d.normal(6) + 9 * np.eye(6)[0], SHAPE),
    "grid": lambda d: Identity(SHAPE, d.dtype) @ Block(
        [[Dense(regular(d, 10)), None], [None, Diagonal(d.normal(14) + 3)]]
    ) @ Identity(SHAPE, d.dtype),
    "conjugate": lambda d: Conjugate(Dense(regular(d, N), SHAPE, SHAPE)),
}  # fmt: skip
"""Invertible operators on tensors of one shape, so that all of them multiply and add."""

SEEDS = range(2)
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


class Made(NamedTuple):
    J: Jacobian
    dense: np.ndarray


@cache
def drawn(name, seed, dtype=np.float64):
    J = KINDS[name](Draw(seed, dtype))
    J = Reshape(SHAPE, J.out_shape, J.dtype) @ J @ Reshape(J.in_shape, SHAPE, J.dtype)
    return Made(J, J.toarray())


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.int64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KINDS)
def test_closed_forms_agree_with_the_matrix(name, seed, dtype):
    """Each equals NumPy's for the matrix, without a Krylov solver, and its inverse inverts back."""
    J, dense = drawn(name, seed, dtype)
    M, expected = J.inverse(), np.linalg.inv(dense)
    assert closed.inverted(J) is not None  # also where it is too large for a dense matrix
    assert_allclose(M.toarray(), expected, **CLOSE)
    assert_allclose(M.T.toarray(), expected.T, **CLOSE)
    assert_allclose(M.H.toarray(), expected.conj().T, **CLOSE)
    assert_allclose(M.inverse().toarray(), dense, **CLOSE)
    assert_allclose(J.H.inverse().toarray(), expected.conj().T, **CLOSE)
    (sign, log), (phase, value) = slogdet_of(J), np.linalg.slogdet(dense)
    assert_allclose([sign, log], [phase, value], rtol=1e-9, atol=1e-8)
    assert_allclose(M.slogdet()[1], -value, rtol=1e-9, atol=1e-8)
    assert_allclose(J.trace(), np.trace(dense), **CLOSE)
    assert_allclose(J.svdvals(), np.linalg.svd(dense, compute_uv=False), **CLOSE)
    for ord in ("fro", 2, "nuc"):
        assert_allclose(J.norm(ord), np.linalg.norm(dense, ord), rtol=1e-9)
    symmetric = 0.5 * (J + J.H)
    assert_allclose(symmetric.eigvalsh(), np.linalg.eigvalsh(symmetric.toarray()), **CLOSE)


@pytest.mark.parametrize("name", KINDS)
def test_solve_gives_what_numpy_gives(name):
    J, dense = drawn(name, 3)
    for b in (Draw(8).normal(N), Draw(9).normal(N, 2)):
        assert_allclose(J.solve(b), np.linalg.solve(dense, b), **CLOSE)
    assert_allclose(J.solve(b, solver="lsmr", rtol=1e-12), np.linalg.solve(dense, b), rtol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_an_inverse_is_an_operator_like_others(name):
    M = drawn(name, 3).J.inverse()
    if "circulant" not in repr(M):  # the transforms of ONNX Runtime are inexact for length 6
        check_operator(M)


@pytest.mark.sampled(0.3)
@pytest.mark.parametrize(("first", "second"), list(product(KINDS, KINDS)))
def test_laws(first, second):
    """Of products, sums, transposes and inverses, for every pair of kinds."""
    dtype = np.complex128 if (len(first) + len(second)) % 2 else np.float64
    (A, a), (B, b) = drawn(first, 4, dtype), drawn(second, 5, dtype)
    v, C = Draw(6).normal(N), drawn("kron", 7, dtype).J
    laws = [
        (A @ B, a @ b), (A + B, a + b), (A - B, a - b), ((A @ B).T, b.T @ a.T),
        ((A + B).T, a.T + b.T), ((A @ B).H, (a @ b).conj().T),
        ((A @ B).inverse(), np.linalg.inv(b) @ np.linalg.inv(a)),
        (A @ (A.inverse() @ B), b), (2 * A + B + A, 3 * a + b), (A - A, 0 * a),
    ]  # fmt: skip
    for J, matrix in laws:
        assert_allclose(J @ v, matrix @ v, **CLOSE)
    assert_allclose(((A @ B) @ C) @ v, (A @ (B @ C)) @ v, **CLOSE)
    assert_allclose((A @ (B + C)) @ v, (A @ B + A @ C) @ v, **CLOSE)
    assert_allclose(((A + B) @ C) @ v, (A @ C + B @ C) @ v, **CLOSE)
    assert_allclose((A @ B).slogdet()[1], A.slogdet()[1] + B.slogdet()[1], **CLOSE)


def test_mixed_products_and_like_factors_stay_kronecker_products():
    draw = Draw(0)
    A, B, C, D = (draw.normal(n, n) for n in (4, 6, 4, 6))
    K = implicit_kron(A, B)
    for J, left, right in (
        (K @ implicit_kron(C, D), A @ C, B @ D), (K + implicit_kron(C, B), A + C, B),
        (K - 3 * implicit_kron(A, D), A, B - 3 * D),
        (0.5 * K + 2 * implicit_kron(C, B), A / 2 + 2 * C, B),
        (K.inverse(), np.linalg.inv(A), np.linalg.inv(B)),
        (K.T.inverse(), np.linalg.inv(A).T, np.linalg.inv(B).T),
    ):  # fmt: skip
        assert type(J) is Kron
        assert_allclose(J.toarray(), np.kron(left, right), **CLOSE)
    assert type(K + implicit_kron(C, D)) is Sum
    assert type(K - K) is Zero
    assert type(K + K) is Product
    assert 2 * K - K is K


def test_low_rank_products_stay_of_low_rank():
    draw = Draw(1)
    U = LowRank(draw.normal(5, 2), draw.normal(5, 2))
    A, W = Dense(draw.normal(5, 5)), LowRank(draw.normal(5, 1), draw.normal(5, 1))
    for J, rank in ((A @ U, 2), (U @ A, 2), (U @ W, 1), (W @ U, 1)):
        assert type(J) is LowRank
        assert J.u.shape[1] == rank
    assert_allclose((U @ W).toarray(), U.toarray() @ W.toarray(), **CLOSE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128],
                         ids=lambda t: t.__name__)  # fmt: skip
@pytest.mark.parametrize("n", [3, 40])
def test_blocks_of_every_kind_are_inverted(n, dtype):
    """Positive definite ones and others in one stack; a singular one is named."""
    draw = Draw(3, dtype)
    blocks = np.stack([hermitian(spd(draw, n)), regular(draw, n), regular(draw, n).T])
    found = BlockDiagonal(blocks[:, None].astype(dtype)).inverse()
    assert found.dtype == dtype
    tight = 1e-4 if dtype is np.float32 else 1e-10
    assert_allclose(found.blocks[:, 0], np.linalg.inv(blocks), rtol=tight, atol=tight)
    blocks[1, 0] = 0
    with pytest.raises(InputError, match=r"a block \(1, 0\) is singular"):
        BlockDiagonal(blocks[:, None].astype(dtype)).inverse()


def test_a_thin_product_is_of_low_rank():
    """Jᵀ J + λ I of a wide J is inverted through the small side."""
    J = Dense(Draw(2).normal(3, 40))
    G = J.T @ Diagonal(np.arange(1.0, 4)) @ J + 0.1 * Identity((40,), float)
    assert_allclose(G.inverse().toarray(), np.linalg.inv(G.toarray()), **CLOSE)
    assert_allclose(G.logdet(), np.linalg.slogdet(G.toarray())[1], **CLOSE)
    assert closed.woodbury(G).C.shape == (3, 3)


SINGULAR = {
    "left factor": implicit_kron(np.ones((2, 2)), np.eye(3)),
    "right factor": implicit_kron(np.eye(2), np.ones((3, 3))),
    "right factor (1,)": implicit_kron(np.eye(2), np.stack([np.eye(3), np.ones((3, 3))])),
    "left factor is 2×3": implicit_kron(np.ones((2, 3)), np.ones((3, 2))),
    "entry 1 is 0": Diagonal(np.array([1.0, 0.0])),
    "block (1,)": BlockDiagonal(np.stack([np.eye(2), np.ones((2, 2))])),
    "condition number": Dense(np.diag([1.0, 1e-17])),
    "tensor of 2 numbers": Dense(np.ones((5, 2))) @ Dense(np.ones((2, 5))),
    "rank is at most 1": LowRank(np.ones((3, 1)), np.ones((3, 1))),
    "smallest eigenvalue": implicit_kron(np.eye(2), Eye(3)) - implicit_kron(Eye(2), np.eye(3)),
    "capacitance": Identity((2,), float) + LowRank(np.array([[1.0], [0]]), np.array([[-1.0], [0]])),
    "its condition number is": implicit_kron(np.array([[1.0, 1], [0, 2]]), Eye(2))
    - implicit_kron(Eye(2), np.array([[1.0, 1], [0, 3]])),
    "it is 0": Zero((2,), (2,), float),
    "takes an entry twice": Take(np.array([0, 0]), 0, (2,), float),
    "its factor is 0": 0 * Identity((2,), float), "eigenvalue is 0": Circulant(np.ones(4)),
}  # fmt: skip


@pytest.mark.parametrize("why", SINGULAR)
def test_inverse_names_why_a_matrix_is_singular(why):
    J = SINGULAR[why]
    with pytest.raises(InputError, match=f"has no inverse: .*{re.escape(why)}"):
        J.inverse()
    assert J.slogdet()[1] < -30


def test_inverse_without_a_closed_form_is_by_cg():
    C = Cumulative(0, (4,), np.dtype(float), exclusive=False, reverse=False)
    J = C.T @ C
    assert inverse_of(J) is None
    assert repr(J.inverse()).endswith("by cg")
    assert_allclose(J.slogdet(), np.linalg.slogdet(J.toarray()))


def test_small_operators_of_matrices_are_inverted_as_one(monkeypatch):
    """Three Kronecker products have no closed form; large ones are left to Krylov."""
    draw = Draw(0)
    J = sum((implicit_kron(regular(draw, 3), regular(draw, 4)) for _ in range(2)),
            start=implicit_kron(regular(draw, 3), regular(draw, 4)))  # fmt: skip
    assert_allclose(J.inverse().toarray(), np.linalg.inv(J.toarray()), **CLOSE)
    monkeypatch.setattr(as_one, "INVERTED_ROWS", 11)
    assert inverse_of(J) is None


def test_a_sylvester_equation_is_solved_as_by_scipy():
    """A X + X Bᵀ = C as SciPy solves it, also by the transpose, for many columns, and complex."""
    for dtype in (np.float64, np.complex128):
        draw = Draw(2, dtype)
        a, b = regular(draw, 5), regular(draw, 3)
        a[:2, :2] = [[2, 1], [-3, 2]]  # a pair of complex eigenvalues
        S = (implicit_kron(a, Eye(3)) + implicit_kron(Eye(5), b)).inverse()
        assert type(S) is Sylvester
        C = draw.normal(5, 3)
        X = (S @ C.ravel()).reshape(5, 3)
        assert_allclose(X, scipy.linalg.solve_sylvester(a, b.T, C), **CLOSE)
        dense = np.linalg.inv(np.kron(a, np.eye(3)) + np.kron(np.eye(5), b))
        v, w = draw.normal(15, 4), Draw(3, np.complex128).normal(15)
        for J, matrix in ((S, dense), (S.T, dense.T), (S.H, dense.conj().T), (S.T.T, dense)):
            assert_allclose(J @ v, matrix @ v, **CLOSE)
            assert_allclose(J @ w, matrix @ w, **CLOSE)
            assert_allclose(J.slogdet(), np.linalg.slogdet(matrix), **CLOSE)


@pytest.mark.parametrize("n", range(1, 7))
def test_signs_of_determinants_agree_with_numpy(n):
    """Of real matrices whose eigenvalues are negative, or pairs of complex numbers."""
    draw = Draw(n)
    a, b, c = draw.normal(n, n), draw.normal(3, 3), draw.normal(n)
    for J in (implicit_kron(a, Eye(3)) + implicit_kron(Eye(n), b), Circulant(c), Circulant(a),
              Circulant(c, (3, n)), implicit_kron(a, b), -implicit_kron(a @ a.T, b)):  # fmt: skip
        assert_allclose(J.slogdet(), np.linalg.slogdet(J.toarray()), rtol=1e-9, atol=1e-9)


def test_fourier_and_krylov_inverses_invert_back():
    F = Fourier(0, (4, 2), np.dtype(float))
    assert_allclose(F.inverse().toarray(), np.linalg.inv(F.toarray()), **CLOSE)
    A = Dense(spd(Draw(3), 4))
    assert A.inverse(solver="cg").inverse() is A


def test_diagonals_of_any_condition_invert():
    d = np.logspace(0, 8, 1000)
    D = Diagonal(d)
    assert_allclose(D.inverse().d, 1 / d)
    assert_allclose(D.logdet(), np.log(d).sum())


def test_closed_forms_reject_wrong_matrices():
    J = Dense(np.ones((2, 3)))
    for call in (J.slogdet, J.logdet, J.eigvalsh, lambda: inverse_of(J)):
        with pytest.raises(InputError, match=r"square.*2×3"):
            call()
    with pytest.raises(InputError, match="no logarithm"):
        Scalar(-1, (3,), float).logdet()
    with pytest.raises(InputError, match="not Hermitian"):
        Dense(np.triu(np.ones((2, 2)))).eigvalsh()
    for ord in (1, np.inf):
        with pytest.raises(InputError, match="ord is one of"):
            J.norm(ord)
    assert Zero((2,), (2,), float).logdet() == -np.inf


def test_names_do_not_hide_a_structure():
    model = oj.modes.linear.symmetric.Symmetric(implicit_kron(np.eye(2) * 2, np.eye(3)), ())
    assert type(model.inverse()) is Kron


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_closed_forms_keep_their_precision(dtype):
    draw, close = Draw(0), 100 * float(np.finfo(dtype).eps)
    a, b, c = (spd(draw, n).astype(dtype) for n in (4, 6, N))
    u = draw.normal(N, 2).astype(dtype)
    for J in (implicit_kron(a, b), Dense(c, SHAPE, SHAPE), BlockDiagonal(np.stack([a, a])),
              Diagonal(np.diag(c)) + LowRank(u, u), Circulant(c[0] + 9 * np.eye(N, dtype=dtype)[0]),
              implicit_kron(a, b) + Identity(SHAPE, dtype)):  # fmt: skip
        assert J.dtype == dtype
        M, dense = J.inverse(), J.toarray().astype(float)
        assert M.dtype.itemsize <= 4
        assert_allclose(M.toarray(), np.linalg.inv(dense), rtol=close, atol=close)
        assert_allclose(J.slogdet(), np.linalg.slogdet(dense), rtol=close, atol=10 * close)


def test_the_page_of_all_kinds_has_the_table_of_the_code():
    """`kinds` writes its table again."""
    assert table() in PAGE.read_text(encoding="utf-8")
    assert COSTS.keys() == {kind.__name__ for kind in kinds()}


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(150,), (2, 130)])
def test_definite_matrices_of_many_rows_are_inverted_by_halves(shape, dtype):
    root = Draw(0, dtype).normal(*shape, shape[-1])
    a = root @ root.conj().swapaxes(-1, -2) / shape[-1] + np.eye(shape[-1])
    a = (a + a.conj().swapaxes(-1, -2)) / 2
    K = Kron(a, np.diag([1.0, 2.0]).astype(dtype), shape[:-1])
    assert_allclose(K.inverse().left, np.linalg.inv(a), rtol=1e-9, atol=1e-12)


def test_a_large_selection_in_single_precision_is_a_permutation():
    """Positions above 2²⁴ are no numbers of float32."""
    n = 2**24 + 2
    S = Slice(((n - 1, -1, n),), (n,), np.float32)
    assert isinstance(S.inverse(), Embed)


def test_matrices_without_rows_are_inverted_silently(capfd):
    assert Dense(np.zeros((0, 0))).inverse().shape == (0, 0)
    assert capfd.readouterr().err == ""
