"""If, Loop and Scan: branches, captured tensors, nesting, no turns at all, early exit."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxjac as oj

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'

BRANCHES = f"""{HEAD}
branches (float[3] x, bool go) => (float[3] y)
<float[3] w = {{1.0, 2.0, 3.0}}>
{{ h = Mul(x, w)
  y = If (go) <
    then_branch = then () => (float[3] a) {{ a = Mul(h, h) }},
    else_branch = other () => (float[3] b) {{ b = Sin(h) }}
  > }}
"""

POWERS = f"""{HEAD}
powers (float[2] x, int64 count, float limit) => (float[2] last, float[n, 2] all)
<bool yes = {{1}}>
{{ last, all = Loop (count, yes, x) <
    body = turn (int64 i, bool before, float[2] state) => (bool after, float[2] fresh, float[2] row)
    {{ fresh = Mul(state, x)
      most = ReduceMax <keepdims = 0> (fresh)
      after = Less(most, limit)
      row = Identity(fresh) }}
  > }}
"""

NESTED = f"""{HEAD}
nested (float[2] x) => (float[2] y)
<bool yes = {{1}}, int64 two = {{2}}, int64 three = {{3}}>
{{ y = Loop (two, yes, x) <
    body = outer (int64 i, bool a, float[2] s) => (bool b, float[2] t)
    {{ b = Identity(a)
      t = Loop (three, yes, s) <
        body = inner (int64 j, bool c, float[2] u) => (bool d, float[2] v)
        {{ d = Identity(c)  p = Mul(u, x)  v = Tanh(p) }}
      > }}
  > }}
"""


def model(text):
    return oj.load(onnx.parser.parse_model(text), dtype="float64")


@pytest.mark.parametrize("go", [True, False])
def test_a_branch_with_captured_tensors(go):
    x, w = np.array([0.3, -0.5, 0.7]), np.array([1.0, 2.0, 3.0])
    J = oj.linearize(model(BRANCHES), {"x": x, "go": np.array(go)}, wrt=["x", "w", "h"])
    slope = 2 * w * x if go else np.cos(w * x)
    np.testing.assert_allclose(J["y", "h"].toarray(), np.diag(slope))
    np.testing.assert_allclose(J["y", "x"].toarray(), np.diag(slope * w))
    np.testing.assert_allclose(J["y", "w"].toarray(), np.diag(slope * x))


def powers_at(x, count, limit=1e9):
    point = {"x": x, "count": np.array(count), "limit": np.array(limit)}
    return oj.linearize(model(POWERS), point, wrt="x")


@pytest.mark.parametrize("count", [1, 3])
def test_carried_and_scanned_values(count):
    x = np.array([1.2, 0.7])
    J = powers_at(x, count)
    np.testing.assert_allclose(J["last", "x"].toarray(), np.diag((count + 1) * x**count))
    rows = np.concatenate([np.diag((k + 2) * x ** (k + 1)) for k in range(count)])
    np.testing.assert_allclose(J["all", "x"].toarray(), rows)
    assert J.check()


@pytest.mark.filterwarnings("ignore:.all. does not depend")
def test_no_turns():
    J = powers_at(np.array([1.2, 0.7]), 0)
    np.testing.assert_array_equal(J["last", "x"].toarray(), np.eye(2))
    assert J["all", "x"].shape == (0, 2)


def test_early_exit():
    x = np.array([2.0, 0.5])
    J = powers_at(x, 10, limit=10.0)  # 4, 8, 16: the third turn is the last
    np.testing.assert_allclose(J["last", "x"].toarray(), np.diag(4 * x**3))
    assert J.primal["all"].shape == (3, 2)


def test_a_loop_in_a_loop_to_second_order():
    nested, x = model(NESTED), np.array([0.9, -1.1])
    assert oj.linearize(nested, {"x": x}).check()
    weights = np.array([1.0, 2.0])
    H = oj.hessian(nested, {"x": x}, weights=weights)

    def slope(step):
        return oj.linearize(nested, {"x": x + step}).T @ weights

    v = np.array([0.3, 0.4])
    np.testing.assert_allclose(H @ v, (slope(1e-5 * v) - slope(-1e-5 * v)) / 2e-5, rtol=1e-6)


def test_an_exported_loop_holds_its_turns():
    runtime = pytest.importorskip("onnxruntime")
    x = np.array([0.9, -1.1], np.float32)
    single = oj.load(onnx.parser.parse_model(NESTED))
    proto = oj.export(single, "jvp", {"x": x})
    assert "Loop" not in {node.op_type for node in proto.graph.node}
    session = runtime.InferenceSession(proto.SerializeToString())
    _, found = session.run(None, {"x": x, "x_tangent": x})
    np.testing.assert_allclose(found, oj.linearize(single, {"x": x}) @ x, rtol=1e-5)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_a_turn_number_that_is_declared_as_a_vector(engine):
    """Exporters before opset 11 declare it so; the entry that it picks keeps its axis."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    old (double[3] x) => (double[3, 1] y) <int64 n = {3}, bool yes = {1}, double one = {1}> {
      s, y = Loop(n, yes, one) <body = b (int64[1] i, bool d, double h)
        => (bool g, double k, double[1] row) {
        g = Identity(d)  k = Identity(h)  e = Gather(x, i)  row = Mul(e, e) }> }"""
    model = oj.load(onnx.parser.parse_model(text))
    x = np.array([2.0, 3, 5])
    J = oj.linearize(model, {"x": x}, engine=engine)
    assert J.primal["y"].shape == (3, 1)
    np.testing.assert_array_equal(J.toarray(), np.diag(2 * x))
    found = ReferenceEvaluator(oj.export(model, "vjp", {"x": x})).run(
        None, {"x": x, "y_cotangent": np.ones((3, 1))}
    )
    np.testing.assert_array_equal(found[0].shape, (3, 1))
    np.testing.assert_array_equal(found[1], 2 * x)
