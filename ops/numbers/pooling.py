"""Pooling: a maximum, mean or p-norm over windows, or over all spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...jacobians.arrays import Array, dtype_of, like, space
from .table import Kernel, as_type, ints, kernel, lowest, single_precision
from .windows import Windows, padded, transposed_windows, windows


def slide(x: Array, grid: Windows, pair: Kernel) -> Array:
    """Pairs of numbers reduced over the taps of every window of a padded x, axis by axis."""
    lead = x.ndim - len(grid.space)
    for axis, taps in enumerate(grid.kernel):
        ahead = (slice(None),) * (lead + axis)
        x, *others = (x[(*ahead, grid.reach(axis, tap))] for tap in range(taps))
        x = pair(x, others.pop(0)) if others else x
        for part in others:
            pair(x, part, out=x)
    return x


@kernel("MaxUnpool")
def max_unpool(
    x: Array, index: Array, output_shape: Any = None, *, kernel_shape: Any, pads: Any = None,
    strides: Any = None,
) -> Array:  # fmt: skip
    """y[index] = x, zero elsewhere; indices refer to the shape that the windows imply."""
    if index.shape != x.shape or x.ndim != len(kernel_shape) + 2:
        raise ValueError("x and its indices have one shape, and kernel_shape an entry for each "
                         "axis but the first two")  # fmt: skip
    grid = transposed_windows(x.shape[2:], kernel_shape, pads=pads, strides=strides)
    y = np.zeros((*x.shape[:2], *grid.space), x.dtype)
    y.reshape(-1)[index.ravel()] = x.ravel()
    if output_shape is None:
        return y
    whole = np.zeros(ints(output_shape), x.dtype)
    whole[tuple(map(slice, y.shape))] = y
    return whole


@kernel("MaxPool", counted=True, tensors=True, quick=(1,))  # ONNX Runtime takes 4 times as long
def max_pool(
    x: Array, *, kernel_shape: Any, storage_order: int = 0, outputs: int = 1, **geometry: Any
) -> Any:
    """The maximum of each window; then its index in the flattened x."""
    grid = windows(x.shape[2:], kernel_shape, **geometry)
    framed = padded(x, grid, lowest(dtype_of(x)))
    if outputs == 1:
        return slide(framed, grid, space(x).maximum)
    values, taps = greatest_taps(framed, grid)
    taps = as_type(taps, space(x).int64)
    offsets, base = (like(part, taps) for part in places(x.shape[:2], grid, storage_order))
    found = space(x).take(offsets, taps)
    found += base
    return values, found


def greatest_taps(x: Array, grid: Windows) -> tuple[Array, Array]:
    """The maximum of each window of a padded x, and the number of the first tap to reach it."""
    xp = space(x)
    parts = (xp.asarray(x[(..., *reach)], copy=True) for _, reach in grid.taps())  # read twice
    best = next(parts)
    dtype = xp.uint8 if math.prod(grid.kernel) < 256 else xp.int64
    taps = xp.zeros_like(best, dtype=dtype)
    for number, part in enumerate(parts, 1):  # numbers grow: the maximum is the last one
        xp.maximum(taps, as_type(part > best, dtype) * number, out=taps)
        xp.maximum(best, part, out=best)
    return best, taps


def places(lead: Sequence[int], grid: Windows, column_major: int) -> tuple[Array, Array]:
    """Two parts of the index in the flattened x: of each tap by its number, and of each window."""
    rank, space = len(grid.space), grid.space
    others = (space[:axis] if column_major else space[axis + 1 :] for axis in range(rank))
    steps = np.array([math.prod(lengths) for lengths in others])
    starts = linear(grid.count, steps * grid.strides) - steps @ grid.begins
    offsets = linear(grid.kernel, steps * grid.dilations).ravel()
    images = linear(lead, np.array([lead[1], 1]) * math.prod(space))
    return offsets, images.reshape(*images.shape, *(1,) * rank) + starts


def linear(shape: Sequence[int], steps: Array) -> Array:
    """The array whose elements are Σ index · step.

    >>> linear((2, 3), np.array([10, 1])).tolist()
    [[0, 1, 2], [10, 11, 12]]
    """
    return np.tensordot(steps, np.indices(tuple(shape)), 1)


@kernel("AveragePool", wide=True, tensors=True)
def average_pool(
    x: Array, *, kernel_shape: Any, count_include_pad: int = 0, **geometry: Any
) -> Array:
    """The mean of each window over its elements in x, and in the padding if that is counted.

    The mean is 0 for windows without elements, as in ONNX Runtime.
    """
    grid = windows(x.shape[2:], kernel_shape, **geometry)
    sums = slide(padded(x, grid), grid, space(x).add)
    return sums / like(np.maximum(members(grid, count_include_pad), 1), x)


def members(grid: Windows, count_padding: int) -> Array:
    """The number of elements of each window: the product of the counts along the axes."""
    product = np.ones((), np.int64)
    for axis, count in enumerate(grid.count):
        begin, end = (grid.begins[axis], grid.ends[axis]) if count_padding else (0, 0)
        first = np.arange(count)[:, None] * grid.strides[axis] - grid.begins[axis]
        at = first + np.arange(grid.kernel[axis]) * grid.dilations[axis]
        inside = (at >= -begin) & (at < grid.space[axis] + end)
        product = product[..., None] * inside.sum(axis=1)
    return product


@kernel("LpPool", wide=True, tensors=True)
def lp_pool(x: Array, *, kernel_shape: Any, p: int = 2, **geometry: Any) -> Array:
    """(Σ |x|ᵖ)^(1/p) over each window."""
    grid = windows(x.shape[2:], kernel_shape, **geometry)
    return slide(padded(abs(x) ** p, grid), grid, space(x).add) ** (1 / p)


def over_space(x: Array) -> tuple[int, ...]:
    """The spatial axes."""
    return tuple(range(2, x.ndim))


kernel("GlobalAveragePool", wide=True, tensors=True)(lambda x: x.mean(over_space(x), keepdims=True))
kernel("GlobalMaxPool", tensors=True)(lambda x: space(x).amax(x, over_space(x), keepdims=True))


@kernel("GlobalLpPool", wide=True, tensors=True)
def global_lp_pool(x: Array, *, p: int = 2) -> Array:
    """(Σ |x|ᵖ)^(1/p) over all spatial axes."""
    return (abs(x) ** p).sum(over_space(x), keepdims=True) ** (1 / p)


@kernel("LRN", wide=True, tensors=True)
def lrn(
    x: Array, *, size: int, alpha: float = single_precision(0.0001), beta: float = 0.75,
    bias: float = 1.0,
) -> Array:  # fmt: skip
    """x / (bias + α / size · Σ x²)^β, summed over the `size` channels around each one."""
    squares = (x * x).swapaxes(1, -1)
    grid = windows(squares.shape[-1:], (size,), pads=((size - 1) // 2, size // 2))
    sums = slide(padded(squares, grid), grid, space(x).add).swapaxes(1, -1)
    return x / (bias + alpha / size * sums) ** beta
