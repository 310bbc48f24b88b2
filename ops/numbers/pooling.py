"""Pooling: a maximum, mean or p-norm over windows, or over all spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .table import Kernel, ints, kernel, lowest, single_precision
from .windows import Windows, padded, transposed_windows, windows


def slide(x: Array, grid: Windows, ufunc: np.ufunc) -> Array:
    """The ufunc reduced over the taps of every window of a padded x, one axis at a time."""
    lead = x.ndim - len(grid.space)
    for axis, taps in enumerate(grid.kernel):
        ahead = (slice(None),) * (lead + axis)
        first, *others = (x[(*ahead, grid.reach(axis, tap))] for tap in range(taps))
        x = first.copy() if others else first
        for part in others:
            ufunc(x, part, out=x)
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


@kernel("MaxPool", counted=True)
def max_pool(
    x: Array, *, kernel_shape: Any, storage_order: int = 0, outputs: int = 1, **geometry: Any
) -> Any:
    """The maximum of each window; then its index in the flattened x."""
    grid = windows(x.shape[2:], kernel_shape, **geometry)
    framed = padded(x, grid, lowest(x.dtype))
    if outputs == 1:
        return slide(framed, grid, np.maximum)
    values, taps = greatest_taps(framed, grid)
    offsets, base = places(x.shape[:2], grid, storage_order)
    found = np.take(offsets, taps)
    found += base
    return values, found


def greatest_taps(x: Array, grid: Windows) -> tuple[Array, Array]:
    """The maximum of each window of a padded x, and the number of the first tap to reach it."""
    parts = (x[(..., *reach)].copy() for _, reach in grid.taps())  # read twice, in one piece
    best = next(parts)
    taps = np.zeros(best.shape, np.min_scalar_type(math.prod(grid.kernel)))
    for number, part in enumerate(parts, 1):  # numbers grow: the maximum is the last one
        np.maximum(taps, (part > best) * taps.dtype.type(number), out=taps)
        np.maximum(best, part, out=best)
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


@kernel("AveragePool", wide=True)
def average_pool(
    x: Array, *, kernel_shape: Any, count_include_pad: int = 0, **geometry: Any
) -> Array:
    """The mean of each window over its elements in x, and in the padding if that is counted.

    It is 0 for windows without elements, as in ONNX Runtime.
    """
    grid = windows(x.shape[2:], kernel_shape, **geometry)
    sums = slide(padded(x, grid), grid, np.add)
    return sums / np.maximum(members(grid, count_include_pad), 1).astype(x.dtype)


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


@kernel("LpPool", wide=True)
def lp_pool(x: Array, *, kernel_shape: Any, p: int = 2, **geometry: Any) -> Array:
    """(Σ |x|ᵖ)^(1/p) over each window."""
    grid = windows(x.shape[2:], kernel_shape, **geometry)
    return slide(padded(np.abs(x) ** p, grid), grid, np.add) ** (1 / p)


def over_space(name: str, reduce: Kernel) -> None:
    """Register a reduction over all spatial axes as a kernel."""

    @kernel(name, wide=True)
    def pooled(x: Array) -> Array:
        return reduce(x, axis=tuple(range(2, x.ndim)), keepdims=True)


over_space("GlobalAveragePool", np.mean)
over_space("GlobalMaxPool", np.max)


@kernel("GlobalLpPool", wide=True)
def global_lp_pool(x: Array, *, p: int = 2) -> Array:
    """(Σ |x|ᵖ)^(1/p) over all spatial axes."""
    return np.sum(np.abs(x) ** p, axis=tuple(range(2, x.ndim)), keepdims=True) ** (1 / p)


@kernel("LRN", wide=True)
def lrn(
    x: Array,
    *,
    size: int,
    alpha: float = single_precision(0.0001),
    beta: float = 0.75,
    bias: float = 1.0,
) -> Array:
    """x / (bias + α / size · Σ x²)^β, summed over the `size` channels around each one."""
    squares = np.square(x).swapaxes(1, -1)
    grid = windows(squares.shape[-1:], (size,), pads=((size - 1) // 2, size // 2))
    sums = slide(padded(squares, grid), grid, np.add).swapaxes(1, -1)
    return x / (bias + alpha / size * sums) ** beta
