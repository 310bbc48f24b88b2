"""Natural gradient: Gauss-Newton steps on least squares, the minimum of a logistic regression."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.jacobians import Dense, Diagonal
from onnxjac.modes.solvers.descent import natural_gradient
from solvers.models import labelled, logistic, rosenbrock

START = np.array([1.3, 0.7, 0.8, 1.9, 1.2])


def test_the_gradient_vanishes_at_the_solution_of_logistic_regression():
    """The explicit gradient vanishes at the solution."""
    data = labelled()
    found = natural_gradient(logistic(), data, of="f", at="logits", wrt="w", gtol=1e-10)
    signed = data["X"] * data["y"][:, None]
    slope = -signed.T @ (1 / (1 + np.exp(signed @ found.x))) / len(signed) + found.x / 128
    assert found.success
    assert_allclose(slope, 0, atol=1e-10)
    assert_allclose(found.jac, slope, atol=1e-12)
    assert found.products <= 3 * found.nit  # CG in three dimensions


def test_the_step_is_the_damped_solution():
    """One iteration against (JᵀHJ + λI)⁻¹ ∇f by dense algebra."""
    found = natural_gradient(
        rosenbrock(), {"x": START}, of="f", at="r", damping=0.5, inner_rtol=1e-12, maxiter=1
    )
    J = np.vstack([np.eye(5)[1:] * 10 - 20 * np.diag(START)[:-1], -np.eye(5)[:-1]])
    r = np.concatenate([10 * (START[1:] - START[:-1] ** 2), 1 - START[:-1]])
    step = np.linalg.solve(2 * J.T @ J + 0.5 * np.eye(5), -2 * J.T @ r)
    part = (found.x - START) / step
    assert_allclose(part, part[0], rtol=1e-9)
    assert np.log2(part[0]) == pytest.approx(round(np.log2(part[0])), abs=1e-9)


def test_any_curvature_and_preconditioner():
    """Another metric converges too; with its inverse as M, each step takes one product."""
    met = []

    def curvature(point):
        met.append(point["w"])
        return Dense(np.diag([0.2, 0.1, 0.3]))

    found = natural_gradient(
        logistic(), labelled(), of="f", wrt="w", curvature=curvature, damping=0.0,
        preconditioner=lambda C: Diagonal(1 / C.diagonal()), gtol=1e-6, maxiter=400,
    )  # fmt: skip
    exact = natural_gradient(logistic(), labelled(), of="f", at="logits", wrt="w", gtol=1e-10)
    assert_allclose(found.x, exact.x, atol=1e-4)
    assert found.products == found.nit == len(met)  # one product each, since M is the inverse


def test_natural_gradient_stays_in_single_precision():
    data = {name: a.astype(np.float32) for name, a in labelled().items()}
    found = natural_gradient(logistic("float32"), data, of="f", at="logits", wrt="w", gtol=1e-5)
    exact = natural_gradient(logistic(), labelled(), of="f", at="logits", wrt="w", gtol=1e-10)
    assert found.x.dtype == np.float32
    assert_allclose(found.x, exact.x, rtol=1e-3)


def test_values_fall_at_every_step():
    met = []
    natural_gradient(
        rosenbrock(), {"x": START}, of="f", at="r", callback=lambda s: met.append(s.fun)
    )
    assert met == sorted(met, reverse=True)
    assert met[-1] < 1e-12


def test_no_step_that_falls_is_said():
    """A negative definite curvature leads uphill."""
    found = natural_gradient(
        rosenbrock(), {"x": START}, of="f", damping=0.0,
        curvature=lambda point: Diagonal(-np.ones(5)),
    )  # fmt: skip
    assert (found.status, found.success) == (-1, False)
    assert_allclose(found.x, START)


def test_natural_gradient_rejects_wrong_arguments():
    with pytest.raises(oj.InputError, match="say at="):
        natural_gradient(rosenbrock(), {"x": START}, of="f")
    with pytest.raises(oj.InputError, match="one scalar"):
        natural_gradient(rosenbrock(), {"x": START}, of="r", at="r")
