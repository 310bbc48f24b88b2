"""The page that `benchmarks.distributed` writes, and the cost model for more workers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import ceil, log
from typing import Any

BANDWIDTH, LATENCY = 1.25e9, 1e-3  # of a network of 10 Gbit/s: bytes per second, seconds


@dataclass(frozen=True)
class Measured:
    """Seconds and bytes of one product by `workers` processes, and seconds of K-FAC.

    `alone` is the time of workers that compute the same and send nothing.
    """

    workers: int
    seconds: float
    alone: float
    bytes: float
    kfac: float


@dataclass(frozen=True)
class Costs:
    """The cost model for a product.

    T(W) = T₁ / W + W (1 + 1/7) t + (⌈log₂ W⌉ + ⌈log₈ W⌉ + 2) (latency + s n K / bandwidth)
    """

    task: float
    bytes: float

    def seconds(self, once: float, workers: int) -> float:
        """T(W), where T₁ is `once` seconds."""
        tasks = workers * (1 + 1 / 7) * self.task
        hops = ceil(log(workers, 2)) + ceil(log(workers, 8) - 1e-9) + 2
        return once / workers + tasks + hops * (LATENCY + self.bytes / BANDWIDTH)

    def efficiency(self, once: float, workers: int) -> float:
        """T₁ / (W T(W))."""
        return once / (workers * self.seconds(once, workers))


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
    predicted = [
        f"| {once} s | {costs.seconds(once, 1000):.2f} s | {costs.efficiency(once, 1000):.0%} |"
        for once in (10, 100, 1000, 10000)
    ]
    return TEXT.format(
        size=size / 2**20, here=1e3 * here[0], task=1e6 * costs.task, kfac_here=here[1],
        measured="\n".join(row(m, one, size) for m in found), kfac_one=one.kfac, kfac_two=two.kfac,
        predicted="\n".join(predicted),
        expected=costs.seconds(one.seconds, 2) * 1e3, two=two.seconds * 1e3,
        cores=os.cpu_count(), load=os.getloadavg()[0], **setting,
    )  # fmt: skip


TEXT = """# Many machines: how cost grows

Written by `cd tests && python -m benchmarks.distributed > ../DISTRIBUTED.md`.

One product G v with the Gauss-Newton matrix of a perceptron of widths {widths}, over {batches}
batches of {batch} samples that the workers keep; v has {size:.1f} MiB. Workers have one thread each
and share a machine of {cores} cores with the client, the scheduler and whatever else ran on it:
{load:.1f} processes wanted a core at the end. Times are the best of {rounds}; "sent" is all that
passed between processes. "Alone" is what the slowest worker takes for the same batches where none
sends anything, so that its efficiency is what the machine itself allows.

| workers | a product | alone | parallel efficiency | efficiency alone | sent | in multiples of v |
|---|---|---|---|---|---|---|
{measured}

In one process without workers, whose BLAS takes as many threads as it likes, a product takes
{here:.0f} ms.

`oj.kfac` of the same weights over the same batches, each linearised anew, took {kfac_one:.1f} s
with one worker, {kfac_two:.1f} s with two, and {kfac_here:.1f} s in one process without workers
(best of {few}).

## What two workers on {cores} cores can show

- That the result is one process's, which was compared to a relative 1e-10, and that what is
  sent grows as the formulas below say.
- What sending, adding and scheduling cost beside the computation: the difference between a product
  and "alone". A parallel efficiency that "alone" has not either is lost to the machine, whose cores
  share memory, caches and other work.

They cannot show what a network, slow workers among fast ones, or a scheduler with a thousand
connections do. The last section is arithmetic with the formulas below, from the measured time of a
task; nobody has run a thousand workers.

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

`oj.kfac`, `oj.ekfac` and `oj.shampoo` with `client=` are one or two such sums for each call, of
matrices in place of vectors: a weight of i inputs and o outputs has s (i² + o²) bytes of factors,
which every worker sends once. For E-KFAC as many bytes of eigenvectors go to every worker, and
s i o bytes of eigenvalues come back.

## A thousand workers

    T(W) = T₁ / W + W (1 + 1/7) t_task + (⌈log₂ W⌉ + ⌈log₈ W⌉ + 2) (latency + s n K / bandwidth)

For the two workers above, but on a network of 10 Gbit/s and 1 ms, this gives {expected:.0f} ms
where {two:.0f} ms were measured. By the time T₁ that one worker needs for a product, a thousand
need:

| T₁ | T(1000) | parallel efficiency |
|---|---|---|
{predicted}

Tasks are what limits: a thousand workers pay where one would compute for many minutes. Several
right-hand sides in one product (`G @ V`) share the tasks, so that T₁ is the time of all of them.
"""
