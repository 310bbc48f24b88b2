"""Traces and diagonals against the dense matrix: within errors that fall as documented."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator

from estimators.examples import Hidden, decaying, flat, rotated
from onnxjac import InputError
from onnxjac.modes.estimators.trace import diagonal, trace

METHODS = ["hutchinson", "hutch++", "xtrace"]


def spread(method, matrix, products, seeds=60):
    """Root mean squares of the true and the reported errors over many seeds; the true errors."""
    found = [trace(Hidden(matrix), method=method, products=products, seed=s) for s in range(seeds)]
    off = [f.value - np.trace(matrix) for f in found]
    return np.sqrt(np.mean(np.square(off))), np.sqrt(np.mean([f.error**2 for f in found])), off


@pytest.mark.parametrize("matrix", [decaying(), flat(), decaying() - 0.3 * flat()])
@pytest.mark.parametrize("method", METHODS)
def test_the_truth_is_within_four_standard_errors(matrix, method):
    """For 58 seeds of 60, since the estimated error is itself uncertain."""
    A, within = Hidden(matrix), 0
    for seed in range(60):
        found = trace(A, method=method, products=60, seed=seed)
        assert not found.exact
        assert (seed + 1) * found.products == A.count == (seed + 1) * 60
        within += abs(found.value - np.trace(matrix)) < 4 * found.error
    assert within >= 58


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("matrix", [decaying(), flat()])
def test_errors_are_honest(method, matrix):
    """The reported error matches the true one within a factor of two, without bias."""
    true, reported, off = spread(method, matrix, 30)
    assert 0.5 < reported / true < 2
    assert abs(np.mean(off)) < 4 * true / np.sqrt(len(off))


@pytest.mark.parametrize(
    ("method", "least", "most"),
    [("hutchinson", 1.6, 2.5), ("hutch++", 5, 1e3), ("xtrace", 20, 1e9)],
)
def test_errors_fall_with_the_products(method, least, most):
    """Four times the products: half the error for Hutchinson, far less where A decays."""
    before, after = (spread(method, decaying(), products, 20)[0] for products in (30, 120))
    assert least < before / after < most


def test_a_low_rank_is_exact():
    u = np.random.default_rng(0).standard_normal((50, 4))
    A = Hidden(u @ u.T)
    found = trace(A, method="xtrace", products=20)
    assert found.exact
    assert_allclose(found.value, np.sum(u**2), rtol=1e-12)
    entries = diagonal(A, method="xdiag", products=20)
    assert entries.exact
    assert_allclose(entries.value, np.diag(A.a), rtol=1e-10)


def test_a_small_rest_is_no_low_rank():
    """In single precision, the rest of the spectrum may lie below the cut-off of the basis."""
    values = np.r_[1.0, np.full(299, 1e-6)]
    matrix = rotated(values).astype(np.float32)
    A = aslinearoperator(matrix)
    found = trace(A, method="xtrace", products=60)
    assert abs(found.value - values.sum()) <= found.error < 1e-2
    assert not found.exact
    entries = diagonal(A, method="xdiag", products=60)
    assert np.all(np.abs(entries.value - np.diag(matrix)) <= entries.error + 1e-5)


def test_few_columns_are_multiplied_out():
    matrix = np.random.default_rng(0).standard_normal((40, 40))
    for A in (Hidden(matrix), aslinearoperator(matrix)):
        found = trace(A)
        assert (found.exact, found.products) == (True, 40)
        assert_allclose(found.value, np.trace(matrix), rtol=1e-12)
        assert_allclose(diagonal(A).value, np.diag(matrix), rtol=1e-12)
    assert repr(found) == f"{np.trace(matrix):.6g} (exact by products, 40 products)"


@pytest.mark.parametrize("seed", range(5))
def test_xdiag_finds_the_diagonal_within_its_error(seed):
    """Also for unsymmetric A; nearly all of 200 entries lie within four standard errors."""
    matrix = decaying() + 0.1 * np.triu(flat())
    A = Hidden(matrix)
    found = diagonal(A, products=80, seed=seed)
    assert found.method == "XDiag"
    assert found.products == A.count == 80
    off = np.abs(found.value - np.diag(matrix))
    assert np.mean(off < 4 * found.error) > 0.97
    assert 0.6 < np.sqrt(np.mean(found.error**2) / np.mean(off**2)) < 1.6


@pytest.mark.parametrize("n", [1, 2, 3, 10, 29, 30, 31])
def test_more_products_than_columns(n):
    """As many probes as columns span the whole space."""
    A = np.random.default_rng(n).standard_normal((n, n))
    found, entries = trace(A, method="xtrace"), diagonal(A, method="xdiag")
    assert found.exact == entries.exact == (n <= 30)
    if found.exact:
        assert found.products == entries.products == 2 * n
        assert_allclose(found.value, np.trace(A), atol=1e-10)
        assert_allclose(entries.value, np.diag(A), atol=1e-10)
    zero = np.zeros((n, n))
    assert (trace(zero, method="xtrace").value, trace(zero, method="xtrace").error) == (0, 0)


def test_trace_rejects_wrong_shapes_and_methods():
    with pytest.raises(InputError, match="square"):
        trace(Hidden(np.ones((2, 3))))
    with pytest.raises(InputError, match="'xtrace'"):
        trace(Hidden(flat()), method="xtrase")
    with pytest.raises(InputError, match="xdiag"):
        diagonal(Hidden(flat()), method="hutch")


def test_the_same_seed_gives_the_same():
    first, second, third = (trace(Hidden(flat()), seed=s).value for s in (1, 1, 2))
    assert first == second != third
