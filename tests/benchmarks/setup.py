"""Set-up: the cost of linearisation, in runs of the model.

`python -m tests.benchmarks.setup [workload ...]`: the first linearisation, which compiles, the
second, which makes the template, and later ones, compared with a run of the plain model in ONNX
Runtime. The bounds: `linearize` takes 3 runs and 50 µs of Python per node, `relinearize` 2 runs and
50 µs; nodes are counted after unrolling recurrent layers. From the third point on, the DAG of J is
built lazily by the first product; the tasks marked `drawn` include it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import onnx_ir as ir

import onnxjac as oj

from .table import markdown, ms, number, verdict
from .workloads import Workload, find
from .workloads.model import OUTPUT, model_of

NAMES = ("mlp", "lenet", "resnet", "transformer", "reaction", "lstm", "loop")
REPEATS = 15

RUNS = {"linearize": 3, "relinearize": 2, "linearize, drawn": 3, "relinearize, drawn": 2}
"""The runs of the model allowed for each task."""

NODE = 50e-6
"""The seconds of Python allowed per node."""

HEAD = ("work", "nodes", "run ms", "first ms", "second ms", "task", "ms", "runs", "bound",
        "µs/node beyond runs", "met")  # fmt: skip


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

        >>> Cost("linearize", 0.005, 0.001, 100).bound
        8.0
        """
        return RUNS[self.task] + NODE * self.nodes / self.run

    @property
    def beyond(self) -> float:
        """Seconds per node that the runs do not account for."""
        return max(self.seconds - RUNS[self.task] * self.run, 0.0) / self.nodes

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        return (self.task, ms(self.seconds), number(self.runs), number(self.bound),
                number(1e6 * self.beyond), verdict(self.runs <= self.bound))  # fmt: skip


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


def costs(workload: Workload, repeats: int = REPEATS) -> tuple[list[float], list[Cost]]:
    """Costs at the first and second point; then of all tasks, as medians of interleaved rounds."""
    model, name = oj.load(model_of(workload)), workload.input
    x = workload.tensors[name]

    def linearized() -> oj.Linearization:
        return oj.linearize(model, {name: x}, of=OUTPUT, wrt=workload.wrt)

    def moved() -> oj.Linearization:
        return J.relinearize({name: x * 1.001})

    starts, J = [once(linearized), once(linearized)], linearized()
    run_plain = plain(model, {name: x})
    tasks = (run_plain, linearized, moved, lambda: linearized().dag, lambda: moved().dag)
    rounds = [[once(task) for task in tasks] for _ in range(repeats)]
    run, *seconds = (median(times) for times in zip(*rounds, strict=True))
    nodes = len(J.route.flat(J.point)[0].model.steps)
    return starts, [Cost(*pair, run, nodes) for pair in zip(RUNS, seconds, strict=True)]


def rows(name: str, repeats: int = REPEATS) -> Iterator[tuple[str, ...]]:
    """The lines of one workload."""
    starts, found = costs(find(name), repeats)
    for cost in found:
        yield (name, str(cost.nodes), ms(cost.run), *map(ms, starts), *cost.cells)


def main(names: tuple[str, ...] = NAMES) -> None:
    """Print the table."""
    print(markdown(HEAD, (row for name in names for row in rows(name))))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or NAMES)
