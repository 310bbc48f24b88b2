"""Newton-CG finds the minima that SciPy finds from formulas."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize, rosen, rosen_der, rosen_hess
from scipy.special import expit, log1p

import onnxjac as oj
from onnxjac.modes.solvers.descent import newton_cg
from solvers.models import labelled, logistic, parsed, rosenbrock

START = np.array([1.3, 0.7, 0.8, 1.9, 1.2])
both = pytest.mark.parametrize(
    ("globalization", "method"), [("line search", "Newton-CG"), ("trust region", "trust-ncg")]
)


@both
def test_rosenbrock_step_by_step_as_scipy(globalization, method):
    found = newton_cg(rosenbrock(), {"x": START}, of="f", globalization=globalization)
    other = minimize(rosen, START, jac=rosen_der, hess=rosen_hess, method=method)
    assert found.success
    assert found.nit == other.nit
    assert_allclose(found.x, other.x, atol=1e-8)
    assert_allclose(found.tensors["x"], found.x)


@both
def test_the_minimum_of_logistic_regression_agrees_with_scipy(globalization, method):
    data = labelled()
    signed = data["X"] * data["y"][:, None]

    def f(w):
        return np.mean(log1p(np.exp(-signed @ w))) + w @ w / 256

    def gradient(w):
        return -signed.T @ expit(-signed @ w) / len(signed) + w / 128

    found = newton_cg(logistic(), data, of="f", wrt="w", globalization=globalization, tol=1e-12)
    other = minimize(f, np.zeros(3), jac=gradient, method="BFGS", options={"gtol": 1e-10})
    assert_allclose(found.x, other.x, atol=2e-6)
    assert_allclose(found.fun, f(found.x), rtol=1e-12)
    assert_allclose(gradient(found.x), 0, atol=1e-7)


def test_newton_cg_stays_in_single_precision():
    found = newton_cg(rosenbrock("float32"), {"x": START}, of="f", tol=1e-3)
    assert_allclose(found.tensors["x"], np.ones(5), atol=1e-2)
    assert found.tensors["x"].dtype == np.float32


@both
@pytest.mark.parametrize("tol", [1e-6, 1e-8])
def test_a_minimum_to_single_precision_is_a_success(globalization, method, tol):
    data = {name: array.astype(np.float32) for name, array in labelled().items()}
    options = {"of": "f", "wrt": "w", "globalization": globalization, "tol": tol}
    found = newton_cg(logistic("float32"), data, **options)
    assert found.success, found.message
    best = newton_cg(logistic(), labelled(), of="f", wrt="w", tol=1e-12)
    assert_allclose(found.fun, best.fun, rtol=1e-6)


@both
def test_a_tolerance_below_single_precision_is_no_success_with_a_preconditioner(
    globalization, method
):
    """Steps that changed f by nothing but rounding went on to the last iteration."""
    model = parsed("m (float[6] x) => (float f) { t = Tanh (x) q = Mul (x, x) c = Mul (q, q) "
                   "s = Add (c, t) f = ReduceSum <keepdims = 0> (s) }", "float32")  # fmt: skip
    options = {"globalization": globalization, "preconditioner": np.eye(6, dtype=np.float32)}
    start = {"x": np.linspace(0.5, 2, 6, dtype=np.float32)}
    found = newton_cg(model, start, tol=1e-12, **options)
    assert (found.success, found.status) == (False, -1)
    assert found.nit < 50
    assert np.linalg.norm(found.jac) < 1e-5


@both
def test_a_kink_on_the_way_is_no_success(globalization, method):
    model = parsed("m (double[2] x) => (double f) <double[2] w = {-3.0, 1.0}, double k = {4.0}> "
                   "{ a = Abs (x) b = Mul (k, a) c = Mul (x, x) d = Mul (w, x) e = Sum (b, c, d) "
                   "f = ReduceSum <keepdims = 0> (e) }")  # fmt: skip
    found = newton_cg(model, {"x": np.array([0.7, 0.35])}, tol=1e-9, globalization=globalization)
    assert (found.success, found.status) == (False, 2)
    assert np.abs(found.jac).max() > 0.1


@both
def test_the_callback_may_stop(globalization, method):
    met = []

    def watch(state):
        met.append(state.tensors["x"])
        if len(met) == 3:
            raise StopIteration

    found = newton_cg(
        rosenbrock(), {"x": START}, of="f", globalization=globalization, callback=watch
    )
    assert len(met) == 3
    assert not found.success
    assert_allclose(met[-1], found.x)


def test_iterations_are_limited():
    found = newton_cg(rosenbrock(), {"x": START}, of="f", maxiter=2)
    assert (found.nit, found.success) == (2, False)


def test_newton_cg_rejects_wrong_arguments():
    with pytest.raises(oj.InputError, match="one scalar"):
        newton_cg(rosenbrock(), {"x": START}, of="r")
    with pytest.raises(oj.InputError, match="'line search', 'trust region'"):
        newton_cg(rosenbrock(), {"x": START}, of="f", globalization="luck")
    with (pytest.warns(oj.OnnxJacWarning, match="not finite"),
          pytest.raises(oj.InputError, match="'f' is not finite at the start")):  # fmt: skip
        newton_cg(rosenbrock(), {"x": START * np.nan}, of="f")


def test_a_tensor_without_a_part_in_f_is_named_once():
    model = parsed("""m (double[3] x, double[2] y) => (double f) { s = Mul (x, x)
        f = ReduceSum <keepdims = 0> (s) }""")
    with pytest.warns(oj.OnnxJacWarning, match="on 'y'") as warned:
        found = newton_cg(model, {"x": START[:3], "y": START[:2]}, wrt=["x", "y"])
    assert len(warned) == 1
    assert_allclose(found.x, [0, 0, 0, *START[:2]], atol=1e-8)
