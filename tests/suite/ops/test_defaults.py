"""A kernel's attributes are the schema's: the same names, required or with the same default."""

import inspect

import numpy as np
import pytest
from onnx import defs, helper

from onnxjac.ops.numbers.table import KERNELS

OURS = [
    name for name, kernel in KERNELS.items() if not isinstance(inspect.unwrap(kernel), np.ufunc)
]


@pytest.mark.parametrize("op_type", OURS)
def test_the_defaults_of_a_kernel_agree_with_its_schema(op_type):
    attributes = defs.get_schema(op_type).attributes
    for name, parameter in inspect.signature(KERNELS[op_type]).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and name != "outputs":
            if attributes[name].required:
                assert parameter.default is parameter.empty, name
            else:
                assert equal(parameter.default, default(attributes[name])), name


def default(attribute):
    """The value that the schema gives an attribute; None where it gives none."""
    value = attribute.default_value
    found = helper.get_attribute_value(value) if value.type else None
    return found.decode() if isinstance(found, bytes) else found


def equal(ours, theirs):
    """The same value; the schema's numbers are rounded to float32."""
    if isinstance(theirs, float):
        return np.float32(ours) == np.float32(theirs)
    return (list(ours) if isinstance(ours, tuple) else ours) == theirs
