"""Exported roots are plain ONNX: ONNX Runtime solves them, differentiates them and trains them."""

import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from implicit.equations import (
    batch,
    central,
    equilibrium,
    optimality,
    parsed,
    squared_error,
    weights,
)

NAMES = ["W", "U", "b"]


@pytest.fixture(scope="module")
def R():
    return oj.root(equilibrium(), batch(), x="z", wrt=NAMES, fixed_point=True)


def session(model):
    """A function of the inputs, by name, to the outputs, by name; of ONNX Runtime alone."""
    runtime = pytest.importorskip("onnxruntime")
    onnx.checker.check_model(model)
    assert {entry.domain for entry in model.opset_import} <= {"", "onnxjac.modes"}
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # it warns that weights are inputs
    made = runtime.InferenceSession(model.SerializeToString(), options)
    names = [output.name for output in made.get_outputs()]
    return lambda inputs: dict(zip(names, made.run(None, inputs), strict=True))


def test_the_root_and_its_pullback(R):
    """At another batch than that of the export, too."""
    f = session(R.export(rtol=1e-12))
    for point in (batch(), batch(5, seed=3)):
        there = R.at(point) if len(point["x"]) == 3 else oj.root(
            equilibrium(), point, x="z", wrt=NAMES, fixed_point=True)  # fmt: skip
        u = np.random.default_rng(0).standard_normal(point["z"].shape)
        found = f({**point, "z_cotangent": u})
        assert found["z_residual"] < 1e-11
        assert_allclose(found["z_root"], there.tensors["z"], atol=1e-9)
        for name, slope in there.J.T.apply({"z": u}).items():
            assert_allclose(found[f"{name}_cotangent"], slope, atol=1e-8)


def test_a_gradient_against_differences_and_training(R):
    y = 0.5 * np.ones((3, 6))
    f = session(R.export(squared_error(), {"h": R, "y": y}, rtol=1e-12))
    point = {**batch(), "y": y}
    W, U, b = weights(6, 4)
    found, v = f(point), np.random.default_rng(1).standard_normal((6, 6))
    expected = central(lambda W: f({**point, "W": W})["l"], W, v, 1e-5)
    assert_allclose(np.vdot(found["W_grad"], v), expected, rtol=1e-7)
    held, losses = {"W": W, "U": U, "b": b}, []
    step = session(R.export(squared_error(), {"h": R, "y": -2 * np.ones((3, 6))}))
    for _ in range(40):  # (z + 2)³ is least where z is -1
        found = step({**batch(), "y": -2 * np.ones((3, 6)), **held})
        held = {name: w - 0.02 * found[f"{name}_grad"] for name, w in held.items()}
        losses.append(found["l"])
    assert losses[-1] < losses[0] / 2


def test_an_equation_in_single_precision():
    """x² = p, by Newton's method from afar, and dx/dp = 1 / 2√p."""
    model = parsed("e (float[n] x, float[n] p) => (float[n] F) { s = Mul (x, x)\n F = Sub (s, p) }")
    one, p = np.ones(3, np.float32), np.array([1, 4, 9], np.float32)
    R = oj.root(model, {"x": one, "p": p}, x="x")
    found = session(R.export())({"x": 9 * one, "p": p, "x_cotangent": one})
    assert_allclose(found["x_root"], np.sqrt(p), rtol=1e-5)
    assert_allclose(found["p_cotangent"], 0.5 / np.sqrt(p), rtol=1e-5)


def test_export_rejects_a_root_of_two_tensors():
    point = {"x": np.zeros(3), "l": 0.0, "Q": np.eye(3), "c": np.ones(3), "a": np.ones(3)}
    R = oj.root(optimality(), point, x=["x", "l"], wrt="c")
    with pytest.raises(oj.InputError, match="one tensor of the shape of x"):
        R.export()
