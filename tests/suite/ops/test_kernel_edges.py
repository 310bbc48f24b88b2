"""Edge cases of the NumPy kernels that no case of ONNX covers; most were found by mutants."""

import ml_dtypes
import numpy as np
import onnx
import pytest

from onnxjac.ops.numbers import convolution, matmul
from onnxjac.ops.numbers import numbers as op
from onnxjac.ops.numbers.table import KERNELS


def test_integers_to_negative_powers_are_rounded_towards_zero():
    y = op.Pow(np.array([2, 1, -1]), np.array([-1, -1, -1]))
    np.testing.assert_array_equal(y, [0, 1, -1])


def test_reshape_copies_a_length_at_a_zero():
    x = np.arange(6.0).reshape(2, 3)
    assert op.Reshape(x, np.array([0, 3])).shape == (2, 3)
    assert op.Reshape(x[:0], np.array([0, 5]), allowzero=1).shape == (0, 5)


def test_a_vector_times_a_repeated_matrix():
    v, matrix = np.arange(4.0), np.arange(20.0).reshape(4, 5)
    repeated = np.broadcast_to(matrix, (3, 4, 5))
    np.testing.assert_array_equal(op.MatMul(v, repeated), np.tile(v @ matrix, (3, 1)))
    np.testing.assert_array_equal(op.MatMul(np.swapaxes(repeated, -1, -2), v), [v @ matrix] * 3)


def test_a_vector_times_a_repeated_stack():
    v, stack = np.arange(4.0), np.arange(40.0).reshape(2, 4, 5)
    repeated = np.broadcast_to(stack, (3, 2, 4, 5))
    np.testing.assert_array_equal(op.MatMul(v, repeated), np.stack([v @ stack] * 3))


def test_the_reference_takes_missing_inputs_and_gives_as_many_outputs_as_are_wanted():
    a, b, zero = np.uint8([[1, 2]]), np.uint8([[3], [4]]), np.array(1, np.uint8)
    np.testing.assert_array_equal(op.MatMulInteger(a, b, None, zero), [[8]])
    y, scale = op.DynamicQuantizeLinear(np.float32([0, 255]), outputs=2)
    np.testing.assert_array_equal(y, [0, 255])
    assert scale == 1


def test_half_precision_is_pooled_in_single():
    large = np.full((1, 1, 2, 2), 300, np.float16)
    np.testing.assert_array_equal(op.GlobalLpPool(large), np.full((1, 1, 1, 1), 600, np.float16))
    ones = np.ones((1, 1, 32, 32), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(op.GlobalAveragePool(ones), ones[..., :1, :1])


def test_without_a_length_the_whole_signal_is_one_frame():
    x = np.arange(8.0).reshape(1, 8, 1)
    whole = op.STFT(x, np.array(4), None, np.array(8))
    np.testing.assert_array_equal(op.STFT(x, np.array(4)), whole)


def test_a_batch_in_training_gives_one_output_unless_asked_for_more():
    x, one = np.arange(4.0).reshape(2, 2), np.ones(2)
    assert len(KERNELS["BatchNormalization"](x, one, one, one, one, training_mode=1)) == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_running_products_run_along_their_axis(axis):
    x = np.arange(1.0, 7.0).reshape(2, 3)
    np.testing.assert_array_equal(op.CumProd(x, np.array(axis)), np.cumprod(x, axis))


@pytest.mark.parametrize("reduction", ["none", "add", "mul"])
def test_many_rows_are_scattered_as_few_are(reduction):
    x, updates = np.full((80, 3), 2.0), np.arange(240.0).reshape(80, 3)
    at = np.arange(80)[::-1, None]
    combined = {"none": updates, "add": 2 + updates, "mul": 2 * updates}[reduction]
    found = op.ScatterND(x, at, updates, reduction=reduction)
    np.testing.assert_array_equal(found, combined[::-1])


def test_a_transposed_convolution_of_the_same_size_needs_no_strides():
    x, w = np.arange(12.0).reshape(1, 1, 3, 4), np.ones((1, 1, 1, 1))
    np.testing.assert_array_equal(op.ConvTranspose(x, w, auto_pad="SAME_UPPER"), x)


def test_a_cast_to_the_type_that_it_has_is_no_copy():
    x = np.arange(3.0)
    assert op.Cast(x, to=onnx.TensorProto.DOUBLE) is x


def test_orders_of_contraction_are_worked_out_once():
    shapes = (20, 30), (30, 40), (40, 50)
    order = matmul.contraction_order("ab,bc,cd", *shapes)
    assert order is matmul.contraction_order("ab,bc,cd", *shapes)


@pytest.mark.parametrize("group", [1, 2])
def test_kernels_are_taken_apart_where_patches_of_a_row_would_be_too_large(monkeypatch, group):
    rng = np.random.default_rng(7)
    x, w = rng.normal(size=(2, 4, 9, 11)), rng.normal(size=(6, 4 // group, 3, 5))
    steps = {"group": group, "strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 2, 1)}
    whole = op.Conv(x, w, **steps)
    back = op.ConvTranspose(whole, w, **steps)
    monkeypatch.setattr(convolution, "ROW_BYTES", 8)
    np.testing.assert_allclose(op.Conv(x, w, **steps), whole, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(op.ConvTranspose(whole, w, **steps), back, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("weight", [1.0, np.inf, np.nan])
def test_a_transposed_convolution_to_more_channels_is_a_convolution(monkeypatch, group, weight):
    """With the flipped kernel, where its products with padding are zeros."""
    rng, spread, spreads = np.random.default_rng(7), convolution.scatter_patches, []
    x, w = rng.normal(size=(2, 4, 5, 4)), rng.normal(size=(4, 6, 3, 2))
    w[1, 2, 0, 1] = weight
    steps = {"group": group, "dilations": (1, 2), "pads": (1, 0, 2, 1), "output_padding": (1, 0)}
    monkeypatch.setattr(convolution, "scatter_patches", lambda *a: spreads.append(spread(*a)))
    found = op.ConvTranspose(x, w, **steps)
    assert len(spreads) == (not np.isfinite(weight))
    monkeypatch.setattr(convolution, "is_gathered", lambda *_: False)
    np.testing.assert_allclose(op.ConvTranspose(x, w, **steps), found, rtol=1e-12, atol=1e-12)


EMPTY = {
    "no window": (lambda: op.Conv(np.ones((2, 3, 4, 2)), np.ones((4, 3, 1, 3))), (2, 4, 4, 0)),
    "no window of a channel": (
        lambda: op.Conv(np.ones((2, 3, 2)), np.ones((6, 1, 3)), group=3), (2, 6, 0)
    ),
    "no image": (lambda: op.Conv(np.ones((0, 3, 4)), np.ones((4, 3, 2))), (0, 4, 3)),
    "no image, transposed": (
        lambda: op.ConvTranspose(np.ones((0, 2, 3)), np.ones((2, 4, 2))), (0, 4, 4)
    ),
    "nothing to spread": (
        lambda: op.ConvTranspose(np.ones((2, 2, 3, 0)), np.ones((2, 4, 1, 1))), (2, 4, 3, 0)
    ),
    "nothing to spread of a channel": (
        lambda: op.ConvTranspose(np.ones((2, 2, 0)), np.ones((2, 2, 1)), group=2), (2, 4, 0)
    ),
    "no sample in groups": (
        lambda: op.GroupNormalization(np.ones((0, 4, 3)), np.ones(4), np.ones(4), num_groups=2),
        (0, 4, 3),
    ),
    "no grid": (
        lambda: op.AffineGrid(np.ones((0, 2, 3)), np.array([0, 1, 4, 5])), (0, 4, 5, 2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_result_has_its_shape(name):
    made, shape = EMPTY[name]
    assert made().shape == shape
