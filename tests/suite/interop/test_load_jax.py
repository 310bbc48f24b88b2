"""Functions of JAX are loaded by jax2onnx, where it is installed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3)).astype(np.float32)
PARAMS = {"fc": {"w": RNG.standard_normal((3, 4)).astype(np.float32), "b": np.ones(4, np.float32)}}


def network(params, x):
    return jax.numpy.tanh(x @ params["fc"]["w"] + params["fc"]["b"])


@pytest.mark.parametrize("batch", [False, "x"])
def test_a_nest_of_parameters_is_named_by_its_paths(batch):
    model = oj.load(network, example_inputs=(PARAMS, X), dynamic_batch=batch)
    assert set(model.inputs) == {"params.fc.w", "params.fc.b", "x"}
    assert model.inputs["x"].shape == ("batch" if batch else 2, 3)
    x = np.concatenate([X, X]) if batch else X
    point = {"x": x, "params.fc.w": PARAMS["fc"]["w"], "params.fc.b": PARAMS["fc"]["b"]}
    J = oj.linearize(model, point, wrt=["params.fc.w", "x"])
    slopes = jax.jacobian(network, argnums=(0, 1))(PARAMS, x)
    expected = [slopes[0]["fc"]["w"], slopes[1]]
    m = J.shape[0]
    dense = np.concatenate([np.reshape(s, (m, -1)) for s in expected], axis=1)
    assert_allclose(J.toarray(), dense, rtol=1e-5, atol=1e-6)


def test_double_precision_and_constants():
    W = RNG.standard_normal((3, 4))
    with jax.enable_x64(True):
        model = oj.load(lambda x: jax.numpy.sin(x @ W), example_inputs=X.astype(float))
        assert model.inputs["x"].dtype == np.float64
        J = oj.linearize(model, {"x": X.astype(float)})
        expected = np.cos(X.astype(float) @ W)[..., None] * W.T
    assert_allclose(J.toarray().reshape(2, 4, 2, 3)[1, :, 1], expected[1], rtol=1e-12)


def test_load_rejects_callbacks_of_python():
    def strange(x):
        return jax.pure_callback(np.sin, x, x)

    with pytest.raises(oj.LoadError, match="jax2onnx cannot convert strange"):
        oj.load(strange, example_inputs=X)
