"""Loading changes no result: every operator, at every opset that changed its meaning.

The reference is ONNX Runtime on the original model, or `onnx.reference` for opsets 27, 28.
"""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from onnxjac.modes.linearize import linearize
from onnxjac.modes.model.loading.load import load

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def floats(*values):
    return np.array(values, np.float32)


X, M, P = normal(2, 3, 4, 5), normal(3, 4), np.abs(np.tanh(normal(2, 3, 4, 5))) * 0.8 + 0.1
NONE = np.zeros(0, np.float32)
CASES = []
BODY_REFUSED = ("AffineGrid", "onnxruntime")  # ONNX's own body for it breaks type inference


def case(ops, first, last, *inputs, outputs=1, **attributes):
    """Operators that take these inputs and attributes from opset `first` to `last`."""
    CASES.extend((op, first, last, inputs, outputs, attributes) for op in ops.split())


case("Abs Acos Asin Atan Ceil Cos Elu Exp Floor HardSigmoid Identity LeakyRelu Log Neg", 7, 28, P)
case("Reciprocal Relu Selu Sigmoid Sin Softplus Softsign Sqrt Tan Tanh", 7, 28, P)
case("Cosh Sinh Erf Sign IsNaN Asinh Shrink NonZero", 9, 28, X)
case("Round ThresholdedRelu IsInf", 11, 28, X * 3)
case("Celu HardSwish Mish Gelu Swish", 12, 28, X)
case("Softmax LogSoftmax Hardmax", 7, 28, X)
for axis in (0, 2, 3):
    case("Softmax LogSoftmax Hardmax", 7, 28, X, axis=axis)
case("Softmax LogSoftmax Hardmax", 11, 28, X, axis=-2)
case("Flatten GlobalAveragePool GlobalMaxPool Shape Size Transpose ArgMax ArgMin", 7, 28, X)
case("Add Sub Mul Div Pow", 7, 28, P, normal(4, 1) ** 2)
case("Max Min Sum Mean", 8, 28, X, normal(4, 1))
case("And Or Xor", 7, 28, X > 0, X[0] > 0)
case("Greater Less", 7, 28, X, X[0])
case("GreaterOrEqual LessOrEqual", 12, 28, X, X[0])
case("Not", 7, 28, X > 0)
case("Mod", 10, 28, X, normal(5), fmod=1)
case("Where", 9, 28, X > 0, X, normal(5))
case("PRelu", 7, 28, X, normal(3, 1, 1))
case("Clip", 7, 10, X, min=-0.5, max=0.5)
case("Clip", 7, 10, X, max=0.5)
case("Clip", 11, 28, X, np.float32(-0.5), None)
case("Clip", 11, 28, X, None, np.float32(0.5))
case("Cast", 7, 28, X, to=TensorProto.INT64)
case("Cast", 7, 28, X, to=TensorProto.DOUBLE)
case("CastLike", 15, 28, X, np.ones(1))

case("BatchNormalization", 7, 28, X, normal(3), normal(3), normal(3), normal(3) ** 2 + 0.5)
case("InstanceNormalization", 7, 28, X, normal(3), normal(3))
case("GroupNormalization", 18, 20, normal(2, 6, 4), normal(3), normal(3), num_groups=3)
case("GroupNormalization", 21, 28, normal(2, 6, 4), normal(6), normal(6), num_groups=3)
case("LayerNormalization", 17, 28, X, normal(4, 5), normal(4, 5), axis=2)
case("RMSNormalization", 23, 28, X, normal(5))
case("MeanVarianceNormalization", 9, 28, X)
case("LpNormalization", 7, 28, X, axis=1)
case("LRN", 7, 26, X, size=3)  # the reference omits the last channel
case("Dropout", 7, 11, X, ratio=0.3)
case("Dropout", 12, 28, X, np.float32(0.3))

case("Gemm", 7, 28, M, normal(4, 5), normal(5), alpha=0.5, beta=2.0)
case("Gemm", 7, 28, normal(4, 3), normal(5, 4), normal(3, 1), transA=1, transB=1)
case("MatMul", 7, 28, X, normal(5, 2))
case("Einsum", 12, 28, M, normal(4, 5), equation="ij,jk->ki")
case("Conv", 7, 28, X, normal(4, 3, 2, 3), normal(4), pads=[1, 0, 0, 1], dilations=[2, 1])
case("Conv", 7, 28, X, normal(6, 1, 2, 2), group=3, auto_pad="SAME_LOWER")
case("ConvTranspose", 7, 28, X, normal(3, 2, 2, 3), strides=[2, 2], output_padding=[1, 0])
case("MaxPool AveragePool LpPool", 7, 28, X, kernel_shape=[2, 2], pads=[1, 0, 0, 1])
case("AveragePool", 7, 28, X, kernel_shape=[2, 2], auto_pad="SAME_UPPER", count_include_pad=1)
case("MaxPool", 8, 28, X, kernel_shape=[2, 2], strides=[2, 2], outputs=2)
case("MaxPool", 10, 28, X, kernel_shape=[2, 2], dilations=[2, 2], ceil_mode=1)
case("AveragePool", 19, 28, X, kernel_shape=[2, 2], dilations=[2, 2])
case("LSTM", 7, 28, normal(5, 2, 3), normal(1, 16, 3), normal(1, 16, 4), outputs=3, hidden_size=4)
case("GRU", 7, 28, normal(5, 2, 3), normal(1, 12, 3), normal(1, 12, 4), outputs=2, hidden_size=4)

REDUCTIONS = (
    "ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceSumSquare"
)
case(REDUCTIONS + " ReduceSum", 7, 28, P)
case(REDUCTIONS, 7, 17, P, axes=[1, 3], keepdims=0)
case(REDUCTIONS, 18, 28, P, ints(1, -1))
case("ReduceSum", 7, 12, P, axes=[1, 3], keepdims=0)
case("ReduceSum", 13, 28, P, ints(1, -1))
case("CumSum", 11, 28, X, np.array(1), exclusive=1)

case("Pad", 7, 10, X, pads=[0, 1, 2, 0, 1, 0, 0, 3], value=1.5)
case("Pad", 7, 10, X, pads=[0, 0, 1, 1, 0, 0, 2, 1], mode="reflect")
case("Pad", 11, 28, X, ints(0, 1, 2, 0, 1, 0, 0, 3), np.float32(1.5))
case("Slice", 7, 9, X, starts=[0, 1], ends=[2, 1000], axes=[1, 3])
case("Slice", 10, 28, X, ints(0, 3), ints(2, 0), ints(1, 3), ints(1, -1))
case("Split", 7, 12, X, axis=1, split=[1, 2], outputs=2)
case("Split", 7, 17, X, axis=2, outputs=2)
case("Split", 13, 28, X, ints(1, 2), axis=1, outputs=2)
case("Split", 18, 28, X, axis=2, num_outputs=2, outputs=2)
case("Squeeze", 7, 12, normal(1, 3, 1, 4), axes=[0, 2])
case("Squeeze", 13, 28, normal(1, 3, 1, 4), ints(0, -2))
case("Unsqueeze", 7, 12, M, axes=[0, 2])
case("Unsqueeze", 13, 28, M, ints(0, -2))
case("Reshape", 7, 28, X, ints(0, -1, 5))
case("Reshape", 14, 28, X, ints(2, -1, 5), allowzero=1)
case("Expand", 8, 28, normal(3, 1, 5), ints(2, 1, 4, 1))
case("Tile", 7, 28, X, ints(1, 2, 1, 3))
case("Concat", 7, 28, X, X, axis=1)
case("Gather", 7, 28, X, ints(2, 0), axis=1)
case("GatherElements", 11, 28, X, np.zeros((2, 3, 4, 2), np.int64), axis=3)
case("GatherND", 12, 28, X, ints([1], [2]), batch_dims=1)
case("Scatter", 9, 10, X, np.zeros((1, 1, 1, 2), np.int64), normal(1, 1, 1, 2), axis=2)
case("ScatterElements", 11, 28, X, np.zeros((1, 1, 1, 2), np.int64), normal(1, 1, 1, 2), axis=2)
case("ScatterND", 11, 28, X, ints([0, 1], [1, 2]), normal(2, 4, 5))
case("TopK", 7, 9, X, k=2, axis=2, outputs=2)
case("TopK", 10, 28, X, ints(2), axis=2, outputs=2)
case("OneHot", 9, 28, ints(0, 2, 1), np.int64(3), floats(0, 1))
case("ConstantOfShape", 9, 28, ints(2, 3))
case("EyeLike", 9, 28, M, k=1)
case("Trilu", 14, 28, X, upper=0)
case("DepthToSpace", 7, 28, normal(2, 8, 2, 3), blocksize=2)
case("SpaceToDepth", 7, 28, normal(2, 2, 4, 6), blocksize=2)
case("Range", 11, 28, np.float32(0), np.float32(2), np.float32(0.5))

for mode in ("nearest", "linear"):
    case("Upsample", 7, 8, X, scales=[1.0, 1.0, 2.0, 2.0], mode=mode)
    case("Upsample", 9, 9, X, floats(1, 1, 1.5, 2), mode=mode)
    case("Resize", 10, 10, X, floats(1, 1, 1.5, 2), mode=mode)
    case("Resize", 10, 10, X, floats(1, 1, 0.6, 0.4), mode=mode)
    case("Resize", 11, 12, X, NONE, NONE, ints(2, 3, 7, 9), mode=mode)
    case("Resize", 13, 28, X, None, None, ints(2, 3, 7, 9), mode=mode)
for where in ("align_corners", "asymmetric", "pytorch_half_pixel"):
    how = {"mode": "linear", "coordinate_transformation_mode": where}
    case("Resize", 11, 28, X, NONE, floats(1, 1, 2, 1.6), **how)
case("GridSample", 16, 19, X, np.tanh(normal(2, 3, 3, 2)), mode="bilinear")
case("GridSample", 20, 28, X, np.tanh(normal(2, 3, 3, 2)), mode="linear")
case("SoftmaxCrossEntropyLoss", 12, 28, M, ints(0, 3, 1), outputs=2)
case("NegativeLogLikelihoodLoss", 12, 28, M, ints(0, 3, 1), reduction="sum")
case("CenterCropPad", 18, 28, X, ints(3, 6), axes=[2, 3])
case("AffineGrid", 20, 28, normal(2, 2, 3), ints(2, 1, 3, 4))
case("HannWindow", 17, 28, np.array(8))
case("QuantizeLinear", 10, 28, M, np.float32(0.1), np.uint8(3))


def opsets(op, first, last):
    """Every opset with a new version of the operator, the opset before it, and the last one."""
    known = {v for v in range(first, last + 1) if defs.has(op, v)}
    since = {defs.get_schema(op, v).since_version for v in known}
    return sorted({*since, *(v - 1 for v in since), min(known), max(known)} & known)


def build(op, opset, inputs, outputs, attributes):
    """A model of one node: the first input is fed, the others are initializers."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    weights = [
        numpy_helper.from_array(np.asarray(x), name)
        for name, x in zip(names[1:], inputs[1:], strict=True)
        if name
    ]
    x = np.asarray(inputs[0])
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, name="node", **attributes)],
        op,
        [helper.make_tensor_value_info("x0", dtype, x.shape)],
        [onnx.ValueInfoProto(name=name) for name in made],
        weights,
    )
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8 if opset < 21 else 10)
    return model, {"x0": x}


def declare_outputs(model, results):
    """The model with its outputs declared with their actual types."""
    for info, y in zip(model.graph.output, results, strict=True):
        dtype = helper.np_dtype_to_tensor_dtype(y.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, dtype, y.shape))
    return model


def by_onnxruntime(model, feeds):
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)


@pytest.mark.parametrize("engine", ["onnxruntime", "numpy"])
@pytest.mark.sampled(0.5)
@pytest.mark.parametrize(
    ("op", "first", "last", "inputs", "outputs", "attributes"),
    CASES,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)],
)
def test_an_operator_computes_what_it_did(op, first, last, inputs, outputs, attributes, engine):
    for opset in opsets(op, first, last):
        model, feeds = build(op, opset, inputs, outputs, attributes)
        if opset <= 26:
            expected = by_onnxruntime(model, feeds)
        else:
            expected = ReferenceEvaluator(model).run(None, feeds)
        forced = engine if opset <= 26 and (op, engine) != BODY_REFUSED else None
        result = load(declare_outputs(model, expected)).run(feeds, engine=forced)
        for y, truth in zip(result.values(), expected, strict=True):
            assert y.dtype == truth.dtype, opset
            np.testing.assert_allclose(y, truth, rtol=1e-5, atol=1e-6, err_msg=f"opset {opset}")


OLD = """<ir_version: 4, opset_import: ["": 10]> g ({kind}[3] x) => ({kind}[n] y) {{
    h = Tanh(x)  c = Clip<min = -0.5, max = 0.5>(h)  y = Pad<pads = [1, 1], value = 0.25>(c) }}"""


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize(("kind", "dtype"), [("float16", "f2"), ("float", "f4"), ("double", "f8")])
def test_attributes_that_became_inputs_have_the_type_of_their_operator(kind, dtype, engine):
    model = load(parser.parse_model(OLD.format(kind=kind)))
    y = model.run({"x": np.array([-2, 0, 2], dtype)}, engine=engine)["y"]
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, [0.25, -0.5, 0, 0.5, 0.25])


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_bounds_have_the_type_of_a_tensor_that_only_later_opsets_infer(engine):
    text = """<ir_version: 5, opset_import: ["": 10]>
    g (double[3] x) => (double[k] y) <bool[3] kept = {1, 0, 1}>
    { c = Compress(x, kept)  y = Clip<min = -0.5, max = 0.5>(c) }"""
    y = load(parser.parse_model(text)).run({"x": np.array([-2.0, 0, 0.3])}, engine=engine)["y"]
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, [-0.5, 0.3])


@pytest.mark.parametrize("opset", [18, 20])
def test_early_group_normalization_scales_by_group_and_not_by_channel(opset):
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    g (float[1,4,1] x) => (float[1,4,1] y) <float[2] s = {{2, 3}}, float[2] b = {{0, 1}}>
    {{ y = GroupNormalization<num_groups = 2>(x, s, b) }}"""
    x = np.array([5, 7, 1, 9], np.float32).reshape(1, 4, 1)  # -1 and 1 in each group of two
    y = load(parser.parse_model(text)).run({"x": x})["y"]
    np.testing.assert_allclose(y.ravel(), [-2, 2, -2, 4], rtol=1e-5)


def test_a_model_that_imports_no_operators_of_onnx():
    text = '<ir_version: 8, opset_import: ["com.microsoft": 1]> g (double[3] x) => (double[3] y)'
    model = load(parser.parse_model(text + "{ y = com.microsoft.QuickGelu(x) }"))
    x = np.array([-1.0, 0.0, 2.0])
    s = 1 / (1 + np.exp(-1.702 * x))
    slope = s + 1.702 * x * s * (1 - s)
    np.testing.assert_allclose(linearize(model, {"x": x}).toarray(), np.diag(slope), rtol=1e-6)
