"""Elimination, planning and accumulation happen only where the products repay them."""

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
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


def test_a_small_dag_is_eliminated_once_products_have_taken_as_long():
    dag, v = small(), np.ones(3)
    J = Adaptive(dag)
    while ELIMINATED not in dag.known:
        assert J.count * seconds_of(dag) < ELIMINATING * len(dag.edges)
        assert_allclose(J @ v, np.arange(1.0, 4) ** 6)
    assert J.count * seconds_of(dag) >= ELIMINATING * len(dag.edges)
    assert_allclose(J @ v, np.arange(1.0, 4) ** 6)


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


SHAPES = [((3, 3), False), ((3, 5), False), ((300, 200), True)]


@pytest.mark.parametrize(("shape", "planned"), SHAPES)
def test_a_small_matrix_is_formed_without_a_plan(shape, planned):
    m, n = shape
    A = np.random.default_rng(0).standard_normal(shape)
    model = oj.load(onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        f (double[{m}, {n}] A, double[{n}] x) => (double[{m}] y) {{ s = Sin(x) t = MatMul(A, s)
        u = Exp(t) y = Tanh(u) }}"""))
    J, x = oj.linearize(model, {"A": A, "x": np.ones(n)}, wrt="x"), np.ones(n)
    u = np.exp(A @ np.sin(x))
    expected = ((1 - np.tanh(u) ** 2) * u)[:, None] * A * np.cos(x)
    assert_allclose(J.toarray(), expected, atol=1e-12)
    assert_allclose(J.T.toarray(), expected.T, atol=1e-12)
    assert (ELIMINATED in J.dag.known) == planned
