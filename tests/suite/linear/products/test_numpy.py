"""The NumPy program gives the operator's products, and passes `check_operator`."""

import sys
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import parser

import onnxjac as oj
from check_model import assert_near
from check_operator import check_operator
from networks.stored import below, loaded
from onnxjac.jacobians import (
    Convolution,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Embed,
    Eye,
    Geometry,
    Product,
    implicit_kron,
)
from onnxjac.modes.linear.products.compiled import Compiled, record_product
from onnxjac.modes.model.programs.numpy import Call, compile, in_line
from onnxjac.ops.numbers import numbers

from ...jacobians.convolutions import GEOMETRIES, PAIRS, convolution
from ...jacobians.examples import EXAMPLES, Draw

every_example = pytest.mark.parametrize("name", EXAMPLES)
every_geometry = pytest.mark.parametrize("name", GEOMETRIES)
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)

NETWORKS = ("attentive", "mamba", "mobilenet", "resnet", "tagger", "unet", "vit")


@every_example
def test_a_compiled_operator_passes_every_check(name):
    J, dense = EXAMPLES[name][1](Draw(1))
    check_operator(Compiled(J, "numpy"), dense)


@every_geometry
@every_pair
def test_a_compiled_convolution_passes_every_check(name, pair):
    J, dense = convolution(Draw(3), *pair, GEOMETRIES[name])
    check_operator(Compiled(J, "numpy"), dense)


@every_example
def test_single_precision_stays_single(name):
    J, dense = EXAMPLES[name][1](Draw(4, np.float32))
    for K, matrix in ((J, dense), (J.T, dense.T)):
        V = Draw(6, np.float32).normal(K.shape[1], 2)
        product = Compiled(K, "numpy") @ V
        assert product.dtype == np.float32
        assert_allclose(product, matrix @ V, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [(), (3,)], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_one_program_multiplies_as_the_graph_of_a_network(name, columns):
    """J v and Jᵀ u, twice by one program."""
    model, point, values = loaded(name)
    dag = oj.linearize(model, point, wrt=tuple(below("tangent", values)), engine="numpy").dag
    for K in (dag, dag.T):
        run = compile(record_product(K, columns))
        for seed in (1, 2):
            v = Draw(seed).normal(*columns, *K.in_shape)
            assert_near(run(v), K._apply(numbers, v), 1e-12)


READ_TWICE = {
    "through a transpose": """(double[1,2,2] x, double[2,2,3] W) => (double[1,2,2] y)
        { t = Transpose<perm = [0, 2, 1]>(x) c = Conv<pads = [1, 1]>(t, W) q = Tanh(c)
          w = Transpose<perm = [0, 2, 1]>(q) y = Add(x, w) }""",
    "through a reshape": """(double[2,2] w, double x) => (double[2,2] y)
        <int64[2,2] i = {1, 0, 1, 0}> { b = GatherElements<axis = 1>(w, i) y = Mul(w, b) }""",
}


@pytest.mark.parametrize("engine", [None, "numpy"])
@pytest.mark.parametrize("name", READ_TWICE)
def test_sums_overwrite_no_tensor_that_is_read_later(name, engine):
    """A sum overwrites one view of a tensor while another view is read later."""
    text = f'<ir_version: 10, opset_import: ["": 21]> g {READ_TWICE[name]}'
    model, draw = oj.load(parser.parse_model(text)), Draw(18)
    point = {name: draw.normal(*spec.shape) for name, spec in model.inputs.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", oj.OnnxJacWarning)  # y may not depend on an input
        J = oj.linearize(model, point)
    for K, compiled in ((J, J.compile(engine)), (J.T, J.T.compile(engine))):
        eye = np.eye(K.shape[1])
        assert_allclose(compiled @ eye, K.dag._apply(numbers, eye).T, atol=1e-12)
        assert_allclose(compiled @ eye[0], K.dag._apply(numbers, eye[0]), atol=1e-12)


def test_a_frame_is_shared_only_by_what_it_is_the_frame_of():
    """u follows s in a padded tensor; in its own padded array, zeros are in the place of s."""
    draw, n = Draw(19), 4
    u_shape, s_shape, joined = (1, 1, n), (1, 1, 1), (1, 1, n + 1)
    first = Geometry(joined, (1, 1, 3), joined, (1,), (1,), (1, 1), 1)
    second = Geometry(u_shape, (1, 1, 4), u_shape, (1,), (1,), (2, 1), 1)
    edges = [
        Edge(0, 2, Diagonal(draw.normal(*s_shape))),
        Edge(1, 3, Diagonal(draw.normal(*u_shape))),
        Edge(2, 4, Embed(((0, 1, 1), (0, 1, 1), (0, 1, 1)), joined, draw.dtype)),
        Edge(3, 4, Embed(((0, 1, 1), (0, 1, 1), (1, 1, n)), joined, draw.dtype)),
        Edge(4, 5, Convolution(draw.normal(1, 1, 3), "x", "u", first)),
        Edge(3, 6, Convolution(draw.normal(1, 1, 4), "x", "u", second)),
    ]
    shapes = (s_shape, u_shape, s_shape, u_shape, joined, joined, u_shape)
    J = Dag(shapes, edges, (0, 1), (5, 6), draw.dtype)
    v = draw.normal(*J.in_shape)
    assert_allclose(compile(record_product(J))(v), J._apply(numbers, v), atol=1e-12)


def test_results_belong_to_the_caller_in_every_thread():
    model, point, values = loaded("resnet")
    J = oj.linearize(model, point, wrt=tuple(below("tangent", values)), engine="numpy").dag
    run, draw = compile(record_product(J)), Draw(9)
    vectors = [draw.normal(*J.in_shape) for _ in range(40)]
    with ThreadPoolExecutor(4) as threads:
        products = list(threads.map(run, vectors))
    for v, y in zip(vectors, products, strict=True):
        assert_near(y, J._apply(numbers, v), 1e-12)


def test_one_matrix_times_few_columns():
    """A X for a stack of narrow X: a single matrix product for all."""
    J, draw = implicit_kron(Draw(12).normal(5, 7), Eye(3)), Draw(13)
    run, v = compile(record_product(J, (4,))), draw.normal(4, *J.in_shape)
    assert_near(run(v), J._apply(numbers, v), 1e-12)


def test_a_large_matrix_and_its_transpose_are_held_once():
    A = Draw(16, np.float32).normal(700, 600)
    J = implicit_kron(Eye(3), A) @ Diagonal(np.ones((3, 600), np.float32))
    J = Product((implicit_kron(Eye(3), A.T), Diagonal(np.ones((3, 700), np.float32)), J))
    recording, v = record_product(J), Draw(17, np.float32).normal(3, 600)
    assert sum(x.nbytes for x in recording.constants.values()) < 1.1 * A.nbytes
    assert_near(compile(recording)(v), J._apply(numbers, v), 1e-5)


def test_a_frame_stays_zero():
    J = Dense(np.ones((1, 8))) @ Embed(((3, 1, 2),), (8,), np.float64)
    run = compile(record_product(J))
    assert [run(v).item() for v in (np.array([1.0, 2.0]), np.array([5.0, 7.0]))] == [3, 12]


def test_residuals_are_not_copied():
    J = Diagonal(np.ones(100_000)) @ Dense(np.ones((100_000, 8)))
    recording = record_product(J)
    tracemalloc.start()
    run = compile(recording)
    run(np.ones(8))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000


LEFT = [(4, 2), (3, 4, 2), (1, 1, 4, 2), (5, 3, 4, 2)]
RIGHT = [(2, 1), (1, 2, 1), (1, 2, 3), (3, 2, 1), (5, 1, 2, 1), (5, 3, 2, 9)]


@pytest.mark.parametrize("right", RIGHT, ids=str)
@pytest.mark.parametrize("left", LEFT, ids=str)
def test_products_of_repeated_matrices(left, right):
    """Matrices repeated by Expand are multiplied once, for any batch shape."""
    c, d = (f"int64[{len(s)}] {{}} = {{{{{str(s)[1:-1]}}}}}" for s in (left, right))
    model = oj.load(parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 21]>
        g (double[4,2] x, double[1,2,1] z) => (double[k] y) <{c.format("c")}, {d.format("d")}>
        {{ a = Expand(x, c)  b = Expand(z, d)  y = MatMul(a, b) }}"""
    ))  # fmt: skip
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((4, 2)), rng.standard_normal((1, 2, 1))
    J = oj.linearize(model, {"x": x, "z": z}, of=["y"])
    C, dense = J.compile("numpy"), J @ np.eye(J.shape[1])
    for v, u in zip(np.eye(dense.shape[1]), rng.standard_normal((10, dense.shape[0])), strict=True):
        assert_allclose(C @ v, dense @ v, atol=1e-12)
        assert_allclose(C.T @ u, dense.T @ u, atol=1e-12)
    assert_allclose(C @ np.eye(dense.shape[1]), dense, atol=1e-12)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("width", [4, 8])
def test_columns_are_negated(kind, width):
    """Works around NumPy's wrong negation of one column of an array 4 or 8 numbers wide."""
    model = oj.load(parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 21]>
        g ({kind}[{width - 1}] x, {kind}[1] z) => ({kind}[1] y, {kind}[{width - 1}] x)
        {{ y = Neg(z) }}"""
    ))  # fmt: skip
    dtype = {"float": np.float32, "double": np.float64}[kind]
    J = oj.linearize(model, {"x": np.ones(width - 1, dtype), "z": np.ones(1, dtype)}, of=["x", "y"])
    V = np.eye(width, dtype=dtype)
    wanted = np.diag([1] * (width - 1) + [-1])
    assert_array_equal(J.compile("numpy") @ V, wanted)


def test_calls_in_line_give_several_values_and_drop_what_is_done():
    made, held_by = [], []

    def several(x):
        made.append(x + 1)
        return made[0], x + 2, x + 4

    def last(a, b, none):
        held_by.append(sys.getrefcount(made[0]))
        return (a - b if none is None else none,)  # a tuple of one

    calls = [Call(several, (0,), (1, 2, 3)), Call(lambda x: 10 * x, (1,), (4,)),
             Call(last, (4, 3, 5), (6,))]  # fmt: skip
    program = in_line(calls, (0, 7), (6, 4, 7, 8), {5: None, 8: "held"})
    y, ten, given, held = program(np.zeros(1), "given")
    assert (y, ten, given, held) == (6, 10, "given", "held")
    assert held_by == [2]  # the list and the count itself
