"""The commands that write models: export and lower."""

import numpy as np
import onnx
import pytest

import onnxjac as oj
from house import ROOT
from onnxjac.__main__ import main

DIGITS = str(ROOT / "notebooks" / "models" / "digits.onnx")
GRADIENT = """
<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]>
example (float[3] a, float[3] b) => (float[3] da, float[3] db)
{ c = Mul(a, b)
  da, db = ai.onnx.preview.training.Gradient <xs = ["a", "b"], y = "c"> (a, b) }
"""


@pytest.mark.parametrize("mode", ["jvp", "vjp", "jacobian"])
def test_export_writes_a_model_that_loads(tmp_path, capsys, mode):
    target = tmp_path / "out.onnx"
    assert main(["export", DIGITS, "--mode", mode, "--wrt", "image", "-o", str(target)]) == 0
    assert str(target) in capsys.readouterr().out
    onnx.checker.check_model(onnx.load(target), full_check=True)
    assert "logits" in oj.load(target).outputs


def test_lower_replaces_the_gradient(tmp_path, capsys):
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(onnx.parser.parse_model(GRADIENT), source)
    assert main(["lower", str(source), "-o", str(target)]) == 0
    a, b = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    found = oj.load(target).run({"a": a, "b": b})
    np.testing.assert_array_equal(found["da"], b)
    np.testing.assert_array_equal(found["db"], a)


def test_a_folder_that_is_not_there_is_one_line(tmp_path, capsys):
    target = tmp_path / "nowhere" / "out.onnx"
    assert main(["export", DIGITS, "-o", str(target)]) == 1
    err = capsys.readouterr().err
    assert err.startswith("onnxjac: error: cannot write")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_export_of_a_gradient_needs_a_scalar(tmp_path, capsys):
    assert main(["export", DIGITS, "--mode", "grad", "-o", str(tmp_path / "out.onnx")]) == 1
    assert "one scalar output" in capsys.readouterr().err
