"""Newton-Krylov finds the root that SciPy finds by differences; preconditioners save products."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import newton_krylov as by_differences
from scipy.sparse import csr_array
from scipy.sparse.linalg import bicgstab, spilu, splu

import onnxjac as oj
from onnxjac import asoperator
from onnxjac.modes.solvers.iteration import Counted
from onnxjac.modes.solvers.preconditioners import ilu
from onnxjac.modes.solvers.roots import gmres, newton_krylov
from solvers.models import grid, parsed, reaction


def residual(u, b):
    """Δu − u − u³ + b, in NumPy."""
    wide = np.pad(u[0, 0], 1)
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    return around - 4 * u - u - u**3 + b


@pytest.fixture(scope="module")
def root():
    point = grid()
    return by_differences(lambda u: residual(u, point["b"]), point["u"], f_tol=1e-11)


@pytest.mark.parametrize("options", [{}, {"preconditioner": ilu}, {"solver": bicgstab}])
def test_newton_krylov_finds_the_root_of_scipy(root, options):
    point = grid()
    found = newton_krylov(reaction(), point, wrt="u", rtol=1e-12, **options)
    assert found.success
    assert_allclose(found.tensors["u"], root, atol=1e-9)
    assert_allclose(found.fun, residual(found.tensors["u"], point["b"]).ravel(), atol=1e-12)
    assert np.linalg.norm(found.fun) < 1e-9


def test_a_preconditioner_saves_products():
    plain = newton_krylov(reaction(24), grid(24), wrt="u")
    better = newton_krylov(reaction(24), grid(24), wrt="u", preconditioner=ilu)
    assert plain.success
    assert better.success
    assert 3 * better.products < plain.products


def test_convergence_is_superlinear():
    """Without a preconditioner, which would solve the systems beyond their tolerance."""
    norms = []
    newton_krylov(
        reaction(), grid(), wrt="u", rtol=1e-12,
        callback=lambda state: norms.append(np.linalg.norm(state.fun)),
    )  # fmt: skip
    rates = np.array(norms[1:]) / norms[:-1]
    assert rates[-1] < rates[0] / 10


def test_newton_krylov_stays_in_single_precision(root):
    point = grid(dtype="float32")
    found = newton_krylov(reaction(dtype="float32"), point, wrt="u", rtol=1e-5)
    assert found.x.dtype == np.float32
    assert_allclose(found.tensors["u"], root, atol=2e-3)


def test_steps_that_go_too_far_are_shortened():
    """Newton's method for arctan diverges from 3."""
    model = parsed("root (float[1] x) => (float[1] y) { y = Atan(x) }")
    found = newton_krylov(model, {"x": [3.0]}, rtol=1e-12)
    assert found.success
    assert_allclose(found.x, 0, atol=1e-10)


def test_a_search_without_a_root_stops_and_says_so():
    """x² + 1: the search stops at the minimum, and reports it."""
    model = parsed(
        "none (float[1] x) => (float[1] y) <float one = {1.0}> { s = Mul(x, x)\n y = Add(s, one) }"
    )
    found = newton_krylov(model, {"x": [0.5]})
    assert not found.success
    assert found.fun[0] >= 1


def test_as_many_equations_as_unknowns():
    with pytest.raises(oj.InputError, match="144 equations for 288 unknowns"):
        newton_krylov(reaction(), grid())


def test_newton_krylov_ends_at_nan_and_without_progress():
    nowhere = {name: np.nan * u for name, u in grid().items()}
    found = newton_krylov(reaction(), nowhere, wrt="u")
    assert found.products == 0
    assert "is not finite" in found.message
    turned = np.roll(np.eye(2000), 1, axis=0)  # on which GMRES does not move before n products
    product = Counted(asoperator(csr_array(turned)))
    gmres(product, np.eye(2000)[0])
    assert product.products < 1100


def test_a_solver_is_a_function():
    with pytest.raises(oj.InputError, match=r"solver='gmres' is no function of \(A, b, rtol=, M="):
        newton_krylov(reaction(), grid(), wrt="u", solver="gmres")


@pytest.mark.parametrize("factorize", [spilu, splu])
def test_factors_of_scipy_are_preconditioners(root, factorize):
    found = newton_krylov(reaction(), grid(), wrt="u", rtol=1e-12,
                          preconditioner=lambda J: factorize(J.tosparse("csc")))  # fmt: skip
    assert found.success
    assert_allclose(found.tensors["u"], root, atol=1e-9)
    assert found.products < 20
