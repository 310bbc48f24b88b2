"""What is XLA's alone: transformations of JAX, and what is compiled, and how often."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from interop.operators import MODEL, POINT, WRT
from onnxjac.modes.model.programs.jax import CompiledModel

jax = pytest.importorskip("jax")
from interop.jaxprs import primitives  # noqa: E402

from .examples import CONTROL_FLOW, SHIFTED, TIGHT, draw, loaded  # noqa: E402

pytestmark = pytest.mark.peers

@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def of_logits(engine=None):
    return oj.linearize(MODEL, POINT, of="logits", wrt=WRT, engine=engine)


def test_products_are_compiled_once_for_all_points(monkeypatch):
    """The second point is the first one that computes values and residuals in one run."""
    J, v, traced = of_logits("jax"), draw(35), []
    run = CompiledModel.run
    monkeypatch.setattr(
        CompiledModel, "run", lambda self, *args: traced.append(1) or run(self, *args)
    )
    J @ v
    J = J.relinearize(SHIFTED)
    J @ v
    count = len(traced)
    for scale in (1.0, 1.1, 1.2):
        J = J.relinearize({**POINT, "x": scale * POINT["x"]})
        J @ (scale * v)
        J @ jax.numpy.asarray(v)
    assert len(traced) == count <= 2
    assert "by XLA" in str(J.explain())


@pytest.mark.parametrize("engine", [None, "jax"])
def test_products_may_be_taken_inside_transformations(engine):
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

    for point in (POINT, SHIFTED):
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


@pytest.mark.parametrize("kind", ["loop", "scan"])
def test_loops_are_compiled_as_loops(kind):
    point = {"x": np.array([0.3, -1.2, 2.0]), "w": draw(40, 3) if kind == "scan" else draw(3)}
    J = oj.linearize(loaded(CONTROL_FLOW[kind]), point, wrt=["x", "w"], engine="jax")
    v = draw(J.shape[1])
    found = [*primitives(jax.make_jaxpr(lambda v: J @ v)(v).jaxpr)]
    assert "scan" in found
    assert len(found) < 200
    assert_allclose(jax.jit(lambda v: J @ v)(v), J @ v, **TIGHT)


def test_a_compiled_product_computes_nothing_of_its_constants():
    """The slopes of all turns of a loop are known when it is compiled."""
    model = loaded(CONTROL_FLOW["loop"])
    point = {"x": np.array([0.3, -1.2, 2.0]), "w": draw(3)}
    J = oj.linearize(model, point, wrt=["x", "w"], engine="jax")
    for K, A in ((J.compile("jax"), J), (J.T.compile("jax"), J.T)):
        v = draw(K.shape[1])
        assert_allclose(K @ v, A @ v, **TIGHT)
        found = {*primitives(jax.make_jaxpr(lambda v, K=K: K @ v)(jax.numpy.asarray(v)).jaxpr)}
        assert {"sin", "cos", "exp"}.isdisjoint(found), found


def test_a_loop_that_takes_the_next_tensor_of_a_sequence():
    """Its number has to be known: its few turns are traced one by one."""
    text = """g (double[3] x) => (double[3] y) <int64 n = {2}, bool t = {1}, int64 k = {2}> {
      s = SequenceConstruct(x)
      r = Loop(n, t, s) <body = b (int64 i, bool go, seq(double[3]) a)
        => (bool on, seq(double[3]) c) {
          z = SequenceAt(a, i) w = Sin(z) c = SequenceInsert(a, w) on = Identity(go) }>
      y = SequenceAt(r, k) }"""
    model, x = loaded(text), np.array([0.3, -1.2, 2.0])
    assert_allclose(model.run({"x": x}, engine="jax")["y"], np.sin(np.sin(x)), **TIGHT)


CURVATURE = {
    "hessian": lambda **how: oj.hessian(MODEL, POINT, of="loss", wrt=WRT, **how),
    "gauss_newton": lambda **how: oj.gauss_newton(
        MODEL, POINT, of="loss", at="logits", wrt=WRT, **how),
}  # fmt: skip


def test_a_gradient_and_a_hessian_move_inside_jit():
    """Once they were taken at a point of the same names and shapes."""
    f, H = (take(engine="jax") for take in (
        lambda **how: oj.value_and_grad(MODEL, of="loss", wrt=WRT, **how), CURVATURE["hessian"]))
    fresh = oj.value_and_grad(MODEL, of="loss", wrt=WRT[:1], engine="jax")
    (expected, slopes), K, v = f(SHIFTED), H.relinearize(SHIFTED), draw(H.shape[1])

    def step(x, v):
        at = {**SHIFTED, "x": x}
        return *f(at), H.relinearize(at) @ v

    value, found, w = jax.jit(step)(SHIFTED["x"], v)
    assert_allclose(value, expected, **TIGHT)
    assert_allclose(w, K @ v, **TIGHT)
    for name in WRT:
        assert_allclose(found[name], slopes[name], **TIGHT)
    with pytest.raises(oj.InputError, match="take it, or H, once outside of jit"):
        jax.jit(lambda x: fresh({**POINT, "x": x}))(POINT["x"])


def test_operators_without_xla_are_named():
    model = loaded("""g (double[4] x) => (double[n] y) {
        i = NonZero(x)  j = Squeeze(i)  y = Gather(x, j) }""")
    with pytest.raises(oj.UnsupportedOp, match=r"NonZero .*while JAX traces"):
        model.run({"x": np.ones(4)}, engine="jax")


def test_whole_numbers_that_decide_a_size():
    """They are known to the compiler, and other numbers are compiled anew."""
    model = loaded("""g (double[4] x, int64[2] shape) => (double[n,m] y) {
        z = Exp(x)  y = Reshape(z, shape) }""")
    for shape in ((2, 2), (4, 1)):
        point = {"x": np.ones(4), "shape": np.array(shape)}
        assert model.run(point, engine="jax")["y"].shape == shape


@pytest.mark.filterwarnings("error::UserWarning")
def test_jax_has_no_reason_to_warn_of_64_bits():
    """Where a program has not told it to use them."""
    with jax.enable_x64(False):
        J = of_logits("jax")
        for K in (J, J.relinearize(SHIFTED)):
            assert_allclose(K.T @ (K @ draw(35)), K.T @ (K @ draw(35)), rtol=0)
        f = oj.value_and_grad(MODEL, of="loss", wrt=WRT, engine="jax")
        assert f(POINT)[0].dtype == np.float64
        CURVATURE["hessian"](engine="jax") @ draw(35)
