"""Residuals: an equation appended to a model, and solved for its weights."""

import numpy as np
import pytest

import onnxjac as oj

from .networks import mlp, parse

WAVE = """(double[n, 1] x, double[n, 1] t) => (double[n, 1] u) <double c = {2.0}>
{ s = Mul(c, t)  z = Sub(x, s)  u = Sin(z) }
"""
"""u = sin(x − c t)."""

POINT = {"x": np.array([[0.5], [1.0], [-2.0]]), "t": np.array([[0.25], [0.0], [3.0]])}


def test_an_equation_between_derivatives():
    """u_t + u u_x − ν u_xx of u = sin(x − 2 t), by hand."""
    file = oj.export(parse(WAVE), "derivative", POINT, wrt=["t", "x", "xx"])
    model = oj.with_residual(file, "u_t + u * u_x - 0.5 * u_xx")
    assert [*model.outputs] == ["residual"]
    z = POINT["x"] - 2 * POINT["t"]
    expected = -2 * np.cos(z) + np.sin(z) * np.cos(z) + np.sin(z) / 2
    np.testing.assert_allclose(model.run(POINT)["residual"], expected)


def test_operators_numbers_weights_and_new_inputs():
    """New inputs are as the first tensor that is no weight, and no default of wrt=."""
    model = oj.with_residual(parse(WAVE), "c * (u - g)**2 + edge * Cos(pi * x) / 3",
                             inputs=["g", "edge"], name="r")  # fmt: skip
    for name in ("g", "edge"):
        assert model.inputs[name].shape == ("n", 1)
    rng = np.random.default_rng(0)
    given = {"g": rng.standard_normal((3, 1)), "edge": rng.standard_normal((3, 1))}
    u = np.sin(POINT["x"] - 2 * POINT["t"])
    expected = 2 * (u - given["g"]) ** 2 + given["edge"] * np.cos(np.pi * POINT["x"]) / 3
    np.testing.assert_allclose(model.run({**POINT, **given})["r"], expected)
    J = oj.linearize(model, {**POINT, **given})
    assert [spec.name for spec in J.domain] == ["x", "t"]


def test_a_network_is_trained_by_it():
    """u″ = −π² sin πx, u(0) = u(1) = 0, both in one residual: beside the solution."""
    net, weights = mlp([1, 12, 1])
    x = np.linspace(0, 1, 21)[:, None]
    edge = np.isin(x, [0, 1]).astype(float)
    model = oj.with_residual(
        oj.export(net, "laplacian", {"x": x}),
        "(1 - edge) * (u_laplacian + pi**2 * Sin(pi * x)) + 10 * edge * u", inputs="edge",
    )  # fmt: skip
    names = [n for k, _ in enumerate(weights) for n in (f"W{k}", f"b{k}")]
    found = oj.levenberg_marquardt(model, {"x": x, "edge": edge}, wrt=names, maxiter=60)
    u = net.run({"x": x, **found.tensors})["u"]
    np.testing.assert_allclose(u, np.sin(np.pi * x), atol=1e-4)


def test_least_squares_of_a_loss_warns():
    net, _ = mlp([1, 4, 1])
    loss, x = oj.with_loss(net, "mse", target="y"), np.ones((3, 1))
    with pytest.warns(oj.OnnxJacWarning, match="of= should name the tensor of residuals"):
        oj.levenberg_marquardt(loss, {"x": x, "y": x}, wrt=["W0", "W1"], maxiter=1)


@pytest.mark.parametrize(("formula", "options", "message"), [
    ("2 * v", {}, "'v' in '2 \\* v' is no tensor of the model, nor among inputs="),
    ("f", {"inputs": "f"}, "'f' has no tensor of the model"),
    ("u - 1", {"inputs": "f"}, r"inputs=\['f'\] are not in"),
    ("2 *", {}, "'2 \\*' cannot be read: invalid syntax"),
    ("", {}, "'' cannot be read"),
    ("u // x", {}, "cannot be read"),
    ("u[0]", {}, "cannot be read"),
    ("u if x else t", {}, r"a choice is Where\(condition, a, b\)"),
    ("sin(u)", {}, "'sin' in 'sin\\(u\\)' is no operator of ONNX"),
    ("u - x", {"name": "x"}, "has a tensor 'x' already"),
    ("u - x", {"inputs": "x"}, "has a tensor 'x' already"),
])  # fmt: skip
def test_formulas_that_do_not_fit(formula, options, message):
    with pytest.raises(oj.InputError, match=message):
        oj.with_residual(parse(WAVE), formula, **options)
