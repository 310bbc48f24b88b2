"""Products, gradients and curvature by XLA, of arrays of JAX and inside its transformations."""

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from interop.operators import MODEL, POINT, WRT
from onnxjac.modes.model.programs.jax import CompiledModel

jax = pytest.importorskip("jax")
from interop.jaxprs import primitives  # noqa: E402

pytestmark = pytest.mark.peers

TIGHT = {"rtol": 1e-10, "atol": 1e-12}

MOVED = {name: 1.1 * x if x.dtype.kind == "f" else x for name, x in POINT.items()}

LOOP = """<ir_version: 10, opset_import: ["": 21]>
g (double[3] x, double[3] w) => (double[3] y, double[n,3] rows) {
 n = Constant<value = int64 {200}>()  t = Constant<value = bool {1}>()
 y, rows = Loop(n, t, x)<body = b (int64 i, bool go, double[3] s)
   => (bool on, double[3] z, double[3] row) {
   on = Identity(go)  a = Sin(s)  z = Mul(a, w)  row = Exp(z) }> }"""

SCAN = """<ir_version: 10, opset_import: ["": 21]>
g (double[3] x, double[40,3] w) => (double[3] y, double[40,3] rows) {
 y, rows = Scan(x, w)<num_scan_inputs=1, scan_input_directions=[1],
   body = b (double[3] s, double[3] v) => (double[3] z, double[3] row) {
     a = Sin(s)  z = Mul(a, v)  row = Exp(z) }> }"""

IF = """<ir_version: 10, opset_import: ["": 21]>
g (double[3] x, double[3] w) => (double[3] y) {
 s = ReduceSum<keepdims=0>(x)  z = Constant<value = double {0.0}>()  c = Greater(s, z)
 y = If(c)<then_branch = a () => (double[3] p) { e = Exp(x) p = Mul(e, w) },
           else_branch = b () => (double[3] q) { q = Sin(x) }> }"""


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def draw(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n)


def of_logits(engine=None):
    return oj.linearize(MODEL, POINT, of="logits", wrt=WRT, engine=engine)


@pytest.mark.parametrize("of", ["here", "moved"])
@pytest.mark.parametrize("make", ["linearize", "compile"])
def test_products(make, of):
    """Of vectors and of matrices, of NumPy and of JAX, at a point and at the next one."""
    A = of_logits()
    B = of_logits("jax") if make == "linearize" else A.compile(engine="jax")
    if of == "moved":
        A, B = A.relinearize(MOVED), B.relinearize(MOVED)
    for J, K in ((A, B), (A.T, B.T)):
        v, V = draw(J.shape[1]), draw((J.shape[1], 3))
        assert isinstance(K @ v, np.ndarray)
        assert isinstance(K @ jax.numpy.asarray(v), jax.Array)
        for x in (v, V):
            assert_allclose(K @ x, J @ x, **TIGHT)
            assert_allclose(K @ jax.numpy.asarray(x), J @ x, **TIGHT)
    assert_allclose(B.primal["logits"], A.primal["logits"], **TIGHT)


def test_a_product_is_the_callers():
    J = of_logits("jax")
    v = draw(J.shape[1])
    y = J @ v
    expected = y.copy()
    y[:] = 0
    assert_allclose(J @ v, expected, rtol=0)


def test_products_are_compiled_once_for_all_points(monkeypatch):
    """The second point is the first one that computes values and residuals in one run."""
    J, v, traced = of_logits("jax"), draw(35), []
    run = CompiledModel.run
    monkeypatch.setattr(
        CompiledModel, "run", lambda self, *args: traced.append(1) or run(self, *args)
    )
    J @ v
    J = J.relinearize(MOVED)
    J @ v
    count = len(traced)
    for scale in (1.0, 1.1, 1.2):
        J = J.relinearize({**POINT, "x": scale * POINT["x"]})
        J @ (scale * v)
        J @ jax.numpy.asarray(v)
    assert len(traced) == count <= 2
    assert "by XLA" in str(J.explain())


@pytest.mark.parametrize("engine", [None, "jax"])
def test_products_inside_transformations(engine):
    """jit, vmap, grad and a loop, without a callback to the host."""
    J, A = of_logits(engine), of_logits()
    v, u = draw(J.shape[1]), draw(J.shape[0])
    assert_allclose(jax.jit(lambda v: J @ v)(v), A @ v, **TIGHT)
    assert_allclose(jax.jit(lambda u: J.T @ u)(u), A.T @ u, **TIGHT)
    assert_allclose(jax.vmap(lambda v: J @ v)(np.stack([v, 2 * v])), [A @ v, 2 * (A @ v)], **TIGHT)
    slope = jax.grad(lambda v: ((J @ v) ** 2).sum())(jax.numpy.asarray(v))
    assert_allclose(slope, 2 * (A.T @ (A @ v)), **TIGHT)
    turn = jax.jit(lambda v: jax.lax.fori_loop(0, 3, lambda _, v: J.T @ (J @ v), v))
    expected = v
    for _ in range(3):
        expected = A.T @ (A @ expected)
    assert_allclose(turn(v), expected, **TIGHT)
    assert_allclose(J @ v, A @ v, **TIGHT)  # nothing traced was kept
    found = {*primitives(jax.make_jaxpr(lambda v: J.T @ (J @ v))(v).jaxpr)}
    assert found
    assert not any("callback" in name for name in found)


def test_an_operator_is_an_argument():
    """Its leaves are its residuals: at another point, nothing is compiled again."""
    J, A, traced, v = of_logits("jax"), of_logits(), [], draw(35)

    @jax.jit
    def gram(J, v):
        traced.append(1)
        return J.T @ (J @ v), J.primal["logits"]

    for point in (POINT, MOVED):
        K = A.relinearize(point)
        w, y = gram(J.relinearize(point), v)
        assert_allclose(w, K.T @ (K @ v), **TIGHT)
        assert_allclose(y, K.primal["logits"], **TIGHT)
    assert len(traced) == 1
    turned = jax.jit(lambda J: J.T)(J)
    assert_allclose(turned @ draw(18), A.T @ draw(18), **TIGHT)
    assert_allclose(jax.jit(lambda J, v: J @ v)(A, v), A @ v, **TIGHT)  # which has no leaves


def test_a_further_point_inside_a_transformation():
    """Its values are a part of the function, and none of them is kept outside of it."""
    J, A, v = of_logits("jax"), of_logits(), draw(35)

    @jax.jit
    def walk(x, v):
        K = J.relinearize({**POINT, "x": x})
        w = jax.lax.fori_loop(0, 3, lambda _, v: K.T @ (K @ v), v)
        return w, K @ v, K

    for scale in (1.0, 1.1):
        x = scale * POINT["x"]
        w, y, K = walk(x, v)
        expected, B = v, A.relinearize({**POINT, "x": x})
        for _ in range(3):
            expected = B.T @ (B @ expected)
        assert_allclose(w, expected, **TIGHT)
        assert_allclose(y, B @ v, **TIGHT)
        assert_allclose(K @ v, B @ v, **TIGHT)
    assert_allclose(J @ v, A @ v, **TIGHT)


def test_single_precision_where_jax_is_told_nothing():
    """Of products with arrays of JAX; those with NumPy's arrays are as precise as ever."""
    J, A = of_logits("jax"), of_logits()
    v = draw(J.shape[1])
    with jax.enable_x64(False):
        for _ in range(2):
            assert_allclose(J @ v, A @ v, **TIGHT)
        y = J @ jax.numpy.asarray(v)
        assert y.dtype == np.float32
        assert_allclose(y, A @ v, rtol=1e-4)
        y = jax.jit(lambda v: J @ v)(np.float32(v))
        assert y.dtype == np.float32
        slope = jax.grad(lambda v: ((J @ v) ** 2).sum())(np.float32(v))
        assert slope.dtype == np.float32
    assert_allclose(y, J @ v, rtol=1e-4)
    assert_allclose(slope, 2 * (J.T @ (J @ v)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("text", [LOOP, SCAN, IF], ids=["Loop", "Scan", "If"])
def test_control_flow(text):
    """Loops are compiled as loops, and their derivatives too."""
    model = oj.load(onnx.parser.parse_model(text))
    point = {"x": np.array([0.3, -1.2, 2.0]), "w": draw((40, 3)) if text is SCAN else draw(3)}
    other = {"x": np.array([-2.0, 0.1, 0.2]), "w": -point["w"]}
    for at in (point, other):
        for name, y in model.run(at, engine="jax").items():
            assert_allclose(y, model.run(at, engine="numpy")[name], **TIGHT)
    wrt = ["x", "w"]
    A, B = (oj.linearize(model, point, wrt=wrt, engine=engine) for engine in ("numpy", "jax"))
    for J, K in ((A, B), (A.relinearize(other), B.relinearize(other))):
        v, u = draw(J.shape[1]), draw(J.shape[0])
        assert_allclose(K @ v, J @ v, **TIGHT)
        assert_allclose(K.T @ u, J.T @ u, **TIGHT)
        assert_allclose(jax.jit(lambda v, K=K: K @ v)(v), J @ v, **TIGHT)
    if text is not IF:
        found = [*primitives(jax.make_jaxpr(lambda v: B @ v)(draw(B.shape[1])).jaxpr)]
        assert "scan" in found
        assert len(found) < 200


def test_a_compiled_product_computes_nothing_of_its_constants():
    """The slopes of all turns of a loop are known when it is compiled."""
    model = oj.load(onnx.parser.parse_model(LOOP))
    point = {"x": np.array([0.3, -1.2, 2.0]), "w": draw(3)}
    J = oj.linearize(model, point, wrt=["x", "w"], engine="jax")
    for K, A in ((J.compile("jax"), J), (J.T.compile("jax"), J.T)):
        v = draw(K.shape[1])
        assert_allclose(K @ v, A @ v, **TIGHT)
        found = {*primitives(jax.make_jaxpr(lambda v, K=K: K @ v)(jax.numpy.asarray(v)).jaxpr)}
        assert {"sin", "cos", "exp"}.isdisjoint(found), found


def test_a_loop_that_takes_the_next_tensor_of_a_sequence():
    """Its number has to be known: its few turns are traced one by one."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (double[3] x) => (double[3] y) <int64 n = {2}, bool t = {1}, int64 k = {2}> {
      s = SequenceConstruct(x)
      r = Loop(n, t, s) <body = b (int64 i, bool go, seq(double[3]) a)
        => (bool on, seq(double[3]) c) {
          z = SequenceAt(a, i) w = Sin(z) c = SequenceInsert(a, w) on = Identity(go) }>
      y = SequenceAt(r, k) }"""
    model, x = oj.load(onnx.parser.parse_model(text)), np.array([0.3, -1.2, 2.0])
    assert_allclose(model.run({"x": x}, engine="jax")["y"], np.sin(np.sin(x)), **TIGHT)


@pytest.mark.parametrize("arrays", [False, True])
def test_gradients(arrays):
    """At one point and at the next, of arrays of NumPy and of JAX."""
    f, g = (oj.value_and_grad(MODEL, of="loss", wrt=WRT, engine=e) for e in ("jax", None))
    for point in (POINT, MOVED):
        given = {n: jax.numpy.asarray(x) if arrays else x for n, x in point.items()}
        (value, slopes), (expected, wanted) = f(given), g(point)
        assert_allclose(value, expected, **TIGHT)
        for name in WRT:
            assert isinstance(slopes[name], jax.Array if arrays else np.ndarray)
            assert_allclose(slopes[name], wanted[name], **TIGHT)


CURVATURE = {
    "hessian": lambda **how: oj.hessian(MODEL, POINT, of="loss", wrt=WRT, **how),
    "gauss_newton": lambda **how: oj.gauss_newton(
        MODEL, POINT, of="loss", at="logits", wrt=WRT, **how),
}  # fmt: skip


@pytest.mark.parametrize("kind", CURVATURE)
def test_curvature(kind):
    """At one point and at the next, also inside jit."""
    A, B = CURVATURE[kind](engine=None), CURVATURE[kind](engine="jax")
    v = draw(A.shape[1])
    for P, Q in ((A, B), (A.relinearize(MOVED), B.relinearize(MOVED))):
        assert_allclose(Q @ v, P @ v, **TIGHT)
        assert_allclose(Q @ jax.numpy.asarray(v), P @ v, **TIGHT)
        assert_allclose(jax.jit(lambda v, Q=Q: Q @ v)(v), P @ v, **TIGHT)


def test_a_gradient_and_a_hessian_move_inside_jit():
    """Once they were taken at a point of the same names and shapes."""
    f, H = (take(engine="jax") for take in (
        lambda **how: oj.value_and_grad(MODEL, of="loss", wrt=WRT, **how), CURVATURE["hessian"]))
    fresh = oj.value_and_grad(MODEL, of="loss", wrt=WRT[:1], engine="jax")
    (expected, slopes), K, v = f(MOVED), H.relinearize(MOVED), draw(H.shape[1])

    def step(x, v):
        at = {**MOVED, "x": x}
        return *f(at), H.relinearize(at) @ v

    value, found, w = jax.jit(step)(MOVED["x"], v)
    assert_allclose(value, expected, **TIGHT)
    assert_allclose(w, K @ v, **TIGHT)
    for name in WRT:
        assert_allclose(found[name], slopes[name], **TIGHT)
    with pytest.raises(oj.InputError, match="take it, or H, once outside of jit"):
        jax.jit(lambda x: fresh({**POINT, "x": x}))(POINT["x"])


def test_operators_without_xla_are_named():
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (double[4] x) => (double[n] y) { i = NonZero(x)  j = Squeeze(i)  y = Gather(x, j) }"""
    model = oj.load(onnx.parser.parse_model(text))
    with pytest.raises(oj.UnsupportedOp, match=r"NonZero .*while JAX traces"):
        model.run({"x": np.ones(4)}, engine="jax")


def test_whole_numbers_that_decide_a_size():
    """They are known to the compiler, and other numbers are compiled anew."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (double[4] x, int64[2] shape) => (double[n,m] y) { z = Exp(x)  y = Reshape(z, shape) }"""
    model = oj.load(onnx.parser.parse_model(text))
    for shape in ((2, 2), (4, 1)):
        point = {"x": np.ones(4), "shape": np.array(shape)}
        assert model.run(point, engine="jax")["y"].shape == shape


@pytest.mark.filterwarnings("error::UserWarning")
def test_jax_has_no_reason_to_warn_of_64_bits():
    """Where a program has not told it to use them."""
    with jax.enable_x64(False):
        J = of_logits("jax")
        for K in (J, J.relinearize(MOVED)):
            assert_allclose(K.T @ (K @ draw(35)), K.T @ (K @ draw(35)), rtol=0)
        f = oj.value_and_grad(MODEL, of="loss", wrt=WRT, engine="jax")
        assert f(POINT)[0].dtype == np.float64
        CURVATURE["hessian"](engine="jax") @ draw(35)


def test_plans_of_many_products():
    """Which multiply blocks out, sample by sample, over arrays of JAX."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    g (double[8,1,12,12] x, double[4,1,5,5] k, double[64,9] w, double[9,3] u) => (double[8,3] y) {
      c = Conv(x, k) p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(c) r = Relu(p)
      f = Flatten(r) h = MatMul(f, w) t = Tanh(h) y = MatMul(t, u) }"""
    rng = np.random.default_rng(0)
    shapes = {"x": (8, 1, 12, 12), "k": (4, 1, 5, 5), "w": (64, 9), "u": (9, 3)}
    point = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    model = oj.load(onnx.parser.parse_model(text))
    A, J = (oj.linearize(model, point, wrt=["k", "w", "x"], engine=e) for e in ("numpy", "jax"))
    v, u = draw(A.shape[1]), draw(A.shape[0])
    for K in (J.plan(products=10**5), J.compile("jax", products=10**5)):
        assert_allclose(K @ v, A @ v, **TIGHT)
        assert_allclose(K.T @ u, A.T @ u, **TIGHT)
