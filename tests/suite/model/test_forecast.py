"""Forecasts of the memory of a run, with control flow."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.modes.model.primal import evaluate
from onnxjac.modes.model.primal.evaluate import foreseen

X = np.linspace(0.1, 0.6, 6).reshape(2, 3)
HEAD = '<ir_version: 10, opset_import: ["": 21]>'

LOOP = """g (double[2,3] x, int64 n, bool c) => (y) <int64 two = {2}, bool t = {1}>
    { y, rows = Loop(LIMIT, GO, x) <body = b (int64 i, bool d, double[2,3] s) =>
      (bool e, double[2,3] r, double[2,3] o) { STOP BODY o = Exp(x) }> }"""
SCAN = """g (double[2,3] x, double[5,2,3] z) => (y)
    { y, rows = Scan(x, z) <num_scan_inputs=1, body = b (double[2,3] s, double[2,3] u) =>
      (double[2,3] r, double[2,3] o) { BODY o = Exp(u) }> }"""
IF = """g (double[2,3] x, bool c) => (y) { y = If(c) <then_branch = a () => (double[2,3] p)
    { p = Exp(x) }, else_branch = b () => (q) { BODY }> }"""
NESTED = """g (double[2,3] x) => (y) <int64 two = {2}, bool t = {1}>
    { y = Loop(two, t, x) <body = b (int64 i, bool d, double[2,3] s) => (bool e, double[2,3] r)
      { e = Identity(d) r = Loop(two, t, s) <body = k (int64 j, bool f, double[2,3] p) =>
        (bool h, double[2,3] q) { h = Identity(f) q = Sin(p) }> }> }"""
SUM = "m = ReduceSum<keepdims=0>(x) k = Cast<to=7>(m)"
SIN, GROWING = "r = Sin(s)", "r = Concat<axis=0>(s, s)"


def loop(limit="two", go="t", stop="e = Identity(d)", body=SIN):
    made = LOOP.replace("LIMIT", limit).replace("GO", go)
    return made.replace("STOP", stop).replace("BODY", body)


KNOWN = {
    "turns of a constant": loop(),
    "turns of an input": loop(limit="n"),
    "no condition": loop(go='""'),
    "a condition of an input": loop(go="c"),
    "a constant condition inside": loop(stop="e = Constant<value=bool {1}>()"),
    "a condition from outside": loop(stop="e = Identity(t)"),
    "a Scan": SCAN.replace("BODY", SIN),
    "an If": IF.replace("BODY", "q = Sin(x)"),
    "an If of two shapes, by an input": IF.replace("BODY", "q = Concat<axis=0>(x, x)"),
    "a Loop in a Loop": NESTED,
}
ONLY_THE_RUN_TELLS = {
    "no limit": loop(limit='""'),
    "a state that grows": loop(body=GROWING),
    "a condition of the state": loop(stop="m = ReduceSum<keepdims=0>(s) e = Less(m, m)"),
    "turns of floating numbers": loop(limit="k").replace("{ y,", f"{{ {SUM} y,", 1),
    "a Scan whose state grows": SCAN.replace("BODY", GROWING),
    "an If of two shapes, by floating numbers": IF.replace("BODY", "q = Concat<axis=0>(x, x)")
    .replace("{ y = If(c)", f"{{ {SUM} f = Cast<to=9>(m) y = If(f)"),
}


def given(model):
    found = {"x": X, "n": np.array(3), "c": np.array(True), "z": np.ones((5, 2, 3))}
    return {name: found[name] for name in model.inputs}


def load(text, **limits):
    made = onnx.parser.parse_model(HEAD + text.replace("=> (y)", "=> (double[] y)", 1))
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return oj.load(made, limits=oj.Limits(**limits))


@pytest.mark.parametrize("name", KNOWN)
def test_foreseen_sizes_run_by_the_engine(name):
    model = load(KNOWN[name])
    assert foreseen(model, given(model), ["y"])
    plain = model.run(given(model), engine="numpy")["y"]
    assert_allclose(model.run(given(model))["y"], plain, rtol=1e-14)


@pytest.mark.parametrize("name", ONLY_THE_RUN_TELLS)
def test_unforeseen_sizes_run_by_numpy(name, monkeypatch):
    model = load(ONLY_THE_RUN_TELLS[name])
    if "If" not in name and name != "no limit":
        monkeypatch.setattr(evaluate.ort, "compute", None)
    assert not foreseen(model, given(model), ["y"])
    if name != "no limit":
        assert model.run(given(model))["y"] is not None


DEPARTING = {
    "by type": "r = Shrink<lambd=0.1>(s)",
    "by attributes": "f = RandomUniformLike<seed=1.0>(s) r = Add(s, f)",
    "by both": "f = Unsqueeze(s, w) h = DFT<inverse=1>(f) r = ReduceSum<keepdims=0>(h, w)",
    "in a branch": "r = If(d) <then_branch = a () => (double[2,3] p) { p = Shrink(s) }, "
                   "else_branch = k () => (double[2,3] q) { q = Sin(s) }>",
}  # fmt: skip
ENDING = "l = ReduceSum<keepdims=0>(s) e = Less(l, l)"
UNKNOWN = {
    "no limit": {"limit": '""', "stop": ENDING},
    "a condition of the state": {"stop": ENDING},
    "turns of floating numbers": {"limit": "k"},
}


@pytest.mark.parametrize("body", DEPARTING)
@pytest.mark.parametrize("turns", UNKNOWN)
def test_onnxruntime_is_refused_a_loop_that_it_computes_wrong(turns, body):
    """Even where the caller names ONNX Runtime, which would give a wrong result."""
    pytest.importorskip("onnxruntime")
    text = loop(**UNKNOWN[turns], body=DEPARTING[body])
    model = load(text.replace("{ y,", f"{{ w = Constant<value_ints=[2]>() {SUM} y,", 1))
    with pytest.raises(oj.OnnxJacError, match=r"ONNX Runtime .* Try engine='numpy'"):
        model.run(given(model), engine="onnxruntime")


def test_no_turn_is_left_to_numpy():
    model = load(loop(limit="n"))
    assert not foreseen(model, {**given(model), "n": np.array(0)}, ["y"])
    assert_allclose(model.run({**given(model), "n": np.array(0)})["y"], X)


def test_the_rows_of_all_turns_count():
    long = {"n": np.array(1000)}
    model = load(loop(limit="n"), bytes=2**20)
    assert foreseen(model, {**given(model), **long}, ["y", "rows"])
    small = load(loop(limit="n"), bytes=2**14)
    with pytest.raises(oj.LimitError, match="limit of 16,384 bytes"):
        small.run({**given(small), **long})


def test_the_steps_of_all_turns_count():
    model = load(NESTED, steps=9)  # 2 × 2 nodes, half of them loops of 2 × 2
    with pytest.raises(oj.LimitError, match="turn by turn"):
        model.run(given(model))
    fits = load(NESTED, steps=18)
    assert_allclose(fits.run(given(fits))["y"], np.sin(np.sin(np.sin(np.sin(X)))), rtol=1e-14)


def test_a_loop_that_ends_early_is_not_refused_for_the_turns_it_does_not_take():
    stops = loop(limit="n", stop="z = Constant<value=bool {0}>() e = And(d, z)")
    model = load(stops, steps=100)
    assert_allclose(model.run({**given(model), "n": np.array(10**9)})["y"], np.sin(X))
