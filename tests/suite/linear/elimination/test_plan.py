"""Planning: the same matrix, blocks where they pay off, within the memory limit."""

import sys
import tracemalloc
from itertools import pairwise
from time import process_time

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import parser

from networks.stored import MODELS, below, loaded
from onnxjac import linearize, load
from onnxjac.jacobians import (
    BlockDiagonal,
    Convolution,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Jacobian,
    Kron,
    size,
)
from onnxjac.jacobians.errors import LimitError
from onnxjac.jacobians.products import factors_of
from onnxjac.modes.linear.elimination.cost import seconds
from onnxjac.modes.linear.elimination.plan import new_edges, plan, spent
from onnxjac.ops.numbers import numbers

from .chains import cnn, perceptron, random_dag, random_ends

MANY, ROOM = 10**6, 2**28


def assert_same(found: Jacobian, expected: Jacobian, rtol: float = 1e-9) -> None:
    """Assert equal products with a few vectors, from both sides."""
    rng = np.random.default_rng(0)
    for new, old in ((found, expected), (found.T, expected.T)):
        product = old @ (v := rng.standard_normal((old.shape[1], 2)))
        scale = np.linalg.norm(product, axis=0).max()
        assert_allclose(new @ v, product, rtol=0, atol=rtol * scale)


def kinds(dag: Dag) -> set[type]:
    """The kinds of all factors on the edges."""
    return {type(factor) for edge in dag.edges for factor in factors_of(edge.operator)}


@pytest.mark.parametrize("seed", range(24))
def test_random_dags_keep_their_matrix(seed):
    dag = random_dag(seed)
    planned = plan(dag, products=MANY, memory=ROOM)
    assert_allclose(planned.toarray(), dag.toarray(), rtol=1e-9, atol=1e-9)
    assert seconds(planned) <= seconds(dag)


@pytest.mark.parametrize("seed", range(60))
def test_ends_above_one_another_are_counted_once(seed):
    """Contributions to ends are neither counted twice nor lost when a direct edge bypasses them."""
    dag = random_ends(seed)
    for products in (30, 1000, MANY):
        planned = plan(dag, products=products, memory=ROOM)
        for found, expected in ((planned, dag), (planned.T, dag.T)):
            V = np.eye(dag.shape[1] if expected is dag else dag.shape[0])
            product = expected._apply(numbers, V)
            assert_allclose(found._apply(numbers, V), product, rtol=1e-9, atol=1e-9)


UPSTREAM = {
    "split": """(double[2,2] x) => (double[2,1] a, double[2,1] y) <int64[2] s = {1, 1}>
        { a, b = Split<axis = 1>(x, s) y = Mul(a, b) }""",
    "residual": """(double[2,3] x) => (double[2,3] a, double[2,3] b, double[2,3] y)
        { t = Tanh(x) a = Add(x, t) u = Sin(a) b = Add(a, u) w = Mul(b, x) y = Add(w, a) }""",
}


@pytest.mark.parametrize("products", [10, 5000, 10**5])
@pytest.mark.parametrize("wrt", [("x",), ("x", "a")], ids=str)
@pytest.mark.parametrize("name", UPSTREAM)
def test_an_output_upstream_of_another(name, wrt, products):
    text = f'<ir_version: 10, opset_import: ["": 21]> g {UPSTREAM[name]}'
    model = load(parser.parse_model(text))
    x = np.random.default_rng(0).standard_normal(model.inputs["x"].shape)
    J = linearize(model, {"x": x}, of=("a", "y"), wrt=wrt)
    expected = J.dag._apply(numbers, np.eye(J.shape[1])).T
    if wrt == ("x",):
        assert_allclose(expected, differences(model, x), atol=1e-8)
    assert_allclose(J.plan(products=products) @ np.eye(J.shape[1]), expected, atol=1e-12)
    J @ np.zeros((J.shape[1], products))
    assert_allclose(J @ np.eye(J.shape[1]), expected, atol=1e-12)


def differences(model, x, step=1e-5):
    """∂(a, y)/∂x by central differences."""
    columns = []
    for unit in np.eye(x.size).reshape(-1, *x.shape):
        ahead, behind = (model.run({"x": x + s * step * unit}) for s in (1, -1))
        columns.append(np.concatenate([(ahead[k] - behind[k]).ravel() for k in ("a", "y")]))
    return np.transpose(columns) / (2 * step)


def test_most_random_dags_are_changed():
    dags = [random_dag(seed) for seed in range(24)]
    assert sum(plan(dag, products=MANY, memory=ROOM) is not dag for dag in dags) > 16


@pytest.mark.parametrize("file", MODELS)
def test_networks_keep_their_products(file):
    model, point, values = loaded(file)
    for wrt in (tuple(below("tangent", values)), None):
        if wrt is None and not any(s.dtype.kind == "f" for s in model.inputs.values()):
            continue
        dag = linearize(model, point, wrt=wrt, engine="numpy").dag
        assert_same(plan(dag, products=MANY, memory=ROOM), dag)


def test_an_mlp_contracts_with_kept_adjoints():
    """W₁ → z₁ → y: z₁ → y becomes one block per sample; the edges of the weights stay."""
    dag = perceptron((60, 64, 64, 5), batch=64)
    planned = plan(dag, products=MANY, memory=ROOM)
    direct = [e for e in planned.edges if BlockDiagonal in map(type, factors_of(e.operator))]
    assert any(e.end in dag.sinks and e.operator.out_shape == (64, 5) for e in direct)
    assert any(isinstance(e.operator, Kron) and e.start in dag.sources for e in planned.edges)
    assert planned.flops < 0.8 * dag.flops
    assert_same(planned, dag)


def test_an_input_jacobian_is_one_block_for_every_sample():
    dag = perceptron((60, 64, 64, 5), batch=32, weights=False)
    planned = plan(dag, products=MANY, memory=ROOM)
    (edge,) = planned.edges
    (blocks,) = [f.blocks for f in factors_of(edge.operator) if isinstance(f, BlockDiagonal)]
    assert blocks.shape == (32, 5, 60)
    assert not blocks.flags.c_contiguous  # the rows of the sweep, not a copy
    assert_same(planned, dag)


def test_with_less_memory_rows_are_swept_in_turn():
    """The blocks take 38 kB, a row of the sweep about 0.2 MB."""
    dag = perceptron((60, 64, 64, 5), batch=32, weights=False)
    planned = plan(dag, products=MANY, memory=6 * 10**5)
    (edge,) = planned.edges
    (blocks,) = [f.blocks for f in factors_of(edge.operator) if isinstance(f, BlockDiagonal)]
    assert blocks.flags.c_contiguous
    assert_same(planned, dag)


def test_narrow_inputs_are_multiplied_out_from_their_side():
    dag = perceptron((3, 64, 64, 40), batch=32, weights=False)
    planned = plan(dag, products=MANY, memory=ROOM)
    assert len(planned.edges) == 1
    assert BlockDiagonal in kinds(planned)
    assert_same(planned, dag)


def test_a_part_between_narrow_vertices_becomes_a_small_matrix():
    """1000 → 6 → 800 → 6 → 1000: the part between the two narrow vertices is a small matrix."""
    sizes = (1000, 6, 800, 6, 1000)
    rng = np.random.default_rng(0)
    edges = [Edge(i, i + 1, Dense(rng.standard_normal((m, n))))
             for i, (n, m) in enumerate(pairwise(sizes))]  # fmt: skip
    dag = Dag(tuple((n,) for n in sizes), edges, (0,), (4,), np.dtype(float))
    planned = plan(dag, products=MANY, memory=ROOM)
    assert sum(size(e.operator.shape) for e in planned.edges) <= 2 * 6 * 1000 + 36
    assert_same(planned, dag)


def test_a_cnn_is_multiplied_out_to_blocks():
    dag = cnn(batch=4)
    planned = plan(dag, products=MANY, memory=ROOM)
    assert {BlockDiagonal, Dense} & kinds(planned)
    assert_same(planned, dag)
    kernels = [f for e in planned.edges for f in factors_of(e.operator)
               if isinstance(f, Convolution) and f.source == "w"]  # fmt: skip
    assert not kernels


def test_a_small_kernel_of_many_images_is_multiplied_out_for_a_hundred_products():
    """144 weights, 640 outputs: one dense matrix replaces the convolution."""
    dag = cnn(batch=64, channels=(1, 16), side=20, classes=10)
    planned = plan(dag, products=100, memory=ROOM)
    (edge,) = planned.edges
    assert (edge.start, edge.end) == (*dag.sources, *dag.sinks)
    assert Convolution not in kinds(planned)
    assert_same(planned, dag)


def test_without_many_products_nothing_is_done():
    dag = perceptron((60, 64, 64, 5), batch=64)
    assert plan(dag, products=1, memory=ROOM) is dag


@pytest.mark.parametrize("make", [lambda: perceptron((60, 64, 64, 5), 64), lambda: cnn(4)])
@pytest.mark.parametrize("memory", [0, 2 * 10**4, 10**6, 10**7])
def test_memory_is_never_exceeded(make, memory):
    dag = make()
    slack = 3 * 10**5  # for Python objects, and buffers of a few kernels
    dag.T.nbytes  # noqa: B018  (builds the transposes before measuring)
    tracemalloc.start()
    found = plan(dag, products=MANY, memory=memory)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert spent(found, dag) <= memory
    assert peak <= memory + slack
    assert_same(found, dag)


def test_more_memory_is_never_slower():
    dag = cnn(4)
    costs = [seconds(plan(dag, products=MANY, memory=m)) for m in (0, 10**6, 10**9)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]


def test_edges_outside_a_plan_keep_their_operator():
    """From both sides: edges that were turned around and back are the same objects."""
    dag = perceptron((60, 64, 64, 5), batch=64)
    found = plan(dag.T, products=MANY, memory=ROOM)
    assert 0 < len(new_edges(found, dag.T)) < len(found.edges)


def test_a_chain_of_thousands_is_planned_in_seconds():
    d = Diagonal(np.full(8, 0.999))
    edges = [Edge(i, i + 1, d) for i in range(2000)]
    dag = Dag(((8,),) * 2001, edges, (0,), (2000,), np.dtype(float))
    start = process_time()
    planned = plan(dag, products=MANY, memory=ROOM)
    assert process_time() - start < 4
    assert len(planned.edges) == 1
    assert_same(planned, dag)


def test_plan_multiplies_nothing_out_beyond_the_limits(monkeypatch):
    """A loop swept with many cotangents holds the states of all its turns for each of them."""

    def too_large(*_):
        raise LimitError("what is held needs 23.4 GiB")

    dag = cnn(batch=4)
    assert new_edges(plan(dag, products=MANY), dag)
    monkeypatch.setattr(sys.modules[plan.__module__], "multiply_out", too_large)
    assert plan(dag, products=MANY) is dag
