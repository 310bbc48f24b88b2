"""Rows added at one position: a data race in ONNX Runtime's ScatterND loses some."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj

pytest.importorskip("onnxruntime")

TOKENS, WORDS, WIDTH = 4000, 5, 64
HEAD = '<ir_version: 10, opset_import: ["": 21]>'
TEXT = f"""{HEAD} g (double[{WORDS},{WIDTH}] w, int64[{TOKENS}] i) => (double[{TOKENS},{WIDTH}] y)
    {{ y = Gather(w, i) }}"""
RNG = np.random.default_rng(5)
POINT = {"w": RNG.standard_normal((WORDS, WIDTH)), "i": RNG.integers(0, WORDS, TOKENS)}
U = RNG.standard_normal((TOKENS, WIDTH))
WANTED = np.stack([U[POINT["i"] == k].sum(0) for k in range(WORDS)])


@pytest.mark.parametrize("engine", ["onnxruntime", "numpy"])
def test_a_compiled_product_loses_no_row_added_at_one_position(engine):
    J = oj.linearize(oj.load(onnx.parser.parse_model(TEXT)), POINT, wrt="w").compile(engine)
    for _ in range(5):
        assert_allclose((J.T @ U.ravel()).reshape(WANTED.shape), WANTED, rtol=1e-10)


def test_a_compiled_loop_loses_no_row_added_at_one_position():
    text = f"""{HEAD} g (double[{WORDS},{WIDTH}] w, int64[{TOKENS}] i, double[{TOKENS},{WIDTH}] x)
        => (double[{TOKENS},{WIDTH}] y) <int64 turns = {{60}}, bool on = {{1}}> {{
        y = Loop(turns, on, x) <body = b (int64 k, bool c, double[{TOKENS},{WIDTH}] s)
            => (bool d, double[{TOKENS},{WIDTH}] t)
            {{ d = Identity(c)  e = Gather(w, i)  t = Add(s, e) }}>
    }}"""
    J = oj.linearize(oj.load(onnx.parser.parse_model(text)), {**POINT, "x": 0 * U}, wrt="w")
    assert J.compile("onnxruntime").T @ U.ravel() == pytest.approx(60 * WANTED.ravel(), rel=1e-9)


@pytest.mark.parametrize("x", [np.zeros((2, 3, WIDTH)), np.ones((2, 3, 0))])
def test_a_run_loses_no_row_added_at_one_position(x):
    text = f"""{HEAD} g (double[2,3,w] x, int64[n,2] i, double[n,w] u)
        => (double[2,3,w] y) {{ y = ScatterND<reduction="add">(x, i, u) }}"""
    at = np.stack([RNG.integers(-2, 2, TOKENS), RNG.integers(-3, 3, TOKENS)], 1)
    rows = U[:, : x.shape[-1]]
    wanted = x.copy()
    np.add.at(wanted, tuple(at.T), rows)
    model = oj.load(onnx.parser.parse_model(text))
    for _ in range(5):
        found = model.run({"x": x, "i": at, "u": rows}, engine="onnxruntime")
        assert_allclose(found["y"], wanted, rtol=1e-10)


def test_an_exported_product_loses_no_row_added_at_one_position():
    program = oj.load(oj.export(oj.load(onnx.parser.parse_model(TEXT)), "vjp", POINT, wrt="w"))
    for _ in range(5):
        found = program.run({**POINT, "y_cotangent": U}, engine="onnxruntime")
        assert_allclose(found["w_cotangent"], WANTED, rtol=1e-10)


def test_slices_by_several_numbers():
    text = f"""{HEAD} g (double[2,3,{WIDTH}] x, int64[{TOKENS},2] i, double[{TOKENS},{WIDTH}] u)
        => (double[2,3,{WIDTH}] y) {{ y = ScatterND<reduction="add">(x, i, u) }}"""
    at = np.stack([RNG.integers(-2, 2, TOKENS), RNG.integers(-3, 3, TOKENS)], 1)
    point = {"x": np.zeros((2, 3, WIDTH)), "i": at, "u": U}
    program = oj.load(oj.export(oj.load(onnx.parser.parse_model(text)), "jvp", point, wrt="u"))
    wanted = np.zeros((2, 3, WIDTH))
    np.add.at(wanted, tuple(at.T), U)
    for _ in range(5):
        found = program.run({**point, "u_tangent": U}, engine="onnxruntime")
        assert_allclose(found["y_tangent"], wanted, rtol=1e-10)


def test_constant_slices_that_differ():
    text = f"""{HEAD} g (double[2,3] x, double[2] u) => (double[2,3] y)
        <int64[2,2] i = {{0, 1, 1, 2}}> {{ y = ScatterND<reduction="add">(x, i, u) }}"""
    point = {"x": np.zeros((2, 3)), "u": np.ones(2)}
    program = oj.load(oj.export(oj.load(onnx.parser.parse_model(text)), "jvp", point, wrt="u"))
    found = program.run({**point, "u_tangent": np.array([2.0, 3.0])}, engine="onnxruntime")
    assert_allclose(found["y_tangent"], [[0, 2, 0], [0, 0, 3]])
