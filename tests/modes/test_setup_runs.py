"""Set-up of networks: runs of the engine are counted, and Python's time per node is bounded."""

import time

import pytest

import onnxjac as oj
from benchmarks.workloads.images import lenet, resnet
from benchmarks.workloads.model import OUTPUT, model_of
from benchmarks.workloads.sequences import lstm
from onnxjac.modes.primal.engines import onnxruntime

RUNS = {"linearize": 3, "relinearize": 2}
"""The runs of the model that the tasks may take."""

LIMIT = 200e-6
"""Seconds of CPU per node, generously: 50 µs is what is aimed at on an idle machine."""


NETWORKS = {
    "lenet": lambda: lenet(batch=4),
    "resnet": lambda: resnet(batch=2, stages=((4, 1), (8, 2))),
    "lstm": lambda: lstm(length=3, batch=2, width=5),
}


@pytest.fixture(scope="module", params=NETWORKS)
def tasks(request):
    """What is timed, of a model that is warm."""
    pytest.importorskip("onnxruntime")
    workload = NETWORKS[request.param]()
    model, x = oj.load(model_of(workload)), workload.tensors["x"]

    def linearized():
        return oj.linearize(model, {"x": x}, of=OUTPUT, wrt=workload.wrt)

    J = [linearized() for _ in range(3)][-1]
    return {"linearize": linearized, "relinearize": lambda: J.relinearize({"x": x + 1})}


def counted(monkeypatch):
    """What the engine is asked for, run by run, with the CPU time it took."""
    runs, compute = [], onnxruntime.compute

    def counting(*arguments):
        started = time.process_time()
        values = compute(*arguments)
        runs.append(time.process_time() - started)
        return values

    monkeypatch.setattr(onnxruntime, "compute", counting)
    return runs


@pytest.mark.parametrize("task", RUNS)
def test_a_warm_model_is_run_few_times(monkeypatch, tasks, task):
    runs = counted(monkeypatch)
    J = tasks[task]()
    assert 1 <= len(runs) <= RUNS[task]
    assert J.dag.edges


@pytest.mark.parametrize("task", RUNS)
def test_pythons_share_is_little_for_every_node(monkeypatch, tasks, task):
    """The least of several, so that other work on the machine counts as little as possible."""
    runs, spent = counted(monkeypatch), []
    for _ in range(5):
        runs.clear()
        started = time.process_time()
        J = tasks[task]()
        spent.append(time.process_time() - started - sum(runs))
    assert min(spent) < LIMIT * len(J.entries)
