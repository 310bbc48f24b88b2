"""A solver says success at a root or a minimum only, from every start, unit and precision."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.optimize._minimize import MINIMIZE_METHODS

from onnxjac.modes.solvers.descent import newton_cg
from onnxjac.modes.solvers.problem import as_scipy
from onnxjac.modes.solvers.roots import implicit_euler, newton_krylov, pseudo_transient
from solvers.models import parsed, rosenbrock

CUBIC = """root (float[n] x, float unit) => (float[n] y) <float five = {5.0}>
{ q = Mul (x, x)  c = Mul (q, x)  s = Add (c, x)  r = Sub (five, s)  y = Mul (unit, r) }"""
"""5 - x - x³, in other units."""

ROOT = 1.5159802276928207

both = pytest.mark.parametrize("globalization", ["line search", "trust region"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("unit", [1e-3, 1e6])
@pytest.mark.parametrize("start", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("solve", [newton_krylov, pseudo_transient])
def test_a_root_is_where_the_residual_is_small_and_not_where_it_has_fallen(
    solve, start, unit, dtype
):
    if dtype == "float32":
        start = min(start, 1e3)  # ‖F‖² is finite there
    options = {"step": 1e-3 / unit} if solve is pseudo_transient else {}
    point = {"x": np.full(2, start, dtype), "unit": np.array(unit, dtype)}
    found = solve(parsed(CUBIC, dtype), point, wrt="x", maxiter=400, **options)
    assert found.success
    assert_allclose(found.x, ROOT, rtol=1e-5 if dtype == "float64" else 1e-2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("solve", [newton_krylov, pseudo_transient])
def test_a_residual_whose_square_overflows_is_no_root(solve, dtype):
    unit = 1e9 if dtype == "float32" else 1e160
    options = {"step": 1.0} if solve is pseudo_transient else {}
    point = {"x": np.full(2, 1e4, dtype), "unit": np.array(unit, dtype)}
    with np.errstate(all="ignore"):
        found = solve(parsed(CUBIC, dtype), point, wrt="x", maxiter=0, **options)
    assert not found.success


@pytest.mark.parametrize("solve", [newton_krylov, pseudo_transient])
def test_solvers_report_no_success_without_a_root(solve):
    model = parsed("none (float[n] x) => (float[n] y) <float one = {1.0}> "
                   "{ s = Mul (x, x)  y = Add (s, one) }")  # fmt: skip
    options = {"step": 0.1} if solve is pseudo_transient else {}
    for start in (0.5, -3.0, 1e6):
        found = solve(model, {"x": np.array([start])}, maxiter=30, **options)
        assert not found.success


def test_a_tolerance_relative_to_the_start_is_for_those_who_ask():
    point = {"x": np.array([1e5]), "unit": np.array(1.0)}
    found = newton_krylov(parsed(CUBIC), point, wrt="x", rtol=1e-3)
    assert found.success
    assert 1e6 < abs(found.fun[0]) <= 1e-3 * 1e15


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e9])
def test_steps_of_euler_solve_in_every_unit(size):
    model = parsed("decay (float[2] u) => (float[2] F) <float[2] k = {-1.0, -1000.0}> "
                   "{ F = Mul (k, u) }")  # fmt: skip
    start = {"u": np.array([size, size])}
    for k, found in enumerate(implicit_euler(model, start, step=0.1, steps=5), start=1):
        assert_allclose(found.x, [size * 1.1**-k, size * 101.0**-k], rtol=1e-4, atol=1e-9 * size)


LINEAR = """m (float[2] x) => (float f) <float[2] w = {1.0, -2.0}>
{ p = Mul (w, x)  f = ReduceSum <keepdims = 0> (p) }"""
PLANE = """m (float[2] x) => (float f) <float[2] w = {0.0, 1.0}, float[2] d = {1.0, 0.0}>
{ q = Mul (x, x)  dq = Mul (d, q)  p = Mul (w, x)  s = Add (p, dq)
  f = ReduceSum <keepdims = 0> (s) }"""
FLAT = """m (float[2] x) => (float f) <float small = {1e-12}>
{ q = Mul (x, x)  c = Mul (q, q)  s = ReduceSum <keepdims = 0> (c)  f = Mul (small, s) }"""


@both
@pytest.mark.parametrize("text", [LINEAR, PLANE], ids=["linear", "plane"])
def test_no_curvature_is_no_minimum(text, globalization):
    found = newton_cg(parsed(text), {"x": np.ones(2)}, globalization=globalization, maxiter=50)
    assert not found.success
    assert np.abs(found.jac).max() >= 0.9


def test_a_small_curvature_is_no_minimum():
    """SciPy's conjugate gradients take curvatures below 3 ε for 0, and its step is then 0."""
    found = newton_cg(parsed(FLAT), {"x": np.full(2, 1e-3)}, globalization="line search")
    assert not found.success
    assert "curvature" in found.message


LOGARITHM = """m (float[n] x) => (float f)
{ l = Log (x)  s = Sub (x, l)  f = ReduceSum <keepdims = 0> (s) }"""
SQUARE_ROOT = """m (float[n] x) => (float f) <float half = {0.5}>
{ r = Sqrt (x)  d = Sub (r, half)  q = Mul (d, d)  f = ReduceSum <keepdims = 0> (q) }"""


@both
@pytest.mark.parametrize("start", [0.1, 5.0, 50.0])
@pytest.mark.parametrize(("text", "minimum"), [(LOGARITHM, 1.0), (SQUARE_ROOT, 0.25)],
                         ids=["logarithm", "root"])  # fmt: skip
def test_a_trial_point_where_f_is_nan_is_a_failed_step(text, minimum, start, globalization):
    model = parsed(text)
    found = newton_cg(model, {"x": np.full(2, start)}, globalization=globalization, maxiter=60)
    assert found.success
    assert_allclose(found.x, minimum, rtol=1e-3)


HESSP = "newton-cg", "trust-ncg", "trust-krylov"
WITH_SLOPES = set(MINIMIZE_METHODS) - {"nelder-mead", "powell", "cobyla", "cobyqa"}


@pytest.mark.parametrize("method", sorted(WITH_SLOPES))
def test_every_method_of_scipy_takes_a_model_of_single_precision(method):
    p = as_scipy(rosenbrock("float32"), {"x": [1.1, 1.1]}, of="f", form="dense")
    curved = {"hess": p.hess} if method in ("dogleg", "trust-exact") else {}
    curved = {"hessp": p.hessp} if method in HESSP else curved
    found = minimize(p.fun, p.x0, jac=p.jac, method=method, **curved)
    assert_allclose(found.x, 1, atol=0.02)


def test_constraints_of_single_precision():
    p = as_scipy(rosenbrock("float32"), {"x": [1.1, 1.1]}, of="f")
    r = as_scipy(rosenbrock("float32"), {"x": [1.1, 1.1]}, of="r", form="dense")
    low = {"type": "ineq", "fun": lambda x: r.fun(x) - np.array([-9.0, 0.5]), "jac": r.jac}
    found = minimize(p.value_and_grad, p.x0, jac=True, method="SLSQP", constraints=[low])
    assert_allclose(found.x, [0.5, 0.25], atol=1e-2)
    assert p.jac(p.x0.astype(np.float32)).dtype == np.float32
