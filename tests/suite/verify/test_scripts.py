"""Method 1 of ONNX's guide: every operator has a script for PyTorch, or a reason for none."""

import warnings
from importlib.util import find_spec

import numpy as np
import pytest

from onnxjac.modes.verify.case import Case
from onnxjac.modes.verify.cases import CASES, SCRIPTS
from onnxjac.modes.verify.proof import Script, script_of, write_script

MS, ML = "com.microsoft::", "ai.onnx.ml::"

WITHOUT = {
    "torchvision has it, PyTorch alone does not": "DeformConv RoiAlign MaxRoiPool",
    "its operator has no derivative there": "Range Unique",
    "its result is rounded, and there it has no operator": f"{MS}DynamicQuantizeMatMul",
    "it is another operator between dequantised operands":
        f"{MS}QAttention {MS}QEmbedLayerNormalization {MS}QGemm",
    "it has no such operator": "RotaryEmbedding LinearAttention CenterCropPad "
        f"{ML}Scaler {ML}Imputer {ML}LinearClassifier {ML}SVMRegressor {ML}SVMClassifier "
        f"{MS}RotaryEmbedding {MS}MRotaryEmbedding {MS}LinearAttention {MS}MatMulBnb4 "
        f"{MS}GatherBlockQuantized {MS}MatMulFpQ4 {MS}NGramRepeatBlock {MS}CropAndResize "
        f"{MS}MoE {MS}QMoE {MS}MoEGroupRouter",
}  # fmt: skip
"""Why PyTorch has no script -> operators."""

UNSCRIPTED = [name for names in WITHOUT.values() for name in names.split()]


def needs_torch(test):
    """Skip the test where PyTorch is missing."""
    missing = find_spec("torch") is None
    return pytest.mark.peers(pytest.mark.skipif(missing, reason="PyTorch is not installed")(test))


def named(op_type, domain):
    return f"{domain}::{op_type}" if domain else op_type


def script(name):
    domain, _, op_type = name.rpartition("::")
    return script_of(op_type, domain)


def test_every_operator_has_a_script_or_a_reason():
    assert {named(*key) for key in CASES} == {*SCRIPTS, *UNSCRIPTED}
    assert len(SCRIPTS) > 0.85 * len(CASES)


@pytest.mark.parametrize("name", UNSCRIPTED)
def test_operators_with_a_reason_have_no_script(name):
    assert script(name) is None


@needs_torch
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_runs_as_printed_and_agrees(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert script(name).agreement < 1e-6


@needs_torch
def test_a_wrong_block_is_seen():
    """The script compares derivatives, and reports one wrong entry."""
    head, cut, tail = script("Gather").text.partition("by_onnxjac = (")
    assert Script(head + cut + tail.replace("1.0", "3.0", 1)).agreement == 2.0


def test_integers_are_integers_in_a_script():
    case = Case("Gather", (np.ones((2, 2)), np.array([1, 0])))
    assert "w = torch.tensor([1, 0])" in write_script("{0}[{1}]", case).text
