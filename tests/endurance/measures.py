"""The measurements, each in its own process: memory over products and points, time over nodes.

Every function returns plain numbers. Bytes are the resident memory of the process; `traced` bytes
were allocated by Python's allocators.
"""

import gc
import os
import resource
import time
import tracemalloc

import numpy as np

import onnxjac as oj
from endurance.models import diamonds, heavy, long_model
from onnxjac.modes.linear.elimination.plan import eliminated
from suite.faults.models import CNN, MLP, point_of
from suite.linear.elimination.meter import Meter

KINDS = {
    "lazy": lambda J: J,
    "planned": lambda J: J.plan(),
    "numpy": lambda J: J.compile("numpy"),
    "onnxruntime": lambda J: J.compile("onnxruntime"),
}


def resident():
    """The current resident memory of this process, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def peak():
    """The peak resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def growth(turn, times, warm):
    """The growth of memory over `times` turns after a warm-up: resident and traced bytes."""
    for k in range(warm):
        turn(k)
    gc.collect()
    tracemalloc.start()
    turn(0)
    gc.collect()
    before, traced = resident(), tracemalloc.get_traced_memory()[0]
    for k in range(times):
        turn(k)
    gc.collect()
    left = tracemalloc.get_traced_memory()[0] - traced
    tracemalloc.stop()
    return {"times": times, "resident": resident() - before, "traced": left}


def products(kind, times):
    """J v, Jᵀ u and J V with three columns, in turn."""
    model = oj.load(MLP)
    J = KINDS[kind](oj.linearize(model, point_of(model)))
    V = np.ones((J.shape[1], 3), J.dtype)
    u = np.ones(J.shape[0], J.dtype)
    turns = (lambda: J @ V[:, 0], lambda: J.T @ u, lambda: J @ V)
    return growth(lambda k: turns[k % 3](), times, warm=4500)  # the next plan is far away


def points(way, times):
    """Relinearisations, by J or by the model, each with a product."""
    model = oj.load(MLP if way != "convolutions" else CNN)
    at = [point_of(model, seed) for seed in range(3)]
    J = oj.linearize(model, at[0])
    v = np.ones(J.shape[1], J.dtype)

    def turn(k):
        nonlocal J
        point = at[k % 3]
        J = oj.linearize(model, point) if way == "anew" else J.relinearize(point)
        return J @ v

    return growth(turn, times, warm=30)


def linearizing(sizes, repeats):
    """CPU seconds for chains of these sizes: loading, and J with one product."""
    taken = {n: [] for n in sizes}
    linearized(long_model(10))  # one-time costs of the process
    for n in [*sizes] * repeats:
        taken[n].append(linearized(long_model(n)))
    return {n: tuple(map(min, zip(*times, strict=True))) for n, times in taken.items()}


def linearized(proto):
    """CPU seconds to load a model, and to linearise it and take a product."""
    started = time.process_time()
    model = oj.load(proto)
    loaded = time.process_time()
    J = oj.linearize(model, point_of(model), engine="numpy")
    J @ np.ones(J.shape[1], J.dtype)
    return loaded - started, time.process_time() - loaded


def applied(count):
    """Calls of the vocabulary in one product of stacked diamonds, before and after elimination."""
    model = oj.load(diamonds(count), dtype="float64")
    J = oj.linearize(model, point_of(model))
    error = float(np.max(np.abs(J.diagonal() / slopes(count, J.point["x"]) - 1)))
    after = calls(eliminated(J.dag))
    return {"edges": len(J.dag.edges), "calls": calls(J.dag), "eliminated": after, "error": error}


def slopes(count, x):
    """The elementwise derivative of stacked diamonds: Π (1 − tanh² + σ(1 − σ))."""
    y, slope = np.ravel(x).astype(np.float64), 1.0
    for _ in range(count):
        t, s = np.tanh(y), 1 / (1 + np.exp(-y))
        y, slope = t + s, slope * (1 - t**2 + s * (1 - s))
    return slope


def calls(J):
    """Calls of the vocabulary in one product."""
    op = Meter(full=1)
    J._apply(op, np.ones(J.in_shape, J.dtype))
    return len(op.calls)


def weights(folder, nbytes, mmap, engine):
    """Bytes for loading, running and linearising a model with `nbytes` of weights."""
    path = heavy(folder, nbytes)
    start = resident()
    model = oj.load(path, mmap=mmap)
    loaded = peak() - start
    point = {"x": np.ones((1, 1024), np.float32)}
    model.run(point, engine=engine)
    J = oj.linearize(model, point, engine=engine)
    J.T @ (J @ np.ones(J.shape[1], J.dtype))
    size, held = os.path.getsize(folder / "heavy.data"), resident() - start
    return {"bytes": size, "loaded": loaded, "held": held, "peak": peak() - start}
