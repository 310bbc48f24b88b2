"""Patterns: functions of what over- or underflows are stable whichever engine runs them.

Values, slopes and second derivatives of each pattern that loading recognises, against mpmath, at
gaps up to ±800; the tensors inside a pattern keep their values, and derivatives by them.
"""

import pickle
from importlib.util import find_spec

import mpmath
import numpy as np
import onnx
import pytest

import onnxjac as oj
from onnxjac.modes.model.loading.patterns import PATTERNS

WITH_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
ENGINES = ("numpy", "onnxruntime", pytest.param("torch", marks=[pytest.mark.peers, WITH_TORCH]))

ONE, TWO = "Constant<value = {kind} {{1.0}}>()", "Constant<value = {kind} {{2.0}}>()"
SUM = "a = Constant<value_ints = [1]>() e = Exp(x) s = ReduceSum(e, a) y = Log(s)"


def softplus(x):
    return mpmath.log1p(mpmath.exp(x))


def log_sum_exp(x):
    return mpmath.log(sum(map(mpmath.exp, x)))


BODIES = {
    "log σ": ("s = Sigmoid(x) y = Log(s)", lambda x: [-softplus(-t) for t in x]),
    "log (1 - σ)": (f"o = {ONE} s = Sigmoid(x) d = Sub(o, s) y = Log(d)",
                    lambda x: [-softplus(t) for t in x]),
    "log (1 + -σ)": (f"o = {ONE} s = Sigmoid(x) n = Neg(s) d = Add(o, n) y = Log(d)",
                     lambda x: [-softplus(t) for t in x]),
    "log softmax": ("s = Softmax(x) y = Log(s)", lambda x: [t - log_sum_exp(x) for t in x]),
    "log exp": ("s = Exp(x) y = Log(s)", list),
    "log (1 + exp)": (f"o = {ONE} s = Exp(x) d = Add(o, s) y = Log(d)",
                      lambda x: list(map(softplus, x))),
    "log (exp + 1)": (f"o = {ONE} s = Exp(x) d = Add(s, o) y = Log(d)",
                      lambda x: list(map(softplus, x))),
    "max + log (1 + exp)": (
        "z = Constant<value = {kind} {{0.0}}>() " f"o = {ONE} m = Max(x, z) a = Abs(x) n = Neg(a) "
        "s = Exp(n) d = Add(o, s) l = Log(d) y = Add(m, l)", lambda x: list(map(softplus, x))),
    "log Σ exp": (SUM, lambda x: [log_sum_exp(x)]),
    "ReduceLogSum exp": ("a = Constant<value_ints = [1]>() s = Exp(x) y = ReduceLogSum(s, a)",
                         lambda x: [log_sum_exp(x)]),
    "‖x‖ ‖x‖": ("a = Constant<value_ints = [1]>() s = ReduceL2(x, a) y = Mul(s, s)",
                lambda x: [sum(t * t for t in x)]),
    "‖x‖²": (f"a = Constant<value_ints = [1]>() p = {TWO} s = ReduceL2(x, a) y = Pow(s, p)",
             lambda x: [sum(t * t for t in x)]),
}  # fmt: skip
"""what -> (the nodes, the rows of y)."""

X = [[-20, 3, 0.5], [50, -50, 1], [800, -800, 2], [0, 0, 0], [-45, 0, 1]]


def loaded(what, dtype):
    kind = {"float32": "float", "float64": "double"}[dtype]
    body = BODIES[what][0].format(kind=kind)
    return parsed(f"({kind}[n,3] x) => ({kind}[n,m] y) {{ {body} }}")


def parsed(text):
    return oj.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}'))


def test_every_pattern_is_tested():
    assert len(BODIES) == len(PATTERNS)


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("what", BODIES)
def test_every_engine_keeps_the_digits(what, dtype, engine):
    """16 units in the last place, of log softmax in the largest entry of a row, of slopes in 1."""
    model, x, f = loaded(what, dtype), np.array(X, dtype), BODIES[what][1]
    assert model.patterns
    y, eps = model.run({"x": x}, engine=engine)["y"], np.finfo(dtype).eps
    J = oj.linearize(model, {"x": x}, engine=engine).toarray().reshape(*y.shape, *x.shape)
    with mpmath.workdps(800):
        for k, row in enumerate(x):
            at = [mpmath.mpf(float(t)) for t in row]
            value = np.array(list(map(float, f(at))))
            least = eps * np.abs(value).max() if what == "log softmax" else np.finfo(dtype).tiny
            np.testing.assert_allclose(y[k], value, rtol=16 * eps, atol=16 * least)
            for i in range(3):
                step = [t + (mpmath.mpf(10) ** -300 if j == i else 0) for j, t in enumerate(at)]
                slopes = [float((b - a) * mpmath.mpf(10) ** 300)
                          for a, b in zip(f(at), f(step), strict=True)]  # fmt: skip
                np.testing.assert_allclose(J[k, :, k, i], slopes, rtol=16 * eps, atol=16 * eps)


@pytest.mark.parametrize("what", BODIES)
def test_second_derivatives_are_finite(what):
    model, x = loaded(what, "float32"), np.array(X, np.float32)
    y = model.run({"x": x})["y"]
    H = oj.hessian(model, {"x": x}, weights=np.ones_like(y)).toarray()
    assert np.isfinite(H).all()


@pytest.mark.sampled(0.5)
@pytest.mark.filterwarnings("ignore:.*not finite at this point")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("what", [w for w in BODIES if "max" not in w])  # all passes through s
def test_tensors_inside_stay(what, engine):
    """of= and wrt= may name them, a point may hold them, and an export may start there."""
    model, x = loaded(what, "float64"), np.array([[-1.5, 0.5, 2]])
    point, by = {"x": x}, {"engine": engine}
    s = oj.linearize(model, point, of="s", **by).primal["s"]
    y = model.run(point, **by)["y"]
    inner = oj.linearize(model, point, wrt="s", **by)
    whole, first = oj.linearize(model, point, **by), oj.linearize(model, point, of="s", **by)
    np.testing.assert_allclose((inner @ first).toarray(), whole.toarray(), atol=1e-12)
    both = oj.linearize(model, point, wrt=["x", "s"], **by)
    np.testing.assert_allclose(both["y", "s"].toarray(), inner.toarray(), atol=1e-12)
    moved = oj.linearize(model, {"x": x, "s": s * 1.01}, wrt="s", **by)
    assert np.abs(moved.primal["y"] - y).min() > 1e-4
    exported = oj.export(model, "jvp", point, wrt="s")
    assert "s_tangent" in {value.name for value in exported.graph.input}


def test_a_pickle_knows_its_patterns():
    model = pickle.loads(pickle.dumps(loaded("log σ", "float64")))
    assert oj.linearize(model, {"x": np.ones((1, 3))}, wrt="s").toarray()[0, 0] > 1


def test_other_shapes_of_the_pattern_stay():
    """1 - σ of another number than 1, and a logarithm to which something is added before."""
    for body in ("o = Constant<value = float {2.0}>() s = Sigmoid(x) d = Sub(o, s) y = Log(d)",
                 "o = Constant<value = float {1.0}>() s = Sigmoid(x) d = Add(o, s) y = Log(d)",
                 "s = Sigmoid(x) y = Exp(s)"):  # fmt: skip
        assert not parsed(f"(float[n] x) => (float[n] y) {{ {body} }}").patterns


def test_a_gradient_node_keeps_what_it_names():
    model = oj.load(onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "ai.onnx.preview.training": 1]>
        g (float[n] x) => (float[n] g) {
            s = Sigmoid(x)
            y = Log(s)
            z = ReduceSum<keepdims = 0>(y)
            g = ai.onnx.preview.training.Gradient<xs = ["s"], y = "z">(s)
        }"""))
    assert not model.patterns


def test_exports_of_softplus_in_double_run_anywhere():
    """ONNX Runtime has no kernel for it: it is spelled out, and recognised in the file."""
    ort = pytest.importorskip("onnxruntime")
    model = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[3] x) => (double[3] y) { s = Sigmoid(x) l = Log(s) y = Mul(l, l) }"""))
    x, u = np.array([-30.0, 0, 3]), np.ones(3)
    proto = oj.export(model, "vjp", {"x": x})
    session = ort.InferenceSession(proto.SerializeToString())
    found = session.run(["x_cotangent"], {"x": x, "y_cotangent": u})[0]
    np.testing.assert_allclose(found, oj.linearize(model, {"x": x}).T @ u, rtol=1e-14)
    again = oj.load(proto)
    assert "Softplus" in {step.op_type for step in again.steps}
    H = oj.linearize(again, {"x": x, "y_cotangent": u}, of="x_cotangent", wrt="x").diagonal()
    s = 1 / (1 + np.exp(-x))
    np.testing.assert_allclose(H, 2 * (1 - s) ** 2 - 2 * np.log(s) * s * (1 - s), rtol=1e-12)
