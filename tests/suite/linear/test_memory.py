"""The memory of a Jacobian, actual and reported, and the allocations of a product."""

import gc
import subprocess
import sys
import tracemalloc
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import numpy_helper, parser

import onnxjac as oj
from house import ROOT
from networks.stored import MODELS, below, loaded
from onnxjac.jacobians.arrays import buffer_of
from onnxjac.modes.linear.elimination import adaptive
from onnxjac.modes.linear.elimination.plan import ELIMINATED, eliminated

RNG = np.random.default_rng(0)

HELD = """
import gc, os
import numpy as np
from onnx import numpy_helper, parser
import onnxjac as oj

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

layers = " ".join(f"h{k} = MatMul(t{k}, w) t{k + 1} = Tanh(h{k})" for k in range(8))
text = f'<ir_version: 10, opset_import: ["": 21]> g (float[2048,256] t0) => (float[2048,256] y)'
proto = parser.parse_model(text + " { " + layers + " y = Sigmoid(t8) }")
w = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32) / 16
proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
m = oj.load(proto)
point = lambda k: {"t0": np.full((2048, 256), k / 9, np.float32)}
held = [oj.linearize(m, point(0), wrt="w", engine=ENGINE)]
held += [held[0].relinearize(point(k)) for k in range(3)]
before = resident()
held = [held, [held[0].relinearize(point(k)) for k in range(12)]]
grown = resident() - before
said = sum(J.nbytes - w.nbytes for J in held[1])
primal = sum(J.primal["y"].nbytes for J in held[1])
print(grown, said, primal)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_nbytes_is_what_is_held(engine):
    """Resident memory grows by `nbytes` plus the primal per Jacobian."""
    pytest.importorskip(engine)
    code = HELD.replace("ENGINE", repr(engine))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, said, primal = map(int, run.stdout.split())
    assert said > 100 * 2**20
    assert abs(grown - (said + primal)) < 0.1 * grown


@pytest.mark.parametrize("products", [1, 60])
def test_a_jacobian_is_freed_at_once(products):
    """Not when the garbage of circles is collected: no result refers to the DAG that keeps it."""
    J, gone = linearized(), []
    for _ in range(products):
        J.T @ (J @ np.ones(J.shape[1]))
    eliminated(J.dag)
    gone += map(weakref.ref, (J.dag, *(edge.operator for edge in J.dag.edges)))
    gc.disable()
    try:
        del J
        assert not any(ref() for ref in gone)
    finally:
        gc.enable()


def linearized():
    """∂y/∂x for y = tanh(x W) V."""
    model = oj.load(parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (double[64,32] x, double[32,32] W, double[32,4] V) => (double[64,4] y)
        { h = MatMul(x, W) a = Tanh(h) y = MatMul(a, V) }"""))
    point = {name: RNG.standard_normal(spec.shape) for name, spec in model.inputs.items()}
    return oj.linearize(model, point, wrt="x")


def wide():
    """J is 10⁵ × 10⁵; v takes 0.8 MB."""
    text = '<ir_version: 10, opset_import: ["": 21]> g (double[100000] x) => (double[100000] y)'
    body = "{ t = Tanh(x) s = Slice(t, a, b) p = Pad(s, c) q = Mul(p, t) y = Add(q, x) }"
    proto = parser.parse_model(f"{text} {body}")
    integers = {"a": [0], "b": [99999], "c": [1, 0]}
    tensors = (numpy_helper.from_array(np.array(a), n) for n, a in integers.items())
    proto.graph.initializer.extend(tensors)
    return oj.load(proto)


@pytest.mark.parametrize("side", ["J", "J.T"])
def test_a_product_allocates_a_few_vectors(side, monkeypatch):
    monkeypatch.setattr(adaptive, "RECORDING", np.inf)  # no program is made meanwhile
    J = oj.linearize(wide(), {"x": RNG.standard_normal(100000)})
    J = J if side == "J" else J.T
    v = RNG.standard_normal(100000)
    tracemalloc.start()
    J @ v
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * v.nbytes


# -- checkpoints -----------------------------------------------------------------------------------


def deep(depth=64, width=512):
    """h ← h + tanh(h), repeated, so that every step has a residual."""
    steps = " ".join(f"t{k} = Tanh(h{k}) h{k + 1} = Add(h{k}, t{k})" for k in range(depth))
    text = f"g (double[{width}] h0) => (double[{width}] h{depth}) {{ {steps} }}"
    return oj.load(parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}'))


def test_checkpoints_hold_the_square_root():
    m, x = deep(), RNG.standard_normal(512)
    J, C = oj.linearize(m, {"h0": x}), oj.linearize(m, {"h0": x}, checkpoint=True)
    assert J.nbytes > 60 * x.nbytes
    assert 6 * x.nbytes < C.nbytes < 16 * x.nbytes
    few = oj.linearize(m, {"h0": x}, checkpoint=4)
    assert 3 * x.nbytes <= few.nbytes < 6 * x.nbytes
    v = RNG.standard_normal(512)
    for K in (C, few, C.relinearize({"h0": x})):
        for _ in range(3):  # rules at the first product, then a template
            assert_allclose(K @ v, J @ v)
            assert_allclose(K.T @ v, J.T @ v)


@pytest.mark.parametrize("file", MODELS)
def test_checkpointed_networks_have_the_same_jacobian(file):
    m, point, values = loaded(file)
    options = {"wrt": tuple(below("tangent", values)), "engine": "numpy"}
    J, C = oj.linearize(m, point, **options), oj.linearize(m, point, checkpoint=True, **options)
    v, u = RNG.standard_normal(J.shape[1]), RNG.standard_normal(J.shape[0])
    assert_allclose(C @ v, J @ v, rtol=1e-6, atol=1e-9 * np.abs(J @ v).max())
    assert_allclose(C.T @ u, J.T @ u, rtol=1e-6, atol=1e-9 * np.abs(J.T @ u).max())


@pytest.mark.filterwarnings("ignore:.*zero blocks")
def test_checkpoints_keep_the_jacobian_of_intermediates():
    """`wrt` and `of` tensors inside a segment, and a given intermediate."""
    m, x = deep(9, 3), RNG.standard_normal(3)
    names = {"of": ["h9", "t4", "h2"], "wrt": ["h5", "h0", "t3"]}
    for point in ({"h0": x}, {"h0": x, "h1": 2 * x}):
        J, C = (oj.linearize(m, point, checkpoint=c, **names) for c in (False, 2))
        assert_allclose(C.toarray(), J.toarray())
        assert_allclose(C.T.toarray(), J.T.toarray())
        assert_allclose(C.tosparse().toarray(), J.toarray())


@pytest.mark.parametrize("wrt", ["x", "w"])
def test_a_kernel_as_large_as_the_result_needs_no_memory_of_their_product(wrt):
    graph = "g (float[1,1,200,200] x, float[1,1,75,75] w) => (float[1,1,126,126] y)"
    text = f'<ir_version: 10, opset_import: ["": 21]> {graph} {{ y = Conv(x, w) }}'
    point = {"x": RNG.standard_normal((1, 1, 200, 200)), "w": RNG.standard_normal((1, 1, 75, 75))}
    J = oj.linearize(oj.load(parser.parse_model(text)), point, wrt=wrt)
    v, u = (RNG.standard_normal(n).astype(np.float32) for n in J.shape[::-1])
    tracemalloc.start()
    forward, back = J @ v, J.T @ u
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**27 < 4 * 126**2 * 75**2 / 2
    assert np.isclose(u @ forward, back @ v, rtol=1e-3)


def test_a_hessian_holds_each_matrix_once():
    """The gradient multiplies by their transposes, which are views that Gemm reads directly."""
    n, draw = 1100, np.random.default_rng(0).standard_normal
    weights = {f"w{k}": (draw((n, n)) / 40).astype(np.float32) for k in range(2)}
    body = "a = MatMul(x, w0) b = Tanh(a) c = MatMul(b, w1) d = Tanh(c) y = ReduceSum(d)"
    head = f"g (float[2,{n}] x) => (float[1,1] y)"
    text = f'<ir_version: 10, opset_import: ["": 21]> {head} {{ {body} }}'
    proto = parser.parse_model(text)
    for name, array in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    model, x = oj.load(proto), draw((2, n)).astype(np.float32)
    H = oj.hessian(model, {"x": x}, of="y", wrt="x")
    held = sum(w.nbytes for w in weights.values())
    assert held <= H.nbytes < 1.1 * held
    v = draw(2 * n).astype(np.float32)
    expected = oj.hessian(model, {"x": x}, of="y", wrt="x", engine="numpy") @ v
    np.testing.assert_allclose(H @ v, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(H.compile("onnxruntime") @ v, expected, rtol=1e-3, atol=1e-4)


def dense_layers(n=400, depth=3):
    """y = Σ tanh(… tanh(x w0) …) of one sample, and its weights."""
    draw = np.random.default_rng(0).standard_normal
    weights = [(draw((n, n)) / n**0.5).astype(np.float32) for _ in range(depth)]
    layers = " ".join(f"a{k} = MatMul(t{k}, w{k}) t{k + 1} = Tanh(a{k})" for k in range(depth))
    return f"(float[1,{n}] t0) => (float[1,1] y) {{ {layers} y = ReduceSum(t{depth}) }}", weights


def scaled_convolutions(n=64, depth=3):
    """Convolutions with kernels larger than the image, then a scale per channel; their weights."""
    draw = np.random.default_rng(0).standard_normal
    weights = [(draw((n, n, 3, 3)) / n).astype(np.float32) for _ in range(depth)]
    layers = " ".join(
        f"a{k} = Conv <pads = [1, 1, 1, 1]> (t{k}, w{k}) b{k} = Mul(a{k}, s) t{k + 1} = Tanh(b{k})"
        for k in range(depth)
    )
    head = f"(float[1,{n},2,2] t0) => (float[1,1,1,1] y) <float[1,{n},1,1] s = {{SCALES}}>"
    scales = ", ".join(map(str, np.linspace(0.5, 2, n)))
    return f"{head} {{ {layers} y = ReduceSum(t{depth}) }}".replace("SCALES", scales), weights


@pytest.mark.parametrize("network", [dense_layers, scaled_convolutions])
def test_products_copy_no_weight(network):
    """For Jacobians and Hessians, eliminated operators hold vectors only."""
    text, weights = network()
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    for k, w in enumerate(weights):
        proto.graph.initializer.append(numpy_helper.from_array(w, f"w{k}"))
    model, held = oj.load(proto), sum(w.nbytes for w in weights)
    shape = tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim)
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    J = oj.linearize(model, {"t0": x}, of=f"t{len(weights)}")
    H = oj.hessian(model, {"t0": x}, of="y", wrt="t0")
    for A in (J, H):
        v = np.ones(A.shape[1], np.float32)
        before = A.nbytes
        linearization = getattr(A, "J", A)
        for _ in range(40):
            A @ v
        assert ELIMINATED in linearization.dag.known
        assert A.nbytes == linearization.nbytes < before + 0.1 * held
        large = [a for a in linearization.structure.arrays() if a.nbytes >= weights[0].nbytes]
        kept = [a for a in linearization.arrays() if a.nbytes >= weights[0].nbytes]
        assert {buffer_of(a) for a in large} <= {buffer_of(a) for a in kept}


@pytest.mark.parametrize("part", [lambda H: H, lambda H: H.block("w")], ids=["H", "H.block"])
def test_nbytes_of_a_hessian_counts_what_products_made(part):
    text = "g (double[64,8] x, double[8,8] w) => (double[1,1] y)"
    body = "a = MatMul(x, w) b = Tanh(a) c = MatMul(b, w) d = Tanh(c) y = ReduceSum(d)"
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text} {{ {body} }}')
    point = {"x": RNG.standard_normal((64, 8)), "w": RNG.standard_normal((8, 8))}
    H = part(oj.hessian(oj.load(proto), point, of="y", wrt=["x", "w"]))
    J = getattr(H, "J", None) or H.operator
    before = H.nbytes
    for _ in range(100):
        H @ np.ones(H.shape[1])
    made = {buffer_of(a): a.nbytes for a in (*J.arrays(), *J.structure.arrays())}
    assert before < H.nbytes
    assert sum(made.values()) <= 1.1 * H.nbytes


def test_the_tensors_of_a_first_point_are_in_no_pool():
    """They live as long as J holds one of them in place; later points reuse a pool."""
    pytest.importorskip("onnxruntime")
    model = oj.load(ROOT / "notebooks/models/digits.onnx")
    oj.linearize(model, {"image": np.ones((1, 1, 8, 8), np.float32)})
    assert [pooled for *_, pooled in model.sessions] == [False]
    model.run({"image": np.ones((1, 1, 8, 8), np.float32)})
    assert [pooled for *_, pooled in model.sessions] == [False, True]


# -- a transposed matrix is never copied -----------------------------------------------------------

PRODUCTS = {  # the shapes of x and of w for k columns and n rows, and the product
    "as stored": ("2,{k}", "{k},{n}", "a = MatMul(x, w)"),
    "turned": ("2,{k}", "{n},{k}", "t = Transpose(w) a = MatMul(x, t)"),
    "turned on the left": ("{k},2", "{k},{n}", "t = Transpose(w) a = MatMul(t, x)"),
    "on the left": ("{k},2", "{n},{k}", "a = MatMul(w, x)"),
    "Gemm": ("2,{k}", "{n},{k}", "a = Gemm<transB = 1>(x, w)"),
    "Gemm on the left": ("{k},2", "{k},{n}", "a = Gemm<transA = 1>(w, x)"),
    "samples": ("3,2,{k}", "{n},{k}", "t = Transpose<perm = [1, 0]>(w) a = MatMul(x, t)"),
    "stack": ("2,2,{k}", "2,{n},{k}", "t = Transpose<perm = [0, 2, 1]>(w) a = MatMul(x, t)"),
    "Einsum": ("2,{k}", "{n},{k}", 'a = Einsum<equation = "bk,nk->bn">(x, w)'),
}


def use(form, engine, k, n):
    """The most bytes that one use of a product allocates, by its name, and the bytes of w."""
    x, w, text = (part.format(k=k, n=n) for part in PRODUCTS[form])
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21]> g (float[{x}] x) => (float l) '
        f"{{ {text} y = Tanh(a) s = Mul(y, y) l = ReduceSum<keepdims = 0>(s) }}")
    weight = np.full(tuple(map(int, w.split(","))), 1e-3, np.float32)
    weight[..., 0, 1] = 1
    proto.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    model, point = oj.load(proto), {"x": np.ones(tuple(map(int, x.split(","))), np.float32)}
    peaks, whole = {}, {"engine": engine, "wrt": "x"}

    def made(name, function):
        tracemalloc.start()
        found = function()
        peaks[name] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    J = made("linearize", lambda: oj.linearize(model, point, of="y", **whole))
    H = made("hessian", lambda: oj.hessian(model, point, of="l", **whole))
    for name, A in {"J": J, "Jᵀ": J.T, "H": H}.items():
        v = np.ones(A.shape[1], np.float32)
        y = made(f"{name} v", lambda A=A, v=v: A @ v)
        C = made(f"{name}, compiled", lambda A=A: A.compile(engine))
        assert_allclose(made(f"{name} v, compiled", lambda C=C, v=v: C @ v), y, rtol=1e-4)
    made("relinearize", lambda: J.relinearize(point) @ np.ones(J.shape[1], np.float32))
    for kind, of in {"jvp": "y", "vjp": "y", "hvp": "l"}.items():
        graph = oj.export(model, kind, point, of=of, wrt="x").graph
        peaks[kind] = sum(tensor.ByteSize() for tensor in graph.initializer) - weight.nbytes
    return peaks, weight.nbytes


@pytest.mark.sampled(0.5)
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("form", PRODUCTS)
def test_a_transposed_matrix_is_never_copied(form, engine):
    """No use of a product, both ways and to second order, allocates the bytes of a large weight
    again, and an export holds it once.
    """
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    use(form, engine, 8, 4)  # what is imported or cached is not counted
    peaks, large = use(form, engine, 1024, 1032)  # more than `STREAMED_BYTES`
    assert not {name: peak / large for name, peak in peaks.items() if peak > large / 2}
