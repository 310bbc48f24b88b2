"""The corners of the NumPy kernels that no case of ONNX reaches: most once let a mutant live."""

import numpy as np

from onnxjac.ops.numbers import numbers as op


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
