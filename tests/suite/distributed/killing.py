"""Workers that leave traces, and one that is killed in the middle of its work."""

import os
import signal
import threading
import time
from contextlib import contextmanager


def traced(folder):
    """The processes that have begun a batch, in order."""
    trace = folder / "trace"
    return [int(pid) for pid in trace.read_text().split()] if trace.exists() else []


@contextmanager
def a_worker_killed(folder):
    """Kill the worker that begins the third batch within this block."""
    killer = threading.Thread(target=kill, args=(folder, len(traced(folder)) + 3))
    killer.start()
    yield
    killer.join()


def kill(folder, begun):
    """Kill the worker that begins batch number `begun`."""
    while len(traced(folder)) < begun:
        time.sleep(0.01)
    os.kill(traced(folder)[-1], signal.SIGKILL)
