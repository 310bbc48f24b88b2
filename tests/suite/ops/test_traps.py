"""Known traps: derivatives that other libraries get wrong, with the true values."""

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxjac as oj


def jacobian(op_type, *inputs, wrt, opset=21, **attrs):
    """∂y/∂x_wrt of one node, dense."""
    point = {f"x{k}": np.asarray(x) for k, x in enumerate(inputs)}
    node = helper.make_node(op_type, list(point), ["y"], **attrs)
    held = [declared(name, x) for name, x in point.items()]
    graph = helper.make_graph([node], op_type, held, [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    model = oj.load(onnx.shape_inference.infer_shapes(proto))
    return oj.linearize(model, point, wrt=f"x{wrt}", engine="numpy").toarray()


def declared(name, x):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


def test_det_is_not_zero():
    """∂det/∂X = det(X) X⁻ᵀ; the cofactors where X is singular."""
    x = np.array([[2.0, 1], [3, 5]])
    expected = np.linalg.det(x) * np.linalg.inv(x).T
    np.testing.assert_allclose(jacobian("Det", x, wrt=0), expected.reshape(1, 4), atol=1e-12)
    singular = np.array([[1.0, 2], [2, 4]])
    np.testing.assert_array_equal(jacobian("Det", singular, wrt=0), [[4, -2, -2, 1]])


def test_batch_normalization_moves_with_its_mean_and_variance():
    """y = s (x - μ) / √(v + ε) + b: ∂y/∂μ = -s / √(v + ε), ∂y/∂v = -s (x - μ) / 2 (v + ε)^(3/2)."""
    x, s, b, mean, var = (np.array(a, float) for a in ([[1.5, -1]], [2, 3], [0, 1], [1, 2], [4, 9]))
    given = (x, s, b, mean, var)
    width = var + np.float32(1e-5)
    by_mean, by_variance = -s / np.sqrt(width), -s * (x[0] - mean) / (2 * width**1.5)
    for wrt, expected in ((3, by_mean), (4, by_variance)):
        found = jacobian("BatchNormalization", *given, wrt=wrt)
        np.testing.assert_allclose(found, np.diag(expected), atol=1e-12)
        assert np.all(np.diag(found) != 0)


def test_one_hot_moves_with_its_values():
    """Each entry of y is either off or on: each row of J has one 1."""
    found = jacobian("OneHot", np.array([2, 0]), np.array(3), np.array([0.5, 4.0]), wrt=2)
    hot = np.array([0, 0, 1, 1, 0, 0])
    np.testing.assert_array_equal(found, np.stack([1 - hot, hot], axis=1))


@pytest.mark.parametrize(
    ("mode", "order"), [("DCR", (0, 3, 4, 1, 5, 2)), ("CRD", (0, 1, 4, 2, 5, 3))]
)
def test_the_order_of_depth_and_space(mode, order):
    """J is the permutation that the operator is, and that of SpaceToDepth is its transpose."""
    x, y = np.arange(48.0).reshape(1, 8, 2, 3), np.zeros((1, 2, 4, 6))
    J = jacobian("DepthToSpace", x, wrt=0, blocksize=2, mode=mode)
    moved = x.reshape(1, 2, 2, 2, 2, 3).transpose(order)
    np.testing.assert_array_equal(J @ x.ravel(), moved.ravel())
    back = jacobian("SpaceToDepth", y, wrt=0, blocksize=2, mode=mode, opset=28)
    np.testing.assert_array_equal(back, J.T)


def test_pad_counts_its_cells():
    """∂Σy/∂value is the number of padded cells: 4 · 5 - 2 · 3."""
    x, pads, value = np.ones((2, 3)), np.array([1, 1, 1, 1]), np.array(7.0)
    assert jacobian("Pad", x, pads, value, wrt=2).sum() == 14


def test_a_product_with_a_zero_has_a_slope_there():
    """∂(2 · 0 · 3)/∂x = (0, 6, 0)."""
    found = jacobian("ReduceProd", np.array([2.0, 0, 3]), wrt=0)
    np.testing.assert_array_equal(found, [[0, 6, 0]])


def test_products_with_a_zero_so_far():
    """∂(2 + 2 · 0 + 2 · 0 · 3)/∂x = (1, 8, 0)."""
    found = jacobian("CumProd", np.array([2.0, 0, 3]), np.array(0), wrt=0, opset=26)
    np.testing.assert_array_equal(found.sum(axis=0), [1, 8, 0])
