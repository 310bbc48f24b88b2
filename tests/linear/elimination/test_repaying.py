"""Elimination, planning and accumulation happen only where the products repay them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import Dag, Dense, Diagonal, Edge
from onnxjac.modes.linear.elimination import adaptive, dense
from onnxjac.modes.linear.elimination import plan as planning
from onnxjac.modes.linear.elimination.adaptive import Adaptive
from onnxjac.modes.linear.elimination.cost import DECIDING, ELIMINATING, SAVED
from onnxjac.modes.linear.elimination.plan import ELIMINATED, REPAID, TRUSTED, seconds_of

from .chains import perceptron


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
