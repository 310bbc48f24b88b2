"""Operators and models inside jit, vmap, jvp and grad of JAX, to the second order."""

from functools import partial

import numpy as np
import onnx.parser
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from interop.operators import KINDS, MODEL, POINT, WEIGHTS, WRT, hessian, linearization

jax = pytest.importorskip("jax")
from interop.jaxprs import primitives  # noqa: E402

pytestmark = pytest.mark.peers

TIGHT = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module")
def loss():
    return MODEL.to_jax(of="loss", wrt=WRT, inputs={"x": POINT["x"], "y": POINT["y"]})


def weights():
    return tuple(map(jax.numpy.asarray, WEIGHTS.values()))


def check_grads(f, args, order):
    from jax.test_util import check_grads

    check_grads(f, args, order=order, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["linearization", "transpose", "hessian", "kfac", "streamed"])
def test_operators_transform_by_jit_vmap_and_vjp_of_jax(kind):
    J = KINDS[kind]()
    f = J.to_jax()
    v = np.random.default_rng(0).standard_normal((2, 3, J.shape[1]))
    expected = (J @ v.reshape(6, -1).T).T.reshape(2, 3, -1)
    assert_allclose(f(v), expected, **TIGHT)
    assert_allclose(jax.jit(f)(v), expected, **TIGHT)
    assert_allclose(jax.vmap(f, in_axes=1, out_axes=1)(v), expected, **TIGHT)
    u = jax.numpy.ones(J.shape[0])
    assert_allclose(jax.vjp(f, v[0, 0])[1](u)[0], J.T @ np.asarray(u), **TIGHT)
    check_grads(f, (v[0, 0],), 1)


def test_jacobians_of_operators_by_jax_are_their_matrices():
    J, v = linearization(), np.ones(59)
    f = J.to_jax()
    assert_allclose(jax.jacfwd(f)(v), J.toarray(), **TIGHT)
    assert_allclose(jax.jit(jax.jacrev(f))(v), J.toarray(), **TIGHT)
    (u,) = jax.linear_transpose(f, v)(jax.numpy.ones(18))
    assert_allclose(u, J.T @ np.ones(18), **TIGHT)


def test_an_operator_is_traced_once_for_many_vectors(inside):
    J, calls = linearization(), []
    noted = lambda product, *given: calls.append(given[-1]) or product(*given)  # noqa: E731
    inside.change_products(type(J), noted)
    jax.jit(jax.vmap(J.to_jax()))(np.ones((7, 59))).block_until_ready()
    assert calls == [()]


def test_losses_pass_check_grads_to_the_second_order(loss):
    check_grads(loss, weights(), 2)


def plain(W1, W2):
    logits = jax.numpy.tanh(POINT["x"] @ W1.T) @ W2.T
    return -jax.nn.log_softmax(logits)[np.arange(6), POINT["y"]].mean()


def test_value_and_gradient_equal_jax(loss):
    values = [jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(*weights()) for f in (loss, plain)]
    jax.tree.map(partial(assert_allclose, **TIGHT), *values)


@pytest.mark.parametrize("mode", ["jacrev", "jacfwd"])
def test_hessians_by_one_mode_twice(loss, mode):
    mode = getattr(jax, mode)
    W1, W2 = weights()
    H = mode(mode(lambda W: loss(W1, W)))(W2)
    assert_allclose(H.reshape(15, 15), hessian()["fc2", "fc2"].toarray(), **TIGHT)


def test_other_inputs_by_name_and_samples():
    f = MODEL.to_jax(of=["logits", "loss"], wrt="x", inputs=WEIGHTS)
    x, y = POINT["x"], POINT["y"]
    logits, value = jax.jit(f)(x, y=y)
    assert_allclose(value, plain(*weights()), **TIGHT)
    one = lambda x, y: f(x[None], y=y[None])[0][0]  # noqa: E731
    assert_allclose(jax.jit(jax.vmap(one))(x, y), logits, **TIGHT)
    rows = jax.vmap(jax.jacrev(one), (0, 0))(x, y)
    whole = oj.linearize(MODEL, POINT, of="logits", wrt="x").toarray().reshape(6, 3, 6, 4)
    assert_allclose(rows, whole[range(6), :, range(6)], **TIGHT)


def test_single_precision_where_jax_is_told_nothing(loss):
    with jax.enable_x64(False):
        value, slopes = jax.value_and_grad(loss)(*(np.float32(W) for W in WEIGHTS.values()))
        assert value.dtype == slopes.dtype == np.float32


def test_arrays_of_jax_are_inputs_unless_they_are_traced():
    point = {name: jax.numpy.asarray(a) for name, a in POINT.items()}
    J = oj.linearize(MODEL, point, of="logits", wrt=["x", *WRT])
    assert_allclose(J.toarray(), linearization().toarray(), **TIGHT)
    assert_allclose(J @ jax.numpy.ones(59), J @ np.ones(59), **TIGHT)
    assert_allclose(jax.jit(lambda v: J @ v)(np.ones(59)), J @ np.ones(59), **TIGHT)
    with pytest.raises(oj.InputError, match=r"traced by JAX; to_jax\(\)"):
        jax.jit(lambda x: oj.linearize(MODEL, {**POINT, "x": x}).primal["loss"])(POINT["x"])


def test_nothing_calls_back_to_the_host(loss):
    """Nor do the derivatives, or products of an operator."""
    J = linearization()
    for f, args in (
        (loss, weights()), (jax.grad(loss, (0, 1)), weights()),
        (jax.hessian(loss), weights()), (J.to_jax(), (np.ones(59),)),
    ):  # fmt: skip
        found = {*primitives(jax.make_jaxpr(f)(*args).jaxpr)}
        assert "dot_general" in found
        assert not any("callback" in name for name in found)


def test_another_engine_is_refused():
    with pytest.raises(oj.InputError, match="computed by JAX, not by engine='numpy'"):
        MODEL.to_jax(engine="numpy")


KINKS = """<ir_version: 10, opset_import: ["": 21]>
g (double[3] x) => (double[3] y, double[3] z) {
  a = Relu(x)  b = Abs(x)  y = Add(a, b)  s = Mul(x, x)  z = Sqrt(s) }"""


def test_conventions_at_kinks_agree_with_the_rules():
    """Relu and |x| have the derivative 0 at 0, to the second order too."""
    model, x = oj.load(onnx.parser.parse_model(KINKS)), np.array([-1.0, 0.0, 2.0])
    J = oj.linearize(model, {"x": x}, of="y").toarray()
    f = model.to_jax(of="y")
    for found in (jax.jacfwd(f)(x), jax.jit(jax.jacrev(f))(x)):
        assert_allclose(found, J, **TIGHT)
    assert_allclose(jax.jacfwd(jax.jacrev(f))(x), np.zeros((3, 3, 3)), **TIGHT)


BRANCH = """<ir_version: 10, opset_import: ["": 21]>
g (double[3] x, double[3] w) => (double[3] y) {
 s = ReduceSum<keepdims=0>(x)  z = Constant<value = double {0.0}>()  c = Greater(s, z)
 y = If(c)<then_branch = a () => (double[3] p) { e = Exp(x) p = Mul(e, w) },
           else_branch = b () => (double[3] q) { q = Sin(x) }> }"""

TURNS = """<ir_version: 10, opset_import: ["": 21]>
g (double[3] x, double[3] w) => (double[3] y) {
 n = Constant<value = int64 {100}>()  t = Constant<value = bool {1}>()
 y = Loop(n, t, x)<body = b (int64 i, bool go, double[3] s) => (bool on, double[3] z) {
   on = Identity(go)  a = Sin(s)  z = Mul(a, w) }> }"""


@pytest.mark.parametrize("text", [BRANCH, TURNS], ids=["If", "Loop"])
def test_branches_and_loops_keep_their_derivatives_under_jit(text):
    """One function serves both branches; a loop stays a loop, and so do its derivatives."""
    model, w = oj.load(onnx.parser.parse_model(text)), np.array([0.9, -1.1, 1.2])
    f = model.to_jax(wrt=["x", "w"])
    forward = jax.jit(jax.jacfwd(f, (0, 1)))
    backward = jax.jit(jax.jacrev(f, (0, 1)))
    second = jax.jit(jax.jacfwd(jax.jacrev(lambda x, w: f(x, w).sum(), 1), 0))
    for x in (np.array([0.3, -1.2, 2.0]), np.array([-2.0, 0.1, 0.2])):
        J = oj.linearize(model, {"x": x, "w": w}, of="y", wrt=["x", "w"]).toarray()
        for found in (forward(x, w), backward(x, w)):
            assert_allclose(np.concatenate(found, 1), J, **TIGHT)
        ones = np.ones(3)
        H = oj.hessian(model, {"x": x, "w": w}, of="y", wrt=["x", "w"], weights=ones).toarray()
        assert_allclose(second(x, w), H[3:, :3], **TIGHT)
    inner = [*primitives(jax.make_jaxpr(f)(x, w).jaxpr)]
    assert ("cond" if text is BRANCH else "scan") in inner
    assert len(inner) < 60


def test_a_branch_that_decided_J_is_not_taken_while_a_function_is_traced():
    model, w = oj.load(onnx.parser.parse_model(BRANCH)), np.array([0.9, -1.1, 1.2])
    x = np.array([0.3, -1.2, 2.0])
    J = oj.linearize(model, {"x": x, "w": w}, of="y", wrt="w", engine="jax")
    with pytest.raises(oj.OnnxJacError, match=r"only if .* If \(node .*oj.to_jax\(model\)"):
        jax.jit(lambda x: J.relinearize({"x": x, "w": w}) @ w)(x)
