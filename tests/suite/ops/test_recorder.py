"""The recorder: no duplicate, constant or unused nodes, all shapes and dtypes known."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from onnxjac.jacobians import dtype_of, reading, shape_of
from onnxjac.jacobians.errors import OnnxJacError
from onnxjac.jacobians.symint import Symbols
from onnxjac.ops import Recorder, Step
from onnxjac.ops.graphs import build
from onnxjac.ops.numbers import numbers


@pytest.fixture
def op():
    return Recorder({"": 21})


@pytest.fixture
def x(op):
    return op.new((3, 4), np.float32, "x")


def kinds(op):
    return [node.op_type for node in op.nodes]


def test_a_call_records_a_node_and_knows_shape_and_dtype(op, x):
    y = op.MatMul(x, np.ones((4, 2), np.float32))
    assert kinds(op) == ["MatMul"]
    assert (shape_of(y), dtype_of(y)) == ((3, 2), np.float32)
    assert reading(y) is op


def test_several_outputs_come_as_a_tuple(op, x):
    image = op.Reshape(x, (1, 1, 3, 4))
    values, positions = op.MaxPool(image, kernel_shape=(2, 2), outputs=2)
    assert (shape_of(values), dtype_of(positions)) == ((1, 1, 2, 3), np.int64)


def test_nothing_is_recorded_twice(op, x):
    first = op.ReduceSum(op.Exp(x), (0,), keepdims=1)
    assert op.ReduceSum(op.Exp(x), np.array([0])) is first  # 1 is the default of keepdims
    assert op.ReduceSum(op.Exp(x), (0,), keepdims=0) is not first
    assert kinds(op) == ["Exp", "ReduceSum", "ReduceSum"]


def test_a_copied_step_is_not_recorded_again(op, x):
    step = Step("Tanh", "", 21, "tanh", ("x",), ("y",))
    (y,) = op.copy(step, [x], [np.ones((3, 4), np.float32)])
    assert y.name == "y"
    assert op.Tanh(x) is y


def test_more_outputs_of_a_node_are_outputs_of_that_node(op, x):
    image = op.Reshape(x, (1, 1, 3, 4))
    alone = op.MaxPool(image, kernel_shape=(2, 2))
    values, _ = op.MaxPool(image, kernel_shape=(2, 2), outputs=2)
    assert op.MaxPool(image, kernel_shape=(2, 2)) is values
    assert values is alone
    assert [node.op_type for node in op.nodes] == ["Reshape", "MaxPool"]


def test_operators_of_constants_are_computed_at_once(op):
    y = op.Add(op.Shape(np.ones((2, 5))), np.array([1, 1]))
    assert y.tolist() == [3, 6]
    assert op.nodes == []


def test_integer_initializers_are_constants_too(op, x):
    shape = op.initializer(np.array([4, 3]), "shape")
    assert op.Mul(shape, 2).tolist() == [8, 6]
    assert shape_of(op.Reshape(x, shape)) == (4, 3)


def test_equal_constants_are_one_initializer(op, x):
    op.Mul(op.Add(x, np.full(4, 2, np.float32)), np.full(4, 2, np.float32))
    (constant,) = {id(node.inputs[1]) for node in op.nodes}
    assert constant in map(id, op.constants.values())


def test_one_number_that_fills_a_tensor_is_expanded_not_stored(op, x):
    op.Add(x, np.broadcast_to(np.float32(2), (5, 3, 4)))
    assert kinds(op) == ["Expand", "Add"]
    assert max(value.const_value.size for value in op.constants.values()) == 3


@pytest.mark.parametrize("number", [2, 0.5])
def test_python_numbers_take_the_dtype_of_the_other_operand(op, x, number):
    assert dtype_of(op.Div(number, x)) == np.float32
    assert dtype_of(op.nodes[0].inputs[0]) == np.float32


@pytest.mark.parametrize("call", [
    lambda op, x: op.Identity(x),
    lambda op, x: op.Reshape(x, (3, 4)),
    lambda op, x: op.Reshape(x, (-1, 4)),
    lambda op, x: op.Reshape(op.Reshape(x, (12,)), (3, 4)),
    lambda op, x: op.Transpose(x, perm=(0, 1)),
    lambda op, x: op.Transpose(op.Transpose(x, perm=(1, 0)), perm=(1, 0)),
    lambda op, x: op.Transpose(op.Transpose(x)),
    lambda op, x: op.Expand(x, (3, 4)),
    lambda op, x: op.Cast(x, to=onnx.TensorProto.FLOAT),
    lambda op, x: op.CastLike(x, np.zeros(2, np.float32)),
    lambda op, x: op.Mul(x, 1.0),
    lambda op, x: op.Mul(np.ones((), np.float32), x),
    lambda op, x: op.Div(x, 1.0),
    lambda op, x: op.Neg(op.Neg(x)),
    lambda op, x: op.Concat(x, axis=0),
])  # fmt: skip
def test_neutral_calls_return_their_input(op, x, call):
    assert call(op, x) is x


def test_broadcasting_by_ones_is_recorded(op, x):
    for y in (op.Mul(x, np.ones((2, 1, 1), np.float32)), op.Expand(x, (2, 3, 4))):
        assert shape_of(y) == (2, 3, 4)


def test_reshapes_and_transposes_that_follow_each_other_are_one(op, x):
    y = op.Reshape(op.Reshape(x, (2, -1)), (6, 2))
    assert y.producer().inputs[0] is x
    z = op.Transpose(op.Transpose(op.Reshape(x, (3, 2, 2)), perm=(1, 0, 2)), perm=(2, 1, 0))
    assert z.producer().attributes["perm"].as_ints() == (2, 0, 1)
    assert shape_of(z) == (2, 3, 2)


def test_nothing_is_repeated_before_an_elementwise_operator(op, x):
    row = op.Expand(op.ReduceMax(x, (0,)), (3, 4))
    for y in (op.Sub(x, row), op.Sub(row, x)):
        assert shape_of(y) == (3, 4)
        assert row not in y.producer().inputs
    assert shape_of(op.Mul(row, np.ones((1, 4), np.float32))) == (3, 4)


def test_a_negation_is_subtracted(op, x):
    y = op.Exp(x)
    calls = op.Add(x, op.Neg(y)), op.Add(op.Neg(y), x), op.Sub(x, op.Neg(y))
    assert [node.producer().op_type for node in calls] == ["Sub", "Sub", "Add"]
    assert all([*node.producer().inputs] == [x, y] for node in calls)


@pytest.mark.parametrize("call", [
    lambda op, x: op.Transpose(x),
    lambda op, x: op.Pad(x, (0, 1, 0, 1)),
    lambda op, x: op.Pad(x, (1, 1), None, (0,)),
    lambda op, x: op.Cast(x, to=onnx.TensorProto.FLOAT, saturate=1),
    lambda op, x: op.Cast(x, to=onnx.TensorProto.DOUBLE, saturate=1),
    lambda op, x: op.CastLike(x, np.zeros(2, np.float64), saturate=1),
    lambda op, x: op.CastLike(x, np.zeros(2, np.float64), saturate=0),
])  # fmt: skip
def test_recorded_defaults_have_the_values_of_numpy(op, x, call):
    """The recording and NumPy give the same values."""
    feed = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = call(numbers, feed)
    (found,) = ReferenceEvaluator(ir.to_proto(build(op, [x], {"y": call(op, x)}, "g"))).run(
        None, {"x": feed}
    )
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_casts_are_recorded_where_the_dtype_changes(op, x):
    y = op.CastLike(op.Greater(x, 0.0), x)
    assert (kinds(op), dtype_of(y)) == (["Greater", "Cast"], np.float32)


def test_shapes_with_minus_one_are_stored_spelt_out(op, x):
    y = op.Reshape(x, (-1, 2))
    assert shape_of(y) == (6, 2)
    assert y.producer().inputs[1].const_value.numpy().tolist() == [6, 2]


def test_build_drops_what_is_not_used(op, x):
    op.Exp(x)
    unused = op.new((2,), np.float32, "unused")
    model = build(op, [x, unused], {"y": op.Add(op.Sin(x), np.ones(4, np.float32))}, "graph")
    assert [node.op_type for node in model.graph] == ["Sin", "Add"]
    assert [value.name for value in model.graph.inputs] == ["x", "unused"]
    assert len(model.graph.initializers) == 1
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_build_names_outputs_that_are_inputs_constants_or_each_other(op, x):
    y = op.Exp(x)
    outputs = {"a": y, "b": y, "c": x, "d": np.ones(2, np.float32)}
    model = build(op, [x], outputs, "graph")
    assert [value.name for value in model.graph.outputs] == list(outputs)
    feed = np.ones((3, 4), np.float32)
    a, b, c, d = ReferenceEvaluator(ir.to_proto(model)).run(list(outputs), {"x": feed})
    for found, expected in ((a, np.exp(feed)), (b, a), (c, feed), (d, np.ones(2))):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_errors_name_the_operator_and_its_operands(op, x):
    with pytest.raises(OnnxJacError, match=r"cannot record MatMul on FLOAT\[3, 4\], FLOAT\[3, 4\]"):
        op.MatMul(x, x)
    with pytest.raises(OnnxJacError, match=r"the shape of NonZero on FLOAT.* depends on data"):
        op.NonZero(x)
    with pytest.raises(OnnxJacError):
        op.NoSuchOperator(x)
    with pytest.raises(AttributeError):
        op.lower_case  # noqa: B018


@pytest.mark.parametrize("free", [{}, {"x": {0: "a", 1: "b"}, "at": {0: "n"}}])
def test_slices_that_may_meet_are_added_in_order(free):
    op = Recorder({"": 21}, Symbols())
    x, at = op.new((2, 3, 4), np.float64, "x"), op.new((5, 2), np.int64, "at")
    updates = op.new((5, 4), np.float64, "updates")
    op.open([x, at], free)
    y = op.ScatterND(x, at, updates, reduction="add")
    assert "ScatterND" not in kinds(op)
    model = ir.to_proto(build(op, [x, at, updates], {"y": y}, "g"))
    sizes = (4, 5, 4) if free else (2, 3, 4)
    rows = np.ones((5, 4))
    places = np.array([[0, 0], [1, 2], [-1, -1], [1, -1], [0, 0]])
    wanted = np.zeros(sizes)
    np.add.at(wanted, tuple(places.T), rows)
    point = {"x": np.zeros(sizes), "at": places, "updates": rows}
    (found,) = ReferenceEvaluator(model).run(None, point)
    assert found.tolist() == wanted.tolist()
