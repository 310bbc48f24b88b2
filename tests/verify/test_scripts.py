"""Method 1 of ONNX's guide: every operator has a script for PyTorch, or a reason for none."""

import warnings
from importlib.util import find_spec

import numpy as np
import pytest

from onnxjac.modes.verify.case import Case
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.scripts import SCRIPTED, TORCH, Script, script_of

UNSCRIPTED = {
    "torchvision has it, PyTorch alone does not": ("DeformConv", "RoiAlign", "MaxRoiPool"),
    "it has no such operator": (
        "RotaryEmbedding", "LinearAttention", "CenterCropPad",
        *(f"com.microsoft::{n}" for n in ("RotaryEmbedding", "MRotaryEmbedding", "LinearAttention",
                                          "MatMulBnb4", "MatMulFpQ4", "GatherBlockQuantized",
                                          "NGramRepeatBlock", "WordConvEmbedding", "CropAndResize",
                                          "VarlenCausalConvWithState", "MoE", "QMoE",
                                          "MoEGroupRouter")),
        *(f"ai.onnx.ml::{n}" for n in ("Scaler", "Imputer", "LinearClassifier", "SVMRegressor",
                                       "SVMClassifier")),
    ),
    "its operator has no derivative there": ("Range", "Unique"),
    "its result is rounded, and there it has no operator": (
        "DynamicQuantizeLinear", "com.microsoft::DynamicQuantizeMatMul",
    ),
    "it is another operator between dequantised operands": (
        *(f"com.microsoft::{n}" for n in ("QAttention", "QEmbedLayerNormalization", "QGemm")),
    ),
}  # fmt: skip
"""Why there is no script -> the operators without one."""


def needs_torch(test):
    """Skip the test where PyTorch is missing."""
    missing = find_spec("torch") is None
    return pytest.mark.peers(pytest.mark.skipif(missing, reason="PyTorch is not installed")(test))


def named(op_type, domain):
    return f"{domain}::{op_type}" if domain else op_type


def script(name):
    domain, _, op_type = name.rpartition("::")
    return script_of(op_type, domain, tuple(CASES[op_type, domain]))


def test_every_operator_has_a_script_or_a_reason():
    unscripted = [name for names in UNSCRIPTED.values() for name in names]
    known = {named(*key) for key in CASES}
    scripts = TORCH.keys() | SCRIPTED.keys()
    assert not scripts & set(unscripted)
    assert not TORCH.keys() & SCRIPTED.keys()
    assert known <= scripts | set(unscripted)
    assert scripts <= known


@pytest.mark.parametrize("name", [n for names in UNSCRIPTED.values() for n in names])
def test_what_has_a_reason_has_no_script(name):
    domain, _, op_type = name.rpartition("::")
    assert script_of(op_type, domain, tuple(CASES.get((op_type, domain), ()))) is None


@needs_torch
@pytest.mark.parametrize("name", [*TORCH, *SCRIPTED])
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
    assert "w = torch.tensor([1, 0])" in script_of("Gather", "", (case,)).text
