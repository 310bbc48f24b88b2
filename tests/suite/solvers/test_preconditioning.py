"""Preconditioners reduce the inner iterations of the solvers, and keep the solution."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse.linalg import aslinearoperator

import onnxjac as oj
from onnxjac.jacobians import Dense, Diagonal
from onnxjac.modes.solvers.descent import truncated_cg
from solvers.models import grid, labelled, logistic, parsed, reaction, rosenbrock

N = 40
UNITS = np.logspace(0, 5, N)
both = pytest.mark.parametrize("globalization", ["line search", "trust region"])


@pytest.fixture(scope="module")
def stretched():
    """f = Σ d x² + (1ᵀx − 1)⁴, with widely spread d, and its residual (√d ∘ x, (1ᵀx − 1)²)."""
    return parsed(
        """
        stretched (float[n] x, float[n] d) => (float f, float[m] r)
        <float unit = {1.0}, int64[1] one = {1}>
        {
            total = ReduceSum <keepdims = 0> (x)
            gap = Sub(total, unit)
            square = Mul(gap, gap)
            end = Reshape(square, one)
            root = Sqrt(d)
            scaled = Mul(root, x)
            r = Concat <axis = 0> (scaled, end)
            f = ReduceSumSquare <keepdims = 0> (r)
        }"""
    )


POINT = {"x": np.ones(N), "d": UNITS}


def hessian(x, d):
    """2 diag(d) + 12 (1ᵀx − 1)² 1 1ᵀ."""
    return 2 * np.diag(d) + 12 * (x.sum() - 1) ** 2


@both
@pytest.mark.parametrize("kind", ["a function of H", "one for all", "of SciPy"])
def test_newton_cg_needs_fewer_products(stretched, globalization, kind):
    M = {
        "a function of H": oj.preconditioners.jacobi,
        "one for all": Diagonal(1 / UNITS),
        "of SciPy": aslinearoperator(np.diag(1 / UNITS)),
    }[kind]
    options = {"of": "f", "wrt": "x", "globalization": globalization, "tol": 1e-9}
    plain = oj.newton_cg(stretched, POINT, **options)
    found = oj.newton_cg(stretched, POINT, preconditioner=M, **options)
    assert found.success
    assert np.linalg.norm(found.jac) <= 1e-9
    assert_allclose(found.tensors["x"], plain.x, atol=1e-8)
    assert 4 * found.nhev < plain.nhev


@both
def test_negative_curvature_leads_on(globalization):
    """Rosenbrock's function has negative curvature at this start."""
    start = np.linspace(-1.2, 1.9, 10)
    assert np.linalg.eigvalsh(oj.hessian(rosenbrock(), {"x": start}, of="f").toarray())[0] < 0
    found = oj.newton_cg(
        rosenbrock(), {"x": start}, of="f", globalization=globalization, tol=1e-8,
        preconditioner=Diagonal(np.ones(10)),
    )  # fmt: skip
    assert found.success
    assert_allclose(found.x, np.ones(10), atol=1e-8)


@both
def test_no_iterations_leave_the_start(stretched, globalization):
    found = oj.newton_cg(
        stretched, POINT, of="f", wrt="x", globalization=globalization, maxiter=0,
        preconditioner=oj.preconditioners.jacobi,
    )  # fmt: skip
    assert (found.nit, found.nhev, found.success) == (0, 0, False)
    assert_allclose(found.x, POINT["x"], rtol=0)


def test_the_identity_leads_where_scipy_leads():
    """With the identity as preconditioner, to where f no longer changes."""
    data = labelled()
    options = {"of": "f", "wrt": "w", "tol": 1e-10}
    plain = oj.newton_cg(logistic(), data, **options)
    found = oj.newton_cg(logistic(), data, preconditioner=Diagonal(np.ones(3)), **options)
    assert found.success
    assert (plain.success, plain.status) == (True, 2)  # by the predicted reduction, not by tol
    assert found.nit <= plain.nit + 2
    assert_allclose(found.x, plain.x, atol=1e-10)


def test_truncated_cg_solves_where_the_region_is_large():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 12))
    H, g = A @ A.T + np.eye(12), rng.standard_normal(12)
    M = np.diag(1 / np.diag(H))
    step = truncated_cg(H, g, M, rtol=1e-12)
    assert_allclose(step.delta, -np.linalg.solve(H, g), rtol=1e-8)
    assert_allclose(step.slope, g + H @ step.delta, atol=1e-12)
    assert_allclose(step.promise(g), -g @ step.delta - step.delta @ H @ step.delta / 2, rtol=1e-12)


def test_truncated_cg_stays_inside():
    """Early termination ends on the ellipsoid δᵀM⁻¹δ = radius²."""
    rng = np.random.default_rng(1)
    A, g = rng.standard_normal((12, 12)), rng.standard_normal(12)
    M = np.diag(rng.uniform(0.1, 10, 12))
    for H in (A @ A.T, A + A.T):
        step = truncated_cg(H, g, M, rtol=1e-12, radius=0.3)
        assert step.cut
        assert_allclose(step.delta @ np.linalg.solve(M, step.delta), 0.3**2, rtol=1e-10)
        assert_allclose(step.slope, g + H @ step.delta, atol=1e-10)
        assert step.promise(g) > 0


def test_truncated_cg_goes_downhill_where_the_first_curvature_is_negative():
    g, M = np.array([1.0, -2.0]), np.diag([1.0, 3.0])
    assert_allclose(truncated_cg(-np.eye(2), g, M, rtol=1e-12).delta, -M @ g)


@pytest.mark.parametrize("kind", ["a function of J", "one for all"])
def test_levenberg_marquardt_makes_the_same_steps_by_fewer_products(kind):
    start = np.linspace(0.5, 1.5, 30)

    def right(J):
        A = J.toarray()
        return np.linalg.inv(np.linalg.cholesky(A.T @ A)).T

    R = right(oj.linearize(rosenbrock(), {"x": start}, of="r"))
    options = {"of": "r", "maxiter": 5, "acceleration": 0}
    plain = oj.levenberg_marquardt(rosenbrock(), {"x": start}, **options)
    found = oj.levenberg_marquardt(
        rosenbrock(), {"x": start}, preconditioner=right if "J" in kind else Dense(R), **options
    )
    assert_allclose(found.x, plain.x, atol=1e-7)
    assert_allclose(found.damping, plain.damping, rtol=1e-5)
    assert found.products < plain.products * (0.5 if "J" in kind else 0.9)


def test_natural_gradient_needs_fewer_products(stretched):
    options = {"of": "f", "wrt": "x", "at": "r", "gtol": 1e-7, "inner_rtol": 1e-8}
    plain = oj.natural_gradient(stretched, POINT, **options)
    for M in (oj.preconditioners.jacobi, Diagonal(1 / (2 * UNITS))):
        found = oj.natural_gradient(stretched, POINT, preconditioner=M, **options)
        assert_allclose(found.x, plain.x, atol=1e-7)
        assert 2 * found.products < plain.products


def test_newton_krylov_takes_one_for_all():
    model, point = reaction(cubic=-0.01), grid()
    J = oj.linearize(model, point, wrt="u")
    M = np.linalg.inv(J.toarray())
    plain = oj.newton_krylov(model, point, wrt="u")
    found = oj.newton_krylov(model, point, wrt="u", preconditioner=Dense(M))
    assert_allclose(found.x, plain.x, atol=1e-6)
    assert 2 * found.products < plain.products


def test_solvers_reject_wrong_preconditioners(stretched):
    with pytest.raises(oj.InputError, match=r"has shape \(3, 3\), not \(40, 40\)"):
        oj.newton_cg(stretched, POINT, of="f", wrt="x", preconditioner=Diagonal(np.ones(3)))
    with pytest.raises(oj.InputError, match="has shape None"):
        oj.newton_cg(stretched, POINT, of="f", wrt="x", preconditioner=lambda H: None)
    with pytest.raises(oj.InputError, match="use tol="):
        oj.newton_cg(
            stretched, POINT, of="f", wrt="x", preconditioner=Diagonal(UNITS),
            options={"gtol": 1e-3},
        )  # fmt: skip


def test_the_hessian_is_the_one_written_out(stretched):
    H = oj.hessian(stretched, POINT, of="f", wrt="x")
    assert_allclose(H.toarray(), hessian(POINT["x"], UNITS))


def test_the_name_of_a_preconditioner_is_none():
    with pytest.raises(oj.InputError, match="preconditioner='ilu' is neither an operator nor a"):
        oj.newton_krylov(reaction(4), grid(4), wrt="u", preconditioner="ilu")
