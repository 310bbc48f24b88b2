"""Every operator of ONNX is covered; those declared zero or not a function are so."""

import pytest
from onnx import defs

from onnxjac.modes.verify.coverage import (
    BODY,
    DOMAINS,
    NOT_A_FUNCTION,
    RULE,
    ZERO,
    operators,
    schemas,
    status,
)  # fmt: skip
from onnxjac.ops.rules.zeros import NO_FLOATS

EVERY = [(op_type, domain) for domain in DOMAINS for op_type in operators(domain)]


@pytest.mark.parametrize(("op_type", "domain"), EVERY)
def test_every_operator_has_a_status(op_type, domain):
    kind, reason = status(op_type, domain)
    assert kind in (RULE, BODY, ZERO, NOT_A_FUNCTION)
    assert reason


def test_onnx_has_as_many_operators_as_we_count():
    counts = {domain: len(list(operators(domain))) for domain in DOMAINS}
    if defs.onnx_opset_version() == 28:
        assert counts == {
            "": 201,
            "ai.onnx.ml": 19,
            "ai.onnx.preview": 1,
            "ai.onnx.preview.training": 4,
        }


@pytest.mark.parametrize(("op_type", "domain"), EVERY)
def test_an_operator_without_floating_input_takes_none(op_type, domain):
    if status(op_type, domain)[1] != NO_FLOATS:
        pytest.skip("does not claim that")
    taken = {t for port in schemas()[op_type, domain].inputs for t in port.types}
    assert not {t for t in taken if "float" in t or "double" in t}
