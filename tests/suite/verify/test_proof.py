"""A proof as readable text: its parts, and their correctness."""


import pytest

import onnxjac as oj
from onnxjac.__main__ import main
from onnxjac.modes.verify.scripts import script_of

SOME = [("Tanh", ""), ("MatMul", ""), ("Softmax", ""), ("Relu", ""), ("Where", ""),
        ("Scaler", "ai.onnx.ml")]  # fmt: skip


@pytest.mark.parametrize(("op_type", "domain"), SOME)
def test_the_document_has_all_parts(op_type, domain):
    text = oj.prove(op_type, domain).markdown()
    parts = ("## Differentiability", "## From the equation to J", "## In integers",
             "## By PyTorch", "## Verdicts", "## Domain")  # fmt: skip
    assert all(part in text for part in parts)
    assert "ONNX's guide writes the transpose" in " ".join(text.split())
    assert "refuted" not in text


def test_jupyter_sees_markdown_and_latex():
    proof = oj.prove("Tanh")
    assert proof._repr_markdown_() == str(proof) == proof.markdown()
    assert r"\tanh^{2}" in proof._repr_latex_()
    assert repr(proof) == "Proof(Tanh: exact, 2 cases)"


def test_kinks_are_declared():
    assert "relu(0): 0" in oj.prove("Relu").markdown()


def test_operators_without_a_derivative():
    proof = oj.prove("Floor")
    assert (proof.verdict, bool(proof)) == ("not compared", False)
    assert proof.outcome == "zero"
    assert "piecewise constant" in proof.markdown()


def test_a_proof_of_an_unknown_operator_suggests_another():
    with pytest.raises(oj.UnsupportedOp, match="Did you mean"):
        oj.prove("Tahn")


def test_a_proof_has_the_script_of_its_operator():
    for name, domain in (("Gather", ""), ("CDist", "com.microsoft"), ("Range", "")):
        assert oj.prove(name, domain).script == script_of(name, domain)


def test_the_command_line_prints_proofs_and_tags(capsys):
    assert main(["prove", "ai.onnx.ml::Scaler"]) == 0
    assert "# ai.onnx.ml::Scaler" in capsys.readouterr().out
    assert main(["tags", "--op", "Clip", "--format", "csv"]) == 0
    assert "Clip,input,min,not,almost everywhere" in capsys.readouterr().out
    assert main(["prove", "Floor"]) == 3
    assert main(["prove", "Tahn"]) == 1
    assert "Did you mean" in capsys.readouterr().err
