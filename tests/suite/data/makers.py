"""Makers of operators of batches, in a module that other processes can import."""

import os
import time
from functools import partial

import numpy as np

import onnxjac as oj
from data.regressions import LABELS, W, X, softmax_regression
from onnxjac.jacobians import Dense


def hessian_at(model, batch):
    return oj.hessian(model, {**batch, "W": W}, of="loss", wrt="W")


def hessian_maker(reduction="mean"):
    """∂²loss/∂W² of softmax regression."""
    return partial(hessian_at, softmax_regression(reduction))


def logits_at(model, batch):
    return oj.linearize(model, {**batch, "W": W}, of="logits", wrt="W")


def logits_maker():
    """∂logits/∂W of softmax regression."""
    return partial(logits_at, softmax_regression())


def gram(batch):
    """Xᵀ X."""
    return Dense(batch["x"].T @ batch["x"], (4,), (4,))


def process(batch):
    """One row that holds the ID of its process."""
    return Dense(np.full((1, 12), float(os.getpid())), (1,), (12,))


def random_rows(batch):
    """Different rows at every call."""
    return Dense(np.random.default_rng().standard_normal((2, 12)), (2,), (12,))


def slow(folder, make, batch):
    """make(batch), slowly and with a trace of the process."""
    leave_trace(folder)
    return make(batch)


def slowly(folder, batches, client):
    """The batches, slowly and with a trace in workers; at once in the client."""
    for batch in batches:
        if os.getpid() != client:
            leave_trace(folder)
        yield batch


def leave_trace(folder):
    """Append the process ID to the trace, then sleep."""
    with open(folder / "trace", "a") as trace:
        trace.write(f"{os.getpid()} ")
    time.sleep(0.1)


def shuffled():
    """The data in a different order in every pass."""
    order = np.random.default_rng().permutation(len(X))
    return [{"x": X[k], "y": LABELS[k]} for k in np.array_split(order, 4)]
