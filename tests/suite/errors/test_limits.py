"""What a model may take: every limit, and what the error says."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from onnx import parser

import onnxjac as oj

from ..hostile.models import model as named
from .refusals import refused as refused_by

X = np.ones((2, 3), np.float32)
HEAD = '<ir_version: 10, opset_import: ["": 21, "my": 1]>'


def load(body, more="", **limits):
    text = f"{HEAD} g (float[2,3] x) => (float y) {{ {body} }} {more}"
    proto = parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return oj.load(proto, limits=oj.Limits(**limits))


refused = partial(refused_by, oj.LimitError)

LARGE = {
    "Expand": "n = Constant<value_ints=[50000,2,3]>() y = Expand(x, n)",
    "Tile": "n = Constant<value_ints=[4611686018427387904,4]>() y = Tile(x, n)",
    "ConstantOfShape": "n = Constant<value_ints=[1000000]>() y = ConstantOfShape(n)",
    "Pad": "n = Constant<value_ints=[0,0,1000000,0]>() y = Pad(x, n)",
    "Range": "a = Constant<value_float=0.0>() b = Constant<value_float=1000000.0>() "
    "c = Constant<value_float=1.0>() y = Range(a, b, c)",
    "OneHot": "i = Cast<to=7>(x) n = Constant<value_int=1000000>() "
    "v = Constant<value_floats=[0.0,1.0]>() y = OneHot(i, n, v)",
    "outer": "n = Constant<value_ints=[100,1]>() m = Constant<value_ints=[1,100]>() "
    "s = ReduceSum<keepdims=0>(x) a = Expand(s, n) b = Expand(s, m) c = Mul(a, b) "
    "l = Constant<value_ints=[-1,1]>() r = Constant<value_ints=[1,-1]>() "
    "d = Reshape(c, l) e = Reshape(c, r) y = MatMul(d, e)",
    "computed": "s = Shape(x) k = Constant<value_ints=[1000,1000]>() n = Mul(s, k) "
    "z = ConstantOfShape(n) y = Exp(z)",
    "by data": "s = ReduceSum<keepdims=0>(x) k = Constant<value_float=1e5>() m = Mul(s, k) "
    "o = Constant<value_ints=[1]>() p = Reshape(m, o) n = Cast<to=7>(p) y = ConstantOfShape(n)",
    "padding": "s = Constant<value_ints=[1,1,2,3]>() i = Reshape(x, s) "
    "y = MaxPool<kernel_shape=[1,1], pads=[100000,0,100000,0], strides=[100001,1]>(i)",
}


@pytest.mark.parametrize("engine", [None, "numpy"])
@pytest.mark.parametrize("name", LARGE)
def test_a_tensor_that_is_too_large_is_not_begun(name, engine):
    model = load(LARGE[name], bytes=2**20)
    match = r"needs .*more than the limit of 1.0 MiB.*limits=Limits\(bytes=\d+\)"
    refused(match, lambda: model.run({"x": X}, engine=engine))


@pytest.mark.parametrize("engine", [None, "numpy", "onnxruntime"])
def test_within_the_limit_it_runs(engine):
    model = load(LARGE["Expand"], bytes=2**21)
    assert model.run({"x": X}, engine=engine)["y"].shape == (50000, 2, 3)


def test_tensors_count_together_as_long_as_they_are_held():
    body = "n = Constant<value_ints=[50000,2,3]>() a = Expand(x, n) b = Exp(a) c = Sin(b) "
    for engine in (None, "numpy"):
        load(body + "y = Cos(c)", bytes=3 * 2**20).run({"x": X}, engine=engine)
        model = load(body + "d = Add(a, b) y = Add(d, c)", bytes=3 * 2**20)
        refused("what is held at", lambda m=model, e=engine: m.run({"x": X}, engine=e))


ENDLESS = """go = Constant<value = bool {1}>() y = Loop("", go, x) <body = b
    (int64 i, bool c, float[2,3] s) => (bool d, float[2,3] r) { d = Identity(c) r = Sin(s) }>"""
DOUBLING = ENDLESS.replace("r = Sin(s)", "r = Concat<axis=0>(s, s)")
ROWS = ENDLESS.replace("y = Loop", "z, y = Loop").replace("[2,3] r)", "[2,3] r, float[2,3] o)")
ROWS = ROWS.replace("r = Sin(s)", "r = Sin(s) o = Exp(r)")


@pytest.mark.parametrize(
    ("body", "match"),
    [(ENDLESS, "1,0.. steps"), (DOUBLING, "MiB"), (ROWS, "1,0.. steps")],
    ids=["endless", "doubling", "rows"],
)
def test_a_loop_without_end_is_stopped_by_the_limit(body, match):
    model = load(body, steps=1000, bytes=2**20)
    refused(match, lambda: model.run({"x": X}))
    refused(match, lambda: oj.linearize(model, {"x": X}))


def test_the_rows_of_a_loop_count():
    model = load(ROWS, bytes=2**12)
    refused("turns|unrolled", lambda: model.run({"x": X}))
    refused("turns|unrolled", lambda: oj.linearize(model, {"x": X}))


DOUBLED = " ".join(
    f'<opset_import: ["": 21, "my": 1], domain: "my"> f{k} (x) => (y) '
    f"{{ h = my.f{k + 1}(x) y = my.f{k + 1}(h) }}"
    for k in range(30)
)
LAST = '<opset_import: ["": 21], domain: "my"> f30 (x) => (y) { y = Tanh(x) }'


def test_functions_that_call_two_each():
    refused("nodes", lambda: load("y = my.f0(x)", DOUBLED + LAST))


def test_functions_in_one_another():
    refused("depth", lambda: load("y = my.f0(x)", DOUBLED + LAST, nodes=2**40, depth=20))


@pytest.mark.parametrize("name", ["f0", "f1"])
def test_functions_in_a_circle_are_refused(name):
    pair = DOUBLED[: DOUBLED.index("<", DOUBLED.index("f1 (x)"))].replace("my.f2", f"my.{name}")
    with pytest.raises(oj.LoadError, match=r"circle.*'f1'"):
        load("y = my.f0(x)", pair)


def test_a_model_of_more_nodes_than_the_limit_is_refused():
    body = "a = Exp(x) b = Exp(a) y = Exp(b)"
    load(body, nodes=3)
    match = r"3 nodes, more than the limit of 2 nodes.*Limits\(nodes=3\)"
    refused(match, lambda: load(body, nodes=2))


def test_a_dense_matrix_over_the_limit_is_refused():
    J = oj.linearize(load("y = Exp(x)", dense=40), {"x": X})
    refused("toarray", J.toarray)
    refused("limit", J.tosparse)
    assert J.toarray(limit=1000).shape == (6, 6)
    J.T @ np.ones(6, np.float32)


def test_toarray_has_a_limit():
    m = named("y = Neg(x)", "(double[N] x) => (double[N] y)")
    J = oj.linearize(m, {"x": np.ones(40_000)})
    refused(r"40000×40000 .*11.92 GiB.*limit of 2.00 GiB.*limit=", J.toarray)
    small = oj.linearize(m, {"x": np.ones(8)})
    refused("take a block", lambda: small.toarray(limit=511))
    assert_array_equal(small.toarray(limit=512), -np.eye(8))


@pytest.mark.parametrize("value", [-1, 2.5, "1"])
def test_a_limit_that_is_none_is_refused(value):
    with pytest.raises(oj.InputError, match="steps"):
        oj.Limits(steps=value)


def test_models_made_of_a_model_have_its_limits():
    import pickle

    model = load("y = Exp(x)", steps=7)
    assert pickle.loads(pickle.dumps(model)).limits == model.limits
    assert oj.linearize(model, {"x": X}).route.model.limits.steps == 7
