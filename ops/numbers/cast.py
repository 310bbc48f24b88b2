"""Changes of the element type: Cast, CastLike, BitCast."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper

from ...jacobians.arrays import Array
from .constants import numpy_dtype
from .table import kernel

FLOAT8 = {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}


@kernel("Cast")
def cast(x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """The elements in the type `to`; 8-bit floats saturate instead of overflowing."""
    return converted(x, numpy_dtype(to), bool(saturate), round_mode)


@kernel("CastLike")
def cast_like(x: Array, target: Array, *, saturate: int = 1, round_mode: str = "up") -> Array:
    """The elements in the type of the target."""
    return converted(np.asarray(x), target.dtype, bool(saturate), round_mode)


def converted(x: Array, dtype: np.dtype, saturate: bool, round_mode: str) -> Array:
    """The elements in a dtype, as ONNX rounds and saturates them."""
    if dtype.name in FLOAT8 and saturate:
        return onnx.numpy_helper.saturate_cast(x, dtype)
    if dtype.name == "float8_e8m0fnu":
        return onnx.numpy_helper.to_float8e8m0(x, saturate, round_mode).astype(dtype)
    if dtype.kind in "OU":
        return x.astype(np.str_).astype(object)
    return x.astype(dtype, copy=False)


@kernel("BitCast")
def bit_cast(x: Array, *, to: int) -> Array:
    """The same bits read as another type of the same width."""
    return x.view(numpy_dtype(to))
