"""Quantised tensors: the derivative of scaling back is exact, that of rounding is zero."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxjac as oj
from onnxjac.modes.model.loading.load import load
from sweep.cases import node_cases

CASES = [case for case in node_cases() if case.op_type == "DequantizeLinear"]
RNG = np.random.default_rng(3)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_dequantize_is_linear_in_the_scale(case):
    """y(s + d) - y(s) = J d for any d."""
    feeds, model = case.feeds, load(case.model)
    scale = feeds["x_scale"].astype(np.float64)
    if feeds["x_scale"].dtype.kind != "f":
        pytest.skip("a scale of another kind")
    J = oj.linearize(model, feeds, wrt="x_scale", engine="numpy")
    step = RNG.integers(1, 4, scale.shape).astype(feeds["x_scale"].dtype)
    pushed = J.apply({"x_scale": step})["y"].astype(np.float64)
    moved = {**feeds, "x_scale": feeds["x_scale"] + step}
    (before, after) = (model.run(f, engine="numpy")["y"].astype(np.float64) for f in (feeds, moved))
    np.testing.assert_allclose(pushed, after - before, rtol=5e-3, atol=5e-3 * abs(after).max())
    u = RNG.standard_normal(J.shape[0]).astype(J.dtype)
    assert np.dot(J.T @ u, step.ravel()) == pytest.approx(u @ pushed.ravel(), rel=2e-2, abs=2e-2)


def test_a_quantised_model_has_the_derivative_of_what_is_not_rounded():
    """y = dequantize(quantize(x, s), s): zero in x, round(x / s) in s."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    shapes = {"x": [4], "s": [], "y": [4]}
    x, s, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, k) for n, k in shapes.items())
    imports = [helper.make_opsetid("", 21)]
    graph = helper.make_graph(nodes, "qdq", [x, s], [y])
    model = load(helper.make_model(graph, opset_imports=imports, ir_version=10))
    feeds = {"x": np.array([0.3, 1.2, 2.6, 7.1], np.float32), "s": np.array(0.5, np.float32)}
    with pytest.warns(oj.OnnxJacWarning, match="piecewise constant"):
        J = oj.linearize(model, feeds, wrt=["x", "s"])
    expected = np.hstack([np.zeros((4, 4)), [[1.0], [2], [5], [14]]])
    np.testing.assert_array_equal(J.toarray(), expected)
