"""Sums and products that are singular, nearly singular and regular, against LAPACK.

Every closed form gives what LAPACK gives for the matrix, up to rounding times the condition number,
or says that the operator is singular. A number is judged by the sizes that it is the difference of.
"""

import warnings
from functools import reduce

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import (
    Block,
    BlockDiagonal,
    Circulant,
    Dense,
    Diagonal,
    Embed,
    Eye,
    Identity,
    LowRank,
    Permutation,
    Product,
    Reshape,
    Scalar,
    Sum,
    Take,
    closed,
    implicit_kron,
    inverse_of,
)
from onnxjac.jacobians import as_one as limits
from onnxjac.jacobians.as_one import absolute
from onnxjac.jacobians.lapack import Singular

from .examples import Draw
from .test_closed import hermitian


class Case(Draw):
    """Random factors of a sum or product with a null vector x, up to A x = δ x for δ = `gap`.

    Numbers are drawn in double precision, and rounded to a dtype at the end, by `exact`. A case for
    `reference` has the same numbers in double precision.
    """

    def __init__(self, seed, dtype, gap, reference=False):
        super().__init__(seed, np.complex128 if np.dtype(dtype).kind == "c" else float)
        self.rounded, self.final, self.gap = dtype, self.dtype if reference else dtype, gap
        self.m, self.n = map(int, self.rng.integers(2, 5, 2))
        self.shape, self.size = (self.m, self.n), self.m * self.n

    def exact(self, *arrays):
        found = [np.asarray(a).astype(self.rounded).astype(self.final) for a in arrays]
        return found if len(found) > 1 else found[0]

    def square(self, n):
        """Well conditioned, neither symmetric nor normal."""
        return self.normal(n, n) / n**0.5 + 1.5 * np.eye(n)

    def definite(self, n):
        a = self.square(n)
        return hermitian(a @ a.conj().T)

    def rotation(self, n):
        return np.linalg.qr(self.normal(n, n))[0]

    def null(self, n):
        """A with A x = δ x."""
        a, x = self.square(n), self.rotation(n)[:, -1:]
        return a - (a @ x - self.gap * x) @ x.conj().T

    def semidefinite(self, n, Q, gap):
        """Q Λ Qᴴ with the eigenvalue δ for the last column of Q."""
        values = np.append(np.abs(self.rng.standard_normal(n - 1)) + 0.5, gap)
        return hermitian((Q * values) @ Q.conj().T)

    def low_rank(self, base, shape=None, rank=2):
        """U Vᵀ with (B + U Vᵀ) x = δ x."""
        U, V, x = (self.normal(len(base), k) for k in (rank, rank, 1))
        U[:, :1] = 0
        U[:, :1] = (self.gap * x - base @ x - U @ (V.T @ x)) / (V[:, 0] @ x)
        shape = shape or self.shape
        return LowRank(*self.exact(U, V), shape, shape)


def eye(d, shape=None):
    return Identity(shape or d.shape, d.final)


def projector(d):
    """c I - c (1 - δ) Q Qᴴ."""
    Q = d.rotation(d.size)[:, :2]
    U, V = d.exact(Q, (d.gap - 1) * 1.3 * Q.conj())
    return Scalar(1.3, d.shape, d.final) + LowRank(U, V, d.shape, d.shape)


def identity_plus(d):
    return Scalar(-0.7, d.shape, d.final) + d.low_rank(-0.7 * np.eye(d.size), rank=3)


def diagonal_plus(d):
    entries = d.exact(d.normal(*d.shape) + 3)
    return Diagonal(entries) + d.low_rank(np.diag(entries.ravel()), rank=1)


def kron_plus(d):
    A, B = d.exact(d.square(d.m), d.square(d.n))
    return implicit_kron(A, B) + d.low_rank(np.kron(A, B))


def ill_base_plus(d):
    """An entry of the diagonal is small beside the product of low rank."""
    entries = d.normal(*d.shape) + 3
    entries[0, 0] = 1e-9
    entries = d.exact(entries)
    return Diagonal(entries) + d.low_rank(np.diag(entries.ravel()), rank=1)


def common_left(d):
    x = d.rotation(d.m)
    A, C = (d.square(d.m) @ (np.eye(d.m) - (1 - d.gap) * x[:, -1:] @ x[:, -1:].conj().T)
            for _ in range(2))  # fmt: skip
    A, B, C, D = d.exact(A, d.square(d.n), C, d.square(d.n))
    return implicit_kron(A, B) + implicit_kron(C, D)


def common_definite(d):
    """Of two sums of semidefinite products, with one null vector."""
    Q, R = d.rotation(d.m), d.rotation(d.n)
    A, B, C, D = d.exact(d.semidefinite(d.m, Q, d.gap), d.semidefinite(d.n, R, d.gap),
                         d.definite(d.m), d.semidefinite(d.n, R, d.gap))  # fmt: skip
    return implicit_kron(A, B) + implicit_kron(C, D)


def differences(d):
    """A ⊗ B - C ⊗ D with generalised eigenvalues whose difference is δ."""
    A, B, C, D = d.definite(d.m), d.definite(d.n), d.definite(d.m), d.definite(d.n)
    left = np.linalg.eigvals(np.linalg.solve(C, A)).real[0]
    right = np.linalg.eigvals(np.linalg.solve(B, D)).real[0]
    A, B, C, D = d.exact(A * (right + d.gap) / left, B, C, D)
    return implicit_kron(A, B) - implicit_kron(C, D)


def kronecker_sum(d):
    A, B = d.square(d.m), d.square(d.n)
    shift = np.linalg.eigvals(A)[0] + np.linalg.eigvals(B)[0] - d.gap
    shift = shift if d.dtype.kind == "c" else real_shift(A, B, d.gap)
    A, B = d.exact(A - shift * np.eye(d.m), B)
    return implicit_kron(A, Eye(d.n)) + implicit_kron(Eye(d.m), B)


def real_shift(A, B, gap):
    """A real λ + μ for real matrices."""
    sums = (np.linalg.eigvals(A)[:, None] + np.linalg.eigvals(B)).ravel()
    real = sums.real[np.abs(sums.imag) < 1e-12]
    return real[0] - gap if len(real) else 0.0


def kronecker_sum_symmetric(d):
    A, B = d.definite(d.m), d.definite(d.n)
    low = np.linalg.eigvalsh(A)[1] + np.linalg.eigvalsh(B)[1] - d.gap
    A, B = d.exact(A - low * np.eye(d.m), B)
    return implicit_kron(A, Eye(d.n)) + implicit_kron(Eye(d.m), B)


def defective(d):
    """A ⊗ I - I ⊗ B with Jordan blocks of one eigenvalue."""
    Q, R = d.rotation(d.m), d.rotation(d.n)
    A = Q @ (2 * np.eye(d.m) + np.eye(d.m, k=1)) @ Q.conj().T
    B = R @ (-(2 - d.gap) * np.eye(d.n) + np.eye(d.n, k=1)) @ R.conj().T
    A, B = d.exact(A, B)
    return implicit_kron(A, Eye(d.n)) + implicit_kron(Eye(d.m), B)


def kron_minus(d):
    """A ⊗ B - λ I."""
    A, B = d.square(d.m), d.square(d.n)
    values = np.outer(np.linalg.eigvals(A), np.linalg.eigvals(B)).ravel()
    real = values.real[np.abs(values.imag) < 1e-12]
    A, B = d.exact(A, B)
    value = float(real[0]) if len(real) else 1.0
    return implicit_kron(A, B) - Scalar(value - d.gap, d.shape, d.final)


def kron_minus_symmetric(d):
    A, B = d.definite(d.m), d.definite(d.n)
    value = float(np.linalg.eigvalsh(A)[1] * np.linalg.eigvalsh(B)[1])
    A, B = d.exact(A, B)
    return implicit_kron(A, B) - Scalar(value - d.gap, d.shape, d.final)


def blocks_minus(d):
    """Blocks, and multiples of I and I ⊗ B, that cancel in one of them."""
    B, blocks = d.exact(d.square(d.n)), np.stack([d.square(d.n) for _ in range(d.m)])
    blocks[1] = d.null(d.n) - B - 0.5 * np.eye(d.n)
    return (BlockDiagonal(d.exact(blocks)) + implicit_kron(Eye(d.m), B)
            + Scalar(0.5, d.shape, d.final))  # fmt: skip


def dense_minus(d):
    """A matrix and a permutation that cancel."""
    P = Take(np.arange(d.size)[::-1], 0, (d.size,), d.final)
    return Dense(d.exact(d.null(d.size) - P.toarray())) + P


def circulants(d):
    c, k = d.normal(d.n), d.normal(d.n)
    c = c - (np.fft.fft(c + k)[1] - d.gap) * np.exp(2j * np.pi * np.arange(d.n) / d.n) / d.n \
        if d.dtype.kind == "c" else c - (c.sum() + k.sum() - d.gap) / d.n  # fmt: skip
    return Circulant(d.exact(c), d.shape) + Circulant(d.exact(k), d.shape)


def in_a_layout(d):
    P = Permutation((1, 0), (d.n, d.m), d.final)
    A, B = d.definite(d.n), d.definite(d.m)
    value = float(np.linalg.eigvalsh(A)[0] * np.linalg.eigvalsh(B)[0]) - d.gap
    return P @ implicit_kron(*d.exact(A, B)) @ P.T - Scalar(value, d.shape, d.final)


def grid_minus(d):
    return Block([[Dense(d.exact(d.null(5) + 2 * np.eye(5))), None],
                  [None, Diagonal(d.exact(d.normal(7) + 6))]]) - 2 * eye(d, (12,))  # fmt: skip


def three_krons(d):
    """No closed form, and a common null vector."""
    x = d.rotation(d.n)[:, -1:]
    off = np.eye(d.n) - (1 - d.gap) * x @ x.conj().T
    pairs = (d.exact(d.square(d.m), d.square(d.n) @ off) for _ in range(3))
    return reduce(lambda a, b: a + b, (implicit_kron(*pair) for pair in pairs))


def through_more(d):
    """Selections around a diagonal with zeros: its block may be regular."""
    entries = d.normal(d.size + 3) + 3
    entries[d.size:] = 0
    entries[0] *= d.gap or 0
    return Diagonal(d.exact(entries))[:d.size, :d.size]


def outer_factors(d):
    """W T with a wide W, with the null vector x."""
    W, T, x = d.normal(d.size, d.size + 4), d.normal(d.size + 4, d.size), d.normal(d.size, 1)
    T = T - (T @ x - d.gap * d.normal(d.size + 4, 1)) @ x.conj().T / np.vdot(x, x)
    singular = Dense(d.exact(np.diag([1.0] * (d.size + 3) + [0])))
    return Product((Dense(d.exact(W)), singular, Dense(d.exact(T))))


def permuted(d):
    index = d.rng.permutation(d.size)
    A = Dense(d.exact(d.null(d.size + 2)))
    place = Take(index, 0, (d.size + 2,), d.final)
    back = Embed(((0, 1, d.size),), (d.size + 2,), d.final)
    return place @ A @ back


def wide_selection(d):
    """P D Pᵀ + U Vᵀ, of a larger diagonal D with zeros outside."""
    entries = d.exact(np.append(d.normal(d.size) + 3, np.zeros(3)))
    inner = Diagonal(entries)[: d.size, : d.size]
    return inner + d.low_rank(np.diag(entries[: d.size]), (d.size,))


def nested(d):
    """A product around a sum, scaled."""
    left = Diagonal(d.exact(d.normal(*d.shape) + 3))
    return -2 * left @ kron_minus_symmetric(d) @ implicit_kron(Eye(d.m), d.exact(d.square(d.n)))


def sum_of_sums(d):
    """(A ⊗ B + δ I) + U Vᵀ, and a scaled transpose."""
    A, B = d.exact(d.definite(d.m), d.definite(d.n))
    base = implicit_kron(A, B) + 0.5 * eye(d)
    return 0.5 * (base + d.low_rank(base.toarray())).T


def flat(d):
    """Reshapes around a projector."""
    tall = (d.size, 1)
    return Reshape(tall, d.shape, d.final) @ projector(d) @ Reshape(d.shape, tall, d.final)


def factored(d):
    return implicit_kron(*d.exact(d.null(d.m), d.square(d.n)))


def cancelling_low_rank(d):
    """U Vᵀ of full rank whose columns cancel."""
    U, V = d.normal(d.size, d.size), d.normal(d.size, d.size)
    U = np.concatenate([U, U[:, :1] * (d.gap - 1)], 1)
    V = np.concatenate([V, V[:, :1]], 1)
    return LowRank(*d.exact(U, V))


def ill_metric(d):
    """Definite factors that are nearly singular, of a sum that is not."""
    C, D = (d.semidefinite(n, d.rotation(n), 1e-9) for n in d.shape)
    A, B, C, D = d.exact(d.definite(d.m) - 1.7 * np.eye(d.m), d.definite(d.n), C, D)
    return implicit_kron(A, B) + implicit_kron(C, D)


def blocks(d):
    return BlockDiagonal(d.exact(np.stack([d.square(d.n), d.null(d.n), d.square(d.n)])))


FAMILIES = [
    projector, identity_plus, diagonal_plus, kron_plus, ill_base_plus, common_left,
    common_definite, differences, kronecker_sum, kronecker_sum_symmetric, defective, kron_minus,
    kron_minus_symmetric, blocks_minus, dense_minus, circulants, in_a_layout, grid_minus,
    three_krons, through_more, outer_factors, permuted, wide_selection, nested, sum_of_sums, flat,
    factored, cancelling_low_rank, ill_metric, blocks,
]  # fmt: skip
def scale_of(J):
    """The sizes that are added and subtracted: Σ ‖Tᵢ‖ for a sum, Π ‖Fᵢ‖ for a product."""
    if isinstance(J, Sum):
        return sum(map(scale_of, J.terms))
    if isinstance(J, Product):
        return np.prod([*map(scale_of, J.factors)])
    if isinstance(J, LowRank):
        return np.linalg.norm(J.u, 2) * np.linalg.norm(J.v, 2)
    return np.linalg.norm(J.toarray(), 2)


SLACK = 30
"""Rounding times the condition number, times this, is what a result may be off."""


def rounding(J, A):
    """ε times the sizes of the terms over σ, for each singular value σ of the matrix A."""
    values = np.linalg.svd(A, compute_uv=False)
    sizes = float(np.finfo(J.dtype).eps) * float(scale_of(J))
    return sizes / np.maximum(values, 1e-9 * sizes)


def check_inverse(J, A):
    """Right, or said to be singular: what is singular up to rounding, and nothing else."""
    lost = rounding(J, A)
    try:
        found = J.inverse().toarray()
    except Singular:
        assert lost[-1] > 3e-3
        return
    assert lost[-1] < 2
    if SLACK * lost[-1] < 0.3:
        inverse = np.linalg.inv(A)
        assert np.linalg.norm(found - inverse, 2) <= SLACK * lost[-1] * np.linalg.norm(inverse, 2)
        b = np.ones(len(A))
        error = np.linalg.norm(J.solve(b) - inverse @ b)
        assert error <= SLACK * lost[-1] * np.linalg.norm(inverse, 2) * len(A) ** 0.5


def check_pseudo_inverse(J, A):
    """By the singular values above rounding, unless one of them may be either."""
    lost, n = rounding(J, A), len(A)
    if (abs(np.log10(n * lost)) < 1).any():
        return
    U, values, Vh = np.linalg.svd(A)
    r = int((n * lost < 1).sum())
    exact = (Vh[:r].conj().T / values[:r]) @ U[:, :r].conj().T
    error = np.linalg.norm(J.pinv().toarray() - exact, 2)
    assert error <= n * SLACK * lost[r - 1] * np.linalg.norm(exact, 2)


def check_determinant(J, A):
    """det A, or for a singular A a number as small as rounding makes it."""
    lost = rounding(J, A)
    (sign, log), (phase, value) = J.slogdet(), np.linalg.slogdet(A)
    close = len(A) * SLACK * lost[-1]
    if close < 0.1:
        assert_allclose([sign, log], [phase, value], atol=close)
    else:
        sizes = np.linalg.svd(A, compute_uv=False)
        sizes += len(A) * SLACK * float(np.finfo(J.dtype).eps) * scale_of(J)
        assert log <= np.log(sizes).sum()


def check_spectra(J, A):
    lost = rounding(J, A)
    values = np.linalg.svd(A, compute_uv=False)
    close = {"rtol": 0, "atol": SLACK * max(lost * values)}
    assert_allclose(J.svdvals(), values, **close)
    assert_allclose(J.norm(2), values[0], **close)
    symmetric = 0.5 * (J + J.H)
    assert_allclose(symmetric.eigvalsh(), np.linalg.eigvalsh((A + A.conj().T) / 2), **close)


CHECKS = [check_inverse, check_pseudo_inverse, check_determinant, check_spectra]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128], ids=lambda t: t.__name__)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_a_singular_a_nearly_singular_and_regular_ones(family, dtype):
    """The seeds differ by family, so that sizes and factors do."""
    near = 1e-7 if dtype is not np.float32 else 3e-3
    for seed, gap in enumerate((0, near, 0.4, 0.8), 4 * FAMILIES.index(family)):
        J = family(Case(seed, dtype, gap))
        A = family(Case(seed, dtype, gap, reference=True)).toarray()
        for check in CHECKS:
            check(J, A)
            check(J.T, A.T)


class Large(Case):
    """A case of more rows than are inverted as a matrix at once."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.shape, self.size = (self.m, self.n), 1023
        self.m, self.n = self.shape = 31, 33


def said_slogdet(J):
    """sign, log |det J|, and what is said of the condition number."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = J.slogdet()
    assert all("its condition number is" in str(s.message) for s in said)
    return found, bool(said) or found[1] == -np.inf


def check_large(J, A):
    """Right up to 100 ε κ, or said to be singular: what is singular up to rounding, no other."""
    eps = float(np.finfo(J.dtype).eps)
    inverse = np.linalg.inv(A) if np.linalg.slogdet(A)[0] else np.full_like(A, np.inf)
    sizes = float(np.max(absolute(J) @ np.ones(len(A))))
    lost = eps * sizes * np.linalg.norm(inverse, np.inf)
    (sign, log), said = said_slogdet(J)
    if 100 * lost < 0.1:
        assert not said
        phase, value = np.linalg.slogdet(A)
        assert_allclose([sign, log], [phase, value], rtol=1e-12, atol=100 * lost)
    assert said or lost < len(A)
    try:
        M, b = inverse_of(J), np.ones(len(A))
    except Singular:
        assert lost > 1e-3
        return
    if M is None:  # left to Krylov, which says what residual it ends with
        return
    found, exact = M @ b, inverse @ b
    assert lost < len(A)
    if 100 * lost < 0.1:
        size = np.linalg.norm(exact) + np.linalg.norm(inverse, np.inf)
        assert np.linalg.norm(found - exact) <= 100 * lost * size


@pytest.mark.sampled(0.15)
@pytest.mark.parametrize("gap", [0, 1e-7, 0.4])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_large_ones(family, gap):
    J = family(Large(FAMILIES.index(family), np.float64, gap))
    check_large(J, J.toarray())


@pytest.mark.parametrize("family", [ill_base_plus, ill_metric], ids=lambda f: f.__name__)
def test_large_inverses_are_refined_or_an_error(family, monkeypatch):
    """An inverse by terms that are worse conditioned than their sum is refined, or is an error."""
    for module in limits, closed:
        monkeypatch.setattr(module, "CORRECTED_ROWS", 1000)
    J = family(Large(0, np.float64, 0.4))
    A = J.toarray()
    (_, log), said = said_slogdet(J)
    assert said or abs(log - np.linalg.slogdet(A)[1]) < 1e-8
    assert abs(log - np.linalg.slogdet(A)[1]) < 1e-3
    b = np.ones(len(A))
    exact = np.linalg.solve(A, b)
    try:
        assert np.linalg.norm(J.solve(b) - exact) <= 1e-3 * np.linalg.norm(exact)
    except Singular:
        assert family is ill_metric
