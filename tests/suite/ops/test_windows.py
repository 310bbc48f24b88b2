"""Windows: kernels and rules place them as ONNX Runtime does.

Every operator here is linear in x, or homogeneous, so that J x = y (Euler's identity).
"""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

import onnxjac as oj
from models.one_node import one_node

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore::onnxjac.OnnxJacWarning")

AUTO_PADS = ("", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
PADS = ((0, 1), (1, 0), (1, 1))
POOLS = {
    "MaxPool": {},
    "AveragePool": {},
    "AveragePool with padding": {"count_include_pad": 1},
    "LpPool": {"p": 3},
}


def geometries(*more):
    """(length, kernel, attributes) of windows along one axis."""
    sides = [{"pads": [*p]} for p in PADS] + [{"auto_pad": word} for word in AUTO_PADS]
    sides.append({"auto_pad": "", "pads": [1, 0]})  # as written by an old exporter
    for n, k, s, d in itertools.product((1, 4), (2, 3), (1, 2, 3), (1, 2)):
        steps = {"strides": [s], "dilations": [d]}
        for side, other in itertools.product(sides, more or ({},)):
            yield n, k, {**steps, **side, **other}


def signal(*shape):
    """Distinct numbers."""
    order = np.random.default_rng(0).permutation(np.prod(shape, dtype=int))
    return (order.reshape(shape) / 4 - 0.9).astype(np.float32)


def agrees(op_type, inputs, attrs):
    """Whether NumPy and ONNX Runtime give the same y = J x; False where one of them refuses."""
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    try:
        model = oj.load(one_node(op_type, inputs, attrs, 1, 21))
        y = model.run(feeds, engine="numpy")["y0"]
    except oj.OnnxJacError:
        return False
    if np.isinf(y).any():  # a maximum of nothing but padding
        return False
    J = oj.linearize(model, feeds, wrt="x0", engine="numpy")
    assert_allclose((J @ inputs[0].ravel()).reshape(y.shape), y, rtol=1e-5, atol=1e-6)
    try:
        expected = model.run(feeds, engine="onnxruntime")["y0"]
    except oj.OnnxJacError:
        return False
    assert y.shape == expected.shape
    assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    return True


@pytest.mark.parametrize("name", POOLS)
def test_pools_place_their_windows_as_onnxruntime_does(name):
    op_type, how = name.split()[0], POOLS[name]
    agreed = [
        agrees(op_type, [signal(1, 2, n)], {**attrs, **how, "kernel_shape": [k]})
        for n, k, attrs in geometries({"ceil_mode": 0}, {"ceil_mode": 1})
    ]
    assert sum(agreed) > 0.6 * len(agreed)


def test_convolutions_place_their_windows_as_onnxruntime_does():
    agreed = [
        agrees("Conv", [signal(1, 2, n), signal(3, 2, k)], attrs) for n, k, attrs in geometries()
    ]
    assert sum(agreed) > 0.4 * len(agreed)  # ONNX Runtime dilates nothing to the same size


def test_transposed_convolutions_place_their_windows_as_onnxruntime_does():
    more = ({}, {"output_padding": [1]}, {"output_shape": [4]})
    agreed = [
        agrees("ConvTranspose", [signal(1, 2, n), signal(2, 3, k)], attrs)
        for n, k, attrs in geometries(*more)
    ]
    assert sum(agreed) > 0.7 * len(agreed)


@pytest.mark.parametrize("how", [{"dilations": [2, 2]}, {"strides": [3, 3]}])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_pools_that_onnx_runtime_misreads_are_left_to_numpy(op_type, how):
    x, kernel = signal(1, 1, 4, 5), [1, 2]
    how = {**how, "kernel_shape": kernel, "auto_pad": "SAME_UPPER"}
    model = oj.load(one_node(op_type, [x], how, 1, 21))
    with pytest.raises(oj.OnnxJacError, match="departs from ONNX"):
        model.run({"x0": x}, engine="onnxruntime")
    J = oj.linearize(model, {"x0": x})
    assert_allclose(J @ x.ravel(), J.primal["y0"].ravel(), rtol=1e-6)
    assert_allclose(J.primal["y0"], model.run({"x0": x}, engine="numpy")["y0"])


@pytest.mark.parametrize("auto_pad", AUTO_PADS)
@pytest.mark.parametrize("order", [0, 1])
def test_a_recorded_derivative_has_each_pool_once(auto_pad, order):
    """The forward pass gives the gradient its positions, unless the pool counts by columns."""
    x = signal(1, 2, 5, 4)
    how = {"kernel_shape": [2, 3], "strides": [2, 1], "storage_order": order, "auto_pad": auto_pad}
    model = oj.load(one_node("MaxPool", [x], how, 1, 21))
    proto = oj.export(model, "vjp", {"x0": x}, of="y0", wrt="x0")
    assert sum(node.op_type == "MaxPool" for node in proto.graph.node) == 1 + order
    J, again = oj.linearize(model, {"x0": x}, engine="numpy"), oj.load(proto)
    u = signal(*J.codomain[0].shape)
    feeds = {"x0": x, **{name: u for name in again.inputs if name != "x0"}}
    for engine in ("numpy", "onnxruntime"):
        (found,) = (y for name, y in again.run(feeds, engine=engine).items() if name != "y0")
        assert_allclose(found.ravel(), J.T @ u.ravel(), rtol=1e-6)


def test_a_convolution_has_no_part_of_a_window():
    x, w = signal(1, 1, 1), signal(1, 1, 2)
    model = oj.load(one_node("Conv", [x, w], {"strides": [2]}, 1, 21))
    with pytest.raises(oj.OnnxJacError, match="longer than space"):
        oj.linearize(model, {"x0": x, "x1": w})
