"""Every rule is the derivative of its operator, at ONNX's own node cases and at ours."""

import numpy as np
import pytest

from check_rule import check_point, check_rule
from onnxjac.jacobians.errors import UnsupportedOp
from onnxjac.modes.load import load
from onnxjac.modes.primal import evaluate
from onnxjac.ops import DECLARATIONS

from .cases import moved, onnx_cases
from .extra_cases import EXTRA

UNFINISHED = {
    "AffineGrid": "its body captures a tensor in a branch of If",
    "LinearAttention": "its body is a Scan",
    "Range": "its body is a Loop",
    "ScatterElements": "only the reductions none and add have a rule",
    "ScatterND": "only the reductions none and add have a rule",
}
"""op_type -> why some of its cases have no rule yet."""


@pytest.mark.parametrize("case", onnx_cases(), ids=lambda case: case.name)
def test_rule_at_a_case_of_onnx(case):
    if case.op_type == "AffineGrid":
        pytest.xfail(UNFINISHED["AffineGrid"])
    try:
        model = load(case.model, dtype="float64")
        feeds = {k: x.astype(model.inputs[k].dtype) for k, x in moved(case, 1).items()}
        skip_where_nothing_is_smooth(model, feeds)
        check_point(model, feeds)
    except UnsupportedOp:
        if case.op_type not in UNFINISHED:
            raise
        pytest.xfail(UNFINISHED[case.op_type])


def skip_where_nothing_is_smooth(model, feeds):
    """NaN on the way, or an infinite result: there are no differences to compare with."""
    values = evaluate(model, feeds, [*model.intermediates, *model.outputs], engine="numpy")
    floats = {name: y for name, y in values.items() if getattr(y, "dtype", "O") == np.float64}
    if any(np.isnan(y).any() for y in floats.values()):
        pytest.skip("the primal passes through NaN")
    if not all(np.isfinite(floats[name]).all() for name in floats.keys() & model.outputs.keys()):
        pytest.skip("the result is not finite")


@pytest.mark.parametrize("case", EXTRA, ids=str)
def test_rule_at_our_cases(case):
    J = check_rule(case.op_type, case.inputs, case.attrs, outputs=case.outputs, opset=case.opset)
    if case.dense is not None:
        np.testing.assert_allclose(J.toarray(), case.dense, rtol=1e-12, atol=1e-12)


def test_every_rule_has_a_case():
    shown = {case.op_type for case in onnx_cases()} | {case.op_type for case in EXTRA}
    rules = {op_type for (op_type, _), d in DECLARATIONS.items() if d.zero is None}
    assert rules - shown == set()
