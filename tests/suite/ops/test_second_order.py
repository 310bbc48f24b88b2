"""Second derivatives at points where a first derivative may be right by accident."""

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxjac as oj
from onnxjac.modes.hessian import hessian


def hessian_of(op_type, *inputs, engine="numpy", **attrs):
    """The dense Hessian of the sum over the outputs of one node, in all floating inputs."""
    point = {f"x{k}": np.asarray(x) for k, x in enumerate(inputs)}
    node = helper.make_node(op_type, list(point), ["y"], **attrs)
    held = [declared(name, x) for name, x in point.items()]
    graph = helper.make_graph([node], op_type, held, [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    model = oj.load(onnx.shape_inference.infer_shapes(proto))
    weights = np.ones(model.run(point)["y"].shape)
    return hessian(model, point, weights=weights, engine=engine).toarray()


def declared(name, x):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)


@pytest.mark.parametrize("x", [(2.0, 3.0, 5.0), (0.0, 3.0, 5.0), (0.0, 0.0, 5.0), (0.0, 0.0, 0.0)])
@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 1)])
def test_the_hessian_of_a_product_with_zeros_is_right(x, axes):
    """∂²∏x / ∂xᵢ∂xⱼ is the product of the other factors, also if some xᵢ is zero."""
    a, b, c = x
    expected = np.array([[0, c, b], [c, 0, a], [b, a, 0]])
    along = np.reshape(x, (3, 1) if axes == (0,) else (1, 3))
    found = hessian_of("ReduceProd", along, np.array(axes, np.int64))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 0.5, -1.0])
def test_a_power_in_base_and_exponent(exponent):
    b, e = 1.5, exponent
    mixed = b ** (e - 1) * (1 + e * np.log(b))
    expected = [[e * (e - 1) * b ** (e - 2), mixed], [mixed, b**e * np.log(b) ** 2]]
    found = hessian_of("Pow", np.float64(b), np.float64(e))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize(("exponent", "expected"), [(0.0, 0), (1.0, 0), (2.0, 2), (3.0, 0)])
def test_the_second_derivative_of_a_power_of_zero_is_right(exponent, expected):
    assert hessian_of("Pow", np.float64(0), np.float64(exponent))[0, 0] == expected


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, 4.0])
def test_a_power_of_zero_in_base_and_exponent(exponent):
    """0ᵖ is constant in p, and so is its slope: both mixed derivatives are 0."""
    expected = [[2.0 * (exponent == 2), 0], [0, 0]]
    np.testing.assert_array_equal(hessian_of("Pow", 0.0, exponent), expected)


@pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")
def test_a_row_of_log_softmax_that_is_masked_out():
    """The masked row is NaN but constant, and does not affect J and H of the other row."""
    x = np.array([[-np.inf, -np.inf], [0.0, np.log(3.0)]])
    p = np.array([1, 3]) / 4
    H = hessian_of("LogSoftmax", x)
    np.testing.assert_allclose(H[2:, 2:], -2 * (np.diag(p) - np.outer(p, p)), rtol=1e-12)
    assert not H[:2].any()
    assert not H[:, :2].any()


@pytest.mark.parametrize("op_type", ["Elu", "Celu", "Selu", "Softplus", "Sigmoid", "Gelu", "Mish"])
def test_far_out_it_is_zero(op_type):
    dtype = np.float32 if op_type == "Celu" else np.float64  # the only dtype of Celu at opset 21
    found = hessian_of(op_type, np.array([800, -800], dtype))
    np.testing.assert_allclose(found, np.zeros((2, 2)), atol=1e-12)


@pytest.mark.parametrize("zero", [0.0, 7.0])
def test_updates_that_multiply_have_mixed_second_derivatives(zero):
    """y = (x₀ u₀, x₁), also where a factor is zero."""
    index = np.array([[0]])
    found = hessian_of("ScatterND", np.array([zero, 3.0]), index, np.array([5.0]), reduction="mul")
    np.testing.assert_allclose(found, [[0, 0, 1], [0, 0, 0], [1, 0, 0]], atol=1e-12)


@pytest.mark.parametrize("factors", [(2, 3, 5), (2, 0, 5), (0, 3, 0), (0, 0, 0)])
@pytest.mark.parametrize("op_type", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
def test_updates_that_multiply_one_entry(op_type, factors, engine):
    """y = (x u v, z w), with zeros among the factors; the updates are not in order."""
    x, u, v = factors
    index = np.array([0, 1, 0]).reshape(-1, *[1] * (op_type == "ScatterND"))
    updates = np.array([u, 7.0, v])
    found = hessian_of(op_type, np.array([x, 11.0]), index, updates, engine=engine, reduction="mul")
    expected = [[0, 0, v, 0, u], [0, 0, 0, 1, 0], [v, 0, 0, 0, x], [0, 1, 0, 0, 0], [u, 0, x, 0, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)
