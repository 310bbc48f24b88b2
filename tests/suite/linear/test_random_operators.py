"""Random samples are constants for rules, for the check and for recorded graphs."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxjac as oj
from onnxjac.modes.model.loading.load import load
from onnxjac.modes.recording.derive import vjp_graph

X = np.random.default_rng(8).uniform(0.2, 0.8, (4, 5))


def model_of(nodes, **constants):
    """x -> y by some nodes."""
    port = helper.make_tensor_value_info("x", TensorProto.DOUBLE, X.shape)
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)
    held = [numpy_helper.from_array(np.asarray(c), name) for name, c in constants.items()]
    graph = helper.make_graph(nodes, "random", [port], [y], held)
    imports = [helper.make_opsetid("", 21)]
    return load(helper.make_model(graph, opset_imports=imports, ir_version=10))


def dropout(**attrs):
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["d"], **attrs)
    square = helper.make_node("Mul", ["d", "d"], ["y"])
    return model_of([node, square], ratio=0.4, training=True)


def noisy(op_type, **attrs):
    """y = x · sample."""
    inputs = [] if "shape" in attrs else ["x"]
    node = helper.make_node(op_type, inputs, ["s"], dtype=TensorProto.DOUBLE, **attrs)
    return model_of([node, helper.make_node("Mul", ["x", "s"], ["y"])])


MODELS = {
    "Dropout": dropout,
    "RandomNormal": lambda **attrs: noisy("RandomNormal", shape=X.shape, **attrs),
    "RandomUniform": lambda **attrs: noisy("RandomUniform", shape=X.shape, **attrs),
    "RandomNormalLike": lambda **attrs: noisy("RandomNormalLike", **attrs),
    "RandomUniformLike": lambda **attrs: noisy("RandomUniformLike", **attrs),
    "Bernoulli": lambda **attrs: noisy("Bernoulli", **attrs),
}


@pytest.mark.parametrize("op_type", MODELS)
def test_the_sample_is_a_constant_of_the_linearisation(op_type):
    J = oj.linearize(MODELS[op_type](), {"x": X})
    assert J.check()
    y, x = J.primal["y"].ravel(), X.ravel()
    power = 2 if op_type == "Dropout" else 1
    np.testing.assert_allclose(J.toarray(), np.diag(power * y / x), rtol=1e-12)


def test_names_after_the_node_may_be_taken():
    """PyTorch's exporter numbers the names of its tensors: y is of d_1, not of a part of d."""
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["d"])
    names = [*(f"d_{k}" for k in range(1, 9)), "d_mask", "d_one", "y"]
    sines = [helper.make_node("Sin", [a], [b]) for a, b in zip(["d", *names], names, strict=False)]
    J = oj.linearize(model_of([node, *sines], ratio=0.4, training=True), {"x": X})
    assert J.check()


@pytest.mark.parametrize("op_type", MODELS)
def test_a_seed_repeats_the_sample(op_type):
    seed = 3 if op_type == "Dropout" else 3.0
    first, second = (oj.linearize(MODELS[op_type](seed=seed), {"x": X}) for _ in range(2))
    np.testing.assert_array_equal(first.primal["y"], second.primal["y"])
    np.testing.assert_array_equal(first.toarray(), second.toarray())


@pytest.mark.parametrize("op_type", MODELS)
def test_a_recorded_graph_holds_the_sample(op_type):
    seed = 3 if op_type == "Dropout" else 3.0
    model = MODELS[op_type](seed=seed)
    recorded = vjp_graph(model, {"x": X}, ("y",), ("x",), None).model("vjp")
    assert not {step.op_type for step in recorded.steps} & MODELS.keys()
    u = np.random.default_rng(1).standard_normal(X.shape)
    found = recorded.run({"x": X, "y_cotangent": u})["x_cotangent"]
    J = oj.linearize(model, {"x": X})
    np.testing.assert_allclose(found.ravel(), J.T @ u.ravel(), rtol=1e-12)


def test_dropout_has_a_derivative_in_its_ratio():
    J = oj.linearize(dropout(seed=3), {"x": X}, wrt="ratio")
    np.testing.assert_allclose(J.toarray().ravel(), 2 * J.primal["y"].ravel() / 0.6, rtol=1e-12)


def test_dropout_out_of_training_is_the_identity():
    nodes = [helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])]
    J = oj.linearize(model_of(nodes, ratio=0.4, training=False), {"x": X})
    np.testing.assert_array_equal(J.toarray(), np.eye(X.size))


def test_another_point_draws_another_sample():
    J = oj.linearize(dropout(), {"x": X})
    K = J.relinearize({"x": X})
    assert (J.primal["y"] != K.primal["y"]).any()
    assert K.check()
