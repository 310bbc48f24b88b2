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


QUANTISED_NETWORK = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
network (float[1, 1, 5, 5] x) => (float[1, 3] y)
<float s = {0.02}, uint8 z = {100}, float[2] sw = {0.01, 0.02}, int8[2] zw = {0, 0},
 int32[2] b = {300, -200}, float sc = {0.03}, uint8 zc = {90}, uint8[1, 2, 1, 1] q = {120, 60},
 float ss = {0.05}, uint8 zs = {110}, float sv = {0.02}, uint8 zv = {128}, float sy = {0.1},
 uint8 zy = {127}, int64[2] flat = {1, 18}>
{ qx = QuantizeLinear(x, s, z)
  c = QLinearConv(qx, s, z, w, sw, zw, sc, zc, b)
  m = MaxPool<kernel_shape = [2, 2]>(c)
  a = com.microsoft.QLinearAdd(m, sc, zc, q, sc, zc, ss, zs)
  r = Reshape(a, flat)
  p = QLinearMatMul(r, ss, zs, v, sv, zv, sy, zy)
  y = DequantizeLinear(p, sy, zy) }
"""


@pytest.mark.peers
def test_a_quantised_network_agrees_with_torch():
    """Convolution, pooling, addition and product of integers: QLinear operators pass tangents."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    w = rng.integers(-90, 90, (2, 1, 2, 2), np.int8)
    v = rng.integers(60, 200, (18, 3), np.uint8)
    proto = onnx.parser.parse_model(QUANTISED_NETWORK)
    proto.graph.initializer.extend(map(onnx.numpy_helper.from_array, (w, v), "wv"))
    x = rng.standard_normal((1, 1, 5, 5)).astype(np.float32) * 2
    model = oj.load(proto)

    def rounded(x, scale, zero):
        steps = x / scale
        steps = steps + (torch.round(steps) - steps).detach() + zero
        return (torch.clamp(steps, 0, 255) - zero) * scale

    def network(x):
        real_w = torch.tensor(w).float() * torch.tensor([0.01, 0.02]).reshape(2, 1, 1, 1)
        bias = torch.tensor([300.0, -200.0]) * 0.02 * torch.tensor([0.01, 0.02])
        t = torch.nn.functional.conv2d(rounded(x, 0.02, 100), real_w, bias)
        t = torch.nn.functional.max_pool2d(rounded(t, 0.03, 90), 2, 1)
        t = rounded(t + (torch.tensor([120.0, 60.0]).reshape(1, 2, 1, 1) - 90) * 0.03, 0.05, 110)
        return rounded(t.reshape(1, -1) @ ((torch.tensor(v).float() - 128) * 0.02), 0.1, 127)

    J = oj.linearize(model, {"x": x}, straight_through=True)
    y = network(torch.tensor(x))
    np.testing.assert_allclose(J.primal["y"], model.run({"x": x})["y"])
    np.testing.assert_allclose(J.primal["y"], y, atol=1e-5)
    wanted = torch.autograd.functional.jacobian(network, torch.tensor(x)).reshape(3, 25)
    assert wanted.any()
    np.testing.assert_allclose(J.toarray(), wanted, atol=1e-5)
    np.testing.assert_allclose(J.relinearize({"x": x}).toarray(), wanted, atol=1e-5)
