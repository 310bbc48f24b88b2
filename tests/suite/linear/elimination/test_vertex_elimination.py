"""Vertex elimination keeps the matrix, makes products cheaper, and takes linear time."""

import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from networks.stored import MODELS, below, loaded
from onnxjac.jacobians import (
    Convolution,
    Cumulative,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Eye,
    Identity,
    Kron,
    Part,
    Permutation,
    Scalar,
    implicit_kron,
    slab,
)
from onnxjac.modes.linear.elimination import deferred
from onnxjac.modes.linear.elimination.cost import CALL, seconds
from onnxjac.modes.linear.elimination.plan import eliminated, elimination_of

from .meter import metered
from .structures import random_dag

FLOAT = np.dtype(float)
rng = np.random.default_rng(11)


def N(*shape):
    return rng.standard_normal(shape)


def diagonal():
    return Diagonal(N(2, 4))


def kron():
    return implicit_kron(Eye(2), N(4, 4))


def line(*operators):
    """A chain of operators, the first one applied first."""
    shapes = (operators[0].in_shape, *(J.out_shape for J in operators))
    edges = [Edge(k, k + 1, J) for k, J in enumerate(operators)]
    return Dag(shapes, edges, (0,), (len(operators),), FLOAT)


def diamonds(n, left=diagonal, right=diagonal):
    """n stacked diamonds: 2ⁿ paths."""
    edges = [
        Edge(3 * k + start, 3 * k + end, make())
        for k in range(n)
        for start, end, make in ((0, 1, left), (0, 2, right), (1, 3, right), (2, 3, left))
    ]
    return Dag(((2, 4),) * (3 * n + 1), edges, (0,), (3 * n,), FLOAT)


def assert_same(dag, other, rtol=1e-10):
    """Equal products from both sides, with several columns."""
    for J, K in ((dag, other), (dag.T, other.T)):
        V = np.random.default_rng(5).standard_normal((J.shape[1], 2))
        expected = J @ V
        assert np.linalg.norm(K @ V - expected) <= rtol * np.linalg.norm(expected)


@pytest.mark.parametrize("seed", range(120))
def test_random_dag_is_the_same_matrix(seed):
    dag = random_dag(seed)
    after = eliminated(dag)
    expected = dag.toarray()
    scale = np.abs(expected).max(initial=1e-300)
    assert_allclose(after.toarray() / scale, expected / scale, atol=1e-12)
    assert_allclose(after.T.toarray() / scale, expected.T / scale, atol=1e-12)
    assert_same(dag, after, 1e-11)
    assert seconds(after) <= seconds(dag) * (1 + 1e-9) + 2 * CALL  # two equal edges become 2 I


def test_random_dags_shrink():
    dags = [random_dag(seed) for seed in range(120)]
    assert sum(len(eliminated(dag).edges) for dag in dags) < 0.75 * sum(len(d.edges) for d in dags)


@pytest.mark.parametrize("file", MODELS)
def test_network_is_the_same_matrix(file):
    model, point, values = loaded(file)
    dag = oj.linearize(model, point, wrt=tuple(below("tangent", values)), engine="numpy").dag
    assert_same(dag, eliminated(dag))
    assert seconds(eliminated(dag)) <= seconds(dag)
    assert len(eliminated(dag).edges) <= len(dag.edges)


@pytest.mark.parametrize("file", ["bert", "mamba", "unet.legacy", "tagger.legacy"])
def test_hessian_of_a_network_is_the_same_matrix(file):
    model, point, values = loaded(file)
    wrt, weights = tuple(below("tangent", values)), values["cotangent"]
    H = oj.hessian(model, point, of="y", wrt=wrt, weights=weights, engine="numpy")
    before, after = H.J.dag, eliminated(H.J.dag)
    assert_same(before, after)
    assert seconds(after) < 0.9 * seconds(before)
    assert len(vertices(after)) < 0.75 * len(vertices(before))


def vertices(dag):
    """The tensors that a product computes."""
    return {v for edge in dag.edges for v in (edge.start, edge.end)}


def test_a_dag_is_left_as_it_was():
    dag = random_dag(3)
    edges, held = dag.edges, [np.array(a) for a in dag.arrays()]
    eliminated(dag)
    assert dag.edges is edges
    for array, before in zip(dag.arrays(), held, strict=True):
        assert_allclose(array, before, rtol=0)


def test_elimination_without_gain_keeps_operators():
    dag = diamonds(2, kron, kron)
    assert [e.operator for e in eliminated(dag).edges] == [e.operator for e in dag.edges]


def test_sixty_diamonds_are_one_diagonal():
    dag = diamonds(60)
    done = elimination_of(dag)
    (edge,) = done.after.edges
    assert type(edge.operator) is Diagonal
    assert edge.operator.d.shape == (2, 4)
    assert len(done.inside[edge.start, edge.end]) == 179
    assert_same(dag, done.after)


def test_sixty_diamonds_of_matrices_do_not_multiply():
    dag = diamonds(60, kron, diagonal)
    assert len(eliminated(dag).edges) <= len(dag.edges)
    assert eliminated(dag).nbytes <= dag.nbytes


def test_a_scalar_that_each_turn_of_several_loops_adds():
    """d (e + d (e + d (…))) of 147 turns would be deeper than Python's calls may be."""
    loops = "".join(
        f"""y{k} = Loop(n, yes, y{k - 1}) <body = turn (int64 i, bool g, double[3] s) =>
        (bool go, double[3] z) {{ a = Mul(s, v) b = Add(a, w) z = Tanh(b) go = Identity(g) }}>\n"""
        for k in (1, 2, 3)
    )
    model = oj.load(onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> g (double[3] y0, double w) => (double[3] y3)
        <double v = {{0.9}}, int64 n = {{49}}, bool yes = {{1}}> {{ {loops} }}"""))  # fmt: skip
    J = oj.linearize(model, {"y0": N(3), "w": np.array(0.3)})
    done = eliminated(J.dag)
    assert len(done.edges) < len(J.dag.edges) / 10
    assert_same(J.dag, done)


DEPTHS = {
    "diamonds": diamonds,
    "diamonds of matrices": lambda n: diamonds(n, kron),
    "a chain of many kinds": lambda n: line(*map(mixed, range(4 * n))),
    "a chain that nothing shortens": lambda n: line(*map(stubborn, range(4 * n))),
    "ways side by side": lambda n: beside(4 * n),
}


@pytest.mark.parametrize("make", DEPTHS.values(), ids=DEPTHS)
def test_work_grows_with_the_depth_and_no_faster(make):
    counts = [calls(eliminated, make(n)) for n in (10, 20, 40)]
    assert counts[2] - counts[1] <= 2.3 * (counts[1] - counts[0])


def calls(function, argument):
    """The number of function calls, a measure of work that is independent of the machine."""
    seen = [0]

    def count(frame, event, arg):
        seen[0] += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function(argument)
    finally:
        sys.setprofile(None)
    return seen[0]


def mixed(k):
    """Links of a chain: some merge, some commute, some stay."""
    P = Permutation((1, 0), (4, 4), FLOAT)
    D, K = Diagonal(N(4, 4)), implicit_kron(Eye(4), N(4, 4))
    return (P, D, P, K, Scalar(2, (4, 4), FLOAT))[k % 5]


def stubborn(k):
    """Links of a chain of which no two merge."""
    if k % 2:
        return Permutation((1, 0), (4, 4), FLOAT)
    return Cumulative(0, (4, 4), FLOAT, exclusive=False, reverse=False)


def beside(n):
    """n paths from x to y, each a scalar and a matrix that absorbs it."""
    ways = [Edge(0, k + 1, Scalar(2, (2, 4), FLOAT)) for k in range(n)]
    ways += [Edge(k + 1, n + 1, kron()) for k in range(n)]
    return Dag(((2, 4),) * (n + 2), ways, (0,), (n + 1,), FLOAT)


def test_constants_fold_into_their_neighbours():
    dag = line(Scalar(2, (2, 4), FLOAT), diagonal(), Scalar(-3, (2, 4), FLOAT), kron())
    assert [type(e.operator) for e in eliminated(dag).edges] == [Diagonal, Kron]
    assert_same(dag, eliminated(dag))
    (edge,) = eliminated(line(Scalar(2, (2, 4), FLOAT), Scalar(0.5, (2, 4), FLOAT))).edges
    assert type(edge.operator) is Identity


def test_parallel_edges_merge():
    edges = [Edge(0, 1, diagonal()) for _ in range(5)]
    (edge,) = eliminated(Dag(((2, 4), (2, 4)), edges, (0,), (1,), FLOAT)).edges
    assert type(edge.operator) is Diagonal
    assert_allclose(edge.operator.d, sum(e.operator.d for e in edges))


def test_matrices_are_not_multiplied():
    dag = line(kron(), kron(), Dense(N(8, 8), (2, 4), (2, 4)), Dense(N(8, 8), (2, 4), (2, 4)))
    assert len(eliminated(dag).edges) == 4


def test_batch_norm_goes_into_the_convolution():
    model = Path(__file__).parents[3] / "networks" / "files" / "resnet.onnx"
    values = loaded(model.stem)
    J = oj.linearize(*values[:2], engine="numpy")
    before, after = ([e.operator for e in dag.edges] for dag in (J.dag, eliminated(J.dag)))
    assert count(before, Convolution) == count(after, Convolution) > 4
    assert count(after, Diagonal) < count(before, Diagonal)


def count(operators, kind):
    return sum(isinstance(operator, kind) for operator in operators)


def test_slabs_that_tile_are_still_joined():
    """Split, scaled, joined: one Concat, without padding or additions."""
    parts = [slab((9, 4), 0, start, start + 3, FLOAT) for start in (0, 3, 6)]
    edges = [Edge(0, k + 1, part) for k, part in enumerate(parts)]
    edges += [Edge(k + 1, k + 4, Diagonal(N(3, 4))) for k in range(3)]
    edges += [Edge(k + 4, 7, part.T) for k, part in enumerate(parts)]
    edges += [Edge(7, 8, Diagonal(N(9, 4)))]
    shapes = ((9, 4), *((3, 4),) * 6, (9, 4), (9, 4))
    dag = Dag(shapes, edges, (0,), (8,), FLOAT)
    for J in (eliminated(dag), eliminated(dag).T):
        calls = metered(J, 36).calls
        assert calls.count("Concat") == 1
        assert not {"Pad", "Add"} & set(calls)
    assert_same(dag, eliminated(dag))


def test_a_source_and_a_sink_on_the_way_stay():
    edges = [Edge(k, k + 1, diagonal()) for k in range(4)]
    dag = Dag(((2, 4),) * 5, edges, (0, 1), (3, 4), FLOAT)
    assert {(e.start, e.end) for e in eliminated(dag).edges} == {(0, 1), (1, 3), (3, 4)}
    assert_same(dag, eliminated(dag))


def test_nothing_is_computed_that_is_not_kept(monkeypatch):
    """239 products and sums merge 240 diagonals into one; there are none where vertices stay."""
    computed = []
    run = deferred.run_operator
    monkeypatch.setattr(
        deferred, "run_operator", lambda *args: computed.append(args[0]) or run(*args)
    )
    eliminated(diamonds(60))
    assert (computed.count("Mul"), computed.count("Add")) == (179, 60)
    computed.clear()
    eliminated(diamonds(60, kron, kron))
    assert not computed


def test_the_blocks_of_a_loop_share_one_run(monkeypatch):
    """They stay edges: a block in a product would run the loop for itself."""
    loop = oj.load(onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[5] x) => (double[5] y, double[3000,5] z) {
            n = Constant<value = int64 {3000}>() go = Constant<value = bool {1}>()
            u = Tanh(x)
            a, b = Loop(n, go, u) <body = turn (int64 i, bool c, double[5] s) =>
                (bool d, double[5] t, double[5] r) { d = Identity(c) t = Sin(s) r = Cos(s) }>
            y = Exp(a) z = Tanh(b)
        }"""))
    J = oj.linearize(loop, {"x": np.linspace(0.1, 1, 5)}, of=["y", "z"])
    joint = next(e.operator.joint for e in J.dag.edges if isinstance(e.operator, Part))
    run, runs = type(joint).run, []
    monkeypatch.setattr(type(joint), "run", lambda *args: runs.append(1) or run(*args))
    for A in (J.dag, eliminated(J.dag), J.plan(products=3).structure):
        runs.clear()
        product = A @ np.ones(5)
        assert len(runs) == 1
        assert_allclose(product, J.toarray() @ np.ones(5), rtol=1e-11)
        runs.clear()
        A.T @ np.ones(J.shape[0])
        assert len(runs) == 1
