"""The NumPy kernels against ONNX's own cases, its schemas, and hand-written checks."""

import inspect
import sys
import warnings

import numpy as np
import onnx
import onnx.defs
import onnx_ir
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from onnxjac.jacobians.errors import UnsupportedOp
from onnxjac.ops.numbers import numbers as op
from onnxjac.ops.numbers.convolution import blocks
from onnxjac.ops.numbers.table import KERNELS
from onnxjac.ops.numbers.windows import transposed_windows, windows

rng = np.random.default_rng(0)


FRACTIONAL = {
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
}
"""ONNX's cases divide by scale · length - 1; its text and ONNX Runtime round the length."""


def python_value(value):
    """An attribute as the loader passes it on: strings, tuples, arrays."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return tuple(map(python_value, value))
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def frozen(value):
    """An input that a kernel cannot write to."""
    value = value if isinstance(value, list) else python_value(value)
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    return value


def cases():
    """(node, inputs, outputs, rtol, atol) of every single-node case with a kernel here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases themselves divide by zero and overflow
        collected = collect_testcases(None)
    for case in collected:
        graph = case.model.graph
        node = graph.node[0]
        if case.name in FRACTIONAL:
            continue
        if len(graph.node) == 1 and not node.domain and node.op_type in KERNELS:
            for inputs, outputs in case.data_sets:
                feeds = dict(zip([i.name for i in graph.input], map(frozen, inputs), strict=True))
                yield pytest.param(node, feeds, outputs, case.rtol, case.atol, id=case.name)


def same(actual, expected, rtol, atol):
    """The same type and shape, and nearly the same values."""
    expected = np.asarray(python_value(expected))
    assert isinstance(actual, np.ndarray)
    assert actual.shape == expected.shape
    if expected.dtype.kind in "OU":
        np.testing.assert_array_equal(actual.astype(str), expected.astype(str))
        return
    assert actual.dtype == expected.dtype
    if expected.dtype.kind in "fV":
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("node", "feeds", "expected", "rtol", "atol"), list(cases()))
def test_a_numpy_kernel_gives_the_outputs_of_a_case_of_onnx(node, feeds, expected, rtol, atol):
    attrs = {a.name: python_value(helper.get_attribute_value(a)) for a in node.attribute}
    inputs = [feeds[name] if name else None for name in node.input]
    results = op.run(node.op_type, inputs, attrs, outputs=len(node.output))
    wanted = [r for r, name in zip(results, node.output, strict=True) if name]
    for result, value in zip(wanted, expected, strict=True):
        if isinstance(value, list) or value is None:  # a sequence, or an optional that is empty
            assert len(result or ()) == len(value or ())
        elif node.op_type == "Dropout" and len(inputs) == 3 and inputs[2] and inputs[1] != 0:
            assert result.shape == value.shape  # random numbers: only the shape is certain
        else:
            same(result, value, rtol, atol)


def keywords(kernel):
    """The keyword parameters of a kernel, including those of its window geometry."""
    parameters = inspect.signature(kernel).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    geometry = transposed_windows if kernel is KERNELS["ConvTranspose"] else windows
    return {**(inspect.signature(geometry).parameters if open_ended else {}), **parameters}


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_attributes_and_defaults_agree_with_the_schema(name):
    for attribute in onnx.defs.get_schema(name).attributes.values():
        parameter = keywords(KERNELS[name])[attribute.name]
        assert parameter.kind is parameter.KEYWORD_ONLY
        if attribute.default_value.type:
            default = python_value(helper.get_attribute_value(attribute.default_value))
            assert parameter.default == default


HALVES = [np.float16, onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)]
UNARY = {
    *("Abs", "Acos", "Asin", "Atan", "Celu", "Cos", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid"),
    *("HardSwish", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization", "Mish", "Neg", "ReduceL2"),
    *("ReduceLogSumExp", "ReduceMean", "ReduceSum", "Relu", "Selu", "Shrink", "Sigmoid", "Sin"),
    *("Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu"),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_dtype_is_kept(name, dtype):
    x = np.array([[0.25, 0.5], [0.75, 1]], np.float64)
    y = getattr(op, name)(x.astype(dtype))
    assert y.dtype == dtype
    tolerance = 2e-2 if np.dtype(dtype) in HALVES else 1e-6
    np.testing.assert_allclose(y.astype(np.float64), getattr(op, name)(x), tolerance, tolerance)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", sorted(UNARY))
def test_halves_are_computed_in_single_precision_and_rounded_once(name, dtype):
    x = np.random.default_rng(0).uniform(0.02, 0.98, (8, 16)).astype(dtype)
    y = getattr(op, name)(x)
    np.testing.assert_array_equal(y, getattr(op, name)(x.astype(np.float32)).astype(dtype))


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_products_keep_their_dtype(dtype):
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 5))
    image, weights = rng.normal(size=(1, 2, 5, 5)), rng.normal(size=(3, 2, 3, 3))
    for y, exact in (
        (op.MatMul(a.astype(dtype), b.astype(dtype)), op.MatMul(a, b)),
        (op.Conv(image.astype(dtype), weights.astype(dtype)), op.Conv(image, weights)),
    ):
        assert y.dtype == dtype
        np.testing.assert_allclose(y.astype(np.float64), exact, atol=0.2)


def test_python_numbers_follow_the_arrays():
    x = np.ones((2, 3), np.float32)
    for y in (op.Mul(x, 2.0), op.Add(1, x), op.Div(1.0, x), op.Where(x > 0, x, 0.0), op.Pow(x, 2)):
        assert y.dtype == np.float32


def test_integer_division_truncates():
    np.testing.assert_array_equal(op.Div(np.array([-7, 7, 7]), np.array([2, -2, 2])), [-3, -3, 3])


def test_large_arguments_neither_warn_nor_break():
    x = np.array([-800, 0, 800], np.float32)
    np.testing.assert_allclose(op.Softplus(x), [0, np.log(2), 800])
    np.testing.assert_allclose(op.Sigmoid(x), [0, 0.5, 1])
    np.testing.assert_allclose(op.ReduceLogSumExp(x), [800])
    np.testing.assert_allclose(op.Softmax(x), [0, 0, 1])
    assert op.Exp(x)[2] == np.inf


def test_axes_count_from_the_end():
    x = rng.normal(size=(2, 3, 4, 5))
    np.testing.assert_allclose(op.ReduceSum(x, (-1, -3), keepdims=0), x.sum((1, 3)))
    np.testing.assert_array_equal(op.Slice(x, (3,), (0,), (-1,), (-2,)), x[..., 3:0:-2])
    np.testing.assert_array_equal(op.Slice(x, (-9,), (-99,), (-2,), (-1,)), x[:, :, :1])
    np.testing.assert_array_equal(op.Gather(x, (0, -1), axis=-2), x[:, :, [0, -1]])
    np.testing.assert_array_equal(op.Concat(x, x, axis=-1), np.concatenate([x, x], -1))
    np.testing.assert_array_equal(op.Unsqueeze(x, (-1,)), x[..., None])
    np.testing.assert_array_equal(
        op.Pad(x, (1, -1), None, (-1,)), np.pad(x[..., :-1], [*[(0, 0)] * 3, (1, 0)])
    )
    parts = op.Split(x, (1, 4), axis=-1)
    np.testing.assert_array_equal(parts[1], x[..., 1:])
    np.testing.assert_array_equal(op.TopK(x, 2, axis=-2)[0], np.sort(x, -2)[:, :, :-3:-1])


def test_views_where_nothing_has_to_be_copied():
    x = rng.normal(size=(3, 4))
    assert op.Expand(x, (1000, 3, 4)).strides[0] == 0
    for y in (
        op.Reshape(x, (2, -1)),
        op.Transpose(x),
        op.Slice(x, (1,), (3,)),
        op.Unsqueeze(x, 0),
        op.Split(x, num_outputs=2)[1],
        op.Identity(x),
    ):
        assert np.shares_memory(x, y)


SHAPES = [
    ((3,), (3,)),
    ((3,), (2, 3, 4)),
    ((2, 4, 3), (3,)),
    ((6, 4, 3), (3, 5)),
    ((4, 3), (6, 3, 5)),
    ((4, 3), (6, 3, 1)),
    ((4, 3), (2, 6, 3, 20)),
    ((2, 1, 4, 3), (5, 3, 2)),
    ((0, 4, 3), (3, 2)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_multiplies_stacks_as_numpy_does(left, right):
    a, b = rng.normal(size=left), rng.normal(size=right)
    np.testing.assert_allclose(op.MatMul(a, b), np.matmul(a, b))
    if len(left) > 1 and len(right) > 1:
        wide = np.broadcast_to(a, (7, *np.broadcast_shapes(left[:-2], right[:-2]), *left[-2:]))
        np.testing.assert_allclose(op.MatMul(wide, b), np.matmul(wide, b))
        np.testing.assert_allclose(op.MatMul(a, b.swapaxes(-1, -2).copy().swapaxes(-1, -2)), a @ b)


@pytest.mark.parametrize("count", [3, 500])
def test_scatter_adds_up_repeated_places(count):
    places, updates = rng.integers(-9, 9, (count, 1)), rng.normal(size=(count, 4))
    expected = np.ones((9, 4))
    np.add.at(expected, places[:, 0], updates)
    x = np.ones((9, 4))
    np.testing.assert_allclose(op.ScatterND(x, places, updates, reduction="add"), expected)
    index = np.broadcast_to(places, (count, 4))
    y = op.ScatterElements(x, index, updates, axis=-2, reduction="add")
    np.testing.assert_allclose(y, expected)
    assert (x == 1).all()


def test_scatter_refuses_places_outside():
    with pytest.raises(IndexError, match="an index reaches outside an axis of length 3"):
        op.ScatterND(np.ones(3), np.array([[3]]), np.ones(1))


@pytest.mark.parametrize("lengths", [[1, 2], [1, 5, 2], [1, -1, 2]])
def test_reversed_sequences_refuse_lengths_that_do_not_fit(lengths):
    with pytest.raises(ValueError, match="for 3 sequences of 4 entries"):
        op.ReverseSequence(np.ones((4, 3)), np.array(lengths))


def test_transposed_convolution_is_the_transpose():
    geometry = {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 2, 1), "group": 2}
    x, w = rng.normal(size=(3, 4, 9, 8)), rng.normal(size=(6, 2, 3, 2))
    y = op.Conv(x, w, **geometry)
    u = rng.normal(size=y.shape)
    back = op.ConvTranspose(u, w, output_padding=(1, 0), **geometry)
    np.testing.assert_allclose((y * u).sum(), (x * back).sum())


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("kernel", [(3, 2), (5, 4)])
def test_transposed_convolutions_of_many_small_images(group, kernel):
    x, w = rng.normal(size=(9, 4, 2, 3)), rng.normal(size=(4, 2, *kernel))
    how = {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 0, 1), "group": group}
    alone = [op.ConvTranspose(image[None], w, **how) for image in x]
    np.testing.assert_allclose(op.ConvTranspose(x, w, **how), np.concatenate(alone))


def test_blocks_of_patches_join_seamlessly(monkeypatch):
    x, w = rng.normal(size=(3, 4, 10, 9)), rng.normal(size=(6, 4, 3, 3))
    y, back = op.Conv(x, w, strides=(2, 1)), op.ConvTranspose(x, w.swapaxes(0, 1), strides=(2, 1))
    for size in (1, 20_000):
        monkeypatch.setattr(sys.modules[blocks.__module__], "PATCH_BYTES", size)
        np.testing.assert_allclose(op.Conv(x, w, strides=(2, 1)), y)
        transposed = op.ConvTranspose(x, w.swapaxes(0, 1), strides=(2, 1))
        np.testing.assert_allclose(transposed, back)


def test_kernel_as_long_as_the_image():
    x, w = rng.normal(size=(5, 1, 12, 11)), rng.normal(size=(3, 1, 10, 9))
    expected = np.einsum(
        "nijkl,mkl->nmij",
        np.lib.stride_tricks.sliding_window_view(x[:, 0], (10, 9), (1, 2)),
        w[:, 0],
    )
    np.testing.assert_allclose(op.Conv(x, w), expected)


def test_operators_without_a_kernel_run_by_reference():
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    (y,) = op.run("Resize", [x, None, np.array([1, 1, 2, 2], np.float32)], {"mode": "nearest"})
    np.testing.assert_array_equal(y, x.repeat(2, 2).repeat(2, 3))
    assert op.Det(np.eye(3, dtype=np.float32)) == 1


def test_graph_attributes_reach_the_reference():
    def branch(value):
        tensor = numpy_helper.from_array(np.array(value, np.float32))
        node = helper.make_node("Constant", [], ["c"], value=tensor)
        out = helper.make_tensor_value_info("c", onnx.TensorProto.FLOAT, ())
        return onnx_ir.from_proto(helper.make_graph([node], "branch", [], [out]))

    attrs = {"then_branch": branch(1.0), "else_branch": branch(2.0)}
    assert op.run("If", [np.array(False)], attrs)[0] == 2


def test_unknown_operators_say_so():
    with pytest.raises(UnsupportedOp, match=r"com\.example::Wobble"):
        op.run("Wobble", [np.ones(2)], {}, domain="com.example")
    with pytest.raises(AttributeError, match="Did you mean 'MatMul'"):
        op.MatMull  # noqa: B018
