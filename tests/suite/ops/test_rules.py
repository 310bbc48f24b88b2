"""Every rule is the derivative of its operator at our cases; the sweep tests ONNX's cases."""

import pytest

from check_rule import check_rule
from onnxjac.modes.verify.cases import CASES
from onnxjac.ops import DECLARATIONS

from .cases import SINGLE, onnx_cases
from .extra_cases import EXTRA, Extra

SHOWN = {case.op_type for case in (*onnx_cases(), *EXTRA)} | SINGLE
PROVED = [Extra(c.op_type, c.inputs, c.attrs, c.outputs, c.version)
          for (name, domain), cases in CASES.items() if not domain and name not in SHOWN
          for c in cases]  # fmt: skip
"""The cases of proofs of all other operators."""


@pytest.mark.parametrize("case", [*EXTRA, *PROVED], ids=str)
def test_rule_at_our_cases(case):
    check_rule(
        case.op_type, case.inputs, case.attrs,
        outputs=case.outputs, opset=case.opset, dense=case.dense,
    )  # fmt: skip


def test_every_rule_has_a_case():
    shown = SHOWN | {case.op_type for case in PROVED}
    rules = {name for (name, domain), d in DECLARATIONS.items() if not domain and d.zero is None}
    assert rules - shown == set()
