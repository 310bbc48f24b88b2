"""Completion: scripts that shells understand."""

import shutil
import subprocess
import sys

import pytest

from commands.running import main


def script(capsys, shell):
    with pytest.raises(SystemExit) as stop:
        main(["--print-completion", shell])
    assert stop.value.code in (0, None)
    return capsys.readouterr().out


def completed(program, *words):
    """What bash offers after these words."""
    line = " ".join(f"'{word}'" for word in words)
    ask = f"""{program}
        COMP_WORDS=({line}) COMP_CWORD={len(words) - 1}
        compopt() {{ :; }}
        $(complete -p onnxjac | sed 's/.*-F \\([^ ]*\\).*/\\1/') onnxjac '{words[-1]}' '{words[-2]}'
        printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False)
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_choices_and_files(capsys, tmp_path, monkeypatch):
    pytest.importorskip("shtab")
    program = script(capsys, "bash")
    assert completed(program, "onnxjac", "sp") == {"spectrum"}
    assert "--hessian" in completed(program, "onnxjac", "spectrum", "m.onnx", "--h")
    assert completed(program, "onnxjac", "check", "m.onnx", "--engine", "n") == {"numpy"}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some_model.onnx").touch()
    assert "some_model.onnx" in completed(program, "onnxjac", "check", "some_")


def test_zsh_gets_a_script_of_its_own(capsys):
    pytest.importorskip("shtab")
    assert script(capsys, "zsh").startswith("#compdef onnxjac")


def test_without_shtab_one_line_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as stop:
        main(["--print-completion", "bash"])
    assert stop.value.code == 1
    found = capsys.readouterr()
    assert "onnxjac[completion]" in found.err
    assert (found.out, found.err.count("\n")) == ("", 1)
