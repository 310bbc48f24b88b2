"""Compiling: the time until the first product by XLA, of ours and of JAX by hand.

`python -m tests.benchmarks.compiling [workload ...]`: J is linearised before, and a product with
its transpose taken. What is timed is to trace, to compile and to run one product, of ours with what
it reads at the point. Both take turns, and the medians and their ratio are shown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from .contenders import contender
from .table import markdown, ms, number, verdict
from .workloads import Workload, find

NAMES = ("mlp", "transformer", "lstm", "loop", "steps/if", "reaction")
ROUNDS = 3

BOUND, SECONDS = 1.2, 2.0
"""The greatest ratio, and for a loop of 3,000 turns the most seconds."""

HEAD = ("work", "product", "ours ms", "jax ms", "ratio", "met")


def ours(workload: Workload, product: str) -> Callable[[], Any]:
    """The first product, with a J of a model that nothing is known of."""
    import jax

    made = contender("onnxjac jax")(workload)
    J = made.linearization()
    sides = (J, made.start), (J.T, made.array(workload.draw(J.shape[0], 2)))
    (A, v), (B, u) = sides if product == "jvp" else sides[::-1]
    B @ u
    return lambda: jax.block_until_ready(A @ v)


def peers(workload: Workload, product: str) -> Callable[[], Any]:
    """The same with a linear function that `jax.linearize` or `jax.vjp` made."""
    task: Callable[[], Any] = contender("jax")(workload).task(product)
    return task


def measured(name: str) -> Iterator[tuple[str, ...]]:
    """The lines of one workload."""
    for product in ("jvp", "vjp"):
        seconds: dict[Any, list[float]] = {ours: [], peers: []}
        for _ in range(ROUNDS):
            for make, found in seconds.items():
                task = make(find(name), product)
                started = time.perf_counter()
                task()
                found.append(time.perf_counter() - started)
        mine, theirs = map(median, seconds.values())
        met = mine <= (SECONDS if name == "loop" else BOUND * theirs)
        yield name, product, ms(mine), ms(theirs), number(mine / theirs), verdict(met)


def main(names: tuple[str, ...] = NAMES) -> None:
    """Print each line when it is known, then the table."""
    found = []
    for line in (line for name in names for line in measured(name)):
        print(*line, sep="  ", file=sys.stderr, flush=True)
        found.append(line)
    print(markdown(HEAD, found))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or NAMES)
