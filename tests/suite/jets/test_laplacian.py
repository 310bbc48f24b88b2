"""Laplacians, weighted and estimated; mixed derivatives by name; exports, and training by them."""

import numpy as np
import pytest

import onnxjac as oj
from onnxjac.modes.model.primal.evaluate import evaluate

from .networks import mlp, parse

CUBES = """(double[n, 3] x) => (double[n] y) <int64[1] axis = {1}, double[3] a = {1, 2, 3}>
{ s = Mul(x, x)  c = Mul(s, x)  w = Mul(c, a)  y = ReduceSum<keepdims = 0>(w, axis) }
"""
"""y = Σ aᵢ xᵢ³: ∂²y/∂xᵢ² = 6 aᵢ xᵢ."""

PLANE = """(double[n, 1] x, double[n, 1] y) => (double[n, 1] u)
{ s = Sin(x)  e = Exp(y)  p = Mul(s, e)  q = Mul(x, y)  r = Mul(q, q)  u = Add(p, r) }
"""
"""u = sin x · eʸ + x² y²."""

X = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])


@pytest.mark.parametrize("engine", [None, "numpy"])
def test_the_laplacian_of_a_sum_of_cubes_is_linear(engine):
    expected = 6 * X @ [1, 2, 3]
    np.testing.assert_allclose(oj.laplacian(parse(CUBES), {"x": X}, engine=engine), expected)


def test_weights_and_columns_scale_the_terms_of_a_laplacian():
    model = parse(CUBES)
    w = np.array([1.0, -2.0, 0.5])
    for weights in (w, {"x": w}):
        found = oj.laplacian(model, {"x": X}, weights=weights)
        np.testing.assert_allclose(found, 6 * X @ (w * [1, 2, 3]))
    sigma = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]])
    np.testing.assert_allclose(oj.laplacian(model, {"x": X}, sigma=sigma),
                               6 * X @ ((sigma**2).sum(1) * [1, 2, 3]))  # fmt: skip


def test_an_estimated_laplacian_is_right_within_its_error():
    """H is diagonal here, so that vectors of signs have no error; a mixed term has some."""
    found = oj.laplacian(parse(CUBES), {"x": X}, samples=3)
    np.testing.assert_allclose(found.value, 6 * X @ [1, 2, 3])
    assert found.products == 3
    model, _ = mlp([3, 8, 1])
    exact = oj.laplacian(model, {"x": X})
    found = oj.laplacian(model, {"x": X}, samples=400, seed=1)
    assert (np.abs(found.value - exact) < 5 * found.error).all()
    assert (found.error > 0).all()
    again = oj.laplacian(model, {"x": X}, samples=400, seed=1)
    np.testing.assert_array_equal(found.value, again.value)


@pytest.mark.parametrize("text", [
    "(double[n, 3] x) => (double[n] y) <int64[1] axis = {1}, int64[1] rows = {0}>"
    "{ s = Mul(x, x)  t = ReduceSum<keepdims = 1>(s, rows)  p = Mul(t, x)"
    "  y = ReduceSum<keepdims = 0>(p, axis) }",
    "(double[3] x) => (double y) { s = Mul(x, x)  c = Mul(s, x)  y = ReduceSum<keepdims = 0>(c) }",
])  # fmt: skip
def test_samples_that_mix_are_one(text):
    """The sum is over all entries then: beside the dense Hessian of each output."""
    model = parse(text)
    x = X if "n, 3" in text else X[0]
    found = np.atleast_1d(oj.laplacian(model, {"x": x}))
    for k, value in enumerate(found):
        weights = np.eye(len(found))[k].reshape(np.shape(model.run({"x": x})["y"]))
        H = oj.hessian(model, {"x": x}, weights=weights)
        np.testing.assert_allclose(value, np.trace(H.toarray()))


def test_the_laplacian_over_several_tensors_sums_theirs():
    point = {"x": np.array([[0.5], [1.0]]), "y": np.array([[0.25], [-1.0]])}
    x, y = point.values()
    expected = -np.sin(x) * np.exp(y) + 2 * y**2 + np.sin(x) * np.exp(y) + 2 * x**2
    np.testing.assert_allclose(oj.laplacian(parse(PLANE), point), expected)
    fourth = np.sin(x) * np.exp(y) * (1 + 1 - 2) + 2 * 4
    np.testing.assert_allclose(oj.laplacian(parse(PLANE), point, power=2), fourth, atol=1e-12)


def test_names_select_mixed_derivatives_of_any_order():
    point = {"x": np.array([[0.5], [1.0]]), "y": np.array([[0.25], [-1.0]])}
    x, y = point.values()
    s, c, e = np.sin(x), np.cos(x), np.exp(y)
    expected = {
        "x": c * e + 2 * x * y**2, "yy": s * e + 2 * x**2, "xy": c * e + 4 * x * y,
        "xxy": -s * e + 4 * y, "xxyy": -s * e + 4, "xyx": -s * e + 4 * y, "xxxxyy": s * e,
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(oj.derivative(parse(PLANE), point, wrt=name), value,
                                   atol=1e-11, err_msg=name)  # fmt: skip
    np.testing.assert_allclose(oj.derivative(parse(CUBES), {"x": X}, wrt=["x[1]", "x[1]", "x[1]"]),
                               np.full(2, 12))  # fmt: skip


@pytest.mark.peers
@pytest.mark.parametrize("engine", [None, "numpy", "torch", "jax"])
def test_a_network_beside_pytorch(engine):
    torch = pytest.importorskip("torch")
    if engine == "jax":
        pytest.importorskip("jax")
    hessian, jacrev = torch.func.hessian, torch.func.jacrev

    model, weights = mlp([3, 8, 8, 1])
    W = [tuple(map(torch.tensor, pair)) for pair in weights]

    def u(x):
        for A, b in W[:-1]:
            x = torch.tanh(x @ A + b)
        return (x @ W[-1][0] + W[-1][1])[0]

    points = torch.tensor(X)
    H = torch.stack([hessian(u)(x) for x in points])
    third = torch.stack([jacrev(hessian(u))(x) for x in points])
    fourth = torch.stack([hessian(hessian(u))(x) for x in points])
    point = {"x": X}
    checks = {
        "laplacian": (oj.laplacian(model, point, engine=engine), torch.einsum("nii->n", H)),
        "biharmonic": (oj.laplacian(model, point, power=2, engine=engine),
                       torch.einsum("niijj->n", fourth)),
        "mixed": (oj.derivative(model, point, wrt=["x[0]", "x[1]", "x[2]"], engine=engine),
                  third[:, 0, 1, 2]),
    }  # fmt: skip
    for name, (found, truth) in checks.items():
        np.testing.assert_allclose(found[:, 0], truth, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.peers
def test_tensors_stay_tensors():
    torch = pytest.importorskip("torch")
    model, _ = mlp([3, 8, 1])
    found = oj.laplacian(model, {"x": torch.tensor(X)}, engine="torch")
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found, oj.laplacian(model, {"x": X}))


def test_an_export_is_a_model_that_trains():
    """∂/∂W of the mean square of Δu, beside central differences, at another batch."""
    model, weights = mlp([3, 8, 8, 1])
    file = oj.load(oj.export(model, "laplacian", {"x": np.ones((4, 3))}))
    np.testing.assert_allclose(file.run({"x": X})["u_laplacian"], oj.laplacian(model, {"x": X}))
    loss = oj.with_loss(file, "mse", at="u_laplacian", target="f")
    point = {"x": X, "f": np.ones((2, 1))}
    slope = oj.grad(loss, point, wrt=["W0", "b1"])

    def value(**moved):
        return float(np.mean((oj.laplacian(model, {"x": X, **moved}) - 1) ** 2))

    rng = np.random.default_rng(0)
    for name, array in (("W0", weights[0][0]), ("b1", weights[1][1])):
        v = rng.standard_normal(array.shape)
        difference = (value(**{name: array + 1e-5 * v}) - value(**{name: array - 1e-5 * v})) / 2e-5
        np.testing.assert_allclose((slope[name] * v).sum(), difference, rtol=1e-7)


def test_an_export_of_several_derivatives():
    point = {"x": np.array([[0.5], [1.0]]), "y": np.array([[0.25], [-1.0]])}
    model = parse(PLANE)
    file = oj.load(oj.export(model, "derivative", point, wrt=["x", "xxy"]))
    assert list(file.outputs) == ["u", "u_x", "u_xxy"]
    for name in ("x", "xxy"):
        expected = oj.derivative(model, point, wrt=name)
        np.testing.assert_allclose(file.run(point)[f"u_{name}"], expected)


@pytest.mark.parametrize(("options", "message"), [
    ({"weights": np.ones(2)}, r"weights= of shape \[2\] do not fit"),
    ({"weights": {"x": 1.0, "q": 1.0}}, r"weights= has \['q'\], which are not in wrt"),
    ({"weights": "a"}, "cannot be read as an array"),
    ({"sigma": np.ones((2, 2))}, "needs 3 rows"),
    ({"weights": np.ones(3), "sigma": np.ones((3, 1))}, "not both"),
    ({"power": 3}, "power=3"),
    ({"power": 2, "samples": 4}, "power=2"),
    ({"weights": [1, -1, 1], "samples": 4}, "not negative"),
    ({"wrt": "q"}, "'q'"),
])  # fmt: skip
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(oj.OnnxJacError, match=message):
        oj.laplacian(parse(CUBES), {"x": X}, **options)


@pytest.mark.parametrize(("wrt", "message"), [
    ("xx", r"say which, as in 'x\[0\]'"),
    (["x[3]"], r"x\[3\] is no entry of 'x'"),
    (["x[0,0]"], r"x\[0, 0\] is no entry"),
    ("x[", "must be names"),
    (["x[]"], "must be names"),
    ("x[,]", "must be names"),
    ([1], "must be names"),
    (3, "must be names"),
    ("", "must be names"),
    ("q", "'q'"),
])  # fmt: skip
def test_names_that_do_not_fit_are_refused(wrt, message):
    with pytest.raises(oj.OnnxJacError, match=message):
        oj.derivative(parse(CUBES), {"x": X}, wrt=wrt)


def test_a_tangent_of_all_samples_is_multiplied_by_weights_once():
    """The first product of a Laplacian has one row for each direction, not one for each sample."""
    model, _ = mlp([3, 8, 1])
    file = oj.load(oj.export(model, "laplacian", {"x": np.ones((4, 3))}))
    made = [s.outputs[0] for s in file.steps if s.op_type == "MatMul" and "W0" in s.inputs]
    found = evaluate(file, {"x": np.ones((4, 3))}, made)
    assert [found[name].shape for name in made] == [(4, 8), (3, 1, 8)]
