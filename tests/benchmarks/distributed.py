"""Distributed: the cost of a product over many processes, and a prediction for a thousand.

    cd tests && python -m benchmarks.distributed > ../docs/results/distributed.md

measures 1, 2, 4 and 8 ranks of MPI, and one and two workers of Dask, of one thread each, on this
machine. `benchmarks.ranks` measures one row on a cluster.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil

from onnxjac.modes.data.cluster import distributed
from onnxjac.modes.data.shares import streamed

from .distributed_model import BATCH, BATCHES, WIDTHS, Make, network
from .distributed_page import Costs, Measured, page

ROUNDS, FEW = 12, 3
MANY = 32
"""Batches of a product of seconds, over ranks."""


def alone(make: Make, data: Any, v: np.ndarray) -> float:
    """Seconds of a product over some batches, in this process."""
    C = streamed(make, data, reduction="mean", keep=2**32, check=False)
    C @ v
    return best(lambda: C @ v)


def best(f: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return min(times)


def traffic() -> int:
    """Bytes sent between processes of this machine."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


@contextmanager
def cluster_of(workers: int) -> Iterator[Any]:
    """The client of a cluster of single-threaded processes."""
    from dask.distributed import Client, LocalCluster

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


def measured(workers: int, make: Make, data: Any, v: np.ndarray, exact: np.ndarray) -> Measured:
    """The costs of a product by a cluster, after a warm-up."""
    with cluster_of(workers) as client:
        C = distributed(make, data, client, reduction="mean", keep=2**32, check=False)
        np.testing.assert_allclose(C @ v, exact, rtol=1e-10, atol=1e-12)
        before = traffic()
        seconds = best(lambda: C @ v)
        sent = (traffic() - before) / ROUNDS
        kfac = best(lambda: make.kfac(data, client), FEW)
        return Measured(workers, seconds, at_once(client, make, data, v), sent, kfac)


def at_once(client: Any, make: Make, data: Any, v: np.ndarray) -> float:
    """Seconds of the slowest worker when all compute on their own batches without transfers."""
    homes = sorted(client.ncores())
    found = [client.submit(alone, make, data[k :: len(homes)], v, workers=[home], pure=False)
             for k, home in enumerate(homes)]  # fmt: skip
    return max(client.gather(found))


def cost_of_a_task() -> float:
    """Seconds that the scheduler needs for a task that does nothing."""
    with cluster_of(2) as client:
        return best(lambda: client.gather(client.map(abs, range(1000), pure=False))) / 1000


def row_of_ranks(ranks: int, once: float | None) -> tuple[str, float]:
    """The row of so many ranks of MPI, and seconds of a product by one of them."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    bound = f'exec taskset -c $((PMI_RANK % {os.cpu_count()})) "$@"'  # from the first thread on
    command = ["mpirun", "-n", str(ranks), "sh", "-c", bound, "sh", sys.executable,
               "-m", "mpi4py", "-m", "benchmarks.ranks", "--batches", str(MANY),
               *(["--once", str(once)] if once else [])]  # fmt: skip
    found = subprocess.run(command, check=True, capture_output=True, text=True,
                           env={**os.environ, **threads})  # fmt: skip
    row = next(line for line in found.stdout.splitlines() if line.startswith("|"))
    return row, once or float(row.split("|")[4].split()[0])


def rows_of_ranks() -> Iterator[str]:
    """The rows of 1, 2, 4 and 8 ranks."""
    once = None
    for ranks in (1, 2, 4, 8):
        row, once = row_of_ranks(ranks, once)
        yield row


def report() -> str:
    """The page of results."""
    ranks = "\n".join(rows_of_ranks())
    model, data = network()
    make = Make(model)
    local = streamed(make, data, reduction="mean", keep=2**32, check=False)
    v = np.random.default_rng(1).standard_normal(local.shape[1])
    exact, here = local @ v, best(lambda: local @ v)
    kfac = best(lambda: make.kfac(data), FEW)
    found = [measured(workers, make, data, v, exact) for workers in (1, 2)]
    costs = Costs(cost_of_a_task(), v.nbytes)
    return page(v.nbytes, (here, kfac), found, costs, ranks=ranks, many=MANY, batches=BATCHES,
                batch=BATCH, widths=WIDTHS, rounds=ROUNDS, few=FEW)  # fmt: skip


if __name__ == "__main__":
    print(report(), end="")
