"""The command line in this process, and models to call it with."""

import json

import onnx

from house import ROOT
from onnxjac.__main__ import main

DIGITS = str(ROOT / "notebooks" / "models" / "digits.onnx")
SAMPLES = str(ROOT / "notebooks" / "models" / "digits_samples.npz")

GRADIENT = (
    """
    example (float[3] a, float[3] b) => (float[3] da, float[3] db)
    { c = Mul(a, b)
      da, db = ai.onnx.preview.training.Gradient <xs = ["a", "b"], y = "c"> (a, b) }
    """,
    '"": 21, "ai.onnx.preview.training": 1',
)
"""A model with a Gradient node, and its opsets."""


def written(folder, text, version='"": 21'):
    """A model file, from ONNX's text format."""
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{version}]> {text}"), path)
    return str(path)


def answer(capsys, *argv):
    """Exit status, stdout and stderr of a command."""
    status = main(argv)
    return status, *capsys.readouterr()


def refused(capsys, *argv):
    """The single error line on stderr of a failing command."""
    status, _, err = answer(capsys, *argv)
    assert status == 1
    assert err.startswith("onnxjac: error: ")
    assert err.count("\n") == 1
    return err


def parsed(capsys, *argv, status=0):
    """The object that --json prints, with a check that nothing else is printed."""
    found, out, _ = answer(capsys, *argv, "--json")
    assert found == status

    def no_constant(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(out, parse_constant=no_constant)
