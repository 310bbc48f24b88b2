"""By XLA: products and steps by `engine="jax"` beside JAX written by hand, on a busy machine too.

`python -m tests.benchmarks.by_xla [workload ...]`: both in one process, in turn, on one core.
Seconds are the processor's, so that other programs do not count; the ratio is the median over the
rounds, and a result that differs from the other has none.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

from .contenders import contender
from .table import error, markdown, ms, number, verdict
from .targets import BY_XLA, XLA
from .workloads import find

ROUNDS, SECONDS = 9, 0.06
"""The turns of both, and the least seconds of one."""

HEAD = ("work", "product", "ours ms", "jax ms", "ratio", "target", "met", "error")


def measured(name: str, product: str, bound: float) -> tuple[str, ...]:
    """The line of one product."""
    workload, tasks, flat = find(name), [], []
    for each in (XLA, "jax"):
        made = contender(each)(workload)
        tasks.append(made.task(product))
        flat.append(made.comparable(tasks[-1](), product))
        tasks[-1]()
    off = float(np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1]))
    times = max(1, int(SECONDS / processor_seconds(tasks[1], 1)))
    rounds = [[processor_seconds(task, times) for task in tasks] for _ in range(ROUNDS)]
    ours, theirs = (median(column) for column in zip(*rounds, strict=True))
    ratio = median(a / b for a, b in rounds) if off < workload.tolerance else float("nan")
    return (name, product, ms(ours), ms(theirs), number(ratio), number(bound),
            verdict(ratio <= bound), error(off))  # fmt: skip


def processor_seconds(task: Callable[[], Any], times: int) -> float:
    """The processor's seconds of one of several runs."""
    started = time.process_time()
    for _ in range(times):
        task()
    return (time.process_time() - started) / times


def lines(asked: list[str]) -> Iterator[tuple[str, ...]]:
    """The lines of the workloads that were asked for, or of all."""
    for names, products in BY_XLA.items():
        for name in names:
            for product, bound in products.items() if name in asked or not asked else ():
                try:
                    yield measured(name, product, bound)
                except Exception as reason:  # the other lines are still of use
                    yield name, product, "", "", "", number(bound), "not met", str(reason)[:60]


def main(asked: list[str]) -> None:
    """Print each line when it is known, then the table."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    warnings.simplefilter("ignore")
    found = []
    for line in lines(asked):
        print(*line, sep="  ", file=sys.stderr, flush=True)
        found.append(line)
    print(markdown(HEAD, found))


if __name__ == "__main__":
    main(sys.argv[1:])
