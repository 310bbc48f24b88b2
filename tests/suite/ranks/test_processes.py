"""Ranks as real processes: mpirun of MPICH, and torchrun with gloo."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import onnxjac as oj

pytestmark = pytest.mark.peers

HERE = Path(__file__)
PATH = [str(HERE.parents[1]), str(Path(oj.__file__).parent / ".ci")]
PATIENCE = 120
"""Seconds after which ranks that hang are an error."""


SCRIPT = str(HERE.parent / "script.py")
ENVIRONMENT = {
    **os.environ, "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([*PATH, os.environ.get("PYTHONPATH", "")]),
}  # fmt: skip


def run(*command):
    """What all ranks print, sorted: lines may run into one another. An error where one fails."""
    ended = subprocess.run(
        [*command, SCRIPT, "mpi4py" if "mpi4py" in command else "torch"],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return sorted(re.findall(r"rank \d has heard: rank 1: missing input", ended.stdout))


def heard(size):
    """What each rank prints: the error of rank 1."""
    return [f"rank {rank} has heard: rank 1: missing input" for rank in range(size)]


@pytest.fixture
def mpirun():
    pytest.importorskip("mpi4py")
    found = shutil.which("mpirun", path=Path(sys.executable).parent) or shutil.which("mpirun")
    return found or pytest.skip("no mpirun")


@pytest.mark.parametrize("count", [3, 4])
def test_ranks_of_mpi_some_of_them_without_batches(mpirun, count):
    assert run(mpirun, "-n", str(count), sys.executable, "-m", "mpi4py") == heard(count)


def test_the_spectrum_on_the_page(mpirun):
    docs = HERE.parents[3] / "docs"
    command = [mpirun, "-n", "2", sys.executable, "-m", "mpi4py", docs / "examples" / "spectrum.py"]
    found = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True,
                           timeout=PATIENCE)  # fmt: skip
    assert found.stdout.strip() in (docs / "how-to" / "data.md").read_text("utf-8")


def test_two_ranks_of_torch_hear_of_the_error_of_one():
    pytest.importorskip("torch")
    torchrun = "torch.distributed.run"
    assert run(sys.executable, "-m", torchrun, "--standalone", "--nproc-per-node", "2") == heard(2)


def jax_devices(count):
    """The environment in which JAX has so many devices, all of them this CPU."""
    devices = f"--xla_force_host_platform_device_count={count}"
    return ENVIRONMENT | {"XLA_FLAGS": devices, "JAX_PLATFORMS": "cpu"}


def test_four_devices_of_jax_give_the_numbers_of_one():
    """Numbers, and one all-reduce in the program of a product; arrays on one device are refused."""
    pytest.importorskip("jax")
    ended = subprocess.run([sys.executable, HERE.parent / "sharded.py"], env=jax_devices(4),
                           capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    refused = "comm='jax' is for arrays that JAX has sharded along the"
    assert ended.stdout.splitlines() == [refused] * 2


def test_two_processes_of_jax_with_two_devices_each():
    pytest.importorskip("jax")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    ranks = [
        subprocess.Popen([sys.executable, HERE.parent / "sharded.py", str(rank), address],
                         env=jax_devices(2), stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]  # fmt: skip
    for rank in ranks:
        _, told = rank.communicate(timeout=PATIENCE)
        assert rank.returncode == 0, told


def test_a_rank_that_ends_is_an_error_on_the_other(tmp_path):
    pytest.importorskip("torch")
    ranks = [
        subprocess.Popen([sys.executable, SCRIPT, str(rank), str(tmp_path / "store")],
                         env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]  # fmt: skip
    heard, _ = ranks[0].communicate(timeout=PATIENCE)
    assert ranks[1].wait(PATIENCE) == 3
    assert heard.strip() == "a rank did not answer"
