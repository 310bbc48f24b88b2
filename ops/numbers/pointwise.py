"""y = f(x, ...), element by element, with broadcasting: arithmetic, logic, comparisons."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .table import Kernel, kernel, wide

UFUNCS: dict[str, Kernel] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Add": np.add,
    "And": np.logical_and,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseNot": np.bitwise_not,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Equal": np.equal,
    "Exp": np.exp,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "IsNaN": np.isnan,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Log": np.log,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Reciprocal": np.reciprocal,
    "Round": np.rint,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Tan": np.tan,
    "Tanh": np.tanh,
    "Xor": np.logical_xor,
}
for name, ufunc in UFUNCS.items():
    kernel(name)(ufunc)


def dtype_of(*values: Any) -> np.dtype:
    """The dtype of the first array: Python numbers follow it."""
    return next((v.dtype for v in values if hasattr(v, "dtype")), np.result_type(*values))


@kernel("Div")
def div(a: Array, b: Array) -> Array:
    """A / B, rounded towards zero for integers."""
    if dtype_of(a, b).kind not in "iu":
        return np.true_divide(a, b)
    return np.floor_divide(a - np.fmod(a, b), b)


@kernel("Mod")
def mod(a: Array, b: Array, *, fmod: int = 0) -> Array:
    """A − B⌊A / B⌋, or with fmod the remainder that has the sign of A."""
    return np.fmod(a, b) if fmod else np.mod(a, b)


@kernel("Pow")
def power(x: Array, y: Array) -> Array:
    """X ** Y in the dtype of X."""
    if dtype_of(x).kind in "iu" and dtype_of(y).kind == "i" and np.less(y, 0).any():
        y = np.asarray(y, np.float64)  # NumPy refuses negative integer powers of integers
    return np.power(x, y).astype(dtype_of(x), copy=False)


@kernel("BitShift")
def bit_shift(x: Array, y: Array, *, direction: str) -> Array:
    """X shifted by Y bits; a Y outside the word shifts everything out."""
    return np.left_shift(x, y) if direction == "LEFT" else np.right_shift(x, y)


@kernel("Where")
def where(condition: Array, x: Array, y: Array) -> Array:
    """X where the condition holds, else Y."""
    chosen: Array = np.where(condition, x, y)
    return chosen if chosen.dtype.kind in "OU" else chosen.astype(dtype_of(x, y), copy=False)


@kernel("Max")
def maximum(*data: Array) -> Array:
    """The greatest of the inputs."""
    return functools.reduce(np.maximum, data)


@kernel("Min")
def minimum(*data: Array) -> Array:
    """The least of the inputs."""
    return functools.reduce(np.minimum, data)


@kernel("Sum")
@wide
def total(*data: Array) -> Array:
    """The sum of the inputs."""
    return functools.reduce(np.add, data)


@kernel("Mean")
@wide
def mean(*data: Array) -> Array:
    """The mean of the inputs."""
    return total(*data) / len(data)


@kernel("Clip")
def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """min(max(x, low), high)."""
    above = x if low is None else np.maximum(x, low)
    return above if high is None else np.minimum(above, high)


@kernel("IsInf")
def is_inf(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Whether x is one of the infinities asked for."""
    return (detect_negative == 1) & np.isneginf(x) | (detect_positive == 1) & np.isposinf(x)
