"""Implicit Euler and pseudo-transient continuation against closed forms and dense algebra."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.jacobians.errors import NotConverged
from onnxjac.modes.solvers.preconditioners import ilu
from onnxjac.modes.solvers.roots import at_step, euler_residual, implicit_euler, pseudo_transient
from solvers.models import DRIVEN, grid, parsed, reaction

DECAY = "decay (float[2] u) => (float[2] F) <float[2] rate = {-1.0, -1000.0}> { F = Mul(rate, u) }"
LOTKA = """
lotka (float[2] u, float[2] v) => (float[2] f, float[2] g)
{ uv = Mul(u, v)
  f = Sub(u, uv)
  g = Sub(uv, v) }
"""


def test_linear_decay_in_closed_form():
    """u₊ = u / (1 − h λ), for any stiffness."""
    states = implicit_euler(parsed(DECAY), {"u": [1.0, 1.0]}, step=0.1, steps=5, rtol=1e-13)
    for k, found in enumerate(states, start=1):
        assert found.t == pytest.approx(0.1 * k)
        assert_allclose(found.x, [1.1**-k, 101.0**-k], rtol=1e-9, atol=1e-11)


def test_the_error_is_of_first_order():
    ends = [
        list(implicit_euler(parsed(DECAY), {"u": [1.0, 0.0]}, step=1 / n, steps=n, rtol=1e-13))
        for n in (20, 40)
    ]
    errors = [abs(states[-1].x[0] - np.exp(-1)) for states in ends]
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.1)


def test_the_residual_is_a_model():
    model, point = reaction(4), grid(4)
    euler = euler_residual(model, point, wrt="u")
    assert set(euler.inputs) == {"u", "b", "u_before", "step"}
    there = at_step(point, {"u": 2 * point["u"]}, 0.25)
    G = oj.linearize(euler, there, wrt="u")
    F = oj.linearize(model, point, wrt="u")
    assert_allclose(G.primal["u_residual"], -point["u"] - 0.25 * F.primal["F"])
    assert_allclose(G.toarray(), np.eye(16) - 0.25 * F.toarray(), atol=1e-12)


def test_each_of_several_states_has_its_own_rate():
    """Each state has its own rate: u̇ = u − u v, v̇ = u v − v."""
    start = {"u": np.array([1.0, 2.0]), "v": np.array([0.5, 1.0])}
    states = implicit_euler(parsed(LOTKA), start, step=0.1, steps=3, rtol=1e-13)
    before = start
    for found in states:
        u, v = found.tensors["u"], found.tensors["v"]
        assert_allclose(u - before["u"], 0.1 * (u - u * v), atol=1e-10)
        assert_allclose(v - before["v"], 0.1 * (u * v - v), atol=1e-10)
        before = found.tensors


def test_the_time_goes_on():
    """u̇ = −1000 (u − cos t), from t = 2."""
    u, point = np.array([2.0, -1.0]), {"u": [2.0, -1.0], "time": [2.0]}
    for k, found in enumerate(implicit_euler(parsed(DRIVEN), point, t="time", step=0.1, steps=4)):
        u = (u + 100 * np.cos(2 + 0.1 * (k + 1))) / 101
        assert found.t == pytest.approx(2 + 0.1 * (k + 1))
        assert_allclose(found.x, u, rtol=1e-5)
    with pytest.raises(oj.InputError, match="t='clock' does not name a floating input"):
        next(implicit_euler(parsed(DRIVEN), point, t="clock", step=0.1, steps=4))


def test_rates_and_states_must_match():
    with pytest.raises(oj.InputError, match="name the states by wrt="):
        euler_residual(reaction(4), grid(4))


def built_by(solve, **options):
    """The result, and the number of preconditioners that were built on the way."""
    built = []

    def counting(A):
        built.append(A)
        return ilu(A)

    found = solve(reaction(8), grid(8), wrt="u", step=0.1, rtol=1e-10, preconditioner=counting,
                  **options)  # fmt: skip
    return found, len(built)


def last(*arguments, **options):
    return list(implicit_euler(*arguments, **options))[-1]


def test_a_preconditioner_is_kept_while_it_serves():
    found, built = built_by(last, steps=20)
    expected = last(reaction(8), grid(8), wrt="u", step=0.1, steps=20, rtol=1e-10)
    assert_allclose(found.x, expected.x, atol=1e-7)
    assert 1 <= built <= 5


def test_steps_of_other_lengths_need_other_preconditioners():
    found, built = built_by(pseudo_transient)
    assert found.success
    assert built == found.nit


def test_a_step_that_is_not_found():
    with pytest.raises(NotConverged, match="step 1 of 2"):
        list(implicit_euler(reaction(), grid(), wrt="u", step=1.0, steps=2, maxiter=1))


@pytest.mark.parametrize("preconditioner", [None, ilu])
def test_pseudo_transient_reaches_the_stable_state(preconditioner):
    """u̇ = Δu + 8 u − u³ has many steady states; from u > 0 it goes to the positive one."""
    model = reaction(8, cubic=-1.0, linear=8.0)
    point = {"u": np.full((1, 1, 8, 8), 0.01), "b": np.zeros((1, 1, 8, 8))}
    found = pseudo_transient(model, point, wrt="u", step=0.1, preconditioner=preconditioner)
    assert found.success
    assert found.x.min() > 1
    assert_allclose(model.run({**point, **found.tensors})["F"], 0, atol=1e-6)
    J = oj.linearize(model, {**point, **found.tensors}, wrt="u").toarray()
    assert np.linalg.eigvalsh(J).max() < 0
    flow = list(implicit_euler(model, point, wrt="u", step=0.05, steps=100))
    assert_allclose(found.x, flow[-1].x, atol=1e-5)


def test_pseudo_transient_steps_grow_as_the_residual_falls():
    met = []
    model, point = reaction(), grid()
    pseudo_transient(model, point, wrt="u", step=0.1, callback=met.append)
    for before, after in pairwise(met):
        ratio = np.linalg.norm(before.fun) / np.linalg.norm(after.fun)
        assert after.step == pytest.approx(max(0.1, before.step * ratio))
    assert met[-1].step > 1e3


def test_pseudo_transient_in_single_precision():
    found = pseudo_transient(reaction(dtype="float32"), grid(dtype="float32"), wrt="u", step=0.1)
    assert found.success
    assert found.x.dtype == np.float32
