"""Every method of SciPy in every form: it converges, or is refused, as the guide's tables say."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import ode, odeint, solve_ivp
from scipy.integrate._ivp.ivp import METHODS as IVP_METHODS
from scipy.integrate._ode import IntegratorBase
from scipy.optimize import NonlinearConstraint, least_squares, minimize, root
from scipy.optimize._minimize import MINIMIZE_METHODS
from scipy.optimize._root import ROOT_METHODS

import onnxjac as oj
from house import ROOT
from onnxjac.modes.solvers.problem import FORMS, as_scipy
from solvers.models import DRIVEN, grid, parsed, reaction, rosenbrock

NEAR = {"x": np.array([1.1, 1.1])}
"""A start where Rosenbrock's function is convex, as dogleg needs."""

LOW = np.array([-9.0, 0.5])
"""A lower bound of the residuals: with 1 - x₀ ≥ 0.5 the minimum is at (0.5, 0.25)."""


def of_minimize(form, method, given):
    p = as_scipy(rosenbrock(), NEAR, of="f", form=form)
    assert_allclose(minimize(p.fun, p.x0, method=method, **options(p, given)).x, 1, atol=0.02)


def of_constraint(form, method, given):
    r = as_scipy(rosenbrock(), NEAR, of="r", form=form)
    return bounded(NonlinearConstraint(r.fun, LOW, np.inf, **options(r, given)), method)


def of_dict(form, method, given):
    r = as_scipy(rosenbrock(), NEAR, of="r", form=form)
    return bounded({"type": "ineq", "fun": lambda x: r.fun(x) - LOW, **options(r, given)}, method)


def bounded(constraint, method):
    f = as_scipy(rosenbrock(), NEAR, of="f")
    slopes = {} if method in ("cobyla", "cobyqa") else {"jac": f.jac}
    found = minimize(f.fun, f.x0, method=method, constraints=[constraint], **slopes)
    assert_allclose(found.x, [0.5, 0.25], atol=1e-3)


def of_least_squares(form, method, given):
    p = as_scipy(rosenbrock(), NEAR, of="r", form=form)
    assert_allclose(least_squares(p.fun, p.x0, method=method, **options(p, given)).x, 1, atol=1e-8)


def of_root(form, method, given):
    p = as_scipy(reaction(3), grid(3), wrt="u", form=form)
    found = root(p.fun, p.x0, method=method, **options(p, given))
    assert found.success
    assert_allclose(p.fun(found.x), 0, atol=1e-4)
    assert p.unflatten(found.x)["u"].shape == (1, 1, 3, 3)


def of_solve_ivp(form, method, given):
    p = driven(form)
    slopes = {"jac": p.ode_jac} if given else {}
    found = solve_ivp(p.ode, (0, 1), p.x0, method=method, **slopes)
    assert_allclose(found.y[:, -1], END, rtol=1e-3)
    assert found.nfev < 150 or not given


def of_ode(form, method, given):
    p = driven(form)
    stiff = {"method": "bdf"} if method == "vode" else {}
    solver = ode(p.ode, p.ode_jac if given else None).set_integrator(method, **stiff)
    assert_allclose(solver.set_initial_value(p.x0).integrate(1.0), END, rtol=1e-3)


def of_odeint(form, method, given):
    p = driven(form)
    assert_allclose(odeint(p.ode, p.x0, [0, 1], Dfun=p.ode_jac, tfirst=True)[-1], END, rtol=1e-3)


END = (1e6 * np.cos(1) + 1e3 * np.sin(1)) / (1e6 + 1)
"""u(1) of u̇ = −1000 (u − cos t)."""


def driven(form):
    return as_scipy(parsed(DRIVEN), {"u": [2.0, -1.0], "time": [0.0]}, t="time", form=form)


def options(problem, names):
    return {name: getattr(problem, name) for name in names}


SOLVERS = {
    "minimize": (of_minimize, MINIMIZE_METHODS),
    "NonlinearConstraint": (of_constraint, ["trust-constr", "slsqp", "cobyla", "cobyqa"]),
    "dict": (of_dict, ["slsqp"]),
    "least_squares": (of_least_squares, ["trf", "dogbox", "lm"]),
    "root": (of_root, ROOT_METHODS),
    "solve_ivp": (of_solve_ivp, IVP_METHODS),
    "ode": (of_ode, [c.__name__ for c in IntegratorBase.integrator_classes if c.scalar is float]),
    "odeint": (of_odeint, ["lsoda"]),
}
"""A function of SciPy -> what solves a known problem by it, and its methods."""


def rows():
    """(function, method, derivatives, forms) from the tables of the guide."""
    for page in ("solvers.md", "ode.md"):
        text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8")
        for line in re.findall(r"^\|(.*`.*)\|$", text, re.MULTILINE):
            cells = [re.findall(r"`([\w-]+)`", cell) for cell in line.split("|")]
            if len(cells[0]) != 1:  # a table of figures
                continue
            (function,), methods, given, forms = cells
            yield from ((function, method, given, forms or list(FORMS)) for method in methods)


ROWS = list(rows())


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("function", "method", "given", "forms"), ROWS, ids=["-".join(map(str, r[:3])) for r in ROWS]
)
def test_a_method_converges_or_is_refused(function, method, given, forms, form):
    solve, _ = SOLVERS[function]
    if form in forms:
        solve(form, method, given)
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011  (vode hides ours)
        solve(form, method, given)
    if method == "vode":  # which goes on with our error pending, and may end with any other
        return
    errors = [caught.value]
    while errors[-1].__cause__:
        errors.append(errors[-1].__cause__)
    if (function, method) == ("least_squares", "lm"):  # SciPy says so itself
        assert "method='lm' works only with dense" in str(errors[0])
    else:
        assert isinstance(errors[-1], oj.InputError)
        assert "form='dense'" in str(errors[-1])
        assert str(errors[-1]).split(" gives")[0] in given
        assert len(errors) == 1


@pytest.mark.parametrize("function", SOLVERS)
def test_every_method_is_in_the_tables(function):
    listed = {method.lower() for name, method, *_ in ROWS if name == function}
    assert listed == {method.lower() for method in SOLVERS[function][1]}
