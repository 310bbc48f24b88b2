"""Accumulation: the same matrix, with no more flops than forward or reverse."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from networks.stored import MODELS, below, loaded
from onnxjac import linearize
from onnxjac.jacobians import (
    Convolution,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Eye,
    Jacobian,
    Reshape,
    implicit_kron,
)
from onnxjac.jacobians.convolution import Geometry
from onnxjac.modes.linear.elimination.dense import best_order, chain_order, dense, orders

from ...jacobians.examples import EXAMPLES, Draw
from .chains import FLOAT, cnn, perceptron, random_chain, random_dag


class Counted(Jacobian):
    """An operator that counts the flops of all its products."""

    def __init__(self, operator, count):
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.count = operator, count

    def _apply(self, op, v):
        self.count[0] += self.flops * v.size // self.shape[1]
        return self.operator._apply(op, v)

    def _transpose(self):
        return Counted(self.operator.T, self.count)

    @property
    def flops(self):
        return self.operator.flops


def counted(dag):
    """The DAG with counted operators, and the counter."""
    count = [0]
    edges = [Edge(e.start, e.end, Counted(e.operator, count)) for e in dag.edges]
    return Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype), count


def assert_accumulated(dag):
    """Assert the same matrix as by products, planned with no more flops than a plain order."""
    plain = {order.name: order.flops for order in orders(dag)}
    least = min(order.flops for order in orders(dag))
    assert least <= min(plain["forward"], plain["reverse"])
    expected = dag @ np.eye(dag.shape[1])
    assert_allclose(dense(dag), expected, rtol=0, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("seed", range(30))
def test_chains_accumulate_their_matrix_in_no_more_flops_than_sweeps(seed):
    assert_accumulated(random_chain(seed))


@pytest.mark.parametrize("seed", range(12))
def test_random_dags_accumulate_their_matrix_in_no_more_flops_than_sweeps(seed):
    assert_accumulated(random_dag(seed))


@pytest.mark.parametrize("name", [n for n, (kind, _) in EXAMPLES.items() if kind is Dag])
def test_every_block_has_its_place(name):
    """Also zero blocks, and blocks of empty tensors."""
    dag, expected = EXAMPLES[name][1](Draw(1))
    for J, matrix in ((dag, expected), (dag.T, expected.T)):
        assert dense(J).shape == J.shape
        assert_allclose(dense(J), matrix, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("operator", [
    Dense(np.ones((2, 3))), implicit_kron(np.ones((2, 3)), Eye(1)),
    Dense(np.ones((6, 2))) @ Reshape((2,), (1, 2), FLOAT),
])  # fmt: skip
def test_a_matrix_is_no_view_of_what_the_operator_holds(operator):
    dag = Dag((operator.in_shape, operator.out_shape), [Edge(0, 1, operator)], (0,), (1,), FLOAT)
    for J in (dag, dag.T):
        matrix = dense(J)
        matrix[:] = 7
        assert_array_equal(J @ np.eye(J.shape[1]), np.ones(J.shape))


def test_a_matrix_has_the_type_of_its_dag():
    a = Dense(np.ones((2, 3), np.float32))
    assert dense(Dag(((3,), (2,)), [Edge(0, 1, a)], (0,), (1,), FLOAT)).dtype == FLOAT


@pytest.mark.parametrize("file", MODELS)
def test_networks_accumulate_their_matrix_in_no_more_flops_than_sweeps(file):
    model, point, values = loaded(file)
    J = linearize(model, point, wrt=tuple(below("tangent", values))[:6], engine="numpy")
    assert_accumulated(J.dag)


@pytest.mark.parametrize("seed", range(12))
def test_arithmetic_that_is_really_done(seed):
    """The flops performed are at most those of forward or reverse accumulation."""
    dag, count = counted(random_chain(seed))
    dense(dag)
    assert 0 < count[0] <= min(dag.shape) * sum(e.operator.flops for e in dag.edges)


def test_a_narrow_middle_takes_far_less():
    rng = np.random.default_rng(0)
    sizes = (400, 3, 300, 400)
    edges = [Edge(i, i + 1, Dense(rng.standard_normal((m, n))))
             for i, (n, m) in enumerate(pairwise(sizes))]  # fmt: skip
    dag = Dag(tuple((n,) for n in sizes), edges, (0,), (3,), FLOAT)
    flops = {order.name: order.flops for order in orders(dag)}
    assert min(flops.values()) < min(flops["forward"], flops["reverse"]) / 50
    assert_allclose(dense(dag), edges[2].operator.a @ edges[1].operator.a @ edges[0].operator.a)


@pytest.mark.parametrize("dag", [
    perceptron((20, 16, 4), 8), perceptron((20, 16, 4), 8, weights=False), cnn(4),
    perceptron((20, 16, 4), 8).T,
])  # fmt: skip
def test_rows_of_all_samples_at_once(dag):
    best = min(orders(dag), key=lambda order: order.flops)
    assert "for all samples" in best.name
    assert best.flops < min(dag.shape) * dag.flops / 3
    assert_accumulated(dag)


def test_no_matrix_on_the_way_is_larger_than_the_limit():
    chain = (10, 1000, 10), (10**6, 10**6), (True,) * 2
    assert chain_order(*chain, limit=99) is None
    assert str(chain_order(*chain, limit=10**4)) == "(J1 J0)"
    best, swept = (chain_order(*chain, limit=limit) for limit in (10**4, 100))
    assert best.left
    assert best.right
    assert swept.left is swept.right is None
    assert swept.flops == 2 * 10**7


@pytest.mark.parametrize("wide", [4, 40])
def test_a_dense_layer_behind_convolutions_is_swept_over_them(wide):
    """Its matrix passes the convolutions by rows: no matrix is as wide as they are."""
    n, draw = 8, np.random.default_rng(0).standard_normal
    geometry = {"strides": (1, 1), "dilations": (1, 1), "pads": (1,) * 4, "group": 1}
    shapes = ((1, 1, n, n), (1, wide, n, n), (1, wide, n, n), (1, 1, n, n), (n * n,))
    kernels = [draw((wide, 1, 3, 3)), draw((1, wide, 3, 3))]
    first, last = (
        Convolution(w, "x", "u", Geometry(shapes[i], w.shape, shapes[i + 1], **geometry))
        for w, i in zip(kernels, (0, 2), strict=True)
    )  # fmt: skip
    sparse, count = (first, Diagonal(draw(shapes[1])), last), [0]
    matrix = Dense(draw((n * n, n * n)), shapes[4], shapes[3])
    edges = [Edge(i, i + 1, Counted(J, count)) for i, J in enumerate(sparse)]
    dag = Dag(shapes, [*edges, Edge(3, 4, matrix)], (0,), (4,), FLOAT)
    work, limit = n * n * sum(J.flops for J in sparse), matrix.a.nbytes
    A = dense(dag, limit=limit)
    assert count[0] == best_order(dag, limit).flops == work
    assert best_order(dag, limit).name == "(((J3 J2) J1) J0)"
    assert_allclose(A, dag @ np.eye(n * n), rtol=1e-12, atol=1e-12)


def test_the_classical_matrix_chain():
    """The order of a matrix chain, against an exhaustive search."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        sizes = rng.integers(1, 50, 6).tolist()
        flops = [2 * n * m for n, m in pairwise(sizes)]
        assert chain_order(tuple(sizes), tuple(flops), (True,) * 5).flops == least(sizes, 0, 5)


def least(sizes, i, j):
    """The flops of the best order, by exhaustive search."""
    if j == i + 1:
        return 0
    return min(least(sizes, i, k) + least(sizes, k, j) + 2 * sizes[i] * sizes[k] * sizes[j]
               for k in range(i + 1, j))  # fmt: skip
