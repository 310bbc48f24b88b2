"""Kinks: counted at the declared conventions, and none at generic points."""

import warnings

import numpy as np
import onnx.parser
import pytest

import onnxjac as oj
from models.one_node import one_node
from onnxjac.modes.model.loading.load import load
from onnxjac.modes.verify.case import Case
from onnxjac.modes.verify.cases import CASES
from onnxjac.ops.conventions import CONVENTIONS, SECOND
from onnxjac.ops.kinks import kink_set
from onnxjac.ops.registry import DECLARATIONS, find
from onnxjac.ops.rules.elementwise import FORMULAS

A = np.array
X = A([[1.0, 3.0, 3.0], [2.0, 0.0, -1.0]])
IMAGE = A([[[[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [0.0, 0.0, 0.0]]]])
ONE, TWO, ROWS = A([1]), A([2]), A([[0], [2]])
REGIONS = A([[0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 2.0, 1.0]])
SQUARE, OFFSETS = np.ones((1, 1, 1, 2)), A([[0.0, 0.5], [0.5, 0.5], [0.25, 0.5], [-0.5, 0.5]])
BYTES = np.arange(4, dtype=np.uint8).reshape(2, 2, 1)
POINTS = A([[[[0.0, 0.5], [0.5, 0.25], [-3.0, 0.0]]]])
SIDES = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
MS, ML = "com.microsoft", "ai.onnx.ml"

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
    "bins": ("MaxRoiPool", [IMAGE, REGIONS], {"pooled_shape": [1, 1]}, 2, 2),
    "bins of two widths": ("MaxRoiPool", [IMAGE, A([[0.0, 1.0, 0.0, 3.0, 0.0]])],
                           {"pooled_shape": [1, 2]}, 0, 2),
    "top": ("TopK", [X, ONE], {"axis": 1}, 1, 2),
    "both of a tie": ("TopK", [X, TWO], {"axis": 1}, 2, 4),
    "first axis": ("TopK", [A([[1.0, 2.0], [1.0, 3.0]]), ONE], {"axis": 0}, 1, 2),
    "equal entries": ("Unique", [A([2.0, 1.0, 2.0])], {}, 1, 2),
    "equal entries there": (f"{MS}::Unique", [A([2.0, 1.0, 2.0])], {}, 1, 2),
    "whole turns there": (f"{MS}::Range", [A(0.0), A(3.0), A(1.5)], {}, 1, 1),
    "points there": (f"{MS}::GridSample", [IMAGE, POINTS], {"align_corners": 1, "mode": "bilinear"},
                     1, 3),
    "rows that start alike": ("Unique", [A([[1.0, 2.0], [1.0, 3.0], [4.0, 5.0]])], {"axis": 0},
                              1, 2),
    "in order of appearance": ("Unique", [A([[1.0, 2.0], [1.0, 3.0]])], {"axis": 0, "sorted": 0},
                               0, 2),
    "one update": ("ScatterElements", [A([2.0, 1.0]), A([0]), A([2.0])], {"reduction": "max"}, 1,
                   2),
    "two updates": ("ScatterElements", [A([2.0, 1.0]), A([1, 1]), A([0.0, 0.0])],
                    {"reduction": "min"}, 1, 2),
    "no order": ("ScatterElements", [A([2.0, 1.0]), A([0]), A([2.0])], {}, 0, 2),
    "written twice": ("ScatterElements", [A([2.0, 1.0, 0.0]), A([0, 0, 2]), A([2.0, 1.0, 3.0])],
                      {}, 1, 3),
    "slices written twice": ("ScatterND", [X.T + 0.0, A([[1], [-2]]), A([[1.0, 5.0], [9.0, -1.0]])],
                             {}, 2, 6),
    "slices": ("ScatterND", [X.T + 0.0, ROWS, A([[1.0, 5.0], [9.0, -1.0]])],
               {"reduction": "max"}, 2, 6),
    "entries": ("ReduceL1", [X, ONE], {}, 1, 6),
    "norms": ("ReduceL2", [A([[0.0, 0.0], [1.0, 0.0]]), ONE], {}, 1, 2),
    "unit rows": ("LpNormalization", [A([[0.0, 0.0], [1.0, 0.0]])], {}, 1, 2),
    "unit rows, p = 1": ("LpNormalization", [A([[0.0, 0.0], [1.0, 0.0]])], {"p": 1}, 3, 4),
    "norms of windows": ("LpPool", [IMAGE], {"kernel_shape": [1, 3]}, 1, 3),
    "norms of images": ("GlobalLpPool", [IMAGE], {"p": 1}, 5, 9),
    "equal rows": (f"{MS}::CDist", [A([[1.0, 2.0]]), A([[1.0, 2.0], [1.0, 0.0]])],
                   {"metric": "euclidean"}, 1, 2),
    "L1": (f"{ML}::Normalizer", [X.astype("f4")], {"norm": "L1"}, 1, 6),
    "L2": (f"{ML}::Normalizer", [X.astype("f4") * A([[1], [0]], "f4")], {"norm": "L2"}, 1, 2),
    "MAX": (f"{ML}::Normalizer", [X.astype("f4")], {"norm": "MAX"}, 1, 2),
    "missing": (f"{ML}::Imputer", [A([[1.0, np.nan]], "f4")],
                {"imputed_value_floats": [2.0], "replaced_value_float": np.nan}, 1, 2),
    "replaced": (f"{ML}::Imputer", [A([[0.0, 1.0, 0.0]], "f4")],
                 {"imputed_value_floats": [2.0], "replaced_value_float": 0.0}, 2, 3),
    "whole turns": ("Range", [A(0.0), A(3.0), A(1.5)], {}, 1, 1),
    "other turns": ("Range", [A(0.0), A(3.0), A(2.0)], {}, 0, 1),
    "points": ("GridSample", [IMAGE, POINTS], {"align_corners": 1}, 1, 3),
    "points at a border": ("GridSample", [IMAGE, POINTS],
                           {"align_corners": 1, "padding_mode": "border"}, 2, 3),
    "points of a reflection": ("GridSample", [IMAGE, POINTS],
                               {"align_corners": 1, "padding_mode": "reflection"}, 2, 3),
    "cubic": ("GridSample", [IMAGE, POINTS], {"align_corners": 1, "mode": "cubic"}, 0, 3),
    "taps": ("DeformConv", [IMAGE, SQUARE, np.zeros((1, 4, 3, 2))], {}, 12, 12),
    "moved taps": ("DeformConv", [IMAGE[..., :1, :], SQUARE, OFFSETS.reshape(1, 4, 1, 2)], {}, 1,
                   4),
    "samples": ("RoiAlign", [IMAGE, A([[0.5, 0.5, 2.5, 1.75]]), A([0])],
                {"sampling_ratio": 1, "output_width": 2}, 0, 2),
    "samples on lines": ("RoiAlign", [IMAGE, A([[0.5, 0.5, 2.5, 2.5]]), A([0])],
                         {"sampling_ratio": 1}, 1, 1),
    "greatest samples": ("RoiAlign", [np.ones((1, 1, 3, 3)), A([[0.25, 0.25, 1.75, 1.75]]), A([0])],
                         {"sampling_ratio": 1, "mode": "max"}, 1, 2),
    "scales": ("Resize", [X, None, A([1.0, 2.0], "f4")],
               {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, 2, 6),
    "a part": ("RNN", [A([[[0.0]]]), A([[[1.0]]]), A([[[1.0]]])],
               {"hidden_size": 1, "activations": ["Relu"]}, 1, 1),
    "gates": ("GRU", [A([[[0.0]]]), np.ones((1, 3, 1)), np.ones((1, 3, 1))],
              {"hidden_size": 1, "activations": ["Sigmoid", "Relu"]}, 1, 1),
    "cells": ("LSTM", [A([[[0.0]]]), np.ones((1, 4, 1)), np.ones((1, 4, 1))],
              {"hidden_size": 1, "activations": ["Sigmoid", "Tanh", "Relu"]}, 1, 1),
    "fused": (f"{MS}::FusedGemm", [A([[0.0, 0.0]]), A([[1.0], [1.0]])], {"activation": "Relu"}, 1,
              1),
    "convolved": (f"{MS}::FusedConv", [0 * IMAGE, np.ones((1, 1, 3, 3))], {"activation": "Relu"},
                  1, 1),
    "range of a product": (f"{MS}::DynamicQuantizeMatMul",
                           [A([[1.0, 1.0, -2.0]], "f4"), A([[1], [2], [3]], "u1"), A(0.5, "f4")],
                           {}, 1, 1),
    "masked": (f"{MS}::MaxpoolWithMask", [A([[[1.0, 1.0, 0.0]]]), np.ones((1, 1, 3), np.int32)],
               {"kernel_shape": [2]}, 1, 2),
    "words": (f"{MS}::WordConvEmbedding",
              [np.array([[1, 1, 1]], np.int32), A([[[[1.0], [0.5]]]]), A([0.0]), A([[0.0], [1.0]])],
              {}, 1, 1),
    "boxes": (f"{MS}::CropAndResize",
              [IMAGE, A([[0.25, 0.25, 0.75, 0.75]]), A([0], np.int32), A([1, 1], np.int32)], {}, 1,
              1),
    "experts": (f"{MS}::MoE",
                [A([[0.0]]), A([[1.0, 2.0]]), np.ones((2, 1, 1)), None, np.ones((2, 1, 1))], {}, 2,
                2),
    "quantized experts": (f"{MS}::QMoE",
                          [np.zeros((1, 2)), A([[1.0, 2.0]]), BYTES, np.ones((2, 2)), None, BYTES,
                           np.ones((2, 2))], {}, 4, 4),
    "floors": ("Floor", [A([1.0, 1.5])], {}, 1, 2),
    "ceilings": ("Ceil", [A([1.0, 1.5])], {}, 1, 2),
    "halves": ("Round", [A([1.0, 1.5, -0.5])], {}, 2, 3),
    "signs": ("Sign", [A([0.0, 1.5])], {}, 1, 2),
    "least and greatest": ("DynamicQuantizeLinear", [A([1.0, 1.0, -2.0])], {}, 1, 1),
}  # fmt: skip


DEFAULT_PARTS = {"RNN", "GRU", "LSTM", "FusedGemm"}
"""Those whose first case has smooth activations."""

OUTPUTS = {"TopK": 2, "DynamicQuantizeLinear": 3}
RESULT = {"DynamicQuantizeLinear": (1,)}
"""Operator -> its outputs with derivatives, where not the first one."""

KNOWN = {key for key, said in DECLARATIONS.items() if said.kinks} | {
    (name, "") for name in FORMULAS if kink_set(name)}  # fmt: skip
SMOOTH = {key for key in KNOWN if kink_set(*key).endswith(SECOND)}
"""Operators with kinks, and those without kinks in the first derivative."""

EXAMPLES = {key: cases[0] for key, cases in CASES.items()} | {
    ("Elu", ""): CASES["Elu", ""][1],  # the first case is smooth
    ("DynamicQuantizeLinear", ""): Case("DynamicQuantizeLinear", (A([1.0, 2.0, -2.0], "f4"),), {},
                                        3),
    **{(name, ""): Case(name, (A([1.25, -0.25]),)) for name in ("Floor", "Ceil", "Round", "Sign")},
    ("Range", MS): Case("Range", (A(1.25), A(3.0), A(0.5)), domain=MS),
    ("Unique", MS): Case("Unique", (A([2.0, 1.0, 3.0]),), domain=MS),
}  # fmt: skip
"""A generic point of every operator, from its proof where it has one."""


def kinks_of(case):
    """The kinks reported for a single node, in all its floating inputs."""
    of = [case.results[k] for k in RESULT.get(case.op_type, (0,))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)  # jumps have no derivative
        wrt = case.floating(case.wrt)
        return oj.linearize(case.model, case.point, of=of, wrt=wrt, engine="numpy").explain().kinks


def case_of(op_type, arrays, attrs):
    """A node without a proof."""
    domain, _, name = op_type.rpartition("::")
    return Case(name, tuple(arrays), attrs, OUTPUTS.get(name, 1), domain)


@pytest.mark.parametrize("name", COUNTED)
def test_entries_on_a_kink_are_counted(name):
    op_type, arrays, attrs, count, size = COUNTED[name]
    case = case_of(op_type, arrays, attrs)
    told = kinks_of(case)
    (found,) = [k for k in told if k.met] or told
    assert (found.count, found.size) == (count, size)
    assert found.declared in {told_of(*key).given for key in KNOWN if key[0] == found.op}
    if case.op_type != "DynamicQuantizeLinear":  # a function, inlined on loading
        assert (found.within or found.node).rpartition("_")[0] == case.op_type


def test_every_operator_with_kinks_is_tried_on_one():
    """Fails for a new operator without a convention or an example, a description or a count."""
    tried = {keyed(case_of(*COUNTED[name][:3])) for name in COUNTED if COUNTED[name][3]}
    tried |= {c.op_type.rpartition("::")[::-2] for c in CONVENTIONS}
    tried |= {(name, "") for name in SIDES}
    assert tried >= KNOWN - SMOOTH
    assert all(told_of(*key).given for key in KNOWN - SMOOTH)
    uncounted = {key for key in KNOWN - SMOOTH if not told_of(*key).count}
    composed = {key for key in uncounted if (told := find(*key)) is None or told.is_composed}
    assert {name for name, _ in uncounted - composed} <= {*FORMULAS}


def told_of(op_type, domain=""):
    return DECLARATIONS[op_type, domain].kinks


def keyed(case):
    return case.op_type, case.domain


@pytest.mark.parametrize("key", sorted(KNOWN - {(name, "") for name in SIDES}), ids=str)
def test_at_a_point_in_general_no_kink_is_met(key):
    found = kinks_of(EXAMPLES[key])
    assert not any(k.met for k in found)
    assert bool(found) == (key not in SMOOTH and key[0] not in DEFAULT_PARTS)


@pytest.mark.parametrize("name", SIDES)
def test_the_choice_of_a_branch_is_told_where_both_sides_are_equal(name):
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (double[3] x) => (double[3] y)
        <double[1] one = {{1.0}}>
        {{ c = {name}(x, one) i = Identity(x) z = Neg(x) y = Where(c, i, z) }}"""
    J = oj.linearize(load(onnx.parser.parse_model(text)), {"x": A([0.0, 1.0, 1.0])})
    (found,) = J.explain().kinks
    assert (found.op, found.count, found.size) == (name, 2, 3)
    assert J.relinearize({"x": A([0.0, 2.0, 3.0])}).explain().kinks[0].count == 0


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")  # jumps have no derivative
@pytest.mark.parametrize(
    "convention", [c for c in CONVENTIONS if c.op_type.rpartition("::")[::-2] in KNOWN],
    ids=lambda c: c.what,
)
def test_conventions_are_told_where_they_are_met(convention):
    arrays = [np.asarray(x) for x in convention.inputs]
    single = convention.op_type == "HardSigmoid"  # its kink -3 is exact in single precision only
    arrays = [x.astype(np.float32) if single else x for x in arrays]
    found = kinks_at(convention, arrays)
    assert any(k.met for k in found)
    assert all(k.declared == DECLARATIONS[convention.op_type, ""].kinks.given for k in found)
    assert not any(k.met for k in kinks_at(convention, [moved(arrays[0]), *arrays[1:]]))


def kinks_at(convention, arrays):
    """The kinks reported for the node of a convention, in its first input."""
    outputs = OUTPUTS.get(convention.op_type, 1)
    attrs = dict(convention.attrs)
    node = load(one_node(convention.op_type, arrays, attrs, outputs, convention.opset))
    point = {f"x{k}": x for k, x in enumerate(arrays)}
    return oj.linearize(node, point, of="y0", wrt="x0", engine="numpy").explain().kinks


def moved(x):
    """The array moved to distinct, non-round values."""
    return (x + 0.01 + 0.1 * np.sqrt(1 + np.arange(x.size)).reshape(x.shape)).astype(x.dtype)


def test_a_kink_of_the_second_derivative_is_none_of_the_first():
    for name, alpha, number in (("Celu", 2.0, 0), ("Elu", 1.0, 0), ("Elu", 2.0, 1)):
        assert len(kinks_of(case_of(name, [A([0.0])], {"alpha": alpha}))) == number


def test_fixed_points_of_an_image_have_no_kink():
    """Sampling at fixed points is linear in the image."""
    case = case_of("GridSample", [IMAGE, POINTS], {"align_corners": 1})
    J = oj.linearize(case.model, case.point, wrt="x", engine="numpy")
    assert [k.count for k in J.explain().kinks] == [0]
    both = oj.linearize(case.model, case.point, wrt=("x", "w"), engine="numpy")
    assert [k.count for k in both.explain().kinks] == [1]
    assert [k.count for k in both["y", "x"].explain().kinks] == [0]


UNBOUNDED = {
    # name: (operator, inputs, entries, what is given)
    "√0": ("Sqrt", [A([0.0, 4.0])], 1, "inf"),
    "log 0": ("Log", [A([0.0, 1.0, 0.0])], 2, "inf"),
    "1 / 0": ("Reciprocal", [A([0.0, 1.0])], 1, "-inf"),
    "arc cosine": ("Acos", [A([1.0, -1.0, 0.0])], 2, "-inf"),
    "root": ("Pow", [A([0.0, 1.0]), A(0.5)], 1, "inf"),
    "0⁰": ("Pow", [A([0.0, 1.0]), A([0.0, 0.0])], 1, "0, 0: x⁰ is constant"),
    "negative": ("Pow", [A([-2.0, 1.0]), A([2.0, 2.0])], 1, "nan"),
    "product": ("ReduceLogSum", [A([0.0, 0.0])], 1, "inf"),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_a_derivative_that_is_not_finite_is_told(name):
    op_type, arrays, count, given = UNBOUNDED[name]
    (found,) = (k for k in kinks_of(case_of(op_type, arrays, {})) if k.met)
    assert found.count == count
    assert given in found.declared
    assert not any(k.met for k in kinks_of(case_of(op_type, [0 * a + 0.5 for a in arrays], {})))


def test_the_formula_stands_beside_it():
    (found,) = kinks_of(case_of("Sqrt", [A([0.0])], {}))
    assert found.where == "∂Y/∂x = 1/(2*Y) is not finite"


def test_no_kink_where_the_value_is_not_finite():
    assert kinks_of(case_of("Sqrt", [A([np.nan, -1.0])], {})) == ()


def test_a_part_names_the_node_that_it_is_of():
    op_type, arrays, attrs, *_ = COUNTED["a part"]
    case = case_of(op_type, arrays, attrs)
    J = oj.linearize(case.model, case.point, of="y", wrt="x", engine="numpy")
    (found,) = J.explain().kinks
    assert found.cells[1].endswith(" of RNN_0")
    assert J.explain("RNN_0").kinks == J.explain(found.node).kinks == (found,)

