"""Rounds: contenders take turns, so that noise on the machine affects all of them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .worker import WARM, Setup, serve

PATIENCE = 120.0
"""The time limit of a set-up or a turn, in seconds."""


class Asked(Protocol):
    """The interface to a contender."""

    name: str

    def ask(self, kind: str, value: Any) -> Any: ...


class Worker:
    """A contender's process, stopped whenever it is not its turn."""

    def __init__(self, name: str, device: str, warm: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.name, (self.pipe, theirs) = name, context.Pipe()
        told = theirs, name, device, warm
        self.process = context.Process(target=serve, args=told, daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, kind: str, value: Any) -> Any:
        """The answer, or the reason why a process that ended or timed out has none."""
        try:
            self._signal(signal.SIGCONT)
            self.pipe.send((kind, value))
            answer = self.pipe.recv() if self.pipe.poll(PATIENCE) else self._late()
        except (EOFError, OSError):
            return "the process ended"
        self._signal(signal.SIGSTOP)
        return answer

    def _late(self) -> str:
        self.process.kill()
        return f"no answer within {PATIENCE:.0f} s"

    def _signal(self, which: int) -> None:
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, which)

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self.process.kill()
        self.process.join()


@contextmanager
def workers(
    names: list[str], device: str = "cpu", warm: float = WARM
) -> Iterator[list[Worker]]:
    """One process for each contender, ended on exit."""
    started = [Worker(name, device, warm) for name in names]
    try:
        yield started
    finally:
        for worker in started:
            worker.close()


@dataclass
class Measured:
    """One contender on one product: seconds per run in every round, or the reason for none.

    `memory` is the peak of its process until then, with all that it imports, in bytes.
    """

    contender: str
    setup: float = 0.0
    result: np.ndarray | None = None
    seconds: list[float] = field(default_factory=list)
    absent: str | None = None
    memory: int = 0

    @property
    def median(self) -> float:
        """The median seconds of one run."""
        return float(np.median(self.seconds))


def measure(workers: list[Worker], product: str, *, rounds: int, budget: float) -> list[Measured]:
    """All contenders on one product: set up one after the other, then timed in turns."""
    found = [begin(worker, product) for worker in workers]
    here = [(w, m) for w, m in zip(workers, found, strict=True) if m.absent is None]
    counts = {w.name: repetitions(w, m, budget) for w, m in here}
    for i in range(rounds):
        shift = i % max(len(here), 1)
        for worker, measured in here[shift:] + here[:shift]:
            turn(worker, measured, counts[worker.name])
    for worker, measured in here:
        measured.memory = 0 if measured.absent else worker.ask("memory", None)
    return found


def begin(worker: Asked, product: str) -> Measured:
    """Set up one contender."""
    answer = worker.ask("setup", product)
    if isinstance(answer, Setup):
        return Measured(worker.name, answer.seconds, answer.result)
    return Measured(worker.name, absent=answer)


def repetitions(worker: Worker, measured: Measured, budget: float) -> int:
    """The number of runs that fill the time of one turn."""
    n = 1
    while measured.absent is None:
        seconds = worker.ask("run", n)
        if isinstance(seconds, str):
            measured.absent = seconds
        elif seconds > budget / 4 or n > 10**6:
            return max(1, round(n * budget / seconds))
        n *= 4
    return n


def turn(worker: Worker, measured: Measured, n: int) -> None:
    """One turn of n runs."""
    if measured.absent is not None:
        return
    seconds = worker.ask("run", n)
    if isinstance(seconds, str):
        measured.absent = seconds
    else:
        measured.seconds.append(seconds / n)
