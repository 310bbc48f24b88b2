"""Worker: one contender, in a process of its own.

Messages: ("workload", name) → None; ("setup", product) → `Setup` or the reason why not; ("run", n)
→ seconds of n runs; ("memory", None) → the peak bytes of the process so far.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from .contenders import contender
from .contenders.contender import STEPS, Absent, Contender, Task
from .workloads import find

WARM = 5.0
"""Seconds of warm-up steps before timing, unless asked otherwise: threads may build programs."""


class Setup(NamedTuple):
    """A product after set-up: seconds until its first result, and that result."""

    seconds: float
    result: np.ndarray


def serve(connection: Connection, name: str, device: str, warm: float) -> None:
    """Answer messages until there are no more."""
    made: Any
    answer: Any
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    warnings.simplefilter("ignore")
    workload, made = "", None
    task: Task = list
    for kind, value in iter(connection.recv, ("stop", None)):
        try:
            if kind == "workload":
                workload, made, task, answer = value, None, list, None
            elif kind == "setup":
                task = list
                gc.collect()  # the previous product may hold gigabytes
                made = made or contender(name)(find(workload), device)
                task, answer = prepared(made, value, warm)
            else:
                answer = timed(made, task, value) if kind == "run" else peak()
        except Exception as error:
            answer = reason(error)
        connection.send(answer)


def prepared(made: Contender, product: str, warm: float) -> tuple[Task, Setup]:
    """The task of a product, and its first result."""
    start = time.perf_counter()
    task = made.task(product)
    first = made.comparable(task(), product)
    setup = Setup(time.perf_counter() - start, first)
    if not product.startswith(STEPS):
        for _ in range(made.warm):
            task()
    while product.startswith(STEPS) and time.perf_counter() - start < warm:
        task()
        made.wait()
    return task, setup


def timed(made: Contender, task: Task, n: int) -> float:
    """Seconds of n runs, after one that warms the caches."""
    task()
    made.wait()
    start = time.perf_counter()
    for _ in range(n):
        task()
    made.wait()
    return time.perf_counter() - start


def peak() -> int:
    """The peak resident memory so far, in bytes."""
    import resource  # not on Windows

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def reason(error: Exception) -> Any:
    """Why a contender is absent: the error; an unexpected one also prints its traceback."""
    if not isinstance(error, (Absent, ImportError)):
        traceback.print_exc(limit=-3, chain=False)
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
