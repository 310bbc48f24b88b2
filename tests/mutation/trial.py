"""Trial of one mutant: a forked process imports it instead of the file and runs chosen tests."""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import pytest
from onnx.backend.test.case.node import collect_testcases

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 6 << 30
"""The extra address space of a mutant in bytes: allocations of absurd shapes fail at once."""
PREPARED = ("numpy", "scipy.optimize", "scipy.sparse.linalg", "scipy.special", "sympy",
    "onnx.reference", "onnx_ir", "onnxruntime")  # fmt: skip
KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"


class Chosen:
    """A pytest plugin that runs these tests in this order and records the first failure."""

    def __init__(self, tests: list[str]) -> None:
        self.tests, self.killer = tests, ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the chosen tests; where the mutant changed an id, all cases of the function."""
        found = {item.nodeid: item for item in items}
        same: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            same[item.nodeid.partition("[")[0]].append(item)
        kept = [[found[t]] if t in found else same[t.partition("[")[0]] for t in self.tests]
        items[:] = dict.fromkeys(item for group in kept for item in group)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The killer is the first failure."""
        if report.failed:
            self.killer = self.killer or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that can no longer be collected counts as a killer."""
        if report.failed:
            self.killer = self.killer or report.nodeid


def on_trial(path: Path, source: str, tests: list[str], seconds: int) -> tuple[str, str]:
    """(killed, survived or timeout; the killer), within a limit of CPU seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setsid()
        confined(lambda: run(path, source, tests), writing, seconds)
    os.close(writing)
    status = waited(child, 4 * seconds)
    with os.fdopen(reading) as pipe:
        killer = pipe.read()
    if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return TIMEOUT, ""
    return (SURVIVED, "") if status == 0 else (KILLED, killer or "the process died")


def confined(work: Callable[[], tuple[bool, str]], writing: int, seconds: int) -> None:
    """Do the work in this process, silently and within limits, then exit."""
    code = 1
    try:
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silence, stream)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (addressed() + MEMORY,) * 2)
        passed, killer = work()
        os.write(writing, killer.encode())
        code = 0 if passed else 1
    finally:
        os._exit(code)


def addressed() -> int:
    """The current size of the address space of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def run(path: Path, source: str, tests: list[str]) -> tuple[bool, str]:
    """Whether all tests pass with this source in place of the file, and the first that fails."""
    serve(path, source)
    chosen = Chosen(tests)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    options = ["-x", "-q", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    code = pytest.main([*options, *(str(ROOT / file) for file in files)], plugins=[chosen])
    passed = code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return passed, chosen.killer


def serve(path: Path, source: str) -> None:
    """Import this source in place of the file, from here on."""
    plain = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, name: str) -> CodeType | None:
        if Path(self.path).resolve() != path:
            return plain(self, name)
        return self.source_to_code(source.encode(), self.path)

    SourceFileLoader.get_code = get_code


def waited(child: int, seconds: float) -> int | None:
    """The status that a child ended with; None where it had to be killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def prepare() -> None:
    """Import everything that mutants need, but nothing of the package itself.

    Collecting ONNX's cases computes them, which takes longer than most trials. Objects that exist
    now are excluded from the garbage collection of trials.
    """
    for name in PREPARED:
        __import__(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collect_testcases(None)
    gc.freeze()
    assert not [name for name in sys.modules if name.split(".")[0] == "onnxjac"]
