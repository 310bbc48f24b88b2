"""Processes that are killed while they write, and others that go on from what they leave."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import onnxjac as oj

HERE = Path(__file__)
PATH = [str(HERE.parents[1]), str(Path(oj.__file__).parent / ".ci")]
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": os.pathsep.join([*PATH, os.environ.get("PYTHONPATH", "")]),
}  # fmt: skip
PATIENCE = 120
"""Seconds after which a process that hangs is an error."""


def run(work, path, writing=0):
    return subprocess.run(
        [sys.executable, HERE.with_name("script.py"), work, path, str(writing)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="Windows ends processes in another way")
@pytest.mark.sampled(0.34)
@pytest.mark.parametrize("work", ["density of a Hessian over data", "natural gradient", "E-KFAC"])
def test_a_process_killed_while_it_writes(work, tmp_path):
    """Each process has models of its own, which do not know how often they were used before."""
    path = tmp_path / "run.npz"
    ended = run(work, path, 5)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert {f.name for f in tmp_path.iterdir()} == {"run.npz", "run.npz.part"}
    rest, whole = run(work, path), run(work, tmp_path / "whole.npz")
    assert rest.stdout == whole.stdout != "", rest.stderr
    assert not path.with_name("run.npz.part").exists()
