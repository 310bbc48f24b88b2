"""Payback: after how many products each preparation of a Jacobian has cost less than it saves.

`python -m tests.benchmarks.payback [workload ...]`: eliminating vertices, then deciding for 100
products what to multiply out and doing so, then compiling. Each is compared with what was there
before it. A plan that multiplies nothing out is declined; it is to pay within 30 products.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import onnxjac as oj
from onnxjac.modes.elimination.plan import REPAID
from onnxjac.modes.elimination.planned import eliminated, planned
from onnxjac.modes.products.compiled import Compiled
from onnxjac.modes.products.repayment import Repayment, measured

from .table import markdown, ms, number, verdict
from .workloads import Workload, find
from .workloads.model import OUTPUT, model_of

NAMES = ("mlp", "resnet", "transformer", "transformer/pooled", "lstm")
PRODUCTS = 100

HEAD = ("work", "preparation", "takes ms", "product before ms", "after ms", "pays after", "met")


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its seconds."""
    started = time.perf_counter()
    made = function()
    return made, time.perf_counter() - started


def stages(workload: Workload) -> Iterator[tuple[str, Repayment | None]]:
    """What each preparation of J takes and saves; None where it is declined."""
    model, name = oj.load(model_of(workload)), workload.input
    point = {name: workload.tensors[name]}
    J = oj.linearize(model, point, of=OUTPUT, wrt=workload.wrt)
    v = workload.draw(J.shape[1], 1)
    plain = J.dag
    shorter, spent = timed(lambda: eliminated(plain))
    yield "eliminate", repayment(spent, shorter, plain, v)
    ready, spent = timed(lambda: planned(plain, PRODUCTS))  # of which the elimination is known
    yield "plan", None if ready is shorter else repayment(spent, ready, shorter, v)
    compiled = Compiled(ready)
    compiled @ v  # makes the program, which knows how long that took
    yield "compile", repayment(compiled.seconds, compiled, ready, v)


def repayment(spent: float, after: Any, before: Any, v: np.ndarray) -> Repayment:
    """The seconds that were spent, beside those of a product after and before."""
    return measured(spent, *(partial(J.__matmul__, v) for J in (after, before)))


def row(name: str, stage: str, found: Repayment | None) -> tuple[str, ...]:
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
