"""Operators and models inside jit, vmap, jvp and grad of JAX, to the second order."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from interop.operators import KINDS, MODEL, POINT, WEIGHTS, WRT, hessian, linearization

jax = pytest.importorskip("jax")
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
def test_operators(kind):
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


def test_jacobians_of_operators():
    J, v = linearization(), np.ones(59)
    f = J.to_jax()
    assert_allclose(jax.jacfwd(f)(v), J.toarray(), **TIGHT)
    assert_allclose(jax.jit(jax.jacrev(f))(v), J.toarray(), **TIGHT)
    (u,) = jax.linear_transpose(f, v)(jax.numpy.ones(18))
    assert_allclose(u, J.T @ np.ones(18), **TIGHT)


def test_an_operator_is_traced_once_for_many_vectors(monkeypatch):
    J, calls = linearization(), []
    product = type(J)._flat_product
    monkeypatch.setattr(
        type(J), "_flat_product", lambda self, v, k: calls.append(k) or product(self, v, k)
    )
    jax.jit(jax.vmap(J.to_jax()))(np.ones((7, 59))).block_until_ready()
    assert calls == [()]


def test_first_and_second_order(loss):
    check_grads(loss, weights(), 2)


def plain(W1, W2):
    logits = jax.numpy.tanh(POINT["x"] @ W1.T) @ W2.T
    return -jax.nn.log_softmax(logits)[np.arange(6), POINT["y"]].mean()


def test_it_is_the_function_of_jax(loss):
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


def test_arrays_of_jax_as_inputs():
    point = {name: jax.numpy.asarray(a) for name, a in POINT.items()}
    J = oj.linearize(MODEL, point, of="logits", wrt=["x", *WRT])
    assert_allclose(J.toarray(), linearization().toarray(), **TIGHT)
    assert_allclose(J @ jax.numpy.ones(59), J @ np.ones(59), **TIGHT)
    assert_allclose(jax.jit(lambda v: J @ v)(np.ones(59)), J @ np.ones(59), **TIGHT)
    with pytest.raises(oj.InputError, match=r"traced by JAX; to_jax\(\)"):
        jax.jit(lambda x: oj.linearize(MODEL, {**POINT, "x": x}).primal["loss"])(POINT["x"])
