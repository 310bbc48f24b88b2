"""Timings: how long a product takes, beside one run of the model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..linearization import Linearization
from ..primal.evaluate import evaluate


@dataclass(frozen=True)
class Timings:
    """Seconds of one run of the model, of J v and of Jᵀ u."""

    run: float
    forward: float
    reverse: float


def timed(J: Linearization, seed: int = 0) -> Timings:
    """Each is the median of several calls, with random vectors."""
    rng = np.random.default_rng(seed)
    v, u = (rng.standard_normal(n).astype(J.dtype) for n in J.shape[::-1])
    route = J.route
    model, engine = route.model, route.engine
    return Timings(
        median_time(lambda: evaluate(model, J.point, model.outputs, engine=engine)),
        median_time(lambda: J @ v),
        median_time(lambda: J.T @ u),
    )


def median_time(work: Callable[[], Any], *, most: int = 21, budget: float = 1.0) -> float:
    """Seconds that `work` takes: the median of 3 to 21 calls, after one to warm up."""
    work()
    times: list[float] = []
    while len(times) < 3 or (len(times) < most and sum(times) < budget):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
