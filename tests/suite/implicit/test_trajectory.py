"""Derivatives of trajectories agree with differences, with PyTorch, and with SciPy's solutions."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp

import onnxjac as oj
from implicit.equations import central, parsed

START = {"u": np.array([1.0, 2.0, 0.5]), "k": np.array([0.5, 1.0, 2.0]), "time": 0.3}
OPTIONS = {"of": "v", "x": "u", "t": "time", "wrt": ["k", "u"], "step": 0.05, "rtol": 1e-14}


def reaction() -> oj.Model:
    """u̇ = −k u² + sin t, and g = Σ u²."""
    return parsed("""
        reaction (double[3] u, double[3] k, double time) => (double[3] v, double g)
        {
            uu = Mul (u, u)
            ku = Mul (k, uu)
            down = Neg (ku)
            wave = Sin (time)
            v = Add (down, wave)
            g = ReduceSum <keepdims = 0> (uu)
        }""")


@pytest.mark.parametrize(
    ("method", "save", "solver"),
    [
        ("implicit_euler", None, "dense"),
        ("bdf2", [13, 0, 4, 20], "sparse"),
        ("bdf2", [7], "krylov"),
    ],
)
def test_against_differences_of_the_steps(method, save, solver):
    T = oj.trajectory(reaction(), START, steps=20, method=method, integral="g", save=save,
                      linear_solver=solver, **OPTIONS)  # fmt: skip
    rng = np.random.default_rng(0)
    v = {name: rng.standard_normal(3) for name in ("k", "u")}

    def moved(name):
        return lambda h, _: T.at({n: START[n] + h * v[n] for n in v}).tensors[name]

    product = T.J.apply(v)
    for name in ("u", "g"):
        expected = (moved(name)(1e-6, 0) - moved(name)(-1e-6, 0)) / 2e-6
        assert_allclose(product[name], expected, atol=1e-8)
    V, U = rng.standard_normal((6, 2)), rng.standard_normal((T.J.shape[0], 2))
    assert_allclose(U.T @ (T.J @ V), (T.J.T @ U).T @ V, rtol=1e-9)


def test_the_adjoint_against_unrolled_torch():
    """Newton's method on each step, unrolled."""
    torch = pytest.importorskip("torch")
    k, u = (torch.tensor(START[name], requires_grad=True) for name in ("k", "u"))
    state, total, h = u, 0.0, OPTIONS["step"]
    for n in range(1, 21):
        wave, x = np.sin(0.3 + h * n), state
        for _ in range(12):
            x = x - (x - state - h * (wave - k * x * x)) / (1 + 2 * h * k * x)
        state, total = x, total + h * (x * x).sum()
    expected = torch.autograd.grad(total + state.sum(), [k, u])
    T = oj.trajectory(reaction(), START, steps=20, integral="g", **OPTIONS)
    assert_allclose(T.tensors["g"], total.item(), rtol=1e-12)
    found = T.J.T.apply({"u": np.ones(3), "g": 1.0})
    for name, right in zip(("k", "u"), expected, strict=True):
        assert_allclose(found[name], right, rtol=1e-9)


@pytest.mark.parametrize(("method", "order"), [("implicit_euler", 1), ("bdf2", 2)])
def test_states_and_integrals_converge_to_scipys_solution(method, order):
    def rate(t, y):
        return [*(np.sin(t) - START["k"] * y[:3] ** 2), (y[:3] ** 2).sum()]

    exact = solve_ivp(rate, (0.3, 1.3), [*START["u"], 0.0], method="DOP853", rtol=1e-12, atol=1e-12)
    errors = []
    for steps in (80, 160):
        options = {**OPTIONS, "step": 1 / steps}
        T = oj.trajectory(reaction(), START, steps=steps, method=method, integral="g", **options)
        errors.append(np.linalg.norm([*T.tensors["u"], T.tensors["g"]] - exact.y[:, -1]))
    assert_allclose(errors[0] / errors[1], 2.0**order, rtol=0.1)


def test_the_states_agree_with_implicit_euler():
    T = oj.trajectory(reaction(), START, steps=20, save=range(1, 21), **OPTIONS)
    options = {"of": "v", "wrt": "u", "t": "time", "step": 0.05, "steps": 20, "atol": 1e-13}
    steps = oj.implicit_euler(reaction(), START, **options)
    assert_allclose(T.tensors["u"], [found.x for found in steps], rtol=1e-11)


def test_weights_of_the_rate_against_differences():
    learnt = parsed("""
        learnt (double[1, 2] u) => (double[1, 2] v) <double[2, 2] W = {-1.0, 0.5, 0.2, -2.0}>
        { a = MatMul (u, W)\n t = Tanh (u)\n v = Sub (a, t) }""")
    start, W = {"u": np.ones((1, 2))}, np.array([[-1.0, 0.5], [0.2, -2.0]])
    T = oj.trajectory(learnt, start, x="u", wrt=["W", "u"], step=0.1, steps=10, rtol=1e-14)
    v = np.random.default_rng(0).standard_normal((2, 2))
    expected = central(lambda W: T.at({"W": W}).tensors["u"], W, v)
    assert_allclose(T.J.apply({"W": v})["u"], expected, atol=1e-9)


@pytest.mark.parametrize("checkpoints", [1, 3, 20])
def test_checkpoints_change_no_bit(checkpoints):
    u = {"g": 1.0}
    expected = oj.trajectory(reaction(), START, steps=20, integral="g", **OPTIONS).J.T.apply(u)
    T = oj.trajectory(reaction(), START, steps=20, integral="g", checkpoints=checkpoints, **OPTIONS)
    for name, slope in T.J.T.apply(u).items():
        assert_array_equal(slope, expected[name])


def test_memory_grows_as_the_root_of_the_number_of_steps():
    n = 2000
    heat = parsed(f"""
        heat (double[1, 1, {n}] u, double[1, 1, {n}] source) => (double[1, 1, {n}] v)
        <double[1, 1, 3] stencil = {{1.0, -2.0, 1.0}}>
        {{
            d = Conv <pads = [1, 1]> (u, stencil)
            v = Add (d, source)
        }}""")
    start = {"u": np.zeros((1, 1, n)), "source": np.ones((1, 1, n))}
    peaks = []
    for steps in (9, 9, 144):  # the first one makes what is cached
        tracemalloc.start()
        T = oj.trajectory(heat, start, x="u", wrt="source", step=0.1, steps=steps)
        T.J.T.apply({"u": np.ones((1, 1, n))})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert T.steps.solves.factored == 1
    assert peaks[2] < 6 * peaks[1]


def test_gradients_pass_through_a_model_behind_a_trajectory():
    """Another model, another trajectory and a layer of PyTorch."""
    loss = parsed("""
        loss (double[3] h) => (double l) { hh = Mul (h, h)\n l = ReduceSum <keepdims = 0> (hh) }""")
    first = oj.trajectory(reaction(), START, steps=8, **OPTIONS)
    second = oj.trajectory(reaction(), {**START, "u": first, "time": 0.7}, steps=12, **OPTIONS)
    whole = oj.trajectory(reaction(), START, steps=20, **OPTIONS)
    assert_allclose(second.tensors["u"], whole.tensors["u"], rtol=1e-12)
    slopes = [oj.grad(loss, {"h": T}, wrt=["k", "u"]) for T in (second, whole)]
    for name in ("k", "u"):
        assert_allclose(slopes[0][name], slopes[1][name], rtol=1e-9)
    expected = central(
        lambda k: (whole.at({"k": k}).tensors["u"] ** 2).sum(), START["k"], np.eye(3)[1]
    )
    assert_allclose(slopes[1]["k"][1], expected, rtol=1e-7)
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(START[name], requires_grad=True) for name in ("k", "u")]
    assert torch.autograd.gradcheck(whole.to_torch(), leaves)
    with pytest.raises(oj.InputError, match="first derivatives alone"):
        oj.hessian(loss, {"h": whole})


def test_trajectory_rejects_wrong_arguments():
    with pytest.raises(oj.InputError, match=r"save=\[21\] holds no numbers of steps from 0 to 20"):
        oj.trajectory(reaction(), START, steps=20, save=[21], **OPTIONS)
    with pytest.raises(oj.InputError, match="wrt='uu' is computed by the model"):
        oj.trajectory(reaction(), START, steps=20, **{**OPTIONS, "wrt": "uu"})
    with pytest.raises(oj.InputError, match=r"name the states by x=.*by of="):
        oj.trajectory(reaction(), START, steps=20, **{**OPTIONS, "x": ["u", "k"]})
    with pytest.raises(oj.NotConverged, match="step 1 of 20: Newton's method ends"):
        oj.trajectory(reaction(), START, steps=20, maxiter=1, **OPTIONS)
