"""value_and_grad: one program for all points, recorded once if it does not depend on the point."""

import pickle
import warnings

import numpy as np
import onnx
import pytest

import onnxjac as oj
from onnxjac.modes.recording.control import Turns

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'


def load(text):
    return oj.load(onnx.parser.parse_model(HEAD + text))


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


NET = """net (double[N,3] x) => (double loss) <double[3,2] w = {1,2,3,4,5,6}> {
    h = MatMul(x, w)
    t = Tanh(h)
    loss = ReduceSumSquare<keepdims=0>(t)
}"""

BRANCHES = """branches (double[3] x, bool flag) => (double loss) {
    y = If(flag) <
        then_branch = g1 () => (double[3] a) { a = Exp(x) },
        else_branch = g2 () => (double[3] b) { b = Mul(x, x) }
    >
    loss = ReduceSum<keepdims=0>(y)
}"""

TURNS = """turns (double[3] x, int64 n, bool go) => (double loss) {
    y = Loop(n, go, x) <
        body = turn (int64 i, bool on, double[3] s) => (bool off, double[3] t) {
            off = Identity(on)
            t = Sin(s)
        }
    >
    loss = ReduceSumSquare<keepdims=0>(y)
}"""

MOVING = {
    "net": (NET, [{"x": random(4, 3, seed=k)} for k in range(3)], ("x", "w")),
    "branches": (
        BRANCHES, [{"x": random(3, seed=k), "flag": np.array(k % 2 == 0)} for k in range(3)], "x",
    ),
    "turns": (
        TURNS,
        [{"x": random(3, seed=k), "n": np.array(k), "go": np.array(True)} for k in (3, 1, 60)],
        "x",
    ),
}  # fmt: skip


def recorded(model):
    return [*model.cache["gradient"]]


@pytest.mark.parametrize("engine", [None, "numpy"])
@pytest.mark.parametrize("case", MOVING)
def test_one_program_for_all_points(case, engine):
    text, points, wrt = MOVING[case]
    model = load(text)
    f = oj.value_and_grad(model, wrt=wrt, engine=engine)
    for point in points:
        value, slopes = f(point)
        J = oj.linearize(load(text), point, of="loss", wrt=wrt)
        assert value == pytest.approx(float(J.primal["loss"]), rel=1e-14)
        for name, slope in J.T.apply({"loss": 1.0}).items():
            np.testing.assert_allclose(slopes[name], slope, rtol=1e-11, atol=1e-13)
    assert len(recorded(model)) == 1


def test_weights_of_a_point_are_inputs_of_the_program():
    model = load(NET)
    f, x = oj.value_and_grad(model, wrt="w"), random(4, 3)
    for seed in range(3):
        w = random(3, 2, seed=seed)
        value, slopes = f({"x": x, "w": w})
        t = np.tanh(x @ w)
        assert value == pytest.approx(np.sum(t**2))
        np.testing.assert_allclose(slopes["w"], x.T @ (2 * t * (1 - t**2)), rtol=1e-12)
    assert len(recorded(model)) == 1


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_gradients_may_be_written_to(engine):
    """Gradients of sum(x ∘ y) are y and x themselves, that of sum(z) is a constant."""
    text = """f (double[3] x, double[3] y, double[3] z) => (double loss) {
        p = Mul(x, y)
        s = Add(p, z)
        loss = ReduceSum<keepdims=0>(s)
    }"""
    point = {name: random(3, seed=k) for k, name in enumerate("xyz")}
    for x in point.values():
        x.flags.writeable = False
    f = oj.value_and_grad(load(text), engine=engine)
    for _ in range(2):
        _, slopes = f(point)
        np.testing.assert_array_equal(slopes["x"], point["y"])
        np.testing.assert_array_equal(slopes["z"], np.ones(3))
        for slope in slopes.values():
            slope *= 2


def test_value_and_grad_warns_of_nan_and_of_zero():
    f = oj.value_and_grad(load("f (double x) => (double y) { y = Log(x) }"))
    with pytest.warns(oj.OnnxJacWarning, match="'y' is not finite"):
        f({"x": np.array(-1.0)})
    g = oj.value_and_grad(load("g (double x) => (double y) { y = Floor(x) }"))
    for x in (0.5, 1.5):
        with pytest.warns(oj.OnnxJacWarning, match="'y' does not depend differentiably on 'x'"):
            assert g({"x": np.array(x)})[1]["x"] == 0


def test_value_and_grad_is_pickled_and_has_a_repr():
    f = oj.value_and_grad(load(NET))
    point = {"x": random(2, 3)}
    value, slopes = f(point)
    again, others = pickle.loads(pickle.dumps(f))(point)
    assert repr(f) == "value_and_grad: x ↦ (loss, ∂loss/∂(x))"
    assert value == again
    np.testing.assert_array_equal(slopes["x"], others["x"])


def test_value_and_grad_rejects_wrong_models():
    body = "{ y = Sin(x) z = ReduceSum<keepdims=0>(y) }"
    model = load(f"f (double[N] x) => (double[N] y, double z) {body}")
    with pytest.raises(oj.InputError, match="a gradient is of one tensor"):
        oj.value_and_grad(model)({"x": random(3)})
    with pytest.raises(oj.InputError, match="`vjp` takes a cotangent"):
        oj.value_and_grad(model, of="y")({"x": random(3)})
    with pytest.raises(oj.UnknownTensor, match="'q'"):
        oj.value_and_grad(model, of="q")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert oj.value_and_grad(model, of="y")({"x": random(1)})[0] == np.sin(random(1))[0]


@pytest.mark.parametrize("turns", [5, 60])
def test_short_loops_are_unrolled_and_long_ones_stay(turns):
    """The overhead of a Scan iteration exceeds its computation."""
    text = TURNS.replace("int64 n, bool go", "bool unused").replace(
        "(double loss) {", f"(double loss) <int64 n = {{{turns}}}, bool go = {{1}}> {{"
    )
    f, x = oj.value_and_grad(load(text), wrt="x"), random(3)
    for _ in range(2):
        value, slopes = f({"x": x, "unused": np.array(True)})
        y, slope = x, np.ones(3)
        for _ in range(turns):
            y, slope = np.sin(y), slope * np.cos(y)
        assert value == pytest.approx(y @ y)
        np.testing.assert_allclose(slopes["x"], 2 * y * slope, rtol=1e-10)
        x = 1.1 * x
    graph, *_ = f.gradient.recorded({"x": x, "unused": np.array(True)})
    assert any(step.op_type == "Scan" for step in graph.steps) == (turns > 50)


RECURRENCE = """g (double[2,3] x, double[3,3] w) => (double f)
    <int64 n = {60}> { h = Loop(n, , x) <body = b (int64 i, bool c, double[2,3] s) =>
      (bool d, double[2,3] t) { d = Identity(c) p = MatMul(s, w) q = Add(p, x) t = Tanh(q) }>
    f = ReduceSum<keepdims = 0>(h) }"""


def test_a_turn_backwards_computes_what_the_next_turn_needs():
    """The slopes of tanh are computed before the Scan, and the gradient by w after it."""
    model = load(RECURRENCE)
    f = oj.value_and_grad(model, of="f", wrt=["x", "w"])
    point = {"x": np.full((2, 3), 0.1), "w": np.eye(3) / 2 + 0.1}
    _, slopes = f(point)
    (scan,) = (s for s in f.gradient.recorded(point)[0].steps if s.op_type == "Scan")
    assert [node.op_type for node in scan.attrs["body"]] == ["Mul", "MatMul"]
    for name in point:
        up, down = ({**point, name: point[name] + e} for e in (1e-6, -1e-6))
        slope = (f(up)[0] - f(down)[0]) / 2e-6
        np.testing.assert_allclose(slopes[name].sum(), slope, rtol=1e-7)


def test_nothing_of_a_long_loop_is_recorded_at_a_new_point(monkeypatch, inside):
    model = load(RECURRENCE)
    points = [{"x": np.full((2, 3), c), "w": np.eye(3) * c} for c in (0.1, 0.2, 0.3, 0.4)]
    J = oj.linearize(model, points[0], wrt=["x", "w"]).relinearize(points[1])
    v = np.ones(J.shape[1])
    assert J.at.derivative.closed
    for one in (J, J.T):  # without a program, the first products record the loop at their point
        assert inside.shared(one).prepare(())
    J @ v, J.T @ np.ones(1)
    monkeypatch.setattr(Turns, "run", None)
    for point in points[2:]:
        J = J.relinearize(point)
        found, back = J @ v, J.T @ np.ones(1)
        np.testing.assert_allclose(found, back @ v)


@pytest.mark.parametrize("regressor", [
    'LinearRegressor <coefficients = [1.0, -2.0]>',
    'SVMRegressor <coefficients = [1.0, -2.0], support_vectors = [1.0, 0.0, 0.0, 1.0],'
    ' n_supports = 2, rho = [0.5], kernel_type = "RBF", kernel_params = [0.7, 0.0, 3.0]>',
])  # fmt: skip
def test_one_program_for_a_regressor_of_scikit_learn(regressor):
    """Shape inference does not know how many numbers it gives."""
    model = oj.load(onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 1]>
        f (float[N, 2] x) => (float[N, 1] y) {{ s = Tanh(x) y = ai.onnx.ml.{regressor} (s) }}"""))
    f = oj.value_and_grad(model, of="y")
    for seed in range(3):
        point = {"x": random(1, 2, seed=seed).astype(np.float32)}
        J = oj.linearize(model, point).toarray()
        np.testing.assert_allclose(f(point)[1]["x"], J, rtol=1e-5)
    assert len(recorded(model)) == 1


def test_slopes_that_count_for_nothing_take_a_second_graph():
    """√x has an infinite slope at 0, which a selection leaves out: 0 · ∞ is NaN in the quick graph,
    and no number of a finite gradient.
    """
    model = load("""roots (double[3] x) => (double y) <int64[1] at = {1}> {
        r = Sqrt(x)
        s = Gather(r, at)
        y = ReduceSum<keepdims=0>(s)
    }""")
    f = oj.value_and_grad(model)
    assert f({"x": np.array([4.0, 4.0, 4.0])})[1]["x"].tolist() == [0, 0.25, 0]
    assert len(model.cache["gradient"]) == 1
    assert f({"x": np.array([0.0, 4.0, 0.0])})[1]["x"].tolist() == [0, 0.25, 0]
    assert len(model.cache["gradient"]) == 2
