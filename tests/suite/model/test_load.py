"""`oj.load`: every kind of source, without losses, and without changes to the caller's model."""

import pickle
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper, parser

from onnxjac.modes.linearize import linearize
from onnxjac.modes.model.loading.load import load

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3)).astype(np.float32)


def model(body, signature="(float[2,3] x) => (float[2,3] y)", opset=21, more="", imports=""):
    """A model in ONNX's text format, from the signature and body of its graph."""
    header = f'<ir_version: 10, opset_import: ["": {opset}{imports}]>'
    return parser.parse_model(f"{header} g {signature} {{ {body} }} {more}")


def affine(size=64):
    """y = x W + b with weights too large to be stored inside the model."""
    proto = model("h = MatMul(x, w) y = Add(h, b)", f"(float[N,{size}] x) => (float[N,{size}] y)")
    for name, shape in (("w", (size, size)), ("b", (size,))):
        array = RNG.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto, {"x": RNG.standard_normal((5, size)).astype(np.float32)}


@pytest.fixture(params=["str", "Path", "bytes", "ModelProto", "onnx_ir", "function", "external"])
def source(request, tmp_path):
    """The same model in every supported form."""
    proto, feeds = affine()
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    if request.param == "external":
        path = tmp_path / "big.onnx"
        copy = onnx.ModelProto.FromString(proto.SerializeToString())
        onnx.save(copy, path, save_as_external_data=True, location="big.data", size_threshold=0)
    forms = {
        "bytes": proto.SerializeToString(),
        "ModelProto": proto,
        "onnx_ir": ir.from_proto(proto),
        "function": SimpleNamespace(to_model_proto=lambda: proto),  # as of onnxscript
        "str": str(path),
    }
    return forms.get(request.param, path), proto, feeds


def test_every_source_gives_the_same_model(source):
    given, proto, feeds = source
    w, b = map(numpy_helper.to_array, proto.graph.initializer)
    loaded = load(given)
    assert list(loaded.initializers) == ["w", "b"]
    for engine in ("onnxruntime", "numpy"):
        y = loaded.run(feeds, engine=engine)["y"]
        np.testing.assert_allclose(y, feeds["x"] @ w + b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [None, "float64"])
@pytest.mark.parametrize(
    "form",
    [onnx.ModelProto.FromString, lambda data: ir.from_proto(onnx.ModelProto.FromString(data))],
)
def test_the_source_is_left_alone(form, dtype):
    proto, _ = affine()
    proto.opset_import[0].version = 11
    proto.graph.input.append(helper.make_tensor_value_info("w", 1, [64, 64]))
    source = form(proto.SerializeToString())
    before = as_bytes(source)
    load(source, dtype=dtype)
    assert as_bytes(source) == before


def as_bytes(source):
    proto = source if isinstance(source, onnx.ModelProto) else ir.to_proto(source)
    return proto.SerializeToString(deterministic=True)


def test_the_model_tells_what_it_is():
    loaded = load(affine()[0])
    assert str(loaded.inputs["x"]) == "x float32[N,64]"
    assert str(loaded.intermediates["h"]) == "h float32[N,64]"
    assert str(loaded.outputs["y"]) == "y float32[N,64]"
    assert loaded.spec("w").shape == (64, 64)
    assert "opset 21, 2 nodes, 4,160 numbers" in repr(loaded)
    assert not loaded.constants["w"].flags.writeable


def test_steps_hold_attributes_as_python_values():
    loaded = load(
        model(
            "c = Constant<value = float[1] {2}>() t = Transpose<perm=[1,0]>(x) "
            "y = Gemm<alpha=2.0, transA=1>(t, c)",
            "(float[2,3] x, float[3,3] w) => (float[2,3] y)",
        )
    )
    constant, transpose, gemm = loaded.steps
    assert constant.attrs["value"] == [2]
    assert transpose.attrs == {"perm": (1, 0)}
    assert gemm.attrs == {"alpha": 2.0, "transA": 1}
    assert str(gemm) == "Gemm (node 'Gemm_2', opset 21)"


def test_initializers_that_are_inputs_too_become_initializers():
    proto, feeds = affine()
    proto.ir_version = 3
    for tensor in proto.graph.initializer:
        proto.graph.input.append(helper.make_tensor_value_info(tensor.name, 1, tensor.dims))
    loaded = load(proto)
    assert list(loaded.inputs) == ["x"]
    assert list(loaded.run(feeds)) == ["y"]


@pytest.mark.parametrize(("opset", "working"), [(7, 21), (20, 21), (21, 21), (23, 23), (28, 28)])
def test_the_working_opset_is_21_or_the_models_own(opset, working):
    loaded = load(model("y = Relu(x)", opset=opset))
    assert loaded.opset == working
    np.testing.assert_array_equal(loaded.run({"x": X})["y"], np.maximum(X, 0))


@pytest.mark.parametrize("opset", [7, 9, 11, 12, 13, 17, 20])
def test_names_survive_the_raise(opset):
    squeeze = "<axes=[0]>(u" if opset < 13 else "(u, axes"
    unsqueeze = "<axes=[0]>(s" if opset < 13 else "(s, axes"
    constant = "axes = Constant<value = int64[1] {0}>() " if opset >= 13 else ""
    body = constant + f"s = Softmax(x) u = Unsqueeze{unsqueeze}) y = Squeeze{squeeze})"
    loaded = load(model(body, opset=opset))
    assert {"s", "u"} <= loaded.intermediates.keys()


def test_subgraphs_are_raised_too():
    body = """y = If(c) <
        then_branch = yes () => (float[2,3,4] a) { a = Softmax(x) },
        else_branch = no () => (float[2,3,4] b)
            { u = Unsqueeze<axes=[0]>(x) b = Squeeze<axes=[0]>(u) }
    >"""
    loaded = load(model(body, "(float[2,3,4] x, bool c) => (float[2,3,4] y)", opset=11))
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    for engine in ("onnxruntime", "numpy"):
        chosen = loaded.run({"x": x, "c": np.array(True)}, engine=engine)["y"]
        np.testing.assert_allclose(chosen.sum((1, 2)), np.ones(2), rtol=1e-6)
        other = loaded.run({"x": x, "c": np.array(False)}, engine=engine)["y"]
        np.testing.assert_array_equal(other, x)


FUNCTIONS = """
<domain: "my", opset_import: ["": 21, "my": 1]> twice (a) => (b) { b = my.plus (a, a) }
<domain: "my", opset_import: ["": 21]> plus <k: float = 1.0> (a, b) => (c)
{ k = Constant<value_float: float = @k>() s = Add(a, b) c = Mul(s, k) }
"""


def test_local_functions_are_inlined():
    loaded = load(
        model("h = my.twice(x) y = my.plus<k=3.0>(h, x)", more=FUNCTIONS, imports=', "my": 1')
    )
    assert {step.op_type for step in loaded.steps} == {"Add", "Constant", "Mul"}
    np.testing.assert_allclose(loaded.run({"x": X})["y"], 9 * X, rtol=1e-6)


def test_a_function_of_an_older_opset_is_raised():
    old = '<domain: "my", opset_import: ["": 11]> soft (a) => (b) { b = Softmax<axis=1>(a) }'
    loaded = load(model("y = my.soft(x)", more=old, opset=11, imports=', "my": 1'))
    np.testing.assert_allclose(loaded.run({"x": X})["y"].sum(1), np.ones(2), rtol=1e-6)


BODIES = {
    "Celu": "y = Celu<alpha=2.0>(x)",
    "Clip": "lo = Constant<value_float=0.1>() y = Clip(x, lo)",
    "HardSwish": "y = HardSwish(x)",
    "Softmax": "y = Softmax(x)",
    "LayerNormalization": "w = Constant<value = float[3] {1,2,3}>() y = LayerNormalization(x, w)",
    "MeanVarianceNormalization": "y = MeanVarianceNormalization<axes=[0,1]>(x)",
    "ReduceLogSumExp": "r = ReduceLogSumExp<keepdims=0>(x) y = Add(r, x)",
    "SoftmaxCrossEntropyLoss": "t = Constant<value = int64[2] {0,2}>() "
    "l = SoftmaxCrossEntropyLoss(x, t) y = Add(x, l)",
    "CenterCropPad": "s = Constant<value = int64[2] {2,3}>() y = CenterCropPad(x, s)",
    "HannWindow": "n = Constant<value_int=3>() w = HannWindow(n) y = Mul(x, w)",
}


@pytest.mark.parametrize("opset", [21, 23, 26])
@pytest.mark.parametrize("op_type", BODIES)
def test_an_operator_without_rule_becomes_its_body(op_type, opset, clean_registry):
    """With defaults, in the middle of a graph, and nested: losses contain LogSoftmax."""
    proto = model(
        "x1 = Neg(x) " + BODIES[op_type].replace("x,", "x1,").replace("(x)", "(x1)"), opset=opset
    )
    whole = load(proto).run({"x": X})["y"]
    clean_registry.clear()
    inlined = load(proto)
    pattern = op_type == "ReduceLogSumExp"  # its body is one that keeps no digits
    assert (op_type in {step.op_type for step in inlined.steps}) == pattern
    for engine in ("onnxruntime", "numpy"):
        result = inlined.run({"x": X}, engine=engine)["y"]
        np.testing.assert_allclose(result, whole, rtol=1e-5, atol=1e-6)


DOUBLES = {
    "Cast": "h = Cast<to=10>(x) y = Cast<to=1>(h)",
    "Constant": "k = Constant<value_float=0.1>() y = Mul(x, k)",
    "Constants": "k = Constant<value_floats=[0.1, 0.2, 0.3]>() y = Mul(x, k)",
    "ConstantOfShape": "s = Shape(x) k = ConstantOfShape(s) y = Add(x, k)",
    "EyeLike": "k = EyeLike<dtype=1>(x) y = Add(x, k)",
    "CastLike": "k = Constant<value = float[1] {0.5}>() n = Cast<to=10>(k) "
    "h = CastLike(x, n) y = CastLike(h, x)",
    "HannWindow": "n = Constant<value_int=3>() w = HannWindow(n) y = Mul(x, w)",
    "LayerNormalization": "w = Constant<value = float[3] {1,2,3}>() "
    "y = LayerNormalization<stash_type=1>(x, w)",
    "Range": "a = Constant<value_float=0.0>() b = Constant<value_float=3.0>() "
    "c = Constant<value_float=1.0>() r = Range(a, b, c) y = Add(r, x)",
    "If": "c = Constant<value = bool {1}>() y = If(c) <"
    "then_branch = yes () => (float[2,3] a) { a = Cast<to=1>(x) },"
    "else_branch = no () => (float[2,3] b) { b = Identity(x) }>",
}


@pytest.mark.parametrize("name", DOUBLES)
def test_float64_rounds_nowhere(name):
    """The result of single precision, with more digits."""
    proto = model(DOUBLES[name])
    x = RNG.standard_normal((2, 3))
    wide, narrow = load(proto, dtype="float64"), load(proto)
    assert wide.inputs["x"].dtype == wide.outputs["y"].dtype == np.float64
    results = [wide.run({"x": x}, engine=engine)["y"] for engine in ("numpy", None)]
    np.testing.assert_allclose(*results, rtol=1e-13)
    assert all(result.dtype == np.float64 for result in results)
    np.testing.assert_allclose(results[0], narrow.run({"x": x})["y"], rtol=2e-3)
    moved = wide.run({"x": x + 1e-12 * np.abs(x)})["y"]
    assert not np.array_equal(moved, results[1])


def test_float64_leaves_integers_and_keeps_what_must_be_float32():
    body = 'k = Cast<to=7>(x) f = Cast<to=1>(k) r = Resize<mode="linear">(f, , s) y = Identity(r)'
    proto = model(body, "(float[1,1,2,3] x, float[4] s) => (float[1,1,N,M] y)")
    loaded = load(proto, dtype="float64")
    assert loaded.intermediates["k"].dtype == np.int64
    s = np.array([1, 1, 2, 2], np.float64)
    assert loaded.run({"x": X.reshape(1, 1, 2, 3), "s": s})["y"].dtype == np.float64


def test_float64_takes_quantization_through_float32():
    body = (
        "s = Constant<value_float=0.1>() z = Constant<value = uint8 {3}>() "
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)"
    )
    loaded = load(model(body), dtype="float64")
    assert loaded.intermediates["q"].dtype == np.uint8
    assert loaded.outputs["y"].dtype == np.float64
    np.testing.assert_allclose(loaded.run({"x": X})["y"], load(model(body)).run({"x": X})["y"])


def test_half_precision_is_raised_from_the_stored_numbers():
    proto = model("y = Mul(x, w)", "(float16[2,3] x) => (float16[2,3] y)")
    w = RNG.standard_normal(3).astype(np.float16)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    x = RNG.standard_normal((2, 3))
    np.testing.assert_array_equal(load(proto, dtype="float64").run({"x": x})["y"], x * w)


def test_the_long_name_of_the_default_domain():
    proto = model("y = Relu(x)")
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    loaded = load(proto)
    assert (loaded.opset, loaded.steps[0].domain) == (21, "")


@pytest.mark.parametrize("node", [
    "SimplifiedLayerNormalization<axis=-1>(a, w)", "SkipSimplifiedLayerNormalization(a, a, w)",
    "FusedMatMul<transB=1>(a, a)", "BiasGelu(a, w)", "ScaledTanh<alpha=2.0, beta=0.5>(a)",
    "Scale<scale=2.0>(a)",
])  # fmt: skip
def test_a_function_may_hold_what_a_graph_may_hold(node):
    """Operators of ONNX Runtime, or that ONNX has no more, in the default domain."""
    ends = "(float[2,3] x, float[3] w) => (float[N,M] y)"
    more = f'<domain: "f", opset_import: ["": 21]> F (a, w) => (q) {{ q = {node} }}'
    plain = load(model(f"a = Identity(x) y = {node}", ends))
    inner = load(model("y = f.F(x, w)", ends, imports=', "f": 1', more=more))
    feeds = {"x": X, "w": np.array([1, 2, 3], np.float32)}
    np.testing.assert_array_equal(inner.run(feeds)["y"], plain.run(feeds)["y"])
    J, K = (linearize(m, feeds, wrt=["x", "w"] if "w" in node else "x") for m in (inner, plain))
    np.testing.assert_array_equal(J.toarray(), K.toarray())


@pytest.mark.parametrize("count", [0, 2, 300])
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("kept", ["initializer", "constant"])
def test_strings_are_constants_like_others(count, engine, kept):
    texts = [f"wörd {n}" for n in range(count)]
    words = helper.make_tensor("w", onnx.TensorProto.STRING, [count], texts)
    proto = model("e = Equal(w, w) f = Cast<to=1>(e) y = Mul(x, f)",
                  f"(float[{count}] x) => (float[{count}] y)")  # fmt: skip
    if kept == "initializer":
        proto.graph.initializer.append(words)
    else:
        proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=words))
    loaded = pickle.loads(pickle.dumps(load(proto)))
    J = linearize(loaded, {"x": np.ones(count, np.float32)}, engine=engine)
    assert np.array_equal(J.toarray(), np.eye(count))
