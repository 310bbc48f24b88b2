"""Tensors made from shapes, attributes and random draws, and changes of the dtype."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from ...jacobians.arrays import Array
from .table import ints, kernel

FLOAT8 = {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}


@kernel("Shape", tensors=True)
def shape(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    """The lengths of the axes from start to end."""
    return np.array(np.shape(x)[start:end], np.int64)


@kernel("Size", tensors=True)
def size(x: Array) -> Array:
    """The number of elements."""
    return np.array(math.prod(np.shape(x)), np.int64)


@kernel("Constant")
def constant(
    *,
    value: Array | None = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_int: int | None = None,
    value_ints: Any = None,
    value_string: str | None = None,
    value_strings: Any = None,
    sparse_value: Any = None,
) -> Array:
    """The attribute as a tensor."""
    if value is not None:
        return value
    if sparse_value is not None:
        return dense(sparse_value)
    if (floats := value_float if value_floats is None else value_floats) is not None:
        return np.array(floats, np.float32)
    if (whole := value_int if value_ints is None else value_ints) is not None:
        return np.array(whole, np.int64)
    return np.array(value_string if value_strings is None else value_strings, object)


def dense(sparse: onnx.SparseTensorProto) -> Array:
    """A sparse tensor as a dense one; the indices are flat, or one row per value."""
    values = onnx.numpy_helper.to_array(sparse.values)
    indices = onnx.numpy_helper.to_array(sparse.indices)
    tensor = np.zeros(tuple(sparse.dims), values.dtype)
    places = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, tensor.shape)
    tensor[places] = values
    return tensor


@kernel("ConstantOfShape")
def constant_of_shape(shape: Any, *, value: Array | None = None) -> Array:
    """One value everywhere, by default the float 0: a view with stride 0."""
    element = np.float32(0) if value is None else np.asarray(value).reshape(())
    return np.broadcast_to(element, ints(shape))


@kernel("Range")
def range_(start: Array, limit: Array, delta: Array, *, stash_type: int = 1) -> Array:
    """start, start + delta, ... before the limit; half precision is rounded at the end."""
    dtype = np.result_type(start, limit, delta)
    first, step = np.asarray(start).item(), np.asarray(delta).item()
    count = max(int(np.ceil((np.asarray(limit).item() - first) / step)), 0)
    return (first + step * np.arange(count)).astype(dtype)


@kernel("OneHot")
def one_hot(indices: Array, depth: Any, values: Array, *, axis: int = -1) -> Array:
    """The second value at the index on the new axis, the first one elsewhere."""
    (depth,) = ints(np.asarray(depth).astype(np.int64))
    places = np.asarray(indices).astype(np.int64)
    places = np.where((places < 0) & (places >= -depth), places + depth, places)
    axis = axis + places.ndim + 1 if axis < 0 else axis
    line = np.arange(depth).reshape(-1, *(1,) * (places.ndim - axis))
    return np.where(np.expand_dims(places, axis) == line, values[1], values[0])


def numpy_dtype(onnx_type: int) -> np.dtype:
    """The NumPy dtype of an ONNX element type."""
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(onnx_type))


@kernel("Cast")
def cast(x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """x converted to the type `to`; 8-bit floats saturate instead of overflowing."""
    return converted(x, numpy_dtype(to), bool(saturate), round_mode)


@kernel("CastLike")
def cast_like(x: Array, target: Array, *, saturate: int = 1, round_mode: str = "up") -> Array:
    """x converted to the dtype of the target."""
    return converted(np.asarray(x), target.dtype, bool(saturate), round_mode)


def converted(x: Array, dtype: np.dtype, saturate: bool, round_mode: str) -> Array:
    """x converted to a dtype, rounded and saturated as in ONNX."""
    if dtype.name in FLOAT8 and saturate:
        return onnx.numpy_helper.saturate_cast(x, dtype)
    if dtype.name == "float8_e8m0fnu":
        return onnx.numpy_helper.to_float8e8m0(x, saturate, round_mode).astype(dtype)
    if dtype.kind in "OU":
        return x.astype(np.str_).astype(object)
    return x.astype(dtype, copy=False)


@kernel("Multinomial")
def multinomial(
    x: Array, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Array:
    """Classes drawn with probabilities in proportion to exp(x), for every row of x."""
    rng = np.random.default_rng(None if seed is None else int(seed))
    noise = rng.gumbel(size=(len(x), sample_size, x.shape[1]))
    return np.argmax(x[:, None] + noise, axis=2).astype(numpy_dtype(dtype))
