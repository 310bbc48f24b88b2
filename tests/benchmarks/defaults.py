"""Defaults: what is paid by a user who types none of `plan`, `compile` and `products=`.

`python -m tests.benchmarks.defaults [workload ...]` prints two tables. The first one has the first
linearisation, which compiles, the second, and then tasks at new points, for which there is a
template, compared with a run of the plain model in ONNX Runtime; nodes are counted after unrolling
recurrent layers. The second one has the longest of 200 products against the median of those before
it, with all preparation, whether it delays a product or goes on beside it.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Any

import numpy as np
import onnx_ir as ir

import onnxjac as oj

from .table import markdown, ms, number, verdict
from .workloads import find
from .workloads.model import OUTPUT, model_of

NAMES = ("mlp", "lenet", "resnet", "transformer", "reaction", "lstm", "loop", "steps/if",
         "small/deep")  # fmt: skip
REPEATS = 15

RUNS = {"linearize": (3, True), "relinearize": (2, True), "relinearize, Jᵀu": (3, True),
        "J v": (3, False), "Jᵀu": (4, False)}  # fmt: skip
"""Task -> the runs of the model allowed for it, and whether nodes count on top."""

WARM, SECONDS = 60, 1.0
"""The least calls of each task before it is timed, and their least seconds."""

NODE = 50e-6
"""The seconds of Python allowed per node."""

PRODUCTS, LONGEST = 200, 3.0
"""No single one of this many products takes longer than so many medians of those before it."""

HEAD = ("work", "nodes", "run ms", "first ms", "second ms", "task", "ms", "runs", "bound", "met")
HEAD_LONGEST = ("work", "product", "median ms", "longest ms", "at product", "ratio",
                "collecting ms", "met")  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Seconds of a task and of a run of the model, and the number of its nodes."""

    task: str
    seconds: float
    run: float
    nodes: int

    @property
    def runs(self) -> float:
        """The time of the task in runs of the model."""
        return self.seconds / self.run

    @property
    def bound(self) -> float:
        """The bound on `runs`, including Python's share.

        >>> Cost("linearize", 0.005, 0.001, 100).bound, Cost("J v", 0.005, 0.001, 100).bound
        (8.0, 3.0)
        """
        runs, by_node = RUNS[self.task]
        return runs + by_node * NODE * self.nodes / self.run

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        met = verdict(self.runs <= self.bound)
        return self.task, ms(self.seconds), number(self.runs), number(self.bound), met


class Subject:
    """J of a workload, at points that differ in the input."""

    def __init__(self, name: str) -> None:
        workload = find(name)
        self.model, self.input, self.wrt = oj.load(model_of(workload)), workload.input, workload.wrt
        self.x, self.draw = workload.tensors[workload.input], workload.draw

    def linearized(self) -> oj.Linearization:
        return oj.linearize(self.model, {self.input: self.x}, of=OUTPUT, wrt=self.wrt)

    @property
    def elsewhere(self) -> Mapping[str, np.ndarray]:
        """Another point."""
        return {self.input: self.x * 1.001}


def plain(model: oj.Model, point: Mapping[str, np.ndarray]) -> Callable[[], Any]:
    """A run of the plain model, with two threads."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 2, 4
    session = ort.InferenceSession(
        ir.to_proto(model.ir).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run([OUTPUT], dict(point))


def once(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def costs(name: str, repeats: int = REPEATS) -> tuple[list[float], list[Cost]]:
    """Costs at the first and second point; then of each task, the median of calls in a row."""
    one = Subject(name)
    starts, J = [once(one.linearized), once(one.linearized)], one.linearized()
    v, u = one.draw(J.shape[1], 1), one.draw(J.shape[0], 2)

    def gradient() -> Any:
        return J.relinearize(one.elsewhere).T @ u

    calls, started = count(1), time.perf_counter()
    while next(calls) <= WARM or time.perf_counter() - started < 3 * SECONDS:
        gradient(), J @ v, J.T @ u
    run_plain = plain(one.model, {one.input: one.x})
    tasks = (run_plain, one.linearized, lambda: J.relinearize(one.elsewhere), gradient,
             lambda: J @ v, lambda: J.T @ u)  # fmt: skip
    run, *seconds = (median(once(task) for _ in range(repeats)) for task in tasks)
    nodes = len(J.route.flat(J.point)[0].model.steps)
    return starts, [Cost(*pair, run, nodes) for pair in zip(RUNS, seconds, strict=True)]


class Pauses:
    """The seconds in which Python collects garbage, in total and at the longest."""

    def __init__(self) -> None:
        self.total = self.longest = self._begun = 0.0

    def __enter__(self) -> Pauses:
        gc.collect()
        gc.callbacks.append(self._told)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._told)

    def _told(self, phase: str, _: object) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
            return
        took = time.perf_counter() - self._begun
        self.total, self.longest = self.total + took, max(self.longest, took)

    def without(self, function: Callable[[], Any]) -> float:
        """Seconds of one call, without its pauses."""
        before = self.total
        seconds = once(function)
        return seconds - (self.total - before)


def longest(seconds: list[float]) -> tuple[float, int]:
    """The largest ratio of a time to the median of those before it, and its place.

    >>> longest([2.0, 1.0, 1.0, 3.0, 1.0])
    (3.0, 3)
    """
    ratios = [later / median(seconds[:k]) for k, later in enumerate(seconds) if k]
    return max(ratios), ratios.index(max(ratios)) + 1


def rows(name: str, repeats: int = REPEATS) -> Iterator[tuple[str, ...]]:
    """The costs of one workload."""
    starts, found = costs(name, repeats)
    for cost in found:
        yield name, str(cost.nodes), ms(cost.run), *map(ms, starts), *cost.cells


def rows_longest(name: str, products: int = PRODUCTS) -> Iterator[tuple[str, ...]]:
    """The longest products of one workload, from the first one on."""
    for product in ("J v", "Jᵀu"):
        J = Subject(name).linearized()
        J = J.T if product == "Jᵀu" else J
        v = np.ones(J.shape[1], J.dtype)
        with Pauses() as pauses:
            seconds = [pauses.without(lambda: J @ v) for _ in range(products)]  # noqa: B023
        ratio, at = longest(seconds)
        yield (name, product, ms(median(seconds)), ms(seconds[at]), str(at), number(ratio),
               ms(pauses.longest), verdict(ratio <= LONGEST))  # fmt: skip


def main(names: tuple[str, ...] = NAMES) -> None:
    """Print both tables."""
    print(markdown(HEAD, (row for name in names for row in rows(name))))
    print()
    print(markdown(HEAD_LONGEST, (row for name in names for row in rows_longest(name))))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or NAMES)
