"""Models as SciPy problems: the minima and roots of formulas, with nothing computed twice."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import odeint, solve_ivp
from scipy.optimize import (
    NonlinearConstraint,
    least_squares,
    minimize,
    root,
    rosen,
    rosen_der,
    rosen_hess,
)
from scipy.sparse import csr_array

import onnxjac as oj
from onnxjac.jacobians import Jacobian
from onnxjac.modes import gradient
from onnxjac.modes.solvers.problem import Memoized, as_scipy
from solvers.models import DRIVEN, grid, labelled, logistic, parsed, reaction, rosenbrock

START = np.array([1.3, 0.7, 0.8, 1.9, 1.2])


@pytest.fixture
def scalar():
    return as_scipy(rosenbrock(), {"x": START}, of="f")


def test_values_and_derivatives_agree_with_scipys_rosenbrock(scalar):
    x, p = START + 0.1, np.arange(5.0)
    assert_allclose(scalar.x0, START)
    assert_allclose(scalar.fun(x), rosen(x))
    assert_allclose(scalar.jac(x), rosen_der(x))
    assert_allclose(scalar.hess(x).toarray(), rosen_hess(x))
    assert_allclose(scalar.hessp(x, p), rosen_hess(x) @ p)
    assert_allclose(scalar.hessp(START, p), rosen_hess(START) @ p)


def test_value_and_grad_of_one_program_are_minimised(scalar):
    found = minimize(scalar.value_and_grad, scalar.x0, jac=True, method="L-BFGS-B")
    assert found.success
    assert_allclose(found.x, np.ones(5), atol=1e-3)
    assert found.fun == scalar.fun(found.x)
    with pytest.raises(oj.InputError, match="r is not one number"):
        as_scipy(rosenbrock(), {"x": START}, of="r").value_and_grad(START)


def test_root_by_krylov_with_our_inverse():
    p = as_scipy(reaction(), grid(), wrt="u")
    M = oj.linearize(reaction(), grid(), wrt="u")
    found = root(p.fun, p.x0, method="krylov", options={"jac_options": {"inner_M": M.T}})
    assert found.success


def test_the_form_decides_the_kind_of_derivatives():
    for form, kind in {"operator": Jacobian, "sparse": csr_array, "dense": np.ndarray}.items():
        p = as_scipy(rosenbrock(), {"x": START}, of="r", form=form)
        H = as_scipy(rosenbrock(), {"x": START}, of="f", form=form).hess(START)
        assert isinstance(p.jac(START), kind)
        assert isinstance(2 * p.jac(START), kind)
        found = H if form == "dense" else H.tosparse().toarray()
        assert_allclose(found, rosen_hess(START), atol=1e-12)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("method", ["BDF", "Radau"])
def test_solve_ivp_takes_the_rate_with_the_time(form, method):
    """u̇ = −1000 (u − cos t): u = (10⁶ cos t + 10³ sin t) / (10⁶ + 1), after a fast transient."""
    p = as_scipy(parsed(DRIVEN), {"u": [2.0, -1.0], "time": [0.0]}, t="time", form=form)
    assert p.wrt == ("u",)
    found = solve_ivp(p.ode, (0, 1), p.x0, method=method, jac=p.ode_jac, rtol=1e-6, atol=1e-9)
    assert found.success
    assert found.nfev < 800  # an explicit method takes thousands
    assert_allclose(found.y[:, -1], (1e6 * np.cos(1) + 1e3 * np.sin(1)) / (1e6 + 1), rtol=1e-5)
    assert_allclose(p.ode(0.5, p.x0), -1000 * (p.x0 - np.cos(0.5)))
    assert_allclose(p.ode(0.7, p.x0), -1000 * (p.x0 - np.cos(0.7)))


@pytest.mark.parametrize("method", ["BDF", "Radau", "LSODA"])
def test_solve_ivp_without_the_time(method):
    p = as_scipy(reaction(4), grid(4), wrt="u", form="dense")
    options = {"rtol": 1e-8, "atol": 1e-10}
    found = solve_ivp(p.ode, (0, 1), p.x0, method=method, jac=p.ode_jac, **options)
    expected = solve_ivp(p.ode, (0, 1), p.x0, method="DOP853", **options)
    assert_allclose(found.y[:, -1], expected.y[:, -1], atol=1e-6)


def test_the_jacobian_follows_the_time():
    p = as_scipy(parsed(DRIVEN.replace("Mul(fast", "Mul(cosine")), {"u": START, "time": [0.0]},
                 t="time", form="dense")  # fmt: skip
    for t in (0.3, 0.8, 0.3):
        assert_allclose(p.ode_jac(t, START), np.cos(t) * np.eye(5))


def test_weights_of_the_model_start_where_they_are():
    p = as_scipy(logistic(), labelled(), of="f", wrt="w")
    assert_allclose(p.x0, np.zeros(3))
    assert_allclose(p.fun(p.x0), np.log(2))
    found = minimize(p.fun, p.x0, jac=p.jac, hessp=p.hessp, method="trust-ncg")
    assert_allclose(p.jac(found.x), 0, atol=1e-4)
    moved = p.hess(found.x).toarray()
    assert_allclose(moved, oj.hessian(logistic(), p.point(found.x), of="f", wrt="w").toarray())


def test_several_tensors_in_order():
    p = as_scipy(reaction(4), grid(4), wrt=["b", "u"])
    assert_allclose(p.x0, np.concatenate([grid(4)["b"].ravel(), grid(4)["u"].ravel()]))
    back = p.unflatten(p.x0)
    assert list(back) == ["b", "u"]
    assert_allclose(p.flatten(back), p.x0)
    assert_allclose(p.jac(p.x0)[:, :16].toarray(), np.eye(16))


def test_nothing_is_computed_twice(scalar):
    before = scalar.values.count
    for _ in range(3):
        scalar.fun(START + 1), scalar.jac(START + 1), scalar.hessp(START + 1, START)
    assert (scalar.values.count - before, scalar.slopes.count, scalar.curvature.count) == (1, 1, 1)
    first = dict(scalar.model.cache["gradient"])
    scalar.jac(START + 2)
    assert dict(scalar.model.cache["gradient"]) == first  # nothing is recorded again
    scalar.x0 += 1  # not the array passed to fun
    assert_allclose(scalar.fun(START + 2), rosen(START + 2))


def test_a_point_that_is_written_over_is_another_point(scalar):
    x = START + 1
    scalar.fun(x)
    x += 1
    assert_allclose(scalar.fun(x), rosen(START + 2))


def test_models_in_single_precision_are_minimised_in_double():
    p = as_scipy(rosenbrock("float32"), {"x": START}, of="f")
    assert p.x0.dtype == p.jac(p.x0).dtype == np.float64
    found = minimize(p.fun, p.x0, jac=p.jac, method="L-BFGS-B")
    assert_allclose(found.x, np.ones(5), atol=0.05)


def test_second_derivatives_of_a_vector_by_multipliers():
    """Second derivatives of two tensors: the residuals r, and f, their sum of squares."""
    p, v = as_scipy(rosenbrock(), {"x": START}, of=["r", "f"], form="dense"), np.arange(9.0) - 3
    x, eps = START + 0.1, 1e-6
    moved = (p.jac(x + eps * e).T @ v - p.jac(x - eps * e).T @ v for e in np.eye(5))
    assert_allclose(p.hess(x, v), np.stack(list(moved)) / (2 * eps), atol=1e-5)
    with pytest.raises(oj.InputError, match="3 multipliers for 9 numbers"):
        p.hess(x, np.ones(3))
    with pytest.raises(oj.InputError, match="needs multipliers"):
        p.hess(x)


def test_multipliers_are_numbers_of_the_point(monkeypatch):
    """The gradient is recorded at the first point, and reused at others."""
    rng, recorded, record = np.random.default_rng(0), [], gradient.vjp_graph

    def noting(*arguments, **options):
        recorded.append(options)
        return record(*arguments, **options)

    def fresh():
        return as_scipy(rosenbrock(), {"x": START}, of=["r", "f"], form="dense")

    points = [(START + rng.standard_normal(5), rng.standard_normal(9)) for _ in range(4)]
    expected = [fresh().hess(x, v) for x, v in points]
    p = fresh()
    monkeypatch.setattr(gradient, "vjp_graph", noting)
    for (x, v), H in zip(points, expected, strict=True):
        assert_allclose(p.hess(x, v), H, rtol=1e-12)
    assert len(recorded) == 1


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_constraint_of_a_nonlinear_program(form):
    f = as_scipy(rosenbrock(), {"x": START}, of="f")
    r = as_scipy(rosenbrock(), {"x": START}, of="r", form=form)
    near = NonlinearConstraint(r.fun, -0.5, 0.0, jac=r.jac, hess=r.hess)
    found = minimize(f.fun, f.x0, jac=f.jac, hessp=f.hessp, method="trust-constr",
                     constraints=[near], options={"gtol": 1e-8})  # fmt: skip
    assert found.constr_violation < 1e-8
    assert found.fun < f.fun(f.x0)


def test_as_scipy_rejects_wrong_arguments(scalar):
    with pytest.raises(oj.InputError, match="form='csc' is not one of 'operator', 'dense'"):
        as_scipy(rosenbrock(), {"x": START}, of="f", form="csc")
    with pytest.raises(oj.InputError, match="t='time' does not name a floating input"):
        as_scipy(rosenbrock(), {"x": START}, of="f", t="time")
    with pytest.raises(oj.InputError, match=r"solve_ivp takes p\.ode"):
        scalar.fun(0.0, START)
    with pytest.raises(oj.InputError, match=r"solve_ivp takes p\.ode"):
        scalar.jac(0.0, START)
    with pytest.raises(oj.InputError, match="16 rates for 32 states"):
        as_scipy(reaction(4), grid(4)).ode(0.0, np.ones(32))
    with pytest.raises(oj.InputError, match=r"a vector of 3 numbers, but wrt \(x\) has 5"):
        scalar.fun(np.ones(3))
    assert repr(scalar) == "as_scipy: x = (x 5), of 5 ↦ (f), form='operator'"


def test_the_time_is_as_given_where_none_is_told():
    p = as_scipy(parsed(DRIVEN), {"u": [2.0, -1.0], "time": [0.0]}, t="time")
    before = p.fun(p.x0), p.jac(p.x0).toarray()
    assert abs(p.ode(2.0, p.x0) - before[0]).min() > 1
    p.ode_jac(2.0, p.x0)
    assert_allclose(p.fun(p.x0), before[0])
    assert_allclose(p.jac(p.x0).toarray(), before[1])


def test_threads_share_a_function():
    square = Memoized(lambda x: x * x)

    class Busy(int):
        """A count during which another thread calls the function."""

        def __add__(self, one):
            square.count = 0
            assert square(7) == 49
            return one

    square.count = Busy()
    assert square(2) == 4


@pytest.mark.parametrize("call", [
    lambda p: least_squares(p.fun, p.x0, jac="cs"), lambda p: p.jac(p.x0 + 1e-20j),
    lambda p: p.value_and_grad(p.x0 + 1e-20j),
])  # fmt: skip
def test_complex_numbers_are_refused(call):
    """A complex step through a real model would give a derivative of zero."""
    with pytest.raises(oj.InputError, match="not complex ones"):
        call(as_scipy(rosenbrock(), {"x": START}, of="f"))


def test_natural_mistakes_are_refused_with_advice():
    model = parsed(DRIVEN)
    point = {"u": [2.0, -1.0], "time": [0.0]}
    p = as_scipy(model, point, t="time")
    assert p.fun([2, -1]).shape == (2,)
    with pytest.raises(oj.InputError, match="tfirst=True"):
        odeint(p.ode, p.x0, [0, 1])
    with pytest.raises(oj.InputError, match="also among the states"):
        as_scipy(model, point, t="time", wrt="time")
    with pytest.raises(oj.InputError, match="call as_scipy again"):
        minimize(p.fun, p.x0, args=(1.0,))
    with pytest.raises(oj.InputError, match="for which as_scipy is called again"):
        solve_ivp(p.ode, (0, 1), p.x0, method="BDF", jac=p.ode_jac, args=(1.0,))
    with pytest.raises(oj.InputError, match="needs multipliers"):
        p.hessp(p.x0, p.x0)
    with pytest.raises(oj.InputError, match="a model is what `load` gives, not int"):
        as_scipy(3, point)
    whole = "whole (float[2] u, int64 t) => (float[2] F) { s = Cast <to = 1> (t) F = Mul(u, s) }"
    with pytest.raises(oj.InputError, match=r"floating input of one number: .* t int64"):
        as_scipy(parsed(whole), {"u": [1.0, 2.0], "t": 0}, t="t")
