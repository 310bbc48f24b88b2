"""Every rule is the derivative of its operator, at ONNX's own node cases and at ours."""

import pytest

from check_rule import check_point, check_rule
from onnxjac.jacobians.errors import UnsupportedOp
from onnxjac.modes.load import load
from onnxjac.ops import DECLARATIONS

from .cases import SINGLE, moved, onnx_cases, skip_where_nothing_is_smooth
from .extra_cases import EXTRA

UNFINISHED = {
    "AffineGrid": "its body captures a tensor in a branch of If",
    "LinearAttention": "its body is a Scan",
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
    except RuntimeError as error:
        if "Type unknown" not in str(error):
            raise
        pytest.xfail("onnx's inliner asks for the type of an optional input that is left out")


@pytest.mark.parametrize("case", EXTRA, ids=str)
def test_rule_at_our_cases(case):
    check_rule(
        case.op_type, case.inputs, case.attrs,
        outputs=case.outputs, opset=case.opset, dense=case.dense,
    )  # fmt: skip


def test_every_rule_has_a_case():
    shown = {case.op_type for case in onnx_cases()} | {case.op_type for case in EXTRA}
    rules = {name for (name, domain), d in DECLARATIONS.items() if not domain and d.zero is None}
    assert rules - shown - SINGLE == set()
