"""Method 1 of ONNX's guide: a script for PyTorch, which exports the operator, or a reason."""

import warnings
from importlib.util import find_spec

import numpy as np
import pytest

from onnxjac.modes.verify.case import Case
from onnxjac.modes.verify.cases import CASES, SCRIPTS
from onnxjac.modes.verify.flow_cases import BODIES, IN_TORCH
from onnxjac.modes.verify.scripts import WITHOUT, Script, script_of, why_no_script, write_script


def needs_torch(test):
    """Skip the test where PyTorch is missing."""
    missing = find_spec("torch") is None
    return pytest.mark.peers(pytest.mark.skipif(missing, reason="PyTorch is not installed")(test))


def named(op_type, domain):
    return f"{domain}::{op_type}" if domain else op_type


def script(name):
    domain, _, op_type = name.rpartition("::")
    return script_of(op_type, domain)


NAMES = [*SCRIPTS, *IN_TORCH]
UNSCRIPTED = sorted({*(named(*key) for key in CASES), *BODIES} - {*NAMES})


def test_most_operators_have_a_script():
    assert len(SCRIPTS) > 0.85 * len(CASES)


@pytest.mark.parametrize("name", UNSCRIPTED)
def test_operators_without_a_script_have_a_reason(name):
    domain, _, op_type = name.rpartition("::")
    assert script(name) is None
    assert why_no_script(op_type, domain).startswith(("PyTorch", "torchvision", "its", "the"))


@pytest.mark.parametrize("why", WITHOUT)
def test_a_reason_names_operators_without_a_script(why):
    assert {*WITHOUT[why].split()} <= {*UNSCRIPTED}


@needs_torch
@pytest.mark.sampled(0.3)
@pytest.mark.parametrize("name", NAMES)
def test_the_script_exports_the_operator_and_agrees(name):
    """It runs as printed; its model has the operator, and its Jacobian is PyTorch's."""
    found = script(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found.agreement < 1e-6
    assert name in found.nodes


@needs_torch
def test_a_wrong_derivative_is_seen():
    """The script compares derivatives: one of another expression is off."""
    text = script("Mish").text.replace("return F.mish(x)", "return 2 * F.mish(x)")
    assert Script(text).agreement > 0.1


def test_integers_are_integers_in_a_script():
    case = Case("Gather", (np.ones((2, 2)), np.array([1, 0])))
    assert "w = torch.tensor([1, 0])" in write_script("{0}[{1}]", case).text
