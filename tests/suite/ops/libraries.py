"""The libraries whose arrays our kernels take, and the comparison with the NumPy kernels."""

import sys
from typing import NamedTuple

import numpy as np
import pytest
from onnx import helper

from onnxjac.ops.numbers import numbers

from .test_numbers import cases, python_value

RANDOM = {"Bernoulli", "Dropout", "Multinomial"}

CASES = [pytest.param(*c.values[:2], id=c.id) for c in cases()]
"""ONNX's own cases: a node and its inputs by name."""

some_by_jax = pytest.mark.parametrize(
    "library", ["torch", pytest.param("jax", marks=pytest.mark.sampled(0.3))], indirect=True
)
"""A share of the cases by JAX, which compiles for every shape."""


class Library(NamedTuple):
    """Kernels over the arrays of a library, those with a kernel of its own, the way there, and the
    engine of its arrays.
    """

    kernels: object
    own: set
    there: object
    engine: str


def torch_of(device):
    """PyTorch, on a device; arrays of dtypes that it lacks stay NumPy's."""
    from onnxjac.ops.torch import tensors
    from onnxjac.ops.torch.table import KERNELS, tensor

    return Library(tensors, {*KERNELS}, lambda x: tensor(x, device), f"torch:{device}")


def jax_of():
    from onnxjac.ops.jax import arrays
    from onnxjac.ops.jax.table import KERNELS, to_jax_array

    return Library(arrays, {*KERNELS}, to_jax_array, "jax")


def host(x):
    """The NumPy array of a tensor, or of an array of JAX."""
    if "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor):
        from onnxjac.ops.torch.table import host

        return host(x)
    return np.asarray(x)


def same(found, expected, tolerance):
    """The same dtype and shape, and the same values up to a tolerance."""
    found = host(found)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "fVc":
        kind = np.complex128 if expected.dtype.kind == "c" else np.float64
        found, expected = found.astype(kind), expected.astype(kind)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


def double(x):
    """Floats in double precision."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def case(node, feeds):
    """Inputs in double precision, attributes, and the results of the numbers reading."""
    attrs = {a.name: python_value(helper.get_attribute_value(a)) for a in node.attribute}
    inputs = [double(feeds[name]) if name else None for name in node.input]
    if node.op_type in RANDOM or not all(x is None or isinstance(x, np.ndarray) for x in inputs):
        pytest.skip("random, or of sequences")
    return inputs, attrs, numbers.run(node.op_type, inputs, attrs, outputs=len(node.output))
