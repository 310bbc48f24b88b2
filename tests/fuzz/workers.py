"""Workers: processes that try mutants one by one, within limits that the kernel enforces.

The parent knows the trial of each worker, and so the mutant that ended it: by a crash, by too much
CPU time, or by a hang.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .corpus import Seed
from .mutate import mutant
from .trial import Verdict, prepared, trial
from .watch import Watch

MEMORY = 4 * 2**30
"""The address space allowed for a worker, libraries included, in bytes."""

SECONDS = 30
"""CPU seconds allowed for a trial; ten times that in wall-clock time."""

LIFE = 500
"""Trials of one worker, after which a fresh one takes over."""

Outcome = tuple[int, Verdict]

fork = get_context("fork")


def outcomes(corpus: list[Seed], seed: int, numbers: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """The verdict of every trial, in any order."""
    waiting = iter(numbers)
    crew = [Crewman(corpus, seed) for _ in range(jobs)]
    try:
        for man in crew:
            man.next(waiting)
        while busy := [man for man in crew if man.number is not None]:
            wait([man.pipe for man in busy], timeout=1)
            for man in busy:
                if (verdict := man.verdict()) is not None:
                    yield man.number, verdict
                    man.next(waiting)
    finally:
        for man in crew:
            man.stop()


class Crewman:
    """One slot of the pool, and its current process."""

    def __init__(self, corpus: list[Seed], seed: int) -> None:
        self.corpus, self.seed, self.number = corpus, seed, None
        self.process, self.left = None, 0

    def next(self, waiting: Iterator[int]) -> None:
        """Start the next trial, if there is one."""
        self.number = next(waiting, None)
        if self.number is None:
            return
        if self.left <= 0:
            self.stop()
            self._start()
        self.left -= 1
        self.pipe.send(self.number)
        self.began = time.monotonic()

    def _start(self) -> None:
        self.pipe, other = fork.Pipe()
        self.process = fork.Process(target=work, args=(other, self.corpus, self.seed))
        self.process.start()
        other.close()
        self.left = LIFE

    def verdict(self) -> Verdict | None:
        """The verdict of the trial, if it has ended."""
        if self.pipe.poll():
            try:
                return self.pipe.recv()
            except (EOFError, OSError):
                return self._death()
        if time.monotonic() - self.began > 10 * SECONDS:
            self.left = 0
            return Verdict("finding", "hang: waits for ever")
        return None

    def _death(self) -> Verdict:
        self.process.join()
        self.left, code = 0, self.process.exitcode
        if code == -signal.SIGPROF:
            return Verdict("finding", f"hang: more than {SECONDS} s of processor time")
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        return Verdict("finding", f"crash: {name}")

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
            self.process = None


def work(pipe: Connection, corpus: list[Seed], seed: int) -> None:
    """Run the trials that arrive through the pipe."""
    confine()
    with tempfile.TemporaryDirectory() as place:
        folder, watch = prepared(Path(place).resolve()), Watch()
        while True:
            number: Any = pipe.recv()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            data = mutant(corpus, seed, number).data
            try:
                verdict = trial(data, number, folder, watch)
            except RecursionError:
                verdict = Verdict("finding", "RecursionError")
            signal.setitimer(signal.ITIMER_PROF, 0)
            pipe.send(verdict)


def confine() -> None:
    """Limit memory, disable core dumps and output, and set a timer that ends a hang."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    faulthandler.disable()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.setrecursionlimit(1000)
