"""Redeclaring an operator takes effect everywhere, whatever was cached before."""

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from onnxjac.jacobians import Diagonal, Jacobian

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("clean_registry")]

X = np.array([0.5, -1.5, 2.0])


def power(n):
    """Define me::Sq as xⁿ."""

    @oj.defines("me::Sq")
    def sq(op, node):
        y = node.x
        for _ in range(n - 1):
            y = op.Mul(y, node.x)
        return (y,)


def slope(factor):
    """Register a rule of Tanh, scaled by a factor."""

    @oj.jacobian("Tanh")
    def tanh(op, node):
        return {(0, 0): Diagonal(op.Mul(op.Sub(1.0, op.Mul(node.y, node.y)), factor))}


def model(body, outputs="double[3] y"):
    return oj.load(onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21, "me": 1]>
        f (double[3] x) => ({outputs}) {{{body}}}"""))


def near(x, seed):
    return x + 0.1 * np.random.default_rng(seed).standard_normal(x.shape)


def linearized(m, x):
    """J at the last of a few points, so that a template exists."""
    J = oj.linearize(m, {"x": x})
    return [J := J.relinearize({"x": near(x, k)}) for k in range(3)][-1]


class Kept:
    """Objects that users hold: Jacobians, a problem for SciPy, a function for PyTorch."""

    def __init__(self, m):
        self.m, self.J = m, linearized(m, X)
        self.parted = oj.linearize(m, {"x": X}, checkpoint=2)
        self.problem, self.function = oj.as_scipy(m, {"x": X}), m.to_torch()

    def slopes(self):
        """The diagonal J, by autograd."""
        t = torch.tensor(X, requires_grad=True)
        return np.diag(torch.autograd.grad(self.function(t).sum(), t)[0].numpy())


WAYS = {
    "linearize": lambda kept: oj.linearize(kept.m, {"x": X}),
    "another point": lambda kept: linearized(kept.m, X).relinearize({"x": X}),
    "a held J": lambda kept: kept.J.relinearize({"x": X}),
    "planned": lambda kept: kept.J.plan().relinearize({"x": X}),
    "compiled": lambda kept: kept.J.compile().relinearize({"x": X}),
    "sparse": lambda kept: kept.J.relinearize({"x": X}).tosparse(),
    "checkpointed": lambda kept: kept.parted.relinearize({"x": X}),
    "a problem": lambda kept: kept.problem.jac(X),
    "torch": Kept.slopes,
}


def matrix(J):
    return J if isinstance(J, np.ndarray) else J.toarray()


@pytest.mark.parametrize("way", WAYS)
def test_a_definition_declared_anew(way):
    power(2)
    kept = Kept(model("h = Neg(x) k = me.Sq(h) y = Neg(k)"))
    kept.problem.fun(X)
    assert_allclose(matrix(WAYS[way](kept)), np.diag(-2 * X))
    power(3)
    assert_allclose(kept.m.run({"x": X})["y"], X**3)
    assert_allclose(matrix(WAYS[way](kept)), np.diag(3 * X**2))
    assert_allclose(kept.problem.fun(X), X**3)


@pytest.mark.parametrize("way", WAYS)
def test_a_rule_declared_anew_replaces_the_kept_one(way):
    kept = Kept(model("h = Neg(x) k = Tanh(h) y = Neg(k)"))
    expected = np.diag(1 - np.tanh(X) ** 2)
    assert_allclose(matrix(WAYS[way](kept)), expected)
    slope(2.0)
    assert_allclose(matrix(WAYS[way](kept)), 2 * expected)


@pytest.mark.parametrize("again", [False, True], ids=["hessian", "relinearize"])
def test_a_hessian_of_an_operator_declared_anew(again):
    power(2)
    m = model("k = me.Sq(x) y = ReduceSum<keepdims=0>(k)", "double y")
    H = oj.hessian(m, {"x": X})
    for k in range(3):
        H = H.relinearize({"x": near(X, k)})
    assert_allclose(H.relinearize({"x": X}).toarray(), 2 * np.eye(3))
    power(3)
    H = H.relinearize({"x": X}) if again else oj.hessian(m, {"x": X})
    assert_allclose(H.toarray(), np.diag(6 * X))
    assert_allclose(H.gradient["x"], 3 * X**2)


def test_a_gradient_of_an_operator_declared_anew():
    power(2)
    f = oj.value_and_grad(model("k = me.Sq(x) y = ReduceSum<keepdims=0>(k)", "double y"))
    assert_allclose(f({"x": X})[1]["x"], 2 * X)
    power(3)
    value, slopes = f({"x": X})
    assert_allclose(value, np.sum(X**3))
    assert_allclose(slopes["x"], 3 * X**2)


@pytest.mark.parametrize("again", [False, True], ids=["gauss_newton", "relinearize"])
def test_a_gauss_newton_matrix_of_an_operator_declared_anew(again):
    power(2)
    m = model("z = me.Sq(x) k = Mul(z, z) l = ReduceSum<keepdims=0>(k)", "double l")

    def made():
        return oj.gauss_newton(m, {"x": X}, of="l", at="z", wrt=["x"])

    G = made()
    for k in range(3):
        G = G.relinearize({"x": near(X, k)})
    assert_allclose(G.relinearize({"x": X}).toarray(), 2 * np.diag(4 * X**2))
    power(3)
    G = G.relinearize({"x": X}) if again else made()
    assert_allclose(G.toarray(), 2 * np.diag(9 * X**4))


class Scaling(Jacobian):
    """diag(d), of a class that does not say which attributes it `holds`."""

    def __init__(self, d, shape):
        super().__init__(shape, shape, np.float64)
        self.d = d

    def _apply(self, op, v):
        return op.Mul(v, self.d)

    def _transpose(self):
        return self


def test_an_operator_of_a_class_that_does_not_say_what_it_holds():
    """Its rule is read again at every point."""

    @oj.jacobian("Sin")
    def rule(op, node):
        return {(0, 0): Scaling(op.Cos(node.x), node.x_shape)}

    J = oj.linearize(model("y = Sin(x)"), {"x": X})
    for k in range(2, 5):
        np.testing.assert_allclose(J.relinearize({"x": k * X}) @ np.ones(3), np.cos(k * X))


def test_a_declaration_that_is_taken_away(clean_registry):
    m = model("y = Tanh(x)")
    J = oj.linearize(m, {"x": X})
    del clean_registry["Tanh", ""]
    for make in (lambda: oj.linearize(m, {"x": X}), lambda: J.relinearize({"x": X})):
        with pytest.raises(oj.UnsupportedOp, match="Tanh"):
            make()


def test_an_operator_that_is_zero_from_now_on():
    power(2)
    m = model("k = me.Sq(x) y = Add(k, x)")
    J = linearized(m, X)
    oj.zero("it is rounded", "me::Sq")
    with pytest.raises(oj.UnsupportedOp):
        m.run({"x": X})
    power(2)
    assert_allclose(J.relinearize({"x": X}).toarray(), np.diag(2 * X + 1))


def test_a_step_of_training_by_an_operator_declared_anew():
    power(2)
    net = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "me": 1]>
        f (double[3] x) => (double l) <double[3] w = {1, 1, 1}>
        { h = Mul(w, x) k = me.Sq(h) l = ReduceSum<keepdims=0>(k) }""")
    trained = oj.training_model(net, "l", ["w"], "Momentum")
    before, _ = oj.train_step(trained, None, {"x": X})
    power(3)
    after, outputs = oj.train_step(trained, None, {"x": X})
    assert_allclose(outputs["l"], np.sum(X**3))
    ratio = (after["w"] - 1) / (before["w"] - 1)
    assert_allclose(ratio, 3 * X**3 / (2 * X**2), rtol=1e-6)
