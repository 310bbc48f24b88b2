"""Operands: Python numbers among operator inputs get the dtype that the schema requires."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians import Array, dtype_of


def operands(op_type: str, version: int, inputs: tuple[Any, ...]) -> tuple[Array | None, ...]:
    """The inputs as arrays and values; a Python number takes the dtype of its type variable.

    Other integers and tuples of integers, such as axes and shapes, become int64.
    """
    if all(x is None or hasattr(x, "dtype") for x in inputs):
        return inputs
    variables = type_variables(op_type, version, len(inputs))
    known = {
        variable: dtype_of(x)
        for variable, x in zip(variables, inputs, strict=True)
        if hasattr(x, "dtype")
    }
    return tuple(
        x if x is None or hasattr(x, "dtype") else constant(x, known.get(variable))
        for variable, x in zip(variables, inputs, strict=True)
    )


def constant(number: Any, dtype: np.dtype | None) -> np.ndarray:
    """A Python number or tuple as an array."""
    if dtype is not None:
        return np.asarray(number, dtype)
    array = np.asarray(number)
    return array.astype(np.int64) if array.dtype.kind in "iu" or array.size == 0 else array


@cache
def type_variables(op_type: str, version: int, count: int) -> tuple[str, ...]:
    """The type variable of every input, the last one repeated where the operator is variadic."""
    names = [port.type_str for port in onnx.defs.get_schema(op_type, version, "").inputs]
    return tuple(names[min(k, len(names) - 1)] for k in range(count))


def is_constant(x: Any, number: float) -> bool:
    """Whether an operand is a constant scalar of that value."""
    if x is None or isinstance(x, ir.Value):
        return False
    return np.size(x) == 1 and bool(np.all(x == number))
