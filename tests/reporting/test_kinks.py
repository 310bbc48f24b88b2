"""Kinks that are met: counted at the declared conventions, and nowhere at a point in general."""

import numpy as np
import pytest

import onnxjac as oj
from check_rule import one_node
from onnxjac.modes.explaining.ties import COUNTS
from onnxjac.modes.load import load
from onnxjac.modes.proofs.kinked import KINKS, kink_set
from onnxjac.ops.conventions import CONVENTIONS

A = np.array
X = A([[1.0, 3.0, 3.0], [2.0, 0.0, -1.0]])
IMAGE = A([[[[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [0.0, 0.0, 0.0]]]])
ONE, TWO = A([1]), A([2])

COUNTED = {
    # name: (operator, inputs, attributes, on the kink, of)
    "relu": ("Relu", [A([0.0, 1.0, 0.0])], {}, 2, 3),
    "prelu": ("PRelu", [A([0.0, 1.0]), A([0.1])], {}, 1, 2),
    "threshold": ("ThresholdedRelu", [A([2.0, 0.0])], {"alpha": 2.0}, 1, 2),
    "whole quotients": ("Mod", [A([3.0, 4.0]), A([1.5, 1.5])], {"fmod": 1}, 1, 2),
    "bounds": ("Clip", [A([-1.0, 0.0, 1.0, 1.0]), A(-1.0), A(1.0)], {}, 3, 4),
    "one bound": ("Clip", [A([-1.0, 0.0, 1.0]), A(-1.0)], {}, 1, 3),
    "of three": ("Max", [X, X[:1], A([3.0])], {}, 4, 6),
    "least": ("Min", [A([1.0, 2.0]), A([1.0, 3.0])], {}, 1, 2),
    "rows": ("ReduceMax", [X, ONE], {"keepdims": 0}, 1, 2),
    "all": ("ReduceMin", [X], {}, 0, 1),
    "global": ("GlobalMaxPool", [IMAGE], {}, 1, 1),
    "windows": ("MaxPool", [IMAGE], {"kernel_shape": [2, 2]}, 2, 4),
    "padded": ("MaxPool", [IMAGE], {"kernel_shape": [1, 2], "pads": [0, 1, 0, 0]}, 4, 9),
    "top": ("TopK", [X, ONE], {"axis": 1}, 1, 2),
    "both of a tie": ("TopK", [X, TWO], {"axis": 1}, 2, 4),
    "first axis": ("TopK", [A([[1.0, 2.0], [1.0, 3.0]]), ONE], {"axis": 0}, 1, 2),
    "entries": ("ReduceL1", [X, ONE], {}, 1, 6),
    "norms": ("ReduceL2", [A([[0.0, 0.0], [1.0, 0.0]]), ONE], {}, 1, 2),
    "unit rows": ("LpNormalization", [A([[0.0, 0.0], [1.0, 0.0]])], {}, 1, 2),
    "unit rows, p = 1": ("LpNormalization", [A([[0.0, 0.0], [1.0, 0.0]])], {"p": 1}, 3, 4),
    "norms of windows": ("LpPool", [IMAGE], {"kernel_shape": [1, 3]}, 1, 3),
    "norms of images": ("GlobalLpPool", [IMAGE], {"p": 1}, 5, 9),
}


def kinks(op_type, arrays, attrs, opset=21):
    """What is told of a single node."""
    node = one_node(op_type, arrays, dict(attrs), 2 if op_type == "TopK" else 1, opset)
    point = {f"x{k}": x for k, x in enumerate(arrays)}
    return oj.linearize(load(node), point, of="y0", wrt="x0", engine="numpy").explain().kinks


@pytest.mark.parametrize("name", COUNTED)
def test_entries_on_a_kink_are_counted(name):
    op_type, arrays, attrs, count, size = COUNTED[name]
    (found,) = kinks(op_type, arrays, attrs)
    assert (found.count, found.size) == (count, size)
    assert found.met is (count > 0)
    assert (found.op, found.node, found.tensor) == (op_type, "node", "x0")


def test_every_count_is_tried_and_is_of_a_known_kink():
    assert COUNTS.keys() <= KINKS.keys()
    assert COUNTS.keys() <= {op_type for op_type, *_ in COUNTED.values()}


@pytest.mark.parametrize(
    "convention", [c for c in CONVENTIONS if kink_set(c.op_type)], ids=lambda c: c.what
)
def test_conventions_are_told_where_they_are_met(convention):
    arrays = [np.asarray(x) for x in convention.inputs]
    single = convention.op_type == "HardSigmoid"  # whose kink, -3, is one of single precision
    arrays = [x.astype(np.float32) if single else x for x in arrays]
    found = kinks(convention.op_type, arrays, convention.attrs, convention.opset)
    assert any(k.met or k.count is None for k in found)
    assert all(convention.why in k.declared for k in found)
    arrays = [moved(arrays[0]), *arrays[1:]]
    found = kinks(convention.op_type, arrays, convention.attrs, convention.opset)
    assert not any(k.met for k in found)


def moved(x):
    """An array of which no two entries are alike, nor one of them a round number."""
    return (x + 0.01 + 0.1 * np.sqrt(1 + np.arange(x.size)).reshape(x.shape)).astype(x.dtype)


def test_a_kink_of_the_second_derivative_is_none_of_the_first():
    assert kinks("Celu", [A([0.0])], {"alpha": 2.0}) == ()
    assert kinks("Elu", [A([0.0])], {"alpha": 1.0}) == ()
    assert len(kinks("Elu", [A([0.0])], {"alpha": 2.0})) == 1


def test_what_is_not_counted_says_so():
    x, grid = np.ones((1, 1, 2, 2)), np.zeros((1, 1, 1, 2))
    (found,) = kinks("GridSample", [x, grid], {})
    assert found.count is None
    assert not found.met
    assert "not counted" in found.cells
