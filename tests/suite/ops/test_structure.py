"""Shortcuts that change no results, checked by the structure of J."""

import numpy as np

from onnxjac.jacobians import Cast, Embed, Fourier, Identity, Slice, between_types
from onnxjac.ops import Node, Recorder, Step, find
from onnxjac.ops.numbers import numbers
from onnxjac.ops.numbers.layout import span
from onnxjac.ops.rules.elementwise import broadcast_diagonal
from onnxjac.ops.rules.layout import repeat_pads


def test_a_reversed_axis_is_not_spread_as_well():
    op = Recorder({"": 21})
    Embed(((3, -1, 4),), (4,), np.float64)._apply(op, op.new((4,), np.dtype(np.float64), "v"))
    assert [node.op_type for node in op.nodes] == ["Slice"]


def test_only_a_padded_axis_is_taken_from():
    x, pads = np.ones((3, 4)), np.array([0, 1, 0, 1])
    step = Step("Pad", "", 21, "pad", ("x", "pads"), ("y",), {"mode": "reflect"})
    J = repeat_pads(numbers, Node(step, (x, pads), (np.ones((3, 6)),)), [(0, 0), (1, 1)])
    assert repr(J).count("take") == 1


def test_a_fourier_transform_is_counted_as_a_fast_one():
    assert Fourier(0, (1024, 3, 2), np.float64).flops == 5 * (1024 * 3) * 10


def test_nothing_is_expanded_to_the_shape_that_it_has():
    op = Recorder({"": 21})
    x = op.new((2, 3), np.dtype(np.float64), "x")
    assert op.Expand(x, np.array([2, 3])) is x


def test_a_slice_that_runs_backwards_begins_at_the_last_entry():
    assert span(100, -100, -1, 5) == (4, -1, 5)


def test_an_axis_that_is_kept_is_not_sliced():
    v = np.arange(12.0).reshape(3, 4)
    assert Slice(((0, 1, 3), (0, 1, 4)), (3, 4), np.float64)._apply(numbers, v) is v


def test_one_part_needs_no_concatenation():
    op = Recorder({"": 21})
    x = op.new((2, 3), np.dtype(np.float64), "x")
    assert op.Concat(x, axis=0) is x


def test_a_default_that_is_spelled_out_makes_no_other_node():
    step = Step("Normalizer", "ai.onnx.ml", 1, "n", ("x",), ("y",))
    spelled = Step("Normalizer", "ai.onnx.ml", 1, "n", ("x",), ("y",), {"norm": "MAX"})
    op = Recorder({"": 21})
    x = op.new((2, 3), np.dtype(np.float32), "x")
    (made,) = op.copy(step, [x], [np.ones((2, 3), np.float32)])
    assert op.recall(spelled, [x]) == (made,)


def test_the_default_domain_has_two_names():
    assert find("Relu", "ai.onnx") is find("Relu") is not None


def test_only_another_type_is_cast():
    x, narrow = np.ones(3), np.ones(3, np.float32)
    J = Identity((3,), float)
    assert between_types(J, x, x) is J
    for source, target in ((x, narrow), (narrow, x)):
        assert isinstance(found := between_types(J, source, target), Cast)
        assert found._apply(numbers, source).dtype == target.dtype


def test_a_slope_of_one_is_the_identity_and_one_of_zero_is_zero():
    node = Node(Step("Mul", "", 21, "mul", ("x",), ("y",)), (np.ones(3),), (np.ones(3),))
    assert isinstance(broadcast_diagonal(node, 0, 1), Identity)
    np.testing.assert_array_equal(broadcast_diagonal(node, 0, 0).toarray(), np.zeros((3, 3)))
