"""`J.nbytes` equals the growth of Python's memory, before and after products."""

import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import onnxjac as oj
from benchmarks.workloads import find, sequences
from benchmarks.workloads.model import OUTPUT, model_of
from onnxjac.jacobians.arrays import buffer_of
from onnxjac.modes.linear.elimination import adaptive
from onnxjac.modes.linear.elimination.plan import eliminated

TAKEN = {"mlp": 128, "lenet": 8, "transformer": 1}
"""workload -> the number of samples used."""


def at(name, patch):
    """A model, J at a point after all one-time work, and that point."""
    sizes = sequences.Size(batch=TAKEN["transformer"])
    patch.setattr(sequences, "Size", lambda *_: sizes)
    workload = find(name)
    x = workload.tensors["x"][: TAKEN[name]]
    workload = replace(workload, tensors={**workload.tensors, "x": x})
    model = oj.load(model_of(workload))
    J = oj.linearize(model, {"x": x}, of=OUTPUT, wrt=workload.wrt, engine="numpy")
    return model, J.relinearize({"x": x + 1}), x


def weights_in(J, model):
    """Bytes of the model's own tensors among those that J holds."""
    shared = {buffer_of(array) for array in model.constants.values()}
    found = {buffer_of(a): a.nbytes for a in J.arrays() if hasattr(a, "nbytes")}
    return sum(nbytes for key, nbytes in found.items() if key in shared)


@pytest.mark.parametrize("name", TAKEN)
def test_nbytes_is_what_is_held(name, monkeypatch):
    """Within 10 %, apart from the primal and the weights, which belong to the model."""
    monkeypatch.setattr(adaptive, "RECORDING", np.inf)  # excludes the memory of engines
    model, J, x = at(name, monkeypatch)
    u = np.ones(J.shape[0], np.float32)
    shared = weights_in(J, model)
    tracemalloc.start()
    K = J.relinearize({"x": x + 2})
    primal = K.primal[OUTPUT].nbytes
    for product in (lambda: K.dag, lambda: K.T @ u, lambda: eliminated(K.dag)):
        product()
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
        point = 0 if any(buffer_of(a) == buffer_of(K.point["x"]) for a in K.arrays()) else x.nbytes
        assert abs(grown - (K.nbytes - shared + primal + point)) < 0.1 * grown
    tracemalloc.stop()
    assert K.nbytes >= J.nbytes
    assert K.T.nbytes == K.nbytes
