"""Operators that move elements and compute nothing: shapes, axes, blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from ...jacobians.arrays import Array, Shape, shape_of
from ...jacobians.readings import library_of, module_of
from ...jacobians.symint import Number, if_negative, largest, same, smallest
from .table import STATIC, as_ints, kernel


@kernel("Identity", tensors=True, view=True)
def identity(x: Array) -> Array:
    """Return x."""
    return x


@kernel("Reshape", tensors=True, hosted=True, view=True)
def reshape(x: Array, shape: Any, *, allowzero: int = 0) -> Array:
    """x in another shape: −1 is inferred, 0 keeps the length in x (unless `allowzero`).

    Where x has no such length, or the shape would not fit an empty x, 0 is an empty axis.
    """
    shape = as_ints(shape)
    if min(shape, default=0) < -1:
        raise ValueError(f"a shape has sizes, -1 and 0, not {list(shape)}")
    if not allowzero and 0 in shape:
        lengths = (*x.shape, *(0 for _ in shape))
        kept = tuple(n or lengths[i] for i, n in enumerate(shape))
        shape = kept if -1 in kept or math.prod(kept) == math.prod(x.shape) else shape
    return x.reshape(shape)


@kernel("Transpose", tensors=True, quick=(0,))
def transpose(x: Array, *, perm: Any = None) -> Array:
    """x with its axes permuted, by default reversed."""
    perm = tuple(reversed(range(x.ndim))) if perm is None else tuple(perm)
    plain = isinstance(x, np.ndarray) or not hasattr(x, "permute")
    return x.transpose(perm) if plain else x.permute(perm)


@kernel("Flatten", tensors=True, view=True)
def flatten(x: Array, *, axis: int = 1) -> Array:
    """A matrix: the axes before `axis` are its rows, the others its columns."""
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@kernel("Squeeze", tensors=True, hosted=True, view=True)
def squeeze(x: Array, axes: Any = None) -> Array:
    """x without the given axes of length 1, or without all axes of length 1."""
    axes = tuple(k for k, n in enumerate(x.shape) if n == 1) if axes is None else as_ints(axes)
    if any(x.shape[k] != 1 for k in axes):
        raise ValueError(f"the axes {axes} of {tuple(x.shape)} are not all of length 1")
    return x.squeeze(axes) if axes else x


@kernel("Unsqueeze", tensors=True, hosted=True, view=True)
def unsqueeze(x: Array, axes: Any) -> Array:
    """x with new axes of length 1, at these positions of the result."""
    axes = as_ints(axes)
    index: list[Any] = [slice(None)] * (x.ndim + len(axes))
    for axis in axes:
        index[axis] = None
    return x[(*index, ...)]


@kernel("Expand", tensors=True, hosted=True, view=True)
def expand(x: Array, shape: Any) -> Array:
    """x repeated along new axes and axes of length 1: a view with stride 0."""
    return module_of(x).broadcast_to(x, np.broadcast_shapes(tuple(x.shape), as_ints(shape)))


@kernel("Concat", tensors=True)
def concat(*inputs: Array, axis: int) -> Array:
    """The inputs joined along an axis."""
    return module_of(inputs[0]).concatenate(inputs, axis)


@kernel("Split", counted=True, tensors=True, hosted=True)
def split(
    x: Array, parts: Any = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> tuple[Array, ...]:
    """Slabs along an axis, of the given lengths, or equal with a shorter last one if necessary."""
    n, count = x.shape[axis], num_outputs or outputs
    if parts is not None and sum(as_ints(parts)) != n:
        raise ValueError(f"parts of {as_ints(parts)} do not make up an axis of {n}")
    lengths = equal_parts(n, count) if parts is None else as_ints(parts)
    ahead, ends = (slice(None),) * (axis % x.ndim), (0, *accumulate(lengths))
    return tuple(x[(*ahead, slice(*ends_))] for ends_ in pairwise(ends))


@kernel("Slice", tensors=True, hosted=True)
def slice_(x: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Array:
    """x[start:end:step] along the given axes, by default the first ones."""
    return sliced(x.shape, starts, ends, axes, steps)(x)


def sliced(shape: Shape, *told: Any) -> Callable[[Array], Array]:
    """The slice of arrays of one shape."""
    return itemgetter(tuple(axis_slices(shape, *told)))


STATIC["Slice"] = sliced


def axis_slices(
    shape: Shape, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> list[slice]:
    """The slices of every axis: ONNX clamps the start of a backward slice to 0, Python to -1."""
    starts, ends = as_ints(starts), as_ints(ends)
    axes = range(len(starts)) if axes is None else as_ints(axes)
    steps = (1,) * len(starts) if steps is None else as_ints(steps)
    found = [slice(None)] * len(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        found[axis] = slice(max(start, -shape[axis]), end, step)
    return found


@kernel("Tile", tensors=True, hosted=True)
def tile(x: Array, repeats: Any) -> Array:
    """x repeated as a whole along each axis."""
    counts = as_ints(repeats)
    if min(counts, default=0) < 0:
        raise ValueError(f"x cannot be repeated {list(counts)} times")
    return module_of(x).tile(x, counts)


@kernel("Pad", tensors=True, hosted=True)
def pad(
    x: Array, pads: Any, constant_value: Any = None, axes: Any = None, *, mode: str = "constant"
) -> Array:
    """x with elements added at both ends of the axes; negative widths remove elements."""
    widths = pad_widths(x, as_ints(pads), range(x.ndim) if axes is None else as_ints(axes))
    pairs = zip(x.shape, widths, strict=True)
    x = x[tuple(slice(max(-a, 0), n + min(b, 0)) for n, (a, b) in pairs)]
    added = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        value = 0 if constant_value is None else constant_value
        return framed(x, added, value.reshape(()).item() if hasattr(value, "reshape") else value)
    for axis, (a, b) in enumerate(added):
        if a or b:  # NumPy knows which element each margin repeats
            places = np.pad(np.arange(x.shape[axis]), (a, b), mode=mode)  # type: ignore[call-overload]
            x = x[(*(slice(None),) * axis, places)]
    return x


def pad_widths(x: Array, pads: Shape, axes: Any) -> list[tuple[int, int]]:
    """ONNX's (begins ..., ends ...) as a pair (begin, end) for every axis of x."""
    widths = [(0, 0)] * len(shape_of(x))
    for axis, begin, end in zip(axes, pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True):
        widths[axis] = begin, end
    return widths


def framed(x: Array, widths: list[tuple[int, int]], value: Any) -> Array:
    """x inside a frame of a constant value; x itself if the frame is empty."""
    if not any(a or b for a, b in widths):
        return x
    shape = tuple(a + n + b for n, (a, b) in zip(x.shape, widths, strict=True))
    library = library_of(x)
    if not library.writes:
        return library.module.pad(x, widths, constant_values=value)
    y = library.full(x, shape, value)
    y[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, widths, strict=True))] = x
    return y


@kernel("DepthToSpace", tensors=True)
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Channels moved into blocks of space: (n, b²c, h, w) to (n, c, bh, bw)."""
    (n, c, h, w), b = x.shape, blocksize
    if mode == "DCR":
        blocks = transpose(x.reshape(n, b, b, c // b**2, h, w), perm=(0, 3, 4, 1, 5, 2))
    else:
        blocks = transpose(x.reshape(n, c // b**2, b, b, h, w), perm=(0, 1, 4, 2, 5, 3))
    return blocks.reshape(n, c // b**2, h * b, w * b)


@kernel("SpaceToDepth", tensors=True)
def space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Blocks of space moved into channels: (n, c, bh, bw) to (n, b²c, h, w)."""
    (n, c, h, w), b = x.shape, blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    blocks = transpose(x.reshape(n, c, h // b, b, w // b, b), perm=order)
    return blocks.reshape(n, c * b**2, h // b, w // b)


@kernel("Trilu", tensors=True, hosted=True)
def trilu(x: Array, k: Any = 0, *, upper: int = 1) -> Array:
    """The triangle above, or below, the k-th diagonal of each matrix; zeros elsewhere."""
    k = 0 if k is None else as_ints(k)[0]
    return module_of(x).triu(x, k) if upper else module_of(x).tril(x, k)


def equal_parts(n: int, parts: int) -> tuple[int, ...]:
    """The lengths of equal parts of an axis of length n, the last one smaller if necessary.

    >>> equal_parts(7, 3)
    (3, 3, 1)
    """
    width = -(-n // parts)
    return tuple(smallest(width, largest(n - width * k, 0)) for k in range(parts))


def span(start: int, end: int, step: int, n: int) -> tuple[int, int, int]:
    """start, step and count of a slice of an axis of length n, clamped as ONNX does.

    >>> span(-1, -100, -2, 5)
    (4, -2, 3)
    """
    start, end = (if_negative(i, i + n, i) for i in (start, end))
    low, high = (0, n) if step > 0 else (-1, n - 1)
    first, last = clamped(start, 0, high), clamped(end, low, high)
    count = largest(0, -((first - last) // step))
    return (0, 1, 0) if same(count, 0) else (first, step, count)


END_OF_AXIS = 2**31 - 1
"""Longer than any axis: exporters write such a number for a slice without an end."""


def clamped(i: Number, low: Number, high: Number) -> Number:
    """i clamped to [low, high]; `END_OF_AXIS` and beyond mean a bound, also a symbolic one."""
    if isinstance(i, int) and abs(i) >= END_OF_AXIS:
        return high if i > 0 else smallest(low, high)
    return smallest(largest(i, low), high)


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
    *, value: Array | None = None, value_float: float | None = None, value_floats: Any = None,
    value_int: int | None = None, value_ints: Any = None, value_string: str | None = None,
    value_strings: Any = None, sparse_value: Any = None,
) -> Array:  # fmt: skip
    """The attribute as a tensor."""
    if value is not None:
        return value
    if sparse_value is not None:
        return fill_sparse(sparse_value)
    if (floats := value_float if value_floats is None else value_floats) is not None:
        return np.array(floats, np.float32)
    if (whole := value_int if value_ints is None else value_ints) is not None:
        return np.array(whole, np.int64)
    return np.array(value_string if value_strings is None else value_strings, object)


def fill_sparse(sparse: onnx.SparseTensorProto) -> Array:
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
    return np.broadcast_to(element, as_ints(shape))


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
    (depth,) = as_ints(np.asarray(depth).astype(np.int64))
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
