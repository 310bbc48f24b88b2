"""Levenberg-Marquardt finds the values certified by NIST, from far and near starts."""

import doctest

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import least_squares

import onnxjac as oj
import solvers.formulas
from onnxjac.modes.solvers.levenberg_marquardt import levenberg_marquardt
from onnxjac.modes.solvers.preconditioners import column_scaling
from solvers.models import rosenbrock
from solvers.nist_problems import NAMES, regression

START = {"x": [1.3, 0.7, 0.8, 1.9, 1.2]}


def test_every_problem_of_nist_is_there():
    assert len(NAMES) == 27


def test_the_formulas_of_solvers_hold_as_written():
    assert not doctest.testmod(solvers.formulas).failed


@pytest.mark.parametrize("start", [0, 1], ids=["far", "near"])
@pytest.mark.parametrize("name", NAMES)
def test_the_values_certified_by_nist_are_found(name, start):
    problem = regression(name)
    point = {**problem.starts[start], **problem.data}
    found = levenberg_marquardt(
        problem.model(), point, wrt=problem.certified, tol=1e-15, maxiter=1000
    )
    assert found.success
    for parameter, value in problem.certified.items():
        assert_allclose(found.tensors[parameter], value, rtol=1e-6)
    if name != "Lanczos1":  # its residuals are rounding errors of the data
        assert_allclose(2 * found.cost, problem.squares, rtol=1e-9)


def test_the_result_agrees_with_least_squares():
    """Compared before convergence, where nothing is zero."""
    found = levenberg_marquardt(rosenbrock(), START, of="r", maxiter=2)
    at = found.x
    r = np.concatenate([10 * (at[1:] - at[:-1] ** 2), 1 - at[:-1]])
    J = np.vstack([np.eye(5)[1:] * 10 - 20 * np.diag(at)[:-1], -np.eye(5)[:-1]])
    cosines = np.abs(J.T @ r) / np.linalg.norm(J, axis=0) / np.linalg.norm(r)
    assert_allclose(found.fun, r)
    assert_allclose(found.cost, r @ r / 2)
    assert_allclose(found.jac.toarray(), J, atol=1e-12)
    assert_allclose(found.grad, J.T @ r)
    assert_allclose(found.optimality, cosines.max())


def test_the_minimum_of_rosenbrock_is_found():
    found = levenberg_marquardt(rosenbrock(), START, of="r")
    assert found.success
    assert_allclose(found.tensors["x"], np.ones(5), atol=1e-8)


@pytest.mark.parametrize(
    "options", [{"acceleration": 0}, {"damping": 10.0}, {"options": {"atol": 1e-4}}]
)
def test_other_ways_lead_there_too(options):
    found = levenberg_marquardt(rosenbrock(), START, of="r", **options)
    assert_allclose(found.x, np.ones(5), atol=1e-6)


def test_levenberg_marquardt_stays_in_single_precision():
    start = {"x": np.array(START["x"], np.float32)}
    found = levenberg_marquardt(rosenbrock("float32"), start, of="r")
    assert found.x.dtype == np.float32
    assert_allclose(found.x, np.ones(5), atol=5e-5)


def test_steps_do_not_depend_on_units():
    """With x₀ in other units, the steps are the same up to units."""
    problem = regression("Misra1a")
    model, (start, _) = problem.model(), problem.starts
    paths = []
    for unit in (1.0, 1e6):
        met = []
        scaled = {**problem.data, "y": unit * problem.data["y"]}
        levenberg_marquardt(
            model, {"b1": unit * start["b1"], "b2": start["b2"], **scaled}, wrt=["b1", "b2"],
            callback=lambda state, met=met: met.append(state.tensors["b2"]),
        )  # fmt: skip
        paths.append(met)
    assert_allclose(*paths, rtol=1e-6)


def test_columns_may_be_measured_by_structure():
    def scale(J):
        return 1 / column_scaling(J, damping=1e-12).d.ravel()

    found = levenberg_marquardt(rosenbrock(), START, of="r", scale=scale)
    assert_allclose(found.x, np.ones(5), atol=1e-8)


def test_many_columns_are_estimated():
    start = np.full(200, 1.1)
    found = levenberg_marquardt(rosenbrock(), {"x": start}, of="r")
    assert_allclose(found.x, np.ones(200), atol=1e-6)


def test_a_residual_that_overflows_is_a_failed_step():
    """MGH17 overflows on the way from its far start."""
    problem = regression("MGH17")
    point = {**problem.starts[0], **problem.data}
    with np.errstate(over="raise", invalid="raise"):
        found = levenberg_marquardt(problem.model(), point, wrt=problem.certified, maxiter=1000)
    assert np.isfinite(found.cost)


def test_costs_never_rise():
    """On the way from BoxBOD's far start some steps fail."""
    problem, costs = regression("BoxBOD"), []
    levenberg_marquardt(
        problem.model(), {**problem.starts[0], **problem.data}, wrt=problem.certified,
        callback=lambda state: costs.append(state.cost),
    )  # fmt: skip
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) < len(costs)


def test_the_callback_may_stop():
    met = []

    def watch(state):
        met.append(state.x)
        if state.nit == 3:
            raise StopIteration

    found = levenberg_marquardt(rosenbrock(), START, of="r", callback=watch)
    assert (found.status, found.nit, len(met), found.success) == (99, 3, 3, False)
    assert_allclose(met[-1], found.x)


def test_iterations_are_limited():
    found = levenberg_marquardt(rosenbrock(), START, of="r", maxiter=2)
    assert (found.status, found.nit, found.success) == (0, 2, False)
    assert "maximum number" in found.message


def test_levenberg_marquardt_finds_the_minimum_of_scipy():
    problem = regression("Chwirut2")
    (b1, b2, b3), x, y = problem.starts[1].values(), problem.data["x"], problem.data["y"]
    other = least_squares(
        lambda b: y - np.exp(-b[0] * x) / (b[1] + b[2] * x), [b1, b2, b3], xtol=1e-12, ftol=1e-12
    )
    point = {**problem.starts[1], **problem.data}
    found = levenberg_marquardt(problem.model(), point, wrt=problem.certified, tol=1e-12)
    assert_allclose(found.x, other.x, rtol=1e-5)
    assert_allclose(found.cost, other.cost, rtol=1e-9)


def test_many_variables_are_not_solved_to_rounding():
    """A third of the products of exact steps at most, to the same minimum."""
    model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        fit (double[300, 10] X, double[300, 3] Y, double[10, 12] A, double[12, 3] B)
            => (double[300, 3] r)
        { p = MatMul (X, A)  t = Tanh (p)  z = MatMul (t, B)  r = Sub (z, Y) }"""))
    rng = np.random.default_rng(0)
    X, A, B = (rng.standard_normal(shape) for shape in ((300, 10), (10, 12), (12, 3)))
    near = {"A": A + 0.1 * rng.standard_normal(A.shape), "B": B + 0.1}
    point = {"X": X, "Y": np.tanh(X @ A) @ B, **near}
    options = {"of": "r", "wrt": ["A", "B"], "maxiter": 12}
    found = levenberg_marquardt(model, point, **options)
    exact = levenberg_marquardt(model, point, **options, options={"atol": 1e-16, "btol": 1e-16})
    assert max(found.cost, exact.cost) < 1e-8
    assert found.products < exact.products / 3
