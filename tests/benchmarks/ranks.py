"""Ranks: one row of docs/results/distributed.md, measured by the processes that run this.

    mpirun -n 4 python -m mpi4py -m benchmarks.ranks --name "our cluster"
    torchrun --nproc-per-node 4 -m benchmarks.ranks --name "our cluster"

run in `tests/`, print a row on rank 0. All times are medians over rounds in which all ranks start
together, and of the slowest rank. Bind each rank to its cores where you start them: it computes
with all that it may use.
"""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import onnxjac as oj
from onnxjac.modes.data.shares import streamed

from .distributed_model import BATCHES, Make, network

ROUNDS = 9


class Row(NamedTuple):
    """A product of all ranks: seconds of it, of its batches alone, and of the all-reduce alone."""

    name: str
    ranks: int
    product: float
    alone: float
    allreduce: float
    sent: int
    once: float

    def __str__(self) -> str:
        over = self.product - self.alone - self.allreduce
        cells = (
            self.name, f"{self.ranks}", f"{self.product:.3f} s", f"{self.alone:.3f} s",
            f"{1e3 * self.allreduce:.1f} ms", f"{1e3 * over:.1f} ms",
            f"{self.once / self.ranks / self.product:.0%}",
            f"{self.once / self.ranks / self.alone:.0%}", f"{self.alone / self.product:.1%}",
            f"{self.sent / 2**20:.1f} MiB",
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


class Counting:
    """A communicator that counts the bytes that are added."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.rank, self.size, self.sent = comm, comm.rank, comm.size, 0

    def allreduce(self, array: Any) -> Any:
        self.sent += array.nbytes
        return self.comm.allreduce(array)

    def allgather(self, value: Any) -> list[Any]:
        found: list[Any] = self.comm.allgather(value)
        return found


def connect() -> Any:
    """The communicator of whatever started this process."""
    from onnxjac.modes.data.comm import as_comm

    if "TORCHELASTIC_RUN_ID" in os.environ:
        import torch

        torch.distributed.init_process_group("gloo")
        return as_comm(torch.distributed.group.WORLD)
    from mpi4py import MPI

    return as_comm(MPI.COMM_WORLD)


def slowest(comm: Any, work: Callable[[], Any]) -> float:
    """Seconds of the slowest rank, where all start together."""
    comm.allgather(None)
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    return max(comm.allgather(seconds))


def measure(comm: Any, name: str, batches: int, rounds: int) -> Row:
    """The row of these ranks: the three times are taken in turn, in each round."""
    model, data = network(batches)
    make, own = Make(model), data[comm.rank :: comm.size]
    counting = Counting(comm)
    C = oj.ranked(make, own, counting, reduction="mean", keep=2**40, check=False)
    single = streamed(make, own, reduction="mean", keep=2**40, check=False)
    whole = streamed(make, data, reduction="mean", check=False)
    v = np.random.default_rng(1).standard_normal(C.shape[1])
    np.testing.assert_allclose(C @ v, whole @ v, rtol=1e-10, atol=1e-12)
    single @ v
    before, sums = counting.sent, np.zeros(len(v) + 1)
    C @ v
    sent = counting.sent - before
    works = (lambda: C @ v, lambda: single @ v, lambda: comm.allreduce(sums))
    found = np.median([[slowest(comm, work) for work in works] for _ in range(rounds)], 0)
    return Row(name, comm.size, *map(float, found), sent, float("nan"))


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="this machine")
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--once", type=float, help="seconds of a product by one rank")
    args = parser.parse_args()
    comm = connect()
    row = measure(comm, args.name, args.batches, args.rounds)
    if comm.rank == 0:
        print(row._replace(once=args.once or row.alone * comm.size), flush=True)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        import torch

        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
