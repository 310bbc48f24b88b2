"""J.compile and J.plan: the same operator, whichever engine runs its products."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import onnxjac as oj
from check_model import assert_near
from check_operator import check_operator
from networks.stored import FILES, below, loaded
from onnxjac.jacobians import Block, Convolution, Dense, Reshape, Slice
from onnxjac.modes.linear.products.compiled import CACHED_PROGRAMS, Compiled, record_product
from onnxjac.modes.model.programs import onnxruntime
from onnxjac.modes.model.programs.onnxruntime import EngineError, inputs_of, outputs_of
from onnxjac.modes.model.programs.program import compile_by
from onnxjac.modes.model.programs.work import kernels_of

from ...jacobians.convolutions import GEOMETRIES, convolution
from ...jacobians.examples import EXAMPLES, Draw

pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)
NETWORKS = ("attentive", "mamba", "mobilenet", "resnet", "tagger", "unet", "vit")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_kind_by_the_first_engine_that_can(name):
    J, dense = EXAMPLES[name][1](Draw(1))
    check_operator(Compiled(J), dense)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_in_single_precision(name):
    """Planned and run by ONNX Runtime, which has all kernels in float32, against the plain DAG."""
    model = oj.load(FILES / f"{name}.onnx")
    _, point, values = loaded(name)
    point = {k: x.astype(model.inputs[k].dtype) for k, x in point.items()}
    J = oj.linearize(model, point, wrt=tuple(below("tangent", values)))
    C = J.compile("onnxruntime", products=1000)
    v, u = (RNG.standard_normal(n).astype(np.float32) for n in J.shape[::-1])
    assert_near(C @ v, J.dag @ v, 1e-4)
    assert_near(C.T @ u, J.dag.T @ u, 1e-4)


def linear():
    """J of a network without convolutions, which ONNX Runtime runs in double precision."""
    return oj.linearize(loss_model(), POINT, of="z", wrt=["w"])


def small():
    """J of a small network with weights as columns."""
    model, point, values = loaded("vit")
    return oj.linearize(model, point, wrt=tuple(below("tangent", values)))


def test_compiled_is_a_linearization():
    J = small()
    C = J.compile("numpy", products=50)
    assert (C.domain, C.codomain) == (J.domain, J.codomain)
    name = J.domain[0].name
    tangent = {name: np.ones(J.domain[0].shape)}
    of = J.codomain[0].name
    assert_allclose(C.apply(tangent)[of], J.apply(tangent)[of], atol=1e-10)
    v = RNG.standard_normal(J[of, name].shape[1])
    assert_allclose(C[of, name] @ v, J[of, name].dag @ v, atol=1e-10)
    assert C.check()


def test_relinearized_it_is_compiled_again():
    model, point, values = loaded("vit")
    J = oj.linearize(model, point, wrt=tuple(below("tangent", values)))
    moved = {k: x + 0.01 if x.dtype.kind == "f" else x for k, x in point.items()}
    C = J.compile("numpy").relinearize(moved)
    v = RNG.standard_normal(J.shape[1])
    assert isinstance(C.structure, Compiled)
    assert_near(C @ v, J.relinearize(moved).dag @ v, 1e-10)


def test_hessian_and_gauss_newton():
    proto = loss_model()
    H = oj.hessian(proto, POINT, of="loss", wrt=["w"])
    G = oj.gauss_newton(proto, POINT, of="loss", at="z", wrt=["w"])
    v = RNG.standard_normal(H.shape[1])
    for C in (H.compile(), H.plan(products=1000), H.compile("numpy")):
        assert C.T is C
        assert_allclose(C @ v, H.J.dag @ v, atol=1e-12)
    for C in (G.compile(), G.plan(products=1000)):
        assert C.T is C
        assert_allclose(C @ v, G @ v, atol=1e-12)


POINT = {"x": np.linspace(-1, 1, 6).reshape(2, 3)}


def loss_model():
    """loss = Σ log(1 + z²), z = tanh(x w)."""
    from onnx import numpy_helper, parser

    body = "m = MatMul(x, w) z = Tanh(m) s = Mul(z, z) p = Add(s, one) l = Log(p)"
    text = (f'<ir_version: 10, opset_import: ["": 21]> g (double[2,3] x) => (double loss) '
            f"{{ {body} loss = ReduceSum <keepdims = 0> (l) }}")  # fmt: skip
    proto = parser.parse_model(text)
    w = np.linspace(-0.5, 0.7, 12).reshape(3, 4)
    for name, array in (("w", w), ("one", np.ones(()))):
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return oj.load(proto)


def test_gauss_newton_is_what_it_says():
    proto = loss_model()
    G = oj.gauss_newton(proto, POINT, of="loss", at="z", wrt=["w"])
    J = oj.linearize(proto, POINT, of="z", wrt=["w"]).toarray()
    H = oj.hessian(proto, POINT, of="loss", wrt=["z"]).toarray()
    assert_allclose(G.toarray(), J.T @ H @ J, atol=1e-13)


def test_ends_are_bound_where_they_lie():
    """The tensors of v and y are separate inputs and outputs: nothing is split or concatenated."""
    recording = record_product(
        Block([[Dense(np.ones((2, 3))), None], [None, Dense(np.ones((4, 5)))]])
    )
    outputs = outputs_of(recording)
    inputs = [(p.start, p.value.shape.numpy()[-1]) for p in inputs_of(recording, outputs)]
    assert inputs == [(0, 3), (3, 5)]
    assert [p.start for p in outputs] == [0, 2]


def test_a_part_of_v_that_is_a_part_of_y():
    """It was bound as an output, without the v that it is cut from."""
    J = Block([[Dense(2 * np.eye(3)), None], [None, Reshape((2, 1), (1, 2), float)]])
    for K in (J, J.T):
        v = RNG.standard_normal(K.shape[1])
        assert_allclose(Compiled(K, "onnxruntime") @ v, K @ v)


def test_programs_are_kept_by_the_number_of_columns(inside):
    J, dense = EXAMPLES[next(iter(EXAMPLES))][1](Draw(1))
    C = Compiled(J, "onnxruntime")
    for k in range(1, CACHED_PROGRAMS + 3):
        V = RNG.standard_normal((J.shape[1], k))
        assert_allclose(C @ V, dense @ V, atol=1e-12)
        assert len(inside.programs(C)) <= CACHED_PROGRAMS


def test_convolutions_in_double_precision_compile_by_numpy():
    """It has no Conv in double precision: NumPy is the first engine that does."""
    J, dense = convolution(Draw(3), "x", "u", GEOMETRIES[next(iter(GEOMETRIES))])
    assert compile_by(None, record_product(J))[1] == "numpy"
    with pytest.raises(EngineError, match="Try engine='numpy'"):
        Compiled(J, "onnxruntime") @ np.ones(J.shape[1])
    assert isinstance(J, Convolution)
    C = Compiled(J)
    assert_allclose(C @ np.ones(J.shape[1]), dense.sum(1), atol=1e-12)
    assert C.choice.endswith("ONNX Runtime has no kernel for it)")


def test_numpy_gets_a_product_that_onnxruntime_refused_as_it_was():
    """The refused attempt has already bound its inputs and outputs to pieces of v."""
    J, dense = convolution(Draw(3), "x", "u", GEOMETRIES[next(iter(GEOMETRIES))])
    assert isinstance(J, Convolution)
    both = Block([[J, None], [None, J]])
    v = RNG.standard_normal(both.shape[1])
    halves = np.split(v, 2)
    C = Compiled(both)
    assert_allclose(C @ v, np.concatenate([dense @ half for half in halves]), atol=1e-12)
    assert repr(C).endswith("by numpy")
    kernels = len(kernels_of(record_product(both)))
    assert f"{kernels} kernels" in C.choice


def test_a_long_product_keeps_what_it_reads(monkeypatch):
    """Ctrl-C leaves the session at work, when the caller's arrays are gone."""
    kept = []

    def at_once(run, *arguments, alive):
        kept.extend(alive)
        run(*arguments)

    monkeypatch.setattr(onnxruntime, "LONG_MULTIPLICATIONS", -1)
    monkeypatch.setattr(onnxruntime, "interruptible", at_once)
    dense = RNG.standard_normal((3, 6))
    program, _ = compile_by("onnxruntime", record_product(Dense(dense)))
    v = np.repeat(RNG.standard_normal(6), 2)[::2]  # not contiguous: the session reads a copy
    assert_allclose(program(v), dense @ v)
    assert kept[0].flags.c_contiguous


@pytest.mark.parametrize("engine", ["onnxruntime", "numpy"])
def test_every_second_number_of_a_vector(engine):
    """Which NumPy cuts out without a copy, and flattens without one."""
    dense, v = RNG.standard_normal((3, 6)), RNG.standard_normal(12)
    C, half = Dense(dense).compile(engine), Slice(((0, 2, 6),), (12,), np.dtype(float))
    assert_allclose((C @ half) @ v, dense @ v[::2], rtol=1e-13)
    V = np.stack([v, -v], 1)
    assert_allclose((C @ half) @ V, dense @ V[::2], rtol=1e-13)


def test_an_unknown_engine_is_refused_with_a_suggestion():
    J = Dense(np.eye(2))
    with pytest.raises(oj.InputError, match="Did you mean 'numpy'"):
        J.compile("nunpy")
    with pytest.raises(oj.InputError, match="'onnxruntime:CPUExecutionProvider'"):
        J.compile("onnxruntime:NoSuchProvider") @ np.ones(2)
    made = J.compile("onnxruntime:CPUExecutionProvider") @ np.ones(2)
    assert_array_equal(made, np.ones(2))


def test_a_missing_engine_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(oj.InputError, match=r"pip install 'onnxjac\[runtime\]'"):
        Dense(np.eye(2)).compile("onnxruntime")


def test_threads_share_a_program():
    J = linear()
    C = J.compile("onnxruntime", products=1)
    V = RNG.standard_normal((40, J.shape[1]))
    with ThreadPoolExecutor(8) as pool:
        products = list(pool.map(lambda v: C @ v, V))
    assert_allclose(np.stack(products), V @ J.dag.toarray().T, atol=1e-9)


def test_products_stay_equal_while_j_counts_them():
    """J counts its products, replans from time to time, and gives the same results."""
    J = oj.linearize(loss_model(), POINT, of="z", wrt=["w"])
    v = RNG.standard_normal(J.shape[1])
    products = [J @ v for _ in range(40)]
    assert J.structure.count == 40
    assert_allclose(products, np.broadcast_to(products[0], (40, J.shape[0])), atol=1e-13)
