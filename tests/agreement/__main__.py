"""The command line: `python -m tests.agreement --count 100 --seed 0 --jobs 2`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import count

from . import __doc__ as description
from .make import case
from .trial import Verdict, silent, trial

PROGRESS = 100
"""Graphs from one line of progress to the next."""


def arguments() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser("python -m tests.agreement", description=description)
    add = parser.add_argument
    add("--count", type=int, default=100, help="graphs (100)")
    add("--seed", type=int, help="of all that is random (by the date of the last commit)")
    add("--first", type=int, default=0, help="number of the first graph (0)")
    add("--jobs", type=int, default=2, help="processes (2)")
    add("--seconds", type=float, default=float("inf"), help="begin no graph after so many seconds")
    add("--newer", action="store_true", help="no graphs but those with newer kinds of nodes")
    add("--dear", type=int, default=1, help="of the ways that take longer: how many a graph (1)")
    add("--jax", action="store_true", help="by XLA, beside NumPy, and in no other way")
    return parser.parse_args()


def seed_of_the_day() -> int:
    """The date of the last commit, as a number like 20261122."""
    asked = ["git", "log", "-1", "--format=%cd", "--date=format:%Y%m%d"]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


def new_pool(jobs: int) -> ProcessPoolExecutor:
    """A pool of spawned processes, each replaced after 300 graphs."""
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, spawn, initializer=silent, max_tasks_per_child=300)


def verdicts(asked: argparse.Namespace) -> Iterator[tuple[int, Verdict]]:
    """The verdict of every trial, in any order; a process that dies is a finding."""
    start, numbers = time.monotonic(), count(asked.first)
    if asked.newer:
        numbers = (n for n in numbers if "newer" in case(asked.seed, n).traits)
    pool = new_pool(asked.jobs)
    running: dict[Future[Verdict], int] = {}
    left = asked.count
    try:
        while left or running:
            while left and len(running) < asked.jobs:
                if time.monotonic() - start > asked.seconds:
                    left = 0
                    break
                number, left = next(numbers), left - 1
                running[pool.submit(trial, asked.seed, number, asked.dear, asked.jax)] = number
            done, _ = wait(running, timeout=300, return_when=FIRST_COMPLETED)
            if not done and running:
                yield min(running.values()), Verdict("finding", "hang: nothing for 300 s")
                return
            for future in done:
                number = running.pop(future)
                try:
                    yield number, future.result()
                except BrokenProcessPool:
                    yield number, Verdict("finding", "crash: the process died (or its neighbour)")
                    running.clear()
                    pool = new_pool(asked.jobs)
                    break
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def main() -> int:
    """Run the trials and print the results; returns 1 if there was a finding."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    asked = arguments()
    asked.seed = seed_of_the_day() if asked.seed is None else asked.seed
    start = time.monotonic()
    kinds, judges, operators, refusals = Counter(), Counter(), Counter(), Counter()
    compared = 0
    for number, verdict in verdicts(asked):
        kinds[verdict.kind] += 1
        judges[verdict.judge] += verdict.kind == "agreed"
        operators.update(verdict.operators)
        compared += verdict.compared
        if verdict.kind != "finding" and verdict.text:
            refusals[verdict.text[:100]] += 1
        if verdict.kind == "finding":
            print(f"--- graph {number} of seed {asked.seed}: {verdict.text}\n", flush=True)
        if (done := sum(kinds.values())) % PROGRESS == 0:
            took = time.monotonic() - start
            found = f"{kinds['finding']} findings, {compared} comparisons"
            print(f"{done} graphs in {took:.0f} s: {found}", file=sys.stderr, flush=True)
    seconds = time.monotonic() - start
    for text, times in refusals.most_common(10):
        print(f"refused {times} x: {text}")
    print(
        f"seed {asked.seed}: {sum(kinds.values())} graphs of {len(operators)} operators in "
        f"{seconds:.0f} s; {compared} comparisons; judges {dict(judges)}; {dict(kinds)}"
    )
    print(f"{kinds['agreed'] + kinds['refused']} passed, {kinds['finding']} failed")
    return 1 if kinds["finding"] else 0


if __name__ == "__main__":
    sys.exit(main())
