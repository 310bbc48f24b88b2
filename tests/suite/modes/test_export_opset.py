"""Exports at an earlier opset equal those at the working opset, or say what the opset lacks."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import onnxjac as oj

from .test_export import run
from .test_export_modes import FIT, GATHERED, HEAD, TURNS

QUANTISED = """
<ir_version: 7, opset_import: ["": 13]>
g (float[n, 4] x) => (float[n, 2] y)
<float s = {0.02}, uint8 z = {128}, float[2] t = {0.01, 0.02}, int8[2] zero = {0, 0},
 int8[4, 2] W = {10, -20, 30, 40, -50, 60, 70, -80}>
{ q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
  w = DequantizeLinear<axis = 1>(W, t, zero)  m = MatMul(d, w)  y = Softmax(m) }
"""

POOLED = """(double[n, 1, 4] x) => (double[n, 1, 2] y) { y = MaxPool<kernel_shape = [3]>(x) }"""

MANY = """(double[batch, 6] x) => (double[batch, 3] y)
<int64[2] sizes = {3, 3}, int64[1] one = {1}>
{ a, b = Split<axis = 1>(x, sizes)  p = Softplus(a)  q = Mul(p, b)
  m = ReduceMax<keepdims = 1>(q, one)  e = ReduceLogSumExp<keepdims = 1>(q, one)  l = LogSoftmax(q)
  o = Sub(l, e)  y = Mul(o, m) }
"""


def ones(model):
    """A point of two samples."""
    rng = np.random.default_rng(0)
    points = dict[str, np.ndarray]()
    for name, spec in model.inputs.items():
        shape = [2 if isinstance(size, str) else size for size in spec.shape]
        draw = rng.standard_normal(shape) if spec.dtype.kind == "f" else np.full(shape, 1)
        points[name] = np.asarray(draw, spec.dtype)
    return points


def fill(proto, point):
    """Inputs of an export: the point, and random tangents."""
    rng = np.random.default_rng(1)
    made = dict[str, np.ndarray]()
    for value in proto.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value or 2 for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        made[value.name] = point.get(value.name, rng.standard_normal(shape).astype(dtype))
    return made


def load(text):
    return oj.load(onnx.parser.parse_model(text if text.lstrip().startswith("<") else HEAD + text))


CASES = {
    "int8": (QUANTISED, ["value", "jvp", "vjp", "jacobian"]),
    "fit": (FIT, ["grad", "hvp", "hessian"]),
    "loop": (TURNS, ["vjp", "grad"]),
    "gather": (GATHERED, ["value", "jvp"]),
    "many": (MANY, ["jvp", "vjp"]),
}


@pytest.mark.parametrize("opset", [13, 15, 16, 17, 19])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_an_export_at_an_earlier_opset_is_the_same_function(case, opset):
    text, modes = CASES[case]
    model = load(text)
    point = ones(model)
    for mode in modes:
        options = {"of": [*model.outputs], "straight_through": True}
        if case == "fit":
            options["wrt"] = "W"
        newest = oj.export(model, mode, point, **options)
        lowered = oj.export(model, mode, point, opset=opset, **options)
        assert {o.domain: o.version for o in lowered.opset_import} == {"": opset}
        assert lowered.ir_version == onnx.helper.find_min_ir_version_for(lowered.opset_import)
        assert [p.key for p in lowered.metadata_props] == [p.key for p in newest.metadata_props]
        inputs = fill(newest, point)
        expected = run(newest, inputs)
        for name, value in run(lowered, inputs).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_an_int8_file_has_its_derivative_at_its_own_opset():
    """By the definitions of ONNX, beside J and beside central differences of the float path."""
    model = load(QUANTISED)
    point = {"x": np.array([[0.48, -1.0, 0.24, 0.76]], "f")}
    proto = oj.export(model, "vjp", point, straight_through=True, opset=13)
    u = np.array([[1.0, -2.0]], "f")
    J = oj.linearize(model, point, straight_through=True)
    _, g = ReferenceEvaluator(proto).run(None, {**point, "y_cotangent": u})
    np.testing.assert_allclose(g.ravel(), J.T @ u.ravel(), rtol=1e-5, atol=1e-6)
    W = np.array([10, -20, 30, 40, -50, 60, 70, -80]).reshape(4, 2) * [0.01, 0.02]

    def path(x):
        e = np.exp(x @ W)
        return float((e / e.sum() * u).sum())

    quantised = np.round(point["x"].astype(float)[0] / np.float32(0.02)) * np.float32(0.02)
    slopes = [(path(quantised + h) - path(quantised - h)) / 2e-5 for h in np.eye(4) * 1e-5]
    np.testing.assert_allclose(g[0], slopes, rtol=1e-4)


def test_operators_that_an_opset_lacks_are_named():
    """The adjoint of overlapping windows adds where they meet, which ONNX has from 16 on."""
    with pytest.raises(oj.InputError, match=r"ScatterElements from 16\. Ask for 16"):
        oj.export(load(POOLED), "vjp", {"x": np.arange(8.0).reshape(2, 1, 4)}, opset=13)
    point = {"x": np.arange(5.0), "which": np.array([1, 1, 2])}
    with pytest.raises(oj.InputError, match=r"ScatterElements from 16\. Ask for 16"):
        oj.export(load(GATHERED), "vjp", point, opset=15)
    with pytest.raises(oj.InputError, match="opset=12 is too low"):
        oj.export(load(MANY), "vjp", {"x": np.ones((2, 6))}, opset=12)


def test_an_opset_above_the_newest_needed_changes_nothing():
    model = load(MANY)
    point = {"x": np.ones((2, 6))}
    assert oj.export(model, "vjp", point, opset=26) == oj.export(model, "vjp", point)


def test_several_modes_and_training_steps_take_an_opset():
    model = load(FIT)
    point = ones(model)
    both = oj.export(model, ["value", "grad"], point, wrt="W", opset=15)
    assert {o.version for f in both.functions for o in f.opset_import} == {15}
    newest = oj.export(model, ["value", "grad"], point, wrt="W")
    for name, value in run(both, point).items():
        np.testing.assert_array_equal(value, run(newest, point)[name])
    training = oj.training_model(model, "loss", ["W"])
    step, plain = (oj.export(training, "training_step", point, opset=k) for k in (15, None))
    inputs = fill(plain, point) | {"update_count": np.array(0)}
    del inputs["learning_rate"]
    inputs["W_squares"] **= 2
    expected = run(plain, inputs)
    for name, value in run(step, inputs).items():
        np.testing.assert_array_equal(value, expected[name])
