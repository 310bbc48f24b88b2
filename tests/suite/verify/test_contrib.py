"""Proofs beyond ONNX: ONNX Runtime's operators, and estimators, which have nothing to prove.

`test_proofs` checks that every case is exact and has the values of ONNX Runtime.
"""

import pytest

import onnxjac as oj
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.definition import STATED
from onnxjac.ops.registry import DECLARATIONS

MICROSOFT = {op_type for (op_type, domain), declared in DECLARATIONS.items()
             if domain == "com.microsoft" and not (declared.zero or declared.refused)}  # fmt: skip
ESTIMATORS = [key for key in DECLARATIONS if key[1] == "onnxjac.straight_through"]


UNPROVED = {
    "AttnLSTM", "DynamicQuantizeLSTM", "EngramGate", "GatedDeltaNet", "Range", "SparseAttention",
    "Unique",
}  # fmt: skip
"""SymPy does not simplify states within states, nor the second derivative of nested square roots;
no definition is recorded whose lengths depend on data; and blocks of 16 keys are too many.
`tests/suite/ops/test_contrib` compares values with ONNX Runtime and slopes with differences.
"""


def test_every_operator_of_onnxruntime_has_cases():
    proved = {op_type for op_type, domain in CASES if domain == "com.microsoft"}
    assert proved == MICROSOFT - UNPROVED
    assert MICROSOFT


@pytest.mark.parametrize("op_type", ["FastGelu", "FusedMatMul"])
def test_a_proof_says_where_its_definition_comes_from(op_type):
    proof = oj.prove(op_type, domain="com.microsoft")
    assert proof.outcome == "agrees with the runtime"
    assert not proof
    assert {result.source for result in proof.results} == {STATED}
    assert f"# com.microsoft::{op_type}" in proof.markdown()


def test_the_domain_is_part_of_the_name():
    """Gelu of ONNX Runtime differs from ONNX's."""
    domains = [{case.domain for case in oj.prove("Gelu", d).cases} for d in ("com.microsoft", "")]
    assert domains == [{"com.microsoft"}, {""}]


@pytest.mark.parametrize("key", ESTIMATORS, ids=str)
def test_an_estimator_is_no_derivative_and_says_so(key):
    proof = oj.prove(*key)
    assert proof.verdict == "not compared"
    assert proof.outcome == "estimator"
    assert not proof.cases
    assert "not the derivative, by intent" in proof.markdown()
    assert "as if y = " in proof.markdown()


def test_an_unknown_operator_of_onnxruntime():
    with pytest.raises(oj.UnsupportedOp, match="Did you mean 'FastGelu'"):
        oj.prove("FastGulu", domain="com.microsoft")
