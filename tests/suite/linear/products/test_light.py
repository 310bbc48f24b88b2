"""The default engine of a product: the overhead of calls must not exceed the work."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx import numpy_helper, parser

import onnxjac as oj
from onnxjac.jacobians import BlockDiagonal, Convolution, Dense, Fourier, Geometry
from onnxjac.modes.linear.products.compiled import Compiled, record_product
from onnxjac.modes.model.programs.onnxruntime import compile as session
from onnxjac.modes.model.programs.program import compile_by
from onnxjac.modes.model.programs.work import (
    CALL_MULTIPLICATIONS,
    CALLED_KERNELS,
    is_cheaper_in_line,
    is_inexact,
    multiplications,
)

pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)


def chain(depth, width=3, step="MatMul"):
    """h ↦ h W or conv(h, W), then tanh, `depth` times."""
    weights = np.eye(width) if step == "MatMul" else np.ones((1, 1, 3))
    shape = f"1,{width}" if step == "MatMul" else f"1,1,{width}"
    attributes = "" if step == "MatMul" else "<pads = [1, 1]>"
    body = " ".join(f"a{k} = {step}{attributes}(h{k}, w) h{k + 1} = Tanh(a{k})"
                    for k in range(depth))  # fmt: skip
    text = f"g (float[{shape}] h0) => (float[{shape}] h{depth}) {{ {body} }}"
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    proto.graph.initializer.append(numpy_helper.from_array(weights.astype(np.float32), "w"))
    point = {"h0": RNG.standard_normal(tuple(map(int, shape.split(",")))).astype(np.float32)}
    return oj.linearize(oj.load(proto), point)


@pytest.mark.parametrize(("depth", "step", "engine"), [
    (1, "MatMul", "numpy"), (CALLED_KERNELS // 2, "MatMul", "numpy"),
    (3 * CALLED_KERNELS, "MatMul", "onnxruntime"), (1, "Conv", "onnxruntime"),
])  # fmt: skip
def test_few_small_kernels_are_called_one_by_one(depth, step, engine):
    J = chain(depth, step=step)
    for K, plain in ((Compiled(J.dag), J.dag), (Compiled(J.dag.T), J.dag.T)):
        v = RNG.standard_normal(K.shape[1]).astype(np.float32)
        assert_allclose(K @ v, plain @ v, atol=1e-6)
        assert repr(K).endswith(f"by {engine}")


def test_one_large_kernel_is_a_sessions():
    side = int(CALL_MULTIPLICATIONS**0.5)
    small, large = (Dense(np.broadcast_to(np.float32(1), (n, n))) for n in (side, 2 * side))
    assert is_cheaper_in_line(record_product(small))
    assert not is_cheaper_in_line(record_product(large))
    assert not is_cheaper_in_line(record_product(small, (16,)))


def test_the_multiplications_of_a_block_for_each_sample():
    blocks = BlockDiagonal(np.ones((6, 5, 4)))
    counted = {node.op_type: multiplications(node) for node in record_product(blocks).nodes}
    assert counted["MatMul"] == 6 * 5 * 4


def test_explain_says_who_and_why():
    J = chain(1, width=8).compile()
    J @ np.ones(8, np.float32)
    assert "products by numpy (" in str(J.explain())
    assert "less than a session's call takes" in str(J.explain())
    asked = J.compile("onnxruntime")
    asked @ np.ones(8, np.float32)
    assert "products by onnxruntime (asked for)" in str(asked.explain())


@pytest.mark.parametrize("step", [1, 2])
def test_the_multiplications_of_a_convolution(step):
    """Each entry of u takes part in 3×3 taps of three channels, in both directions."""
    u, ones = (2, 4, 6 // step, 6 // step), (1, 1, 1, 1)
    image = Geometry((2, 3, 6, 6), (4, 3, 3, 3), u, (step, step), (1, 1), ones, 1)
    for J in (conv := Convolution(np.ones(image.w), "x", "u", image), conv.T):
        (window,) = (node for node in record_product(J).nodes if node.op_type.startswith("Conv"))
        assert multiplications(window) == np.prod(u) * 3 * 3 * 3


@pytest.mark.parametrize(("columns", "long"), [(2**20, False), (2**24, True)])
def test_only_what_takes_a_good_part_of_a_second_runs_beside(columns, long):
    """2³² multiplications take about 20 ms, too short for a background thread."""
    recording = record_product(Dense(np.ones((64, 64), np.float32)), (columns,))
    assert session(recording).long is long


@pytest.mark.parametrize(("dtype", "inexact"), [("float64", True), ("float32", False)])
def test_transforms_of_doubles_are_left_to_numpy(dtype, inexact):
    recording = record_product(Fourier(0, (5, 2), dtype), ())
    assert is_inexact(recording) == inexact
    assert compile_by(None, recording)[1] == "numpy" or not inexact
