"""The page that `benchmarks.distributed` writes, and the cost model for more workers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

LATENCY = 1e-3
"""Seconds of a message."""

BANDWIDTHS = {"10 Gbit/s": 1.25e9, "100 Gbit/s": 1.25e10}
"""Bytes per second of a network."""


@dataclass(frozen=True)
class Measured:
    """Seconds and bytes of one product by `workers` processes of Dask, and seconds of K-FAC.

    `alone` is the time of workers that compute the same and send nothing.
    """

    workers: int
    seconds: float
    alone: float
    bytes: float
    kfac: float


@dataclass(frozen=True)
class Costs:
    """The cost model for a product, with n numbers of `bytes` in all.

    Ranks: T(W) = T₁ / W + 2 ⌈log₂ W⌉ latency + 2 s n / bandwidth
    Dask: T(W) = T₁ / W + W (1 + 1/7) t + (⌈log₂ W⌉ + ⌈log₈ W⌉ + 2) (latency + s n / bandwidth)
    """

    task: float
    bytes: float

    def by_ranks(self, once: float, workers: int, bandwidth: float) -> float:
        """T(W) of an all-reduce in halves, where T₁ is `once` seconds."""
        return once / workers + 2 * ceil(log2(workers)) * LATENCY + 2 * self.bytes / bandwidth

    def by_dask(self, once: float, workers: int, bandwidth: float) -> float:
        """T(W) through a scheduler."""
        tasks = workers * (1 + 1 / 7) * self.task
        hops = ceil(log2(workers)) + ceil(log2(workers) / 3 - 1e-9) + 2
        return once / workers + tasks + hops * (LATENCY + self.bytes / bandwidth)


def prediction(costs: Costs, once: float, workers: int = 1000) -> str:
    """One line of the table of a thousand: efficiencies T₁ / (W T(W))."""
    times = [way(once, workers, bandwidth) for bandwidth in BANDWIDTHS.values()
             for way in (costs.by_ranks, costs.by_dask)]  # fmt: skip
    efficiencies = (f"{once / workers / t:.0%}" for t in times)
    cells = [f"{once:g} s", f"{1e3 * times[0]:.0f} ms", *efficiencies]
    return f"| {' | '.join(cells)} |"


def row(m: Measured, one: Measured, size: int) -> str:
    """One line of the table of products."""
    cells = (
        f"{m.workers}", f"{1e3 * m.seconds:.0f} ms", f"{1e3 * m.alone:.0f} ms",
        f"{one.seconds / m.seconds / m.workers:.0%}", f"{one.alone / m.alone / m.workers:.0%}",
        f"{m.bytes / 2**20:.1f} MiB", f"{m.bytes / size:.1f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def page(
    size: int, here: tuple[float, float], found: list[Measured], costs: Costs, **setting: Any
) -> str:
    """The page of measurements and predictions."""
    one, two = found
    return TEXT.format(
        size=size / 2**20, here=1e3 * here[0], task=1e6 * costs.task, kfac_here=here[1],
        measured="\n".join(row(m, one, size) for m in found), kfac_one=one.kfac, kfac_two=two.kfac,
        predicted="\n".join(prediction(costs, once) for once in (1, 10, 100, 1000)),
        cores=os.cpu_count(), load=os.getloadavg()[0], **setting,
    )  # fmt: skip


TEXT = """# Many machines: how cost grows

Written by `cd tests && python -m benchmarks.distributed > ../docs/results/distributed.md`.

One product G v with the Gauss-Newton matrix of a perceptron of widths {widths}, over batches of
{batch} samples that stay linearised where they are; v has {size:.1f} MiB. Processes have one thread
each and share a machine of {cores} cores; {load:.1f} processes wanted a core at the end.

## Ranks: the same script on every process

{many} batches over ranks of MPI. "Alone" is the same batches without `comm=`, "all-reduce" the sum
of n + 1 numbers by MPI itself, and "beyond" what a product takes beyond both. Times are of the
slowest rank, medians of rounds in which the three are taken in turn; "sent" is what a rank gives
to an all-reduce.

| where | ranks | product | alone | all-reduce | beyond | η | η alone | alone ÷ product | sent |
|---|---|---|---|---|---|---|---|---|---|
{ranks}

- η is the parallel efficiency, T₁ / (W T). What "alone" has not either is lost to the machine: more
  ranks than cores, and cores that share memory and caches.
- A product is one all-reduce, whatever the number of batches, and all ranks have the result. So a
  rank gives s (n + 1) bytes, of which an all-reduce in halves sends each twice.
- The results of 1, 2, 3, 4 and 8 ranks are compared to 1e-12 in the tests, operator by operator.

**A row of your own**, on a cluster, started as your scripts are:

```sh
cd tests
mpirun -n 64 python -m mpi4py -m benchmarks.ranks --name "64 nodes, 100 Gbit/s"
torchrun --nnodes 8 --nproc-per-node 8 -m benchmarks.ranks --name "8 nodes, gloo"
```

`--batches` makes the product longer, and `--once` is T₁ where one rank is too slow to be measured.
Nobody has sent a row from more than this machine yet.

## Dask: one process with a client

{batches} batches that workers keep; times are the best of {rounds}; "sent" is all that passed
between processes, client and scheduler among them.

| workers | a product | alone | efficiency | efficiency alone | sent | in multiples of v |
|---|---|---|---|---|---|---|
{measured}

In one process without workers, whose BLAS takes as many threads as it likes, a product takes
{here:.0f} ms. `oj.kfac` of the same weights over the same batches, each linearised anew, took
{kfac_one:.1f} s with one worker, {kfac_two:.1f} s with two, and {kfac_here:.1f} s in one process
without workers (best of {few}).

Vectors go from the client through the scheduler to the workers and back, 2 (W + 1) s n bytes a
product, and every task goes through the scheduler, which needs {task:.0f} µs for each (measured
with tasks that do nothing). So a client is no communicator; it suits a notebook.

## A thousand processes, by arithmetic

    ranks   T(W) = T₁ / W + 2 ⌈log₂ W⌉ latency + 2 s n / B
    Dask    T(W) = T₁ / W + W (1 + 1/7) t_task + (⌈log₂ W⌉ + ⌈log₈ W⌉ + 2) (latency + s n / B)

With the v above, a latency of 1 ms, a bandwidth B, and T₁ the time that one process needs for a
product. Nobody has run a thousand processes: this table is arithmetic with these formulas.

| T₁ | T(1000), 10 Gbit/s | ranks, 10 Gbit/s | Dask | ranks, 100 Gbit/s | Dask |
|---|---|---|---|---|---|
{predicted}

`oj.kfac`, `oj.ekfac` and `oj.shampoo` are one or two such sums for each call, of matrices in place
of vectors: a weight of i inputs and o outputs has s (i² + o²) bytes of factors. With `shard=True` a
rank keeps the factors of some weights only, and a product with the inverse is one all-reduce.
Several right-hand sides in one product, `G @ V`, share its latency.
"""
