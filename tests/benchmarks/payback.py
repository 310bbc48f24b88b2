"""Payback: the number of products after which each preparation of a Jacobian pays off.

`python -m tests.benchmarks.payback [workload ...]`: vertex elimination, then planning for 100
products which blocks to multiply out, then compiling. Each is compared with the stage before it. A
plan that multiplies nothing out is declined; a plan should pay off within 30 products. The fastest
of several preparations counts, and the fastest of many products in a row.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import onnxjac as oj
from onnxjac.jacobians import Dag
from onnxjac.modes.linear.elimination.plan import REPAID, eliminated, planned
from onnxjac.modes.linear.products.compiled import BreakEven, Compiled, measured

from .table import markdown, ms, number, verdict
from .workloads import Workload, find
from .workloads.model import OUTPUT, model_of

NAMES = ("mlp", "resnet", "transformer", "transformer/pooled", "lstm")
PRODUCTS = 100
TRIES = 3
"""The number of points at which J is prepared."""

HEAD = ("work", "preparation", "takes ms", "product before ms", "after ms", "pays after", "met")


def stages(workload: Workload) -> Iterator[tuple[str, BreakEven | None]]:
    """The cost and the savings of each preparation of J; None where it is declined."""
    dags = linearized(workload)
    plain = dags[-1]
    v = workload.draw(plain.shape[1], 1)
    shorter, spent = timed(eliminated, dags)
    yield "eliminate", repayment(spent, shorter, plain, v)
    ready, spent = timed(partial(planned, products=PRODUCTS), dags)  # reuses the elimination
    yield "plan", None if ready is shorter else repayment(spent, ready, shorter, v)
    compiled = Compiled(ready)
    compiled @ v  # builds the program, which records how long that took
    yield "compile", repayment(compiled.seconds, compiled, ready, v)


def linearized(workload: Workload) -> list[Dag]:
    """The DAGs of J at a few points, each to be prepared once."""
    model, name = oj.load(model_of(workload)), workload.input
    points = ({name: workload.tensors[name] * (1 + 1e-4 * k)} for k in range(TRIES))
    return [oj.linearize(model, point, of=OUTPUT, wrt=workload.wrt).dag for point in points]


def timed(prepare: Callable[[Dag], Any], dags: list[Dag]) -> tuple[Any, float]:
    """The result for the last DAG, and the seconds of the fastest preparation."""
    seconds = []
    for dag in dags:
        started = time.perf_counter()
        made = prepare(dag)
        seconds.append(time.perf_counter() - started)
    return made, min(seconds)


def repayment(spent: float, after: Any, before: Any, v: np.ndarray) -> BreakEven:
    """The break-even point: seconds spent against seconds of a product after and before."""
    return measured(spent, *(partial(J.__matmul__, v) for J in (after, before)))


def row(name: str, stage: str, found: BreakEven | None) -> tuple[str, ...]:
    """A line of the table."""
    if found is None:
        return (name, stage, "", "", "", "declined", verdict(True))
    times = map(ms, (found.compiling, found.plain, found.compiled))
    return (name, stage, *times, number(found.products), verdict(found.products <= REPAID))


def main(names: tuple[str, ...] = NAMES) -> None:
    """Print the table."""
    lines = (row(name, *stage) for name in names for stage in stages(find(name)))
    print(markdown(HEAD, lines))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or NAMES)
