"""The tests of this room on a device that is as strict as a GPU: see `simulated`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from house import ROOT

pytest.importorskip("torch.utils.backend_registration")

pytestmark = pytest.mark.peers

WALLS = """
import torch
from tensors import simulated
simulated.register()
x = torch.ones(3, device="simulated")
for fails in (lambda: x + torch.ones(3), lambda: x.numpy(), lambda: torch.ones(3).add_(x)):
    try:
        fails()
    except (RuntimeError, TypeError):
        continue
    raise SystemExit("no wall")
assert not simulated.COPIES.total()
assert (x + 1).device.type == "simulated" and float(x.sum()) == 3
assert x.cpu().tolist() == [1, 1, 1] and torch.arange(3).to("simulated")[0] == 0
assert simulated.COPIES == {"down": 1, "up": 1}, simulated.COPIES
"""

FILES = "test_devices.py", "test_estimates.py", "test_solving.py"


def run(*command):
    path = os.pathsep.join([str(ROOT / ".ci"), str(ROOT / "tests" / "suite")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_the_device_mixes_with_no_other_and_counts_copies():
    found = run("-c", WALLS)
    assert not found.returncode, found.stderr


def test_tests_of_tensors_pass_on_the_simulated_device():
    files = (str(Path(__file__).parent / name) for name in FILES)
    options = "-q", "-p", "no:cacheprovider", "--device", "simulated", "-k", "not notebook"
    found = run("-m", "pytest", *options, *files)
    assert not found.returncode, found.stdout[-3000:]
    assert " passed" in found.stdout
