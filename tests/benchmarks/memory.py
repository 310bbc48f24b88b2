"""Memory against time: the savings and the costs of checkpoints.

`python -m tests.benchmarks.memory [workload ...]`: for every number of segments, the bytes that J
holds, the peak memory of the process above the model alone, and the time of a product.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median

import onnxjac as oj

from .worker import peak
from .workloads import find
from .workloads.model import OUTPUT, model_of

NAMES = ("transformer", "resnet", "lenet")
SEGMENTS: tuple[bool | int, ...] = (False, 2, 4, 8, True, 32)
LABELS = {"False": "all held", "True": "√n"}
REPEATS = 7

Row = tuple[int, int, float, float]
"""Bytes held, peak bytes, seconds of J v and of Jᵀ u."""


def measured(name: str, checkpoint: bool | int) -> Row:
    """One setting, in a process of its own, since a peak cannot be reset."""
    workload = find(name)
    model = oj.load(model_of(workload))
    point = {workload.input: workload.tensors[workload.input]}
    model.run(point)
    before = peak()
    J = oj.linearize(model, point, of=OUTPUT, wrt=workload.wrt, checkpoint=checkpoint)
    J = J.plan(products=1, memory=0) if not checkpoint else J
    forward, backward = (timed(K, workload.draw(K.shape[1], 0)) for K in (J, J.T))
    return J.nbytes, peak() - before, forward, backward


def timed(J: oj.Jacobian, v: object) -> float:
    """Seconds of a product after warm-up."""
    for _ in range(2):
        J @ v
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        J @ v
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def main(names: tuple[str, ...] = NAMES) -> None:
    """Print one table for each workload."""
    for name in names:
        print(f"{name:<12}{'held MB':>10}{'peak MB':>10}{'J v ms':>10}{'Jᵀ u ms':>10}")
        for checkpoint in SEGMENTS:
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                held, most, forward, backward = pool.submit(measured, name, checkpoint).result()
            label = LABELS.get(str(checkpoint), str(checkpoint))
            print(f"{label:<12}{held / 1e6:>10.1f}{most / 1e6:>10.1f}"
                  f"{forward * 1e3:>10.1f}{backward * 1e3:>10.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or NAMES)
