"""Shortcuts that change no number: what they save is there to be seen."""

import numpy as np

from onnxjac.jacobians import Embed, Fourier
from onnxjac.ops import Node, Recorder, Step
from onnxjac.ops.rules.layout import span
from onnxjac.ops.rules.padding import repeated


def test_a_reversed_axis_is_not_spread_as_well():
    op = Recorder({"": 21})
    Embed(((3, -1, 4),), (4,), np.float64)._apply(op, op.new((4,), np.dtype(np.float64), "v"))
    assert [node.op_type for node in op.nodes] == ["Slice"]


def test_only_a_padded_axis_is_taken_from():
    x, pads = np.ones((3, 4)), np.array([0, 1, 0, 1])
    step = Step("Pad", "", 21, "pad", ("x", "pads"), ("y",), {"mode": "reflect"})
    J = repeated(Node(step, (x, pads), (np.ones((3, 6)),)), [(0, 0), (1, 1)])
    assert repr(J).count("take") == 1


def test_a_fourier_transform_is_counted_as_a_fast_one():
    assert Fourier(0, (1024, 3, 2), np.float64).flops == 5 * (1024 * 3) * 10


def test_nothing_is_expanded_to_the_shape_that_it_has():
    op = Recorder({"": 21})
    x = op.new((2, 3), np.dtype(np.float64), "x")
    assert op.Expand(x, np.array([2, 3])) is x


def test_a_slice_that_runs_backwards_begins_at_the_last_entry():
    assert span(100, -100, -1, 5) == (4, -1, 5)
