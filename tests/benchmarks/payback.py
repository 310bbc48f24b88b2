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
from itertools import pairwise
from math import ceil, inf
from typing import Any, NamedTuple

import numpy as np

import onnxjac as oj
from onnxjac.jacobians import Dag
from onnxjac.modes.linear.elimination.plan import REPAID, eliminated, planned
from onnxjac.modes.linear.products.compiled import Compiled

from .table import markdown, ms, number, verdict
from .workloads import Workload, find
from .workloads.model import OUTPUT, model_of

NAMES = ("mlp", "resnet", "transformer", "transformer/pooled", "lstm")
PRODUCTS = 100
TRIES = 3
"""The number of points at which J is prepared, and the least number of timed products."""

SETTLED = 0.2
"""The least seconds of timed products."""

HEAD = ("work", "preparation", "takes ms", "product before ms", "after ms", "pays after", "met")


class Repayment(NamedTuple):
    """Seconds of a preparation, and of one product after and before it."""

    spent: float
    after: float
    before: float

    @property
    def products(self) -> float:
        """spent / (before - after), rounded up; infinite if nothing is gained."""
        won = self.before - self.after
        return ceil(self.spent / won) if won > 0 else inf


def stages(workload: Workload) -> Iterator[tuple[str, Repayment | None]]:
    """The cost and the savings of each preparation of J; None where it is declined."""
    dags = linearized(workload)
    plain = dags[-1]
    v = workload.draw(plain.shape[1], 1)
    shorter, spent = timed(eliminated, dags)
    yield "eliminate", repayment(spent, shorter, plain, v)
    ready, spent = timed(partial(planned, products=PRODUCTS), dags)  # reuses the elimination
    yield "plan", None if ready is shorter else repayment(spent, ready, shorter, v)
    compiled, spent = timed(compiled_now, [ready])
    yield "compile", repayment(spent, compiled, ready, v)


def compiled_now(operator: Any) -> Compiled:
    """The operator with the program of a product with one vector."""
    made = Compiled(operator)
    made.program(())
    return made


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


def repayment(spent: float, after: Any, before: Any, v: np.ndarray) -> Repayment:
    """The seconds spent, and the fastest of many products in a row after and before."""
    return Repayment(spent, *(quickest(partial(J.__matmul__, v)) for J in (after, before)))


def quickest(function: Callable[[], Any]) -> float:
    """Seconds of the fastest of many consecutive calls."""
    moments = [time.perf_counter()]
    while len(moments) <= TRIES or moments[-1] - moments[0] < SETTLED:
        function()
        moments.append(time.perf_counter())
    return min(stop - start for start, stop in pairwise(moments))


def row(name: str, stage: str, found: Repayment | None) -> tuple[str, ...]:
    """A line of the table."""
    if found is None:
        return (name, stage, "", "", "", "declined", verdict(True))
    times = map(ms, (found.spent, found.before, found.after))
    return (name, stage, *times, number(found.products), verdict(found.products <= REPAID))


def main(names: tuple[str, ...] = NAMES) -> None:
    """Print the table."""
    lines = (row(name, *stage) for name in names for stage in stages(find(name)))
    print(markdown(HEAD, lines))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or NAMES)
