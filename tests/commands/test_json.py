"""What machines read: one object on stdout, with the keys that the help documents."""

import numpy as np
import pytest

import onnxjac as oj
from commands.running import DIGITS, GRADIENT, SAMPLES, answer, parsed, refused, written
from onnxjac.modes.commands import page, sweep
from onnxjac.modes.commands.output import COMMON
from onnxjac.modes.commands.parser import COMMANDS, parser
from onnxjac.modes.verify.sweep import Result

NAMES = [command.name for command in COMMANDS]


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """Something to say to each command."""
    out = ("-o", str(tmp_path / "out"))
    monkeypatch.setattr(page, "find_spec", lambda name: None)
    monkeypatch.setattr(sweep, "chosen", lambda ops, shard: [0])  # finding all cases takes seconds
    monkeypatch.setattr(sweep, "sweep", lambda *_: [Result("test_tanh", "node", "Tanh", "none")])
    return {
        "report": (DIGITS, "--html", str(tmp_path / "page.html")), "check": (DIGITS,),
        "jacobian": (DIGITS, *out), "spectrum": (DIGITS,), "export": (DIGITS, *out),
        "lower": (written(tmp_path, *GRADIENT), *out), "prove": ("Floor",),
        "tags": ("--op", "Clip"), "sweep": ("--op", "Tanh", "--jobs", "1"),
    }  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_the_keys_are_those_that_are_documented(capsys, arguments, command):
    found = parsed(capsys, command.name, *arguments[command.name])
    assert list(found)[:3] == ["command", "ok", "warnings"]
    assert set(found) == {*COMMON, *command.keys} - {"error"}
    assert (found["command"], found["ok"], found["warnings"]) == (command.name, True, [])


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_help_has_examples_keys_and_status(capsys, command):
    with pytest.raises(SystemExit):
        answer(capsys, command.name, "--help")
    out = capsys.readouterr().out
    assert f"examples:\n  onnxjac {command.name} {command.examples[0]}\n" in out
    assert all(f"\n  {key} " in out for key in {**COMMON, **command.keys})
    assert "exit status: 0" in out
    assert "--quiet" in out


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_every_example_can_be_parsed(command):
    for example in command.examples:
        said = example.partition(" > ")[0].split()
        assert parser("0").parse_args([command.name, *said]).command is command


def test_the_report_says_what_the_text_says(capsys):
    found = parsed(capsys, "report", DIGITS, "--input", SAMPLES, "--wrt", "fc2.weight")
    assert found["jacobian"]["shape"] == [100, 640]
    assert found["point"] == [
        {"name": "image", "shape": [10, 1, 8, 8], "dtype": "float32", "given": True}
    ]
    assert found["model"]["ops"]["Conv"] == 2
    assert len(found["spectrum"]["values"]) == 5
    assert all(test["passed"] for test in found["check"])
    assert found["times"]["run"] > 0
    assert found["explanation"]["rows"][0]["op"]


def test_what_is_refused_is_an_object_too(capsys):
    found = parsed(capsys, "check", DIGITS, "--of", "lgits", status=1)
    assert found["ok"] is False
    assert found["error"]["type"] == "UnknownTensor"
    assert "'logits'" in found["error"]["message"]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_is_not_finite_is_null(capsys, tmp_path):
    path = written(tmp_path, "g (float[9] x) => (float[9] y) { y = Sqrt(x) }")
    found = parsed(capsys, "check", path, status=1)
    assert found["ok"] is False
    assert None in [test["error"] for test in found["check"]]
    assert any("not finite" in text for text in found["warnings"])


def test_quiet_keeps_warnings_and_files_to_itself(capsys, tmp_path):
    graph = "g (float[3] x, float[3] y) => (float[3] z) { s = Sign(x) z = Mul(s, y) }"
    path = written(tmp_path, graph)
    cut = ("jacobian", path, "--wrt", "x", "-o", str(tmp_path / "J.npz"))
    _, out, err = answer(capsys, *cut)
    assert "entries" in out
    assert "warning" in err
    assert answer(capsys, *cut, "--quiet") == (0, "", "")
    assert parsed(capsys, *cut, "--quiet")["warnings"]


def test_a_spectrum_of_singular_values(capsys):
    found = parsed(capsys, "spectrum", DIGITS, "--k", "3", "--input", SAMPLES, "--wrt", "fc2.bias")
    J = oj.linearize(oj.load(DIGITS), dict(np.load(SAMPLES)), wrt="fc2.bias")
    exact = np.linalg.svd(J.toarray(), compute_uv=False)[:3]
    np.testing.assert_allclose(found["values"], exact, rtol=1e-5)
    assert found["of"] == "singular values"


@pytest.mark.parametrize("size", [3, 40])
def test_a_spectrum_of_a_hessian_has_signs(capsys, tmp_path, size):
    graph = f"""g (float[{size}] x) => (float y) <float[{size}] c = {{{",".join(
        str((k + 1) * (-1) ** k) for k in range(size))}}}>
        {{ z = Mul(x, x) w = Mul(c, z) y = ReduceSum<keepdims = 0>(w) }}"""
    path = written(tmp_path, graph)
    found = parsed(capsys, "spectrum", path, "--hessian", "--k", "2", "--dtype", "float64")
    sign = (-1) ** (size - 1)
    np.testing.assert_allclose(found["values"], [2 * size * sign, -2 * (size - 1) * sign])
    assert found["of"] == "eigenvalues"


def test_a_hessian_is_of_one_scalar(capsys, tmp_path):
    path = written(tmp_path, "g (float[3] x) => (float[3] y, float[3] z) { y = Exp(x) z = Sin(x) }")
    assert "--of" in refused(capsys, "spectrum", path, "--hessian")


def test_a_failed_check_is_status_1(capsys, monkeypatch):
    from onnxjac.modes.checking.check import Check, Outcome

    failed = Check((Outcome("dot test", 1.0, 1e-3),))
    monkeypatch.setattr(oj.Linearization, "check", lambda J, **_: failed)
    assert parsed(capsys, "check", DIGITS, status=1)["check"][0]["passed"] is False
