"""Ctrl-C takes effect at once, and leaves the Jacobian intact."""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from faults.busy import KINDS

TESTS = Path(__file__).parents[1]
PROMPT = 10.0
"""Seconds within which an interrupt must take effect, also on a busy machine."""
AGAIN = 1.5
"""Seconds after which it is sent again: Python drops an interrupt inside a finaliser."""


@contextmanager
def busy(kinds):
    """A process that works until it is interrupted, and ends with the test."""
    command = [sys.executable, "-m", "faults.busy", *kinds]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as process:
        watch = Timer(300, process.kill)
        watch.start()
        yield process
        watch.cancel()
        process.kill()


@pytest.fixture(scope="module")
def seconds():
    """The seconds that each kind ran on after an interrupt, and its output."""
    found = {}
    with busy(KINDS) as process:
        for kind in KINDS:
            assert process.stdout.readline().split() == ["ready", kind]
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            again = Timer(AGAIN, process.send_signal, [signal.SIGINT])
            again.start()
            started = time.monotonic()
            said = process.stdout.readline().strip()
            again.cancel()
            found[kind] = time.monotonic() - started, said, process.stdout.readline().strip()
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_is_prompt_and_harmless(seconds, kind):
    took, *said = seconds[kind]
    assert said == ["interrupted", "same"]
    assert took < PROMPT
