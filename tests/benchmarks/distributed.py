"""Distributed: what a product over many processes costs, and what it would cost over a thousand.

    cd tests && python -m benchmarks.distributed > ../DISTRIBUTED.md

measures one and two workers of one thread each on this machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log
from typing import Any

import numpy as np
import onnx.parser
import psutil
from onnx import numpy_helper

import onnxjac as oj
from onnxjac.modes.curvature.gauss_newton import gauss_newton
from onnxjac.modes.data.over import streamed
from onnxjac.modes.distributed.over import distributed

WIDTHS = (256, 1024, 1024, 10)
BATCHES, BATCH = 8, 256
ROUNDS = 12
BANDWIDTH, LATENCY = 1.25e9, 1e-3  # of a network of 10 Gbit/s: bytes per second, seconds


@dataclass(frozen=True)
class Measured:
    """Seconds and bytes of one product by so many workers."""

    workers: int
    seconds: float
    bytes: float


@dataclass(frozen=True)
class Costs:
    """What predicts the time of a product.

    T(W) = T₁ / W + W (1 + 1/7) t + (⌈log₂ W⌉ + ⌈log₈ W⌉ + 2) (latency + s n K / bandwidth)
    """

    task: float
    bytes: float

    def seconds(self, once: float, workers: int) -> float:
        """T(W), where one worker computes for `once` seconds."""
        tasks = workers * (1 + 1 / 7) * self.task
        hops = ceil(log(workers, 2)) + ceil(log(workers, 8) - 1e-9) + 2
        return once / workers + tasks + hops * (LATENCY + self.bytes / BANDWIDTH)

    def efficiency(self, once: float, workers: int) -> float:
        """T₁ / (W T(W))."""
        return once / (workers * self.seconds(once, workers))


def network() -> tuple[oj.Model, list[dict[str, np.ndarray]]]:
    """A perceptron with a softmax cross-entropy, and batches of random data."""
    rng = np.random.default_rng(0)
    lines = [f"h{k + 1} = MatMul(a{k}, W{k}) a{k + 1} = Tanh(h{k + 1})" for k in range(2)]
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (double[n, {WIDTHS[0]}] a0, int64[n] y)
            => (double loss, double[n, {WIDTHS[-1]}] logits) {{
            {" ".join(lines)} logits = MatMul(a2, W2)
            loss = SoftmaxCrossEntropyLoss(logits, y)
        }}"""
    proto = onnx.parser.parse_model(text)
    for k, shape in enumerate(pairwise(WIDTHS)):
        weights = rng.standard_normal(shape) / np.sqrt(shape[0])
        proto.graph.initializer.append(numpy_helper.from_array(weights, f"W{k}"))
    data = [
        {"a0": rng.standard_normal((BATCH, WIDTHS[0])), "y": rng.integers(0, WIDTHS[-1], BATCH)}
        for _ in range(BATCHES)
    ]
    return oj.load(proto), data


@dataclass(frozen=True)
class Make:
    """The Gauss-Newton matrix of a batch."""

    model: oj.Model

    def __call__(self, batch: dict[str, Any]) -> Any:
        return gauss_newton(self.model, batch, of="loss", at="logits", wrt=["W0", "W1", "W2"])


def best(f: Callable[[], Any]) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def traffic() -> int:
    """Bytes that processes of this machine have sent each other."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


@contextmanager
def cluster_of(workers: int) -> Iterator[Any]:
    """The client of a cluster of processes of one thread each."""
    from dask.distributed import Client, LocalCluster

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


def measured(workers: int, make: Make, data: Any, v: np.ndarray, exact: np.ndarray) -> Measured:
    """A product by a cluster, after a first one."""
    with cluster_of(workers) as client:
        C = distributed(make, data, client, reduction="mean", keep=2**32, check=False)
        np.testing.assert_allclose(C @ v, exact, rtol=1e-10, atol=1e-12)
        before = traffic()
        seconds = best(lambda: C @ v)
        return Measured(workers, seconds, (traffic() - before) / ROUNDS)


def cost_of_a_task() -> float:
    """Seconds that the scheduler needs for a task that does nothing."""
    with cluster_of(2) as client:
        return best(lambda: client.gather(client.map(abs, range(1000), pure=False))) / 1000


def report() -> str:
    """The page."""
    model, data = network()
    make = Make(model)
    local = streamed(make, data, reduction="mean", keep=2**32, check=False)
    v = np.random.default_rng(1).standard_normal(local.shape[1])
    exact, here = local @ v, best(lambda: local @ v)
    found = [measured(workers, make, data, v, exact) for workers in (1, 2)]
    return page(v.nbytes, here, found, Costs(cost_of_a_task(), v.nbytes))


def page(size: int, here: float, found: list[Measured], costs: Costs) -> str:
    """What was measured, and what that predicts."""
    one, two = found
    rows = [
        f"| {m.workers} | {1e3 * m.seconds:.0f} ms | {one.seconds / m.seconds / m.workers:.0%} "
        f"| {m.bytes / 2**20:.1f} MiB | {m.bytes / size:.1f} |"
        for m in found
    ]
    predicted = [
        f"| {once} s | {costs.seconds(once, 1000):.2f} s | {costs.efficiency(once, 1000):.0%} |"
        for once in (10, 100, 1000, 10000)
    ]
    return TEXT.format(
        size=size / 2**20, here=1e3 * here, measured="\n".join(rows), task=1e6 * costs.task,
        predicted="\n".join(predicted), batches=BATCHES, batch=BATCH, widths=WIDTHS,
        expected=costs.seconds(one.seconds, 2) * 1e3, two=two.seconds * 1e3, rounds=ROUNDS,
        cores=os.cpu_count(), load=os.getloadavg()[0],
    )  # fmt: skip


TEXT = """# Many machines: how cost grows

Written by `cd tests && python -m benchmarks.distributed > ../DISTRIBUTED.md`.

One product G v with the Gauss-Newton matrix of a perceptron of widths {widths}, over {batches}
batches of {batch} samples that the workers keep; v has {size:.1f} MiB. In one process, without
workers, it takes {here:.0f} ms. Workers have one thread each and share a machine of {cores} cores
with the client, the scheduler and whatever else ran on it: {load:.1f} processes wanted a core at
the end. Times are the best of {rounds}; "sent" is all that passed between processes.

| workers | a product | parallel efficiency | sent | in multiples of v |
|---|---|---|---|---|
{measured}

## What grows how

W workers, P = W parts of the data, n columns and m rows of G, K right-hand sides, s bytes for a
number. Per product:

- **Right-hand sides**: s n K bytes from the client to the scheduler, and to each worker, one of
  which passes them to the next, in a tree.
- **Results of a sum**: s m K bytes from each worker, added by workers, eight at a time; the sum
  goes through the scheduler to the client.
- **Results of a stack**: s m K bytes in all, since every worker has rows of its own.
- **Tasks**: W (1 + 1/7), all through one scheduler, which needs {task:.0f} µs for each (measured
  with tasks that do nothing).

For a sum with a square G that is 2 (W + 1) s n K bytes, to be compared with the last column above.
Once, and not per product, go the model and the point to every worker, and data in memory with its
part.

## A thousand workers

    T(W) = T₁ / W + W (1 + 1/7) t_task + (⌈log₂ W⌉ + ⌈log₈ W⌉ + 2) (latency + s n K / bandwidth)

For the two workers above, but on a network of 10 Gbit/s and 1 ms, this gives {expected:.0f} ms
where {two:.0f} ms were measured. By the time T₁ that one worker needs for a product, a thousand
need:

| T₁ | T(1000) | parallel efficiency |
|---|---|---|
{predicted}

Tasks are what limits: a thousand workers pay where one would compute for many minutes. Several
right-hand sides in one product (`G @ V`) share the tasks, so that T₁ is that of all of them.
"""


if __name__ == "__main__":
    print(report(), end="")
