"""Distributed: the cost of a product over many processes, and a prediction for a thousand.

    cd tests && python -m benchmarks.distributed > ../DISTRIBUTED.md

measures one and two workers of one thread each on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import onnx.parser
import psutil
from onnx import numpy_helper

import onnxjac as oj
from onnxjac.modes.curvature.gauss_newton import gauss_newton
from onnxjac.modes.data.cluster import distributed
from onnxjac.modes.data.shares import streamed

from .distributed_page import Costs, Measured, page

WIDTHS = (256, 1024, 1024, 10)
WEIGHTS = ["W0", "W1", "W2"]
BATCHES, BATCH = 8, 256
ROUNDS, FEW = 12, 3


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
        return gauss_newton(self.model, batch, of="loss", at="logits", wrt=WEIGHTS)

    def kfac(self, data: Any, client: Any = None) -> Any:
        """The Kronecker factors of all batches."""
        return oj.kfac(self.model, data, at="logits", wrt=WEIGHTS, client=client)


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


def report() -> str:
    """The page of results."""
    model, data = network()
    make = Make(model)
    local = streamed(make, data, reduction="mean", keep=2**32, check=False)
    v = np.random.default_rng(1).standard_normal(local.shape[1])
    exact, here = local @ v, best(lambda: local @ v)
    kfac = best(lambda: make.kfac(data), FEW)
    found = [measured(workers, make, data, v, exact) for workers in (1, 2)]
    costs = Costs(cost_of_a_task(), v.nbytes)
    return page(v.nbytes, (here, kfac), found, costs, batches=BATCHES, batch=BATCH, widths=WIDTHS,
                rounds=ROUNDS, few=FEW)  # fmt: skip


if __name__ == "__main__":
    print(report(), end="")
