"""Dag and Block: every edge is applied once per product; slabs are joined, not padded."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from onnxjac.jacobians import Dag, Dense, Diagonal, Edge, Jacobian, Reshape, Zero, slab, stack
from onnxjac.jacobians.placing import with_parts
from onnxjac.ops.numbers import numbers

from .examples import Draw

FLOAT = np.dtype(float)
N = Draw(0).normal


class Counted(Jacobian):
    """An operator that counts how often it is applied."""

    def __init__(self, operator, count):
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.count = operator, count

    def _apply(self, op, v):
        self.count[0] += 1
        return self.operator._apply(op, v)

    def _transpose(self):
        return Counted(self.operator.T, self.count)


class Recording:
    """The numbers reading, recording the names of the operators called."""

    def __init__(self):
        self.called = []

    def __getattr__(self, name):
        self.called.append(name)
        return getattr(numbers, name)


def diamonds(n):
    """n stacked diamonds 0 → (1, 2) → 3 → …: 2ⁿ paths, 4 n edges."""
    count, edges = [0], []
    for k in range(0, 3 * n, 3):
        for start, end in ((k, k + 1), (k, k + 2), (k + 1, k + 3), (k + 2, k + 3)):
            edges.append(Edge(start, end, Counted(Diagonal(np.full(2, 0.5)), count)))
    return Dag(((2,),) * (3 * n + 1), edges, (0,), (3 * n,), FLOAT), count


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("columns", [1, 7])
def test_sixty_stacked_diamonds_apply_each_operator_once(transposed, columns):
    J, count = diamonds(60)
    K, v = J.T if transposed else J, N(2, columns)
    assert_allclose(K @ v, v * 0.5**60, rtol=1e-12)
    assert count == [240]


def test_edges_off_every_path_are_dropped():
    dead = [
        Edge(0, 1, Dense(N(2, 2))),
        Edge(2, 3, Dense(N(2, 2))),
        Edge(0, 3, Zero((2,), (2,), FLOAT)),
    ]
    J = Dag(((2,),) * 4, [*dead, Edge(0, 3, Diagonal(N(2)))], (0,), (3,), FLOAT)
    assert len(J.edges) == 1


def test_unreached_sinks_are_zero():
    J = Dag(((2,), (3,), (2,)), [Edge(0, 2, Diagonal(N(2)))], (0, 1), (2, 1), FLOAT)
    assert_allclose(J.toarray()[2:, 2:], np.eye(3))
    assert not J.toarray()[2:, :2].any()
    assert not J.between((1,), (2,)).toarray().any()


def test_a_tensor_named_twice_has_its_rows_twice():
    D = N(2)
    J = Dag(((2,), (2,)), [Edge(0, 1, Diagonal(D))], (0,), (1, 1), FLOAT)
    assert_allclose(J.toarray(), np.concatenate([np.diag(D)] * 2))
    assert_allclose(J.T.toarray(), J.toarray().T)


def test_a_block_between_some_tensors():
    A, B = N(3, 2), N(4, 3)
    J = Dag(((2,), (3,), (4,)), [Edge(0, 1, Dense(A)), Edge(1, 2, Dense(B))], (0, 1), (1, 2), FLOAT)
    assert_allclose(J.between((0,), (2,)).toarray(), B @ A)
    assert_allclose(J.between((1,), (1,)).toarray(), np.eye(3))


def split_and_concat(order=(0, 1, 2), axis=-1):
    """x is split into three slabs, each is scaled by a diagonal, and they are concatenated."""
    shape, cuts = (4, 6), [(0, 1), (1, 3), (3, 4 if axis == -2 else 6)]
    edges, shapes = [], [shape]
    for k, (a, b) in enumerate(cuts):
        part = slab(shape, axis, a, b, FLOAT)
        shapes.append(part.out_shape)
        edges += [Edge(0, k + 1, part), Edge(k + 1, 4, part.T)]
    edges = [edges[i] for k in order for i in (2 * k, 2 * k + 1)]
    return Dag((*shapes, shape), edges, (0,), (4,), FLOAT)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("transposed", [False, True])
def test_slabs_that_tile_are_joined(order, axis, transposed):
    J, op = split_and_concat(order, axis), Recording()
    J = J.T if transposed else J
    v = N(2, 24)
    assert_allclose(J._apply(op, v), v)
    assert op.called.count("Concat") == 1
    assert "Pad" not in op.called
    assert "Add" not in op.called


def test_rows_that_are_taken_one_by_one_are_joined():
    """Rows xᵢ of x, as in the iterations of a loop, each with its own operator; and back."""
    rows = [N(3, 3) for _ in range(4)]
    edges = []
    for k, A in enumerate(rows):
        row = Reshape((3,), (1, 3), FLOAT) @ slab((4, 3), 0, k, k + 1, FLOAT)
        edges += [Edge(0, k + 1, row), Edge(k + 1, 5, (row.T @ Dense(A)) if k % 2 else row.T)]
    J = Dag(((4, 3), *[(3,)] * 4, (4, 3)), edges, (0,), (5,), FLOAT)
    v, op = N(12), Recording()
    expected = [rows[k] @ x if k % 2 else x for k, x in enumerate(v.reshape(4, 3))]
    assert_allclose(J._apply(op, v), np.ravel(expected))
    assert op.called.count("Concat") == 1
    assert "Add" not in op.called
    assert_allclose((J.T @ v) @ v, v @ (J @ v))


@pytest.mark.parametrize(("part", "columns"), [(1, slice(1)), (2, slice(1, 3)), (3, slice(3, 6))])
def test_slabs_that_leave_a_gap_are_padded(part, columns):
    J, v = split_and_concat(), N(24)
    gap = Dag(J.shapes, [e for e in J.edges if part not in (e.start, e.end)], (0,), (4,), FLOAT)
    expected = v.reshape(4, 6).copy()
    expected[:, columns] = 0
    assert_allclose((gap @ v).reshape(4, 6), expected)


def test_tangents_are_let_go_when_they_were_used():
    J, _ = diamonds(5)
    held = J.sweep(numbers, {0: np.ones(2)})
    assert set(held) == {J.sinks[0]}


def test_a_dag_and_a_grid_with_other_arrays_are_other_operators():
    grid = stack([Dense(np.ones((2, 3))), Dense(np.ones((1, 3)))])
    inner = Dag(((3,), (3,)), (Edge(0, 1, grid),), (0,), (1,), np.dtype(float))
    for J in (grid, grid.T, inner, inner.T):
        doubled = with_parts(J, twice)
        assert_allclose(doubled.toarray(), 2 * J.toarray())
        assert_allclose(doubled.T.toarray(), 2 * J.T.toarray())


def twice(part):
    """The part, with twice the numbers."""
    if isinstance(part, tuple):
        return tuple(map(twice, part))
    if isinstance(part, np.ndarray):
        return 2 * part
    return part if part is None else with_parts(part, twice)
