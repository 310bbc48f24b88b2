"""Derivatives of derivatives: the recorded gradient is linearised like any other model."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.helper import make_node

import onnxjac as oj
from house import ROOT
from onnxjac.modes.hessian import Hessian, hessian, hvp
from onnxjac.modes.recording.derive import vjp_graph
from onnxjac.ops import numbers

MODELS = ROOT / "tests" / "models"
EXPORTED = ("mlp", "cnn", "encoder")

pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")


class Exported:
    """f = Σ c ∘ logits of an exported model, by input and weights, and two directions."""

    def __init__(self, name):
        self.model = oj.load(MODELS / f"{name}.onnx", dtype="float64")
        with np.load(MODELS / f"{name}.npz") as file:
            values = dict(file)
        self.inputs, self.weights = {"x": values["x"]}, values["cotangent"]
        self.tangents = {k[8:]: t for k, t in values.items() if k.startswith("tangent/")}
        self.wrt = tuple(self.tangents)
        self.directions = [self.draw(seed) for seed in range(3)]

    def draw(self, seed):
        rng = np.random.default_rng(seed)
        return {name: rng.standard_normal(t.shape) for name, t in self.tangents.items()}

    def hessian(self, inputs=None):
        return hessian(self.model, inputs or self.inputs, wrt=self.wrt, weights=self.weights)

    def gradient(self, point):
        J = oj.linearize(self.model, point, wrt=self.wrt)
        return J.T.apply({J.codomain[0].name: self.weights})

    def moved(self, direction, h):
        point = self.model.constants | self.inputs
        return self.inputs | {name: point[name] + h * d for name, d in direction.items()}


@pytest.fixture(scope="module", params=EXPORTED)
def exported(request):
    return Exported(request.param)


@pytest.fixture(scope="module")
def mlp():
    return Exported("mlp")


def flat(tensors, names):
    return np.concatenate([np.asarray(tensors[name]).ravel() for name in names])


def distance(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def slope(function, h):
    """df/dt at 0, by fourth-order differences."""
    return (8 * (function(h) - function(-h)) - (function(2 * h) - function(-2 * h))) / (12 * h)


def test_hvp_is_the_slope_of_the_gradient(exported):
    H, v = exported.hessian(), exported.directions[0]
    found = flat(H.apply(v), exported.wrt)

    def along(t):
        return flat(exported.gradient(exported.moved(v, t)), exported.wrt)

    errors = [distance(found, slope(along, h)) for h in (1e-6, 1e-5, 1e-4)]
    assert min(errors) < 1e-6
    assert distance(flat(H.gradient, exported.wrt), along(0)) < 1e-12


def test_hessian_is_symmetric(exported):
    H = exported.hessian()
    u, v = (flat(d, exported.wrt) for d in exported.directions[:2])
    Hu, Hv = H @ u, H @ v
    assert H.T is H
    assert abs(u @ Hv - v @ Hu) <= 1e-12 * np.linalg.norm(u) * np.linalg.norm(Hv)


@pytest.mark.peers
def test_hvp_equals_torch(exported, request):
    name = request.node.callspec.params["exported"]
    v = exported.directions[0]
    expected = nested(name, exported, [v])
    assert distance(flat(exported.hessian().apply(v), exported.wrt), expected) < 1e-9


@pytest.mark.peers
@pytest.mark.parametrize("order", [3, 4])
def test_higher_derivatives_of_the_mlp_equal_torch(mlp, order):
    directions = mlp.directions[: order - 1]
    expected = nested("mlp", mlp, directions)
    assert distance(contracted(mlp, directions), expected) < 1e-9


@pytest.mark.parametrize("order", [3, 4])
def test_higher_derivatives_are_slopes_of_lower_ones(mlp, order):
    *others, last = mlp.directions[: order - 1]
    found = contracted(mlp, [*others, last])

    def along(t):
        return contracted(mlp, others, mlp.moved(last, t))

    errors = [distance(found, slope(along, h)) for h in (1e-5, 1e-4, 1e-3)]
    assert min(errors) < 1e-6


def contracted(at, directions, point=None):
    """D^(k+1) f [v₁, ..., vₖ, ·]: each graph is the gradient of ⟨previous gradient, v⟩."""
    point, names = point or at.inputs, ("logits",)
    model, seeds = at.model, {"logits": at.weights}
    for order, v in enumerate(directions):
        draft = vjp_graph(model, point, names, at.wrt, None, seeds, f"d{order}")
        names = tuple(f"{name}_d{order}" for name in at.wrt)
        model, seeds = draft.model("derivative"), {f"{name}_d{order}": v[name] for name in at.wrt}
    return oj.linearize(model, point, of=names, wrt=at.wrt) @ flat(directions[-1], at.wrt)


def nested(name, at, directions):
    """D^(k+1) f [v₁, ..., vₖ, ·] by torch.func: jvps of the gradient along each direction."""
    torch = pytest.importorskip("torch")
    from models.export import build, differentiable, pure

    network = build(name)
    point = {"x": torch.tensor(at.inputs["x"]), **differentiable(network)}
    weights, logits = torch.tensor(at.weights), pure(network)
    function = torch.func.grad(lambda tensors: (weights * logits(tensors)).sum())
    for direction in directions:
        function = pushed(function, {k: torch.tensor(d) for k, d in direction.items()})
    return flat({k: t.detach() for k, t in function(point).items()}, at.wrt)


def pushed(function, direction):
    """The derivative of a function of tensors along a direction."""
    from torch.func import jvp

    return lambda point: jvp(function, (point,), (direction,))[1]


@pytest.mark.parametrize("layers", [2, 3, 4, 5])
def test_a_hessian_product_costs_the_least_possible(layers, monkeypatch):
    """6 L - 4 matrix products for the weights of an MLP with L layers."""
    model, inputs = perceptron(layers)
    weights = [name for name in model.initializers if name.startswith("w")]
    H = hessian(model, inputs, of="loss", wrt=weights)
    calls, product = [], numbers.MatMul
    monkeypatch.setattr(numbers, "MatMul", lambda *args: calls.append(args) or product(*args))
    H @ np.ones(H.shape[0])
    assert len(calls) == 6 * layers - 4


def perceptron(layers, width=4, batch=3):
    """loss = ½ ‖tanh(... tanh(x w0) ...) wL‖²."""
    rng = np.random.default_rng(0)
    shapes = {f"w{k}": (width, width) for k in range(layers)}
    nodes, y = [], "x"
    for k, name in enumerate(shapes):
        nodes.append(make_node("MatMul", [y, name], [f"z{k}"]))
        nodes.append(make_node("Tanh", [f"z{k}"], [f"y{k}"]))
        y = f"y{k}" if k < layers - 1 else f"z{k}"
    nodes[-1:] = [make_node("ReduceSumSquare", [y], ["loss"], keepdims=0)]
    held = [numpy_helper.from_array(rng.standard_normal(s), name) for name, s in shapes.items()]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, (batch, width))
    loss = helper.make_tensor_value_info("loss", onnx.TensorProto.DOUBLE, ())
    graph = helper.make_graph(nodes, "perceptron", [x], [loss], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return oj.load(proto), {"x": rng.standard_normal((batch, width))}


@pytest.fixture(scope="module")
def small():
    """The Hessian of a small loss with respect to one input and two weights."""
    model, inputs = perceptron(2)
    return hessian(model, inputs, of="loss", wrt=["w0", "x", "w1"])


def test_blocks_are_parts_of_the_whole(small):
    dense, ends = small.toarray(), {"w0": (0, 16), "x": (16, 28), "w1": (28, 44)}
    for row, (a, b) in ends.items():
        for column, (c, d) in ends.items():
            np.testing.assert_allclose(small[row, column].toarray(), dense[a:b, c:d], atol=1e-12)
    np.testing.assert_allclose(small[:3, 5:7].toarray(), dense[:3, 5:7], atol=1e-12)
    np.testing.assert_allclose(dense, dense.T, atol=1e-12)


def test_a_hessian_multiplies_tangents_by_name(small):
    v = np.random.default_rng(1).standard_normal(44)
    parts = {"w0": v[:16].reshape(4, 4), "x": v[16:28].reshape(3, 4), "w1": v[28:].reshape(4, 4)}
    np.testing.assert_allclose(flat(small.apply(parts), parts), small @ v)
    alone = small.apply({"x": parts["x"]})
    np.testing.assert_allclose(alone["w1"].ravel(), small["w1", "x"] @ v[16:28])
    assert [spec.name for spec in small.domain] == ["w0", "x", "w1"]
    assert repr(small) == "∂²/∂(w0, x, w1)²: 44×44 float64"


def test_several_right_hand_sides_go_at_once(small):
    V = np.random.default_rng(2).standard_normal((44, 5))
    np.testing.assert_allclose(small @ V, np.stack([small @ v for v in V.T], axis=1), atol=1e-12)
    np.testing.assert_allclose(V.T @ small, (small @ V).T, atol=1e-12)


def test_hvp_gives_the_gradient_and_one_product(small):
    model, inputs = perceptron(2)
    v = np.ones((4, 4))
    gradient, product = hvp(model, inputs, {"w0": v}, of="loss")
    np.testing.assert_allclose(gradient["w0"], oj.grad(model, inputs, of="loss", wrt="w0")["w0"])
    np.testing.assert_allclose(product["w0"].ravel(), small["w0", "w0"] @ v.ravel())


def test_weights_combine_a_vector_into_the_scalar():
    model, inputs = perceptron(2)
    weights = np.random.default_rng(3).standard_normal((3, 4))
    parts = [hessian(model, inputs, of="z1", wrt="w0", weights=w) for w in (weights, -2 * weights)]
    assert isinstance(parts[0], Hessian)
    np.testing.assert_allclose(parts[1].toarray(), -2 * parts[0].toarray())


def test_hessian_of_a_linear_output_is_zero():
    model, inputs = perceptron(2)
    H = hessian(model, inputs, of="z1", wrt="w1", weights=np.ones((3, 4)))
    assert not H.toarray().any()


@pytest.mark.parametrize(("settings", "message"), [
    ({"of": "z1"}, r"'z1' has shape \[3, 4\].*takes weights= of this shape"),
    ({"of": "z1", "weights": np.ones(4)}, r"weights have shape \[4\], 'z1' \[3, 4\]"),
    ({"of": ("loss", "z1")}, r"of=.* must be a string or None"),
    ({"of": "lost"}, "no tensor 'lost'.* Did you mean 'loss'"),
])  # fmt: skip
def test_a_hessian_rejects_wrong_arguments(settings, message):
    model, inputs = perceptron(2)
    with pytest.raises(oj.InputError, match=message):
        hessian(model, inputs, wrt="w0", **settings)


def test_axes_that_are_an_empty_tensor_of_floats():
    """Some exporters write the default this way: no axes, that is, all axes."""
    text = """<ir_version: 10, opset_import: ["": 21]>
    f (double[3] x) => (double y) <float[0] none = {}> {
      c = Mul(x, x)  d = Mul(c, x)  y = ReduceSum <keepdims = 0> (d, none) }"""
    x = np.array([1.0, 2, 3])
    H = oj.hessian(oj.load(onnx.parser.parse_model(text)), {"x": x})
    np.testing.assert_allclose(H.toarray(), np.diag(6 * x))
