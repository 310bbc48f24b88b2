"""The straight-through estimator is strictly opt-in."""

import numpy as np
import onnx
import pytest

import onnxjac as oj

ROUNDING = """
<ir_version: 10, opset_import: ["" : 21]>
rounding (float[4] x) => (float[4] y, float[4] s)
{ r = Round(x)  y = Mul(r, r)  s = Sign(x) }
"""
QUANTISED = """
<ir_version: 10, opset_import: ["" : 21]>
quantised (float[2, 3] x) => (float[2, 3] y)
<float[3] scale = {0.5, 0.25, 0.1}, int8[3] zero = {0, 1, 2}>
{ q = QuantizeLinear<axis = 1>(x, scale, zero)
  d = DequantizeLinear<axis = 1>(q, scale, zero)
  y = Tanh(d) }
"""
X = np.array([[0.3, -0.2, 0.04], [70.0, -40.0, 13.0]], np.float32)


def linearized(text, x, **options):
    return oj.linearize(oj.load(onnx.parser.parse_model(text)), {"x": x}, **options)


def test_without_it_the_derivative_is_the_true_one():
    with pytest.warns(oj.OnnxJacWarning, match="piecewise constant"):
        assert not linearized(ROUNDING, np.float32([0.2, 1.7, -2.4, 3.0])).toarray().any()


def test_rounding_is_passed():
    x = np.float32([0.2, 1.7, -2.4, 3.0])
    J = linearized(ROUNDING, x, straight_through=True)
    np.testing.assert_allclose(J["y", "x"].toarray(), np.diag(2 * np.round(x)))
    np.testing.assert_allclose(J["s", "x"].toarray(), np.diag(np.abs(x) <= 1))


def test_quantisation_is_passed_inside_its_range():
    J = linearized(QUANTISED, X, of="d", straight_through=True)
    inside = np.array([[1, 1, 1], [0, 0, 0]])
    np.testing.assert_allclose(J.diagonal(), inside.ravel())


def test_the_scale_has_the_derivative_of_lsq():
    J = linearized(QUANTISED, X, of="d", wrt="scale", straight_through=True)
    scale = np.float32([0.5, 0.25, 0.1])
    d = J.primal["d"]
    inside = np.abs(d - X) <= 0.51 * scale
    wanted = (d - inside * X) / scale
    np.testing.assert_allclose(J.toarray().reshape(2, 3, 3).sum(-1), wanted, rtol=1e-5)


@pytest.mark.peers
def test_it_agrees_with_torch():
    torch = pytest.importorskip("torch")
    x = torch.tensor(X[:, 1], requires_grad=True)
    torch.fake_quantize_per_tensor_affine(x, 0.25, 1, -128, 127).sum().backward()
    J = linearized(QUANTISED, X, of="d", straight_through=True)
    np.testing.assert_allclose(J.diagonal().reshape(2, 3)[:, 1], x.grad.numpy())
