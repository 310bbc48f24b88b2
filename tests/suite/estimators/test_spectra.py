"""Norms, spectral densities, log determinants and low-rank approximations against NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from estimators.examples import Hidden, decaying, flat, rotated
from onnxjac import InputError
from onnxjac.jacobians import BlockDiagonal, Dense, Diagonal, Eye, Kron, LowRank, Scalar
from onnxjac.modes.estimators import lanczos
from onnxjac.modes.estimators.density import logdet, spectral_density
from onnxjac.modes.estimators.estimate import Probed
from onnxjac.modes.estimators.exact import STRUCTURE, spectrum
from onnxjac.modes.estimators.lanczos import extremes, function_product, low_rank, tridiagonal
from onnxjac.modes.estimators.norms import condition_number, frobenius_norm, spectral_norm

RNG = np.random.default_rng(0)
TALL = RNG.standard_normal((300, 200)) @ np.diag(0.98 ** np.arange(200))
SPD = [a @ a.T + np.eye(len(a)) for a in (RNG.standard_normal((k, k)) for k in (3, 4))]
KNOWN = [
    Scalar(-2.5, (6,), float), Diagonal(RNG.uniform(1, 2, (5,))), Dense(SPD[0]),
    Kron(SPD[0], SPD[1], ()), Kron(Eye(3), SPD[1], ()), BlockDiagonal(np.stack([SPD[1]] * 3)),
    Kron(np.stack([SPD[0]] * 2), SPD[1], (2,)), Dense(TALL[:5, :3]),
    Kron(TALL[:4, :2], TALL[:2, :3], ()), Kron(Eye(2), TALL[:2, :3], (4,)),
]  # fmt: skip


@pytest.mark.parametrize("J", KNOWN, ids=str)
def test_spectra_by_structure_are_exact_without_products(J):
    dense = J.toarray()
    values = spectrum(J, "singular values")
    expected = np.linalg.svd(dense, compute_uv=False)
    assert_allclose(np.sort(values)[::-1], expected, rtol=1e-12, atol=1e-12)
    for function, value in ((spectral_norm, expected[0]), (frobenius_norm, np.linalg.norm(dense))):
        found = function(J)
        assert (found.method, found.products) == (STRUCTURE, 0)
        assert_allclose(found.value, value, rtol=1e-12)
    if expected[-1] > 1e-12:
        assert_allclose(condition_number(J).value, expected[0] / expected[-1], rtol=1e-10)
    if J.shape[0] == J.shape[1] and np.allclose(dense, dense.T):
        values = spectrum(J, "eigenvalues")
        assert_allclose(np.sort(values), np.linalg.eigvalsh(dense), rtol=1e-12)


def test_skew_factors_have_no_eigenvalues_to_multiply():
    """The Kronecker product of skew factors is symmetric, but eigvalsh does not apply to them."""
    skew = np.array([[0.0, 1.0], [-1.0, 0.0]])
    assert spectrum(Kron(skew, skew, ()), "eigenvalues") is None
    found = np.sort(spectral_density(Kron(skew, skew, ())).nodes[0])
    assert_allclose(found, [-1, -1, 1, 1], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("matrix", [TALL, TALL.T, flat()])
def test_norms_agree_with_numpy_within_their_errors(matrix, seed):
    A = Hidden(matrix)
    sigma = np.linalg.svd(matrix, compute_uv=False)
    norm = frobenius_norm(A, seed=seed)
    assert norm.products == A.count == 60
    assert abs(norm.value - np.linalg.norm(matrix)) < 4 * norm.error
    first = spectral_norm(A, products=150, seed=seed)
    assert not first.exact
    assert first.products < 150
    assert abs(first.value - sigma[0]) <= first.error + 1e-12 < 1e-4 * sigma[0]
    assert first.value <= sigma[0] * (1 + 1e-12)


@pytest.mark.parametrize("matrix", [TALL, TALL.T, flat()])
def test_the_condition_number_is_numpys_and_few_products_bound_it(matrix):
    sigma = np.linalg.svd(matrix, compute_uv=False)
    kappa, found = sigma[0] / sigma[-1], condition_number(Hidden(matrix), exact=False)
    assert_allclose(found.value, kappa, rtol=1e-6)
    assert_allclose(condition_number(Hidden(matrix)).value, kappa, rtol=1e-10)
    few = condition_number(Hidden(matrix), exact=False, products=40)
    assert few.products <= 40
    assert few.value <= kappa * (1 + 1e-9)
    assert few.error == np.inf  # a lower bound, of unknown error


def test_a_singular_operator_has_an_infinite_condition_number():
    assert condition_number(Diagonal(np.array([1.0, 0.0]))).value == np.inf
    found = condition_number(Hidden(rotated(np.r_[np.zeros(3), np.ones(150)])), exact=False)
    assert found.value > 1e12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exact", [None, True, False])
def test_a_condition_number_beyond_rounding_has_an_infinite_error(exact, dtype):
    """σₙ is then rounding; before that, the error says how far it is off."""
    eps = np.finfo(dtype).eps
    for kappa in (1e3, 0.1 / eps, 100 / eps):
        A = Hidden(rotated(np.logspace(0, -np.log10(kappa), 40)).astype(dtype))
        found = condition_number(A, exact=exact)
        assert (found.error == np.inf) == (kappa > 1e3)
        assert abs(found.value - kappa) <= max(found.error, 1e-2 * kappa)
        assert "± inf" in repr(found) or kappa == 1e3
    large = condition_number(Diagonal(np.array([1.0, 1e-20])))
    assert (large.value, large.error) == (1e20, 0)


def test_a_few_distinct_singular_values_end_the_iteration():
    P = Probed(Hidden(rotated(np.repeat([1.0, 2.0, 5.0], 30))))
    found = extremes(P, 60, lambda _: False)
    assert_allclose(found.values, [5, 2, 1], rtol=1e-12)
    assert P.products == 6


def test_the_lanczos_basis_stays_orthogonal():
    """Each eigenvalue once: without reorthogonalisation the large ones reappear as ghosts."""
    values = np.r_[np.linspace(0, 1, 60), 1e4]
    starts = np.random.default_rng(0).standard_normal((61, 1))
    a, b, _ = tridiagonal(Probed(Hidden(rotated(values))), starts / np.linalg.norm(starts), 61)
    T = np.diag(a[:, 0]) + np.diag(b[:-1, 0], 1) + np.diag(b[:-1, 0], -1)
    assert_allclose(np.linalg.eigvalsh(T), np.sort(values), atol=1e-8)


@pytest.mark.parametrize("at_once", [2**30, 2 * 8 * 200 * 5])
def test_products_with_a_polynomial_are_exact_in_as_many_steps(at_once, monkeypatch):
    """k steps are exact for polynomials of a degree below k, for any number of vectors at once."""
    monkeypatch.setattr(lanczos, "BASIS_BYTES", at_once)
    matrix, Z = flat(), 3 * RNG.standard_normal((200, 5))
    expected = matrix @ matrix @ matrix @ matrix @ Z
    found = function_product(Probed(Hidden(matrix)), lambda t: t**4, Z, 5)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * abs(expected).max())
    shorter = function_product(Probed(Hidden(matrix)), lambda t: t**4, Z, 4)
    assert not np.allclose(shorter, expected, rtol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("matrix", [flat(), decaying() + 0.1 * np.eye(200)])
def test_logdet_is_numpys_within_its_error(matrix, seed):
    A, truth = Hidden(matrix), np.linalg.slogdet(matrix)[1]
    found = logdet(A, steps=40, probes=20, exact=False, seed=seed)
    assert found.products == A.count == 40 * 20 + 2  # two to check that A is symmetric
    assert 0 < found.error < 0.05 * 200
    assert abs(found.value - truth) < 4 * found.error
    exact = logdet(A)
    assert exact.exact
    assert_allclose(exact.value, truth, rtol=1e-12)


SPREADS = {
    "six decades": np.logspace(0, 6, 2000), "three decades": np.logspace(0, 3, 500),
    "ten decades": np.logspace(-5, 5, 1000), "even": np.linspace(1, 100, 1000),
    "close": np.linspace(1, 2, 500), "squares": np.arange(1, 1001.0) ** 2,
    "inverse squares": np.arange(1, 1001.0) ** -2.0,
    "a cluster": np.r_[np.ones(500), np.linspace(100, 1000, 500)],
}  # fmt: skip


@pytest.mark.parametrize("steps", [2, 6, 10, 25, 50])
@pytest.mark.parametrize("name", SPREADS)
def test_the_error_of_logdet_has_what_the_quadrature_is_off_by(name, steps):
    """All sign probes agree on a diagonal matrix, which leaves the quadrature error only."""
    values = SPREADS[name]
    n = len(values)
    A = Diagonal(values) + LowRank(np.zeros((n, 1)), np.zeros((n, 1)))
    found, truth = logdet(A, steps=steps, exact=False), np.log(values).sum()
    assert abs(found.value - truth) <= found.error
    assert found.value >= truth - 1e-9 * abs(truth)
    if name == "close" and steps == 50:
        assert found.error < 1e-10


def test_a_density_has_what_its_quadrature_is_off_by():
    values, grid = np.logspace(0, 2, 1000), np.linspace(0, 100, 60)
    A = Diagonal(values) + LowRank(np.zeros((1000, 1)), np.zeros((1000, 1)))
    exact = spectral_density(Diagonal(values))(grid, width=2.0)
    for steps in (20, 30, 60):
        found = spectral_density(A, steps=steps, exact=False)(grid, width=2.0)
        inside = np.abs(found.value - exact.value) <= 2 * found.error + 1e-12
        assert np.mean(inside) > 0.9


def test_the_condition_number_of_a_hard_case_is_a_lower_bound():
    n = 2000
    A = Diagonal(np.logspace(0, 6, n)) + LowRank(np.zeros((n, 1)), np.zeros((n, 1)))
    found = condition_number(A)
    assert found.value < 1e6 < found.value + found.error


def test_the_error_of_logdet_falls_as_one_by_the_root_of_the_probes():
    errors = [logdet(Hidden(flat()), steps=20, probes=k, exact=False).error for k in (10, 160)]
    assert 2.8 < errors[0] / errors[1] < 5.7


@pytest.mark.parametrize("seed", range(3))
def test_the_spectral_density_agrees_with_the_eigenvalues(seed):
    """Against Gaussians around the true eigenvalues; the integral is one."""
    matrix = decaying(300, 0.97)
    values, grid = np.linalg.eigvalsh(matrix), np.linspace(-0.3, 1.3, 200)
    rho = spectral_density(Hidden(matrix), steps=40, probes=20, exact=False, seed=seed)
    found = rho(grid, width=0.05)
    z = (grid[:, None] - values) / 0.05
    truth = np.mean(np.exp(-(z**2) / 2), axis=1) / np.sqrt(2 * np.pi) / 0.05
    assert np.mean(np.abs(found.value - truth) <= 4 * found.error + 1e-6) > 0.97
    assert found.error.max() < 0.3 * truth.max()
    assert_allclose(np.trapezoid(found.value, grid), 1, rtol=1e-6)
    second = rho.quadrature(np.square)
    assert abs(second.value - np.sum(values**2)) < 4 * second.error
    exact = spectral_density(Hidden(matrix), exact=True)(grid, width=0.05)
    assert_allclose(exact.value, truth, atol=1e-10)
    assert not exact.error.any()


def test_an_exhausted_space_ends_lanczos_quietly():
    """With three distinct eigenvalues, three nodes have all the weight, and log 0 is avoided."""
    values = np.repeat([2.0, 3.0, 7.0], 40)
    rho = spectral_density(Hidden(rotated(values)), steps=20, probes=5, exact=False)
    reached = np.unique(rho.nodes[rho.weights > 1e-12].round(8))
    assert_allclose(reached, [2, 3, 7])
    found = rho.quadrature(np.log)
    assert abs(found.value - np.log(values).sum()) < 4 * found.error


def test_spectra_reject_unsymmetric_and_indefinite_operators():
    unsymmetric = Hidden(np.random.default_rng(0).standard_normal((700, 700)))
    for function in (spectral_density, logdet, lambda A: low_rank(A, 3, method="nystrom")):
        with pytest.raises(InputError, match="symmetric"):
            function(unsymmetric)
    with pytest.raises(InputError, match="positive definite"):
        logdet(Hidden(flat() - 2 * np.eye(200)))
    with pytest.raises(InputError, match="semidefinite"):
        low_rank(Hidden(-flat()), 3, method="nystrom")
    with pytest.raises(InputError, match="nystrom"):
        low_rank(Hidden(flat()), 3, method="svds")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("method", "matrix", "most"),
    [("svd", TALL, 1.3), ("svd", TALL.T, 1.3), ("nystrom", decaying(), 2)],
)
def test_low_rank_is_close_to_the_best_approximation(method, matrix, most, seed):
    """Close to the best approximation of that rank, from the dense SVD."""
    A, rank = Hidden(matrix), 40
    found = low_rank(A, rank, method=method, oversampling=20, seed=seed)
    assert isinstance(found.value, LowRank)
    assert found.products == A.count
    sigma = np.linalg.svd(matrix, compute_uv=False)
    best, off = np.linalg.norm(sigma[rank:]), np.linalg.norm(matrix - found.value.toarray())
    assert best * (1 - 1e-9) <= off < most * best
    assert 0.5 < found.error / off < 2
    scale = np.linalg.norm(found.value.u, axis=0)
    assert_allclose(scale[:5], sigma[:5], rtol=2e-2)
