"""Set-up: what it costs to linearise, in runs of the model.

`python -m tests.benchmarks.setup [workload ...]`: the first linearisation, which compiles, the
second, which makes the template, and those that follow, against a run of the plain model in ONNX
Runtime; Python's share per node is what exceeds 3 runs, or 2 for `relinearize`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import onnx_ir as ir

import onnxjac as oj

from .workloads import find
from .workloads.model import OUTPUT, model_of

NAMES = ("mlp", "lenet", "resnet", "transformer", "reaction")
REPEATS = 15


def plain(model: oj.Model, point: Mapping[str, np.ndarray]) -> Callable[[], Any]:
    """A run of the model as it is, with two threads."""
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


def row(name: str) -> str:
    """The costs of one workload, medians of interleaved rounds."""
    workload = find(name)
    model, x = oj.load(model_of(workload)), workload.tensors[workload.input]

    def linearized() -> oj.Jacobian:
        return oj.linearize(model, {workload.input: x}, of=OUTPUT, wrt=workload.wrt)

    first, second, J = once(linearized), once(linearized), linearized()
    run = plain(model, {workload.input: x})
    tasks = (run, linearized, lambda: J.relinearize({workload.input: x * 1.001}))
    rounds = [[once(task) for task in tasks] for _ in range(REPEATS)]
    base, again, anew = (median(times) for times in zip(*rounds, strict=True))
    n = len(model.steps)
    cells = (base * 1e3, first * 1e3, second * 1e3, again / base, anew / base,
             max(again - 3 * base, 0) / n * 1e6, max(anew - 2 * base, 0) / n * 1e6)  # fmt: skip
    return f"{name:<14}{n:>6}" + "".join(f"{cell:>12.2f}" for cell in cells)


def main(names: tuple[str, ...] = NAMES) -> None:
    """Print one line for each workload."""
    heads = ("run ms", "first ms", "second ms", "linearize", "relinearize", "µs/node", "µs/node")
    print(f"{'':<14}{'nodes':>6}" + "".join(f"{head:>12}" for head in heads))
    for name in names:
        print(row(name), flush=True)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or NAMES)
