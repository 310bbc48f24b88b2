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
def test_straight_through_slopes_equal_torch():
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


# -- every way to a derivative, and the warnings where a rounding cuts some paths ------------------

LOSS = """
<ir_version: 10, opset_import: ["" : 21]>
loss (float[N, 3] x) => (float f)
<float[3, 2] w = {1, -2, 0.5, 1, -1, 0.3}, float s = {0.05}, int8 z = {3}>
{ q = QuantizeLinear(w, s, z)
  d = DequantizeLinear(q, s, z)
  h = MatMul(x, d)
  t = Tanh(h)
  u = Mul(t, t)
  f = ReduceSum<keepdims = 0>(u) }
"""
POINTS = np.array([[0.3, -0.2, 0.4], [0.7, -0.4, 0.1]], np.float32)


def of_weights(w):
    """f, ∇f and H in the weights as if they were not rounded, at the rounded weights."""
    h = POINTS.astype(float) @ w
    t = np.tanh(h)
    slope, bend = 2 * t * (1 - t**2), 2 * (1 - t**2) ** 2 - 4 * t**2 * (1 - t**2)
    H = np.einsum("ni,nj,nk,kl->ikjl", POINTS, POINTS, bend, np.eye(2))
    return (t**2).sum(), POINTS.T @ slope, H.reshape(6, 6)


@pytest.fixture(scope="module")
def model():
    return oj.load(onnx.parser.parse_model(LOSS))


@pytest.fixture(scope="module")
def wanted(model):
    q = np.round(model.constants["w"].astype(float) / 0.05) * 0.05
    return of_weights(q)


THROUGH = {"straight_through": True}
CALLS = {
    "grad": lambda model, point, **o: oj.grad(model, point, wrt="w", **o)["w"],
    "value_and_grad": lambda m, point, **o: oj.value_and_grad(m, wrt="w", **o)(point)[1]["w"],
    "hessian": lambda model, point, **o: oj.hessian(model, point, wrt="w", **o).toarray(),
    "its gradient": lambda model, point, **o: oj.hessian(model, point, wrt="w", **o).gradient["w"],
    "relinearized": lambda model, point, **o: oj.hessian(
        model, {"x": 0 * POINTS}, wrt="w", **o).relinearize(point).toarray(),
    "gauss_newton": lambda model, point, **o: oj.gauss_newton(
        model, point, of="f", at="h", wrt="w", **o).toarray(),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("loaded", [False, True])
def test_each_derivative_passes_roundings(model, wanted, call, loaded):
    if loaded:
        found = call(oj.load(onnx.parser.parse_model(LOSS), **THROUGH), {"x": POINTS})
    else:
        found = call(model, {"x": POINTS}, **THROUGH)
    order = 1 if found.shape == (3, 2) else 2
    np.testing.assert_allclose(found, wanted[order], rtol=2e-5, atol=1e-6)


def test_kfac_passes_roundings_of_activations():
    model = oj.load(onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[N, 3] x) => (float[N, 2] y)
    <float[3, 2] w = {1, -2, 0.5, 1, -1, 0.3}, float s = {0.05}, int8 z = {3}>
    { h = MatMul(x, w) q = QuantizeLinear(h, s, z) y = DequantizeLinear(q, s, z) }"""))
    K = oj.kfac(model, {"x": POINTS}, wrt="w", likelihood="gaussian", **THROUGH)
    F = np.kron(POINTS.T @ POINTS, np.eye(2)) / 2
    np.testing.assert_allclose(K.toarray(), F, rtol=1e-5)


@pytest.mark.parametrize("mode", ["grad", "hvp"])
def test_exports_pass_roundings(model, wanted, mode):
    ort = pytest.importorskip("onnxruntime")
    made = oj.export(model, mode, {"x": POINTS}, wrt="w", **THROUGH)
    session = ort.InferenceSession(made.SerializeToString())
    v = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = session.run(None, {"x": POINTS, **({"w_tangent": v} if mode == "hvp" else {})})
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5, atol=1e-6)
    if mode == "hvp":
        np.testing.assert_allclose(found[2].ravel(), wanted[2] @ v.ravel(), rtol=1e-4)
    again = oj.load(made)  # which says that it passes roundings
    J = oj.linearize(again, {"x": POINTS, **({"w_tangent": v} if mode == "hvp" else {})},
                     of="f", wrt="w")  # fmt: skip
    np.testing.assert_allclose(J.toarray().ravel(), wanted[1].ravel(), rtol=1e-5, atol=1e-6)


def test_training_passes_roundings(model, wanted):
    plain_descent = oj.Momentum(alpha=0.0)
    made = oj.training_model(model, "f", ["w"], plain_descent, learning_rate=0.5, **THROUGH)
    state, _ = oj.train_step(made, oj.initial_state(made), {"x": POINTS})
    moved = model.constants["w"] - 0.5 * wanted[1]
    np.testing.assert_allclose(state["w"], moved, rtol=1e-5)
    plain = oj.training_model(model, "f", ["w"], plain_descent)
    with pytest.raises(oj.OnnxJacError, match="not differentiable in 'w'"):
        oj.train_step(plain, oj.initial_state(plain), {"x": POINTS})


DYNAMIC = """
<ir_version: 10, opset_import: ["" : 21]>
dynamic (float[N, 3] x) => (float[N, 2] y)
<int8[3, 2] w = {10, -20, 5, 100, -120, 3}, float[2] sw = {0.01, 0.02}, int8[2] zw = {1, -2}>
{ q, s, z = DynamicQuantizeLinear(x)
  p = MatMulInteger(q, w, z, zw)
  c = Cast<to = 1>(p)
  k = Mul(s, sw)
  y = Mul(c, k) }
"""


def test_dynamic_int8_is_warned_of():
    model = oj.load(onnx.parser.parse_model(DYNAMIC))
    for call in (oj.linearize, lambda m, x: oj.hessian(m, x, weights=np.ones((2, 2), "f4"))):
        with pytest.warns(oj.OnnxJacWarning, match="rounding cuts some at .*QuantizeLinear.*stra"):
            call(model, {"x": POINTS})


@pytest.mark.peers
def test_dynamic_int8_agrees_with_torch():
    torch = pytest.importorskip("torch")
    model = oj.load(onnx.parser.parse_model(DYNAMIC), **THROUGH)
    J = oj.linearize(model, {"x": POINTS})
    w = (torch.tensor([[10.0, -20], [5, 100], [-120, 3]]) - torch.tensor([1.0, -2]))
    w = w * torch.tensor([0.01, 0.02])

    def network(x):
        s = (torch.clamp(x.max(), min=0) - torch.clamp(x.min(), max=0)) / 255
        q = x / s
        q = q + (torch.round(q) - q).detach()
        return (q @ w) * s

    x = torch.tensor(POINTS)
    np.testing.assert_allclose(J.primal["y"], network(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(J.primal["y"], model.run({"x": POINTS})["y"], rtol=1e-5)
    slopes = torch.autograd.functional.jacobian(network, x).reshape(4, 6)
    np.testing.assert_allclose(J.toarray(), slopes, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("zeros", ["zx", "zx, zw"])
def test_an_integer_convolution(zeros):
    text = f"""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[1,1,4,4] x) => (float[1,2,3,3] y)
    <float s = {{0.1}}, uint8 zx = {{7}}, int8[2] zw = {{1,2}},
     int8[2,1,2,2] w = {{1,2,3,4,-5,6,7,-8}}>
    {{ q = QuantizeLinear(x, s, zx) c = ConvInteger(q, w, {zeros}) f = Cast<to = 1>(c)
       y = Mul(f, s) }}"""
    model = oj.load(onnx.parser.parse_model(text))
    x = np.linspace(-0.6, 2, 16, dtype=np.float32).reshape(1, 1, 4, 4)
    w = np.float32([1, 2, 3, 4, -5, 6, 7, -8]).reshape(2, 1, 2, 2)
    w = w - np.float32([1, 2]).reshape(2, 1, 1, 1) * ("zw" in zeros)
    J = oj.linearize(model, {"x": x}, **THROUGH)
    np.testing.assert_allclose(J.primal["y"], model.run({"x": x})["y"], rtol=1e-6)
    plain = oj.load(onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[1,1,4,4] x, float[2,1,2,2] w) => (float[1,2,3,3] y) { y = Conv(x, w) }"""))
    wanted = oj.linearize(plain, {"x": x, "w": w}, wrt="x")
    np.testing.assert_allclose(J.toarray(), wanted.toarray(), rtol=1e-5)


def test_a_product_of_integers_alone_stays_one():
    model = oj.load(onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x, int8[2,2] a) => (float[2] y)
    { p = MatMulInteger(a, a) q = Cast<to = 1>(p) h = MatMul(q, x) y = Round(h) }"""))
    a = np.int8([[1, 2], [3, 4]])
    J = oj.linearize(model, {"x": np.ones(2, "f4"), "a": a}, wrt="x", **THROUGH)
    np.testing.assert_allclose(J.toarray(), a @ a)


def test_exact_derivatives_warn_of_nothing():
    """Of paths without rounding, and of tensors that no path joins and of which is warned."""
    model = oj.load(onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[2] x, float[2] u) => (float[2] y)
    { r = Round(u) s = Sign(x) f = Floor(x) d = Sub(x, f) e = Mul(d, s) y = Mul(e, r) }"""))
    oj.linearize(model, {"x": np.ones(2, "f4"), "u": np.ones(2, "f4")}, wrt="x")


def test_the_option_on_the_command_line_passes_roundings(tmp_path, capsys):
    from onnxjac.__main__ import main

    onnx.save(onnx.parser.parse_model(DYNAMIC), tmp_path / "m.onnx")
    np.savez(tmp_path / "p.npz", x=POINTS)
    given = ["jacobian", str(tmp_path / "m.onnx"), "--input", str(tmp_path / "p.npz"), "-o",
             str(tmp_path / "J.npz")]  # fmt: skip
    assert main(given) == 0
    assert "rounding cuts" in capsys.readouterr().err
    assert main([*given, "--straight-through"]) == 0
    assert "rounding" not in capsys.readouterr().err
    model = oj.load(tmp_path / "m.onnx", **THROUGH)
    wanted = oj.linearize(model, {"x": POINTS}).toarray()
    np.testing.assert_allclose(np.load(tmp_path / "J.npz")["jacobian"], wanted)


ROUNDED = {
    "Round": "w = Div(u, k)  v = Round(w)  q = Mul(v, k)",
    "QuantizeLinear": "v = QuantizeLinear(u, k, z)  q = DequantizeLinear(v, k, z)",
    "If": """q = If(ci) <then_branch = t () => (float[3] p)
                           { w = Div(u, k) v = Round(w) p = Mul(v, k) },
                         else_branch = f () => (float[3] r) { r = Identity(u) }>""",
    "Loop": """q = Loop(one, ci, u) <body = l (int64 j, bool cj, float[3] o) => (bool d, float[3] p)
                 { d = Identity(cj)  w = Div(o, k)  v = Round(w)  p = Mul(v, k) }>""",
}  # fmt: skip


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.parametrize("turns", [7, 70])
def test_roundings_in_bodies_are_passed(kind, turns):
    """A loop that is unrolled and one that is kept; against the recursion of both derivatives."""
    model = oj.load(onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x) => (float[3] y)
        <int64 n = {{{turns}}}, bool c = {{1}}, int64 one = {{1}}, float a = {{0.95}},
         float k = {{0.01}}, int8 z = {{0}}>
        {{ y = Loop(n, c, x) <body = b (int64 i, bool ci, float[3] s) => (bool co, float[3] t)
             {{ co = Identity(ci)  u = Mul(s, a)  {ROUNDED[kind]}  e = Sin(q)  t = Add(e, x) }}> }}
    """))  # fmt: skip
    x = np.float32([0.13, -0.22, 0.05])
    s, D, H = x.astype(float), np.ones(3), np.zeros(3)
    for _ in range(turns):
        q = 0.01 * np.rint(0.95 * s / 0.01)
        inside = abs(0.95 * s) < 1.275 if kind == "QuantizeLinear" else 1.0
        q = np.clip(q, -1.28, 1.27) if kind == "QuantizeLinear" else q
        aD, aH = 0.95 * D * inside, 0.95 * H * inside
        s, D, H = np.sin(q) + x, np.cos(q) * aD + 1, np.cos(q) * aH - np.sin(q) * aD**2
    J = oj.linearize(model, {"x": x}, straight_through=True)
    for _ in range(2):
        np.testing.assert_allclose(J @ np.ones(3, np.float32), D, rtol=1e-4)
        np.testing.assert_allclose(J.T @ np.ones(3, np.float32), D, rtol=1e-4)
        J = J.relinearize({"x": x})
    made = oj.load(oj.export(model, "jvp", {"x": x}, straight_through=True))
    tangent = next(name for name in made.inputs if name != "x")
    found = made.run({"x": x, tangent: np.ones(3, np.float32)})["y_tangent"]
    np.testing.assert_allclose(found, D, rtol=1e-4)
    second = oj.hessian(model, {"x": x}, weights=np.ones(3, np.float32), straight_through=True)
    np.testing.assert_allclose(second @ np.ones(3, np.float32), H, rtol=1e-3)
