"""Elimination, planning and accumulation happen only where the products repay them."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import Dag, Dense, Diagonal, Edge
from onnxjac.modes.linear.elimination import adaptive, adjoints, dense
from onnxjac.modes.linear.elimination import plan as planning
from onnxjac.modes.linear.elimination.adaptive import Adaptive
from onnxjac.modes.linear.elimination.cost import DECIDING, ELIMINATING, SAVED
from onnxjac.modes.linear.elimination.plan import ELIMINATED, REPAID, TRUSTED, plan, seconds_of

from .chains import cnn, perceptron

ROOM = 2**28


def small(depth=6):
    """A chain of diagonals with three entries each, so that overhead dominates a product."""
    d = Diagonal(np.arange(1.0, 4))
    edges = [Edge(i, i + 1, d) for i in range(depth)]
    return Dag(((3,),) * (depth + 1), edges, (0,), (depth,), np.dtype(float))


def test_a_small_dag_is_not_eliminated_for_one_product():
    dag = small()
    J, v = Adaptive(dag), np.ones(3)
    repaid = int(ELIMINATING * len(dag.edges) / seconds_of(dag)) + 1
    assert repaid > 2
    for count in range(1, repaid + 2):
        assert_allclose(J @ v, np.arange(1.0, 4) ** 6)
        J.settle()
        assert (ELIMINATED in dag.known) == (count >= repaid)


def test_a_large_dag_is_eliminated_at_once():
    dag = perceptron((256, 256, 5), batch=512)
    Adaptive(dag) @ np.ones(dag.shape[1])
    assert ELIMINATED in dag.known


def test_nothing_is_decided_that_the_products_do_not_repay(monkeypatch):
    asked, dag = [], small()
    noted = lambda past, *options: asked.append(past) or past  # noqa: E731
    monkeypatch.setattr(planning, "narrowed", noted)
    after = planning.eliminated(dag)
    needed = int(DECIDING * len(after.edges) / (SAVED * seconds_of(after))) + 1
    assert needed > REPAID  # beyond REPAID, only one product in TRUSTED counts
    planning.planned(dag, TRUSTED * needed - 1)
    assert not asked
    planning.planned(dag, TRUSTED * needed)
    assert asked


def test_the_default_does_not_plan_what_would_not_pay(monkeypatch):
    asked = []
    monkeypatch.setattr(adaptive, "planned", lambda dag, count: asked.append(count) or dag)
    J = Adaptive(small())
    for _ in range(200):
        J @ np.ones(3)
        J.settle()
    assert not asked
    assert ELIMINATED in J.dag.known


@pytest.fixture(scope="module")
def network():
    return cnn(64)


def test_a_sweep_by_an_engine_gives_the_same(monkeypatch, network):
    plain = plan(network, products=10**6, memory=ROOM)
    runs = by_engines(monkeypatch)
    found = plan(network, products=10**6, memory=ROOM)
    assert runs
    assert len(found.steps) == len(plain.steps) > 0
    v = np.random.default_rng(0).standard_normal((network.shape[1], 2))
    assert_allclose(found.dag @ v, plain.dag @ v, rtol=1e-9, atol=1e-9)


def by_engines(monkeypatch):
    """Run every sweep that fits by an engine; returns the list of their numbers of rows."""
    runs, by_engine = [], adjoints.by_engine

    def counting(part, seeds):
        runs.append(len(seeds))
        return by_engine(part, seeds)

    monkeypatch.setattr(adjoints, "by_engine", counting)
    monkeypatch.setattr(adjoints, "repays", lambda part, rows: True)
    return runs


@pytest.mark.parametrize("memory", [10**6, 10**7, 3 * 10**7, 10**8])
def test_an_engine_stays_within_the_memory_too(monkeypatch, network, memory):
    runs = by_engines(monkeypatch)
    plan(network, products=10**6, memory=ROOM)  # excludes imports from the measurement
    network.T.nbytes  # noqa: B018  (excludes the transposes as well)
    runs.clear()
    tracemalloc.start()
    found = plan(network, products=10**6, memory=memory)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.nbytes <= memory
    assert peak <= memory + 3 * 10**5
    assert bool(runs) == (memory > 10**7)  # otherwise there are too few rows for a program


def test_the_order_of_a_matrix_is_found_once(monkeypatch):
    rng = np.random.default_rng(0)
    sizes = (40, 4, 30, 5)
    edges = [Edge(i, i + 1, Dense(rng.standard_normal((sizes[i + 1], sizes[i])))) for i in range(3)]
    dag = Dag(tuple((n,) for n in sizes), edges, (0,), (3,), np.dtype(float))
    first = dense.dense(dag)
    monkeypatch.setattr(dense, "orders", None)
    assert_allclose(dense.dense(dag), first)
    with pytest.raises(TypeError):
        dense.dense(dag, limit=10**6)
