"""Windows over space: convolutions as products with blocks of patches, and pooling.

With stride 1, the transpose of a convolution is a convolution with the flipped kernel.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...jacobians.arrays import Array, dtype_of, like
from ...jacobians.readings import library_of, module_of
from .table import Kernel, as_ints, as_type, kernel, lowest, single_precision
from .windows import Windows, padded, patches, transposed_windows, windows, within_padding

PATCH_BYTES = 1 << 22
"""Bytes of patches gathered at once, so that they are in cache when they are multiplied."""
ROW_BYTES = 1 << 28
"""Bytes of the patches of one row of the result above which a kernel is split."""


@kernel("Conv", wide=True)
def conv(
    x: Array, w: Array, b: Array | None = None, *, group: int = 1, kernel_shape: Any = None,
    **geometry: Any,
) -> Array:  # fmt: skip
    """y[n, m, o] = Σ w[m, c, t] x[n, c, o · stride + t · dilation − begin] + b[m]."""
    check_kernel(w, kernel_shape)
    grid = within_padding(windows(x.shape[2:], w.shape[2:], **geometry))
    return add_channels(gathered(x, w, grid, group), b)


def gathered(x: Array, w: Array, grid: Windows, group: int) -> Array:
    """The convolution without a bias, by the method for the shape of its kernel."""
    x = padded(x, grid)
    if math.prod(grid.kernel) == 1:
        return multiply_channels(x, w, grid, group)
    return general(x, w, grid, group)


def check_kernel(w: Array, kernel_shape: Any) -> None:
    """Raises `ValueError` where an attribute gives the kernel another shape than it has."""
    if kernel_shape is not None and tuple(kernel_shape) != w.shape[2:]:
        raise ValueError(f"the kernel has the lengths {w.shape[2:]}, not {tuple(kernel_shape)}")


def add_channels(y: Array, b: Array | None) -> Array:
    """y plus a vector over the channels, added in place."""
    return y if b is None else np.add(y, b.reshape(-1, *(1,) * (y.ndim - 2)), out=y)


def grouped(w: Array, group: int) -> Array:
    """The weights as one matrix per group: (group, outputs / group, inputs / group · taps)."""
    return w.reshape(group, len(w) // group, math.prod(w.shape[1:]))


def multiply_channels(x: Array, w: Array, grid: Windows, group: int) -> Array:
    """A kernel of one tap: a product over the channels."""
    _, reach = next(grid.taps())
    n, c = x.shape[:2]
    x = x[(..., *reach)].reshape(n, group, c // group, math.prod(grid.count))
    return np.matmul(grouped(w, group), x).reshape(n, len(w), *grid.count)


def general(x: Array, w: Array, grid: Windows, group: int) -> Array:
    """Blocks of patches as the columns of a matrix, multiplied from the left by the weights."""
    view, weights = patches(x, grid), grouped(w, group)
    row = view[:1, :, :1].nbytes
    if row > ROW_BYTES and math.prod(grid.kernel) > 1:
        parts = (general(x[at], w[taps], part, group) for part, taps, at in grid.halves())
        return functools.reduce(operator.iadd, parts)
    y = np.empty((len(x), len(w), *grid.count), np.result_type(x, w))
    for images, rows in blocks(len(x), grid.count[0], row, w.nbytes):
        target = y[images, :, rows].swapaxes(0, 1)
        product = np.matmul(weights, patch_columns(view[images, :, rows], group))
        target[...] = product.reshape(target.shape)
    return y


def blocks(images: int, rows: int, row: int, least: int) -> Iterator[tuple[slice, slice]]:
    """Blocks of whole images, or of rows of one image, whose patches fill `PATCH_BYTES` bytes."""
    room = max(PATCH_BYTES, least) // max(row, 1)
    many, height = max(room // max(rows, 1), 1), max(min(room, rows), 1)
    for n in range(0, images, many):
        for i in range(0, rows, height):
            yield slice(n, n + many), slice(i, i + height)


def patch_columns(part: Array, group: int) -> Array:
    """Patches (n, c, *count, *kernel) as matrices (group, c / group · kernel, n · count).

    The longer of count and kernel is copied as the inner axes, which is faster.
    """
    rank = part.ndim // 2 - 1
    n, c, *rest = part.shape
    size, depth = n * math.prod(rest[:rank]), c // group * math.prod(rest[rank:])
    part = part.reshape(n, group, c // group, *rest)
    count, taps = (0, *range(3, 3 + rank)), (2, *range(3 + rank, 3 + 2 * rank))
    if rest[-1] <= rest[rank - 1]:
        return part.transpose(1, *taps, *count).reshape(group, depth, size)
    return part.transpose(1, *count, *taps).reshape(group, size, depth).swapaxes(1, 2)


@kernel("ConvTranspose", wide=True)
def conv_transpose(
    x: Array, w: Array, b: Array | None = None, *, group: int = 1, kernel_shape: Any = None,
    **geometry: Any,
) -> Array:  # fmt: skip
    """y[n, m, i · stride + t · dilation − begin] is Σ w[c, m, t] x[n, c, i], plus b[m]."""
    check_kernel(w, kernel_shape)
    grid = transposed_windows(x.shape[2:], w.shape[2:], **geometry)
    if is_gathered(x, w, grid, group):
        return add_channels(gathered(x, flipped(w, group), mirror_windows(grid), group), b)
    y: Array = np.zeros((len(x), w.shape[1] * group, *grid.framed), np.result_type(x, w))
    if x.shape[1] == group > 1:
        spread_depthwise(y, x, w, grid)
    else:
        scatter_patches(y, x, w, grid, group)
    kept = (slice(a, a + n) for a, n in zip(grid.begins, grid.space, strict=True))
    return add_channels(y[(..., *kept)], b)


def is_gathered(x: Array, w: Array, grid: Windows, group: int) -> bool:
    """Whether y is a convolution of x, with fewer entries to gather than `scatter_patches` adds up.

    Entries of padding are multiplied too, and stay zero only where the kernel is finite.
    """
    into, out = len(w) * math.prod(grid.space), group * w.shape[1] * math.prod(grid.count)
    fits = {*grid.strides} == {1} and min(mirror_windows(grid).begins) >= 0
    fits = fits and into <= out and len(w) > 0 and w.dtype.kind in "fc"  # else symbols
    return fits and bool(np.isfinite(w).all())


def mirror_windows(grid: Windows) -> Windows:
    """The windows over x, one for each entry of y, where the stride is 1."""
    begins = (grid.covered(axis, 1) - 1 - begin for axis, begin in enumerate(grid.begins))
    return replace(grid, space=grid.count, count=grid.space, begins=tuple(begins))


def flipped(w: Array, group: int) -> Array:
    """The kernel with its taps in reverse, and the channels of each group exchanged."""
    taps = w.shape[2:]
    turned = w.reshape(group, len(w) // group, w.shape[1], *taps).swapaxes(1, 2)
    reverse = module_of(w).flip(turned, tuple(range(3, turned.ndim)))
    return reverse.reshape(group * w.shape[1], len(w) // group, *taps)


def scatter_patches(
    y: Array, x: Array, w: Array, grid: Windows, group: int, *, is_zero: bool = True
) -> None:
    """Add to y, which may be known to be zero, the kernel times each element of x, at its place."""
    weights = grouped(w, group).swapaxes(1, 2)
    row = y.shape[1] * math.prod(grid.kernel + grid.count[1:]) * x.itemsize
    if row > ROW_BYTES and math.prod(grid.kernel) > 1:
        for part, taps, at in grid.halves():
            scatter_patches(y[at], x, w[taps], part, group, is_zero=False)
        return
    memory: Array = np.empty(0, y.dtype)  # of the first block, the largest one, kept for the others
    for images, rows in blocks(len(x), grid.count[0], row, w.nbytes):
        block = x[images, :, rows]
        inner = -1 if len(block) > grid.count[-1] else -1 - len(grid.count)  # long inner additions
        part = np.moveaxis(block, 0, inner)
        columns = part.reshape(group, weights.shape[2], math.prod(part.shape[1:]))
        length = group * weights.shape[1] * columns.shape[-1]
        memory = memory if len(memory) else np.empty(length, y.dtype)
        product = memory[:length].reshape(*weights.shape[:2], columns.shape[-1])
        np.matmul(weights, columns, out=product)
        taps = product.reshape(y.shape[1], *grid.kernel, *part.shape[1:])
        lower = np.moveaxis(y[images, :, rows.start * grid.strides[0] :], 0, -1)
        total = np.zeros(lower.shape, y.dtype) if inner == -1 else lower
        stamp(total, np.moveaxis(taps, inner, -1), replace(grid, count=block.shape[2:]))
        if total is not lower:
            lower[...] = total if is_zero else lower + total


def spread_depthwise(y: Array, x: Array, w: Array, grid: Windows) -> None:
    """`scatter_patches` for one input channel per group, without a matrix product."""
    y = y.reshape(*x.shape[:2], w.shape[1], *y.shape[2:])
    if is_mostly_kernel(grid):
        for at, reach in swap_kernel(grid).taps():
            y[(..., *reach)] += w[None] * x[(..., *at)].reshape(*x.shape[:2], *(1,) * (w.ndim - 1))
        return
    for tap, reach in grid.taps():
        weight = w[(..., *tap)].reshape(*w.shape[:2], *(1,) * len(tap))
        y[(..., *reach)] += weight * x[:, :, None]


def stamp(y: Array, taps: Array, grid: Windows) -> None:
    """Add taps (channels, *kernel, *count, n) to y (channels, *space, n) at the taps' positions."""
    if is_mostly_kernel(grid):
        rank = len(grid.kernel)
        kernel, count = range(1, 1 + rank), range(1 + rank, 1 + 2 * rank)
        taps, grid = taps.transpose(0, *count, *kernel, -1), swap_kernel(grid)
    for tap, reach in grid.taps():
        y[:, *reach] += taps[:, *tap]


def is_mostly_kernel(grid: Windows) -> bool:
    """Whether x has fewer elements than the kernel has taps: a loop over them is then shorter."""
    return math.prod(grid.count) < math.prod(grid.kernel)


def swap_kernel(grid: Windows) -> Windows:
    """The grid with elements of x as taps of a window over the kernel: the sum is the same."""
    return replace(
        grid, kernel=grid.count, count=grid.kernel, strides=grid.dilations, dilations=grid.strides
    )


# -- pooling: a maximum, mean or p-norm over windows, or over all spatial axes ---------------------


def slide(x: Array, grid: Windows, pair: Kernel) -> Array:
    """Pairs of numbers reduced over the taps of every window of a padded x, axis by axis."""
    lead, writes = x.ndim - len(grid.space), library_of(x).writes
    for axis, taps in enumerate(grid.kernel):
        ahead = (slice(None),) * (lead + axis)
        x, *others = (x[(*ahead, grid.reach(axis, tap))] for tap in range(taps))
        x = pair(x, others.pop(0)) if others else x
        for part in others:
            x = pair(x, part, out=x) if writes else pair(x, part)
    return x


def check_unpooled(x: Array, index: Array, kernel_shape: Any) -> None:
    """Raises `ValueError` where the shapes of an unpooling do not fit."""
    if index.shape != x.shape or x.ndim != len(kernel_shape) + 2:
        raise ValueError("x and its indices have one shape, and kernel_shape an entry for each "
                         "axis but the first two")  # fmt: skip


@kernel("MaxUnpool")
def max_unpool(
    x: Array, index: Array, output_shape: Any = None, *, kernel_shape: Any, pads: Any = None,
    strides: Any = None,
) -> Array:  # fmt: skip
    """y[index] = x, zero elsewhere; indices refer to the shape that the windows imply."""
    check_unpooled(x, index, kernel_shape)
    grid = transposed_windows(x.shape[2:], kernel_shape, pads=pads, strides=strides)
    y = np.zeros((*x.shape[:2], *grid.space), x.dtype)
    y.reshape(-1)[index.ravel()] = x.ravel()
    if output_shape is None:
        return y
    whole = np.zeros(as_ints(output_shape), x.dtype)
    whole[tuple(map(slice, y.shape))] = y
    return whole


@kernel("MaxPool", counted=True, tensors=True, quick=(1,))  # ONNX Runtime takes 4 times as long
def max_pool(
    x: Array, *, kernel_shape: Any, storage_order: int = 0, outputs: int = 1, **geometry: Any
) -> Any:
    """The maximum of each window; then its index in the flattened x."""
    grid = windows(x.shape[2:], kernel_shape, **geometry)
    low = lowest(dtype_of(x))
    framed = padded(x, grid, low)
    if outputs == 1:
        return slide(framed, grid, module_of(x).maximum)
    values, taps = greatest_taps(framed, grid)
    may_be_padding = framed.shape != x.shape
    if may_be_padding and library_of(x).writes:  # else it may be traced
        may_be_padding = bool((values == low).any())
    if may_be_padding:  # the first of them is not padding
        _, inside = greatest_taps(padded(module_of(x).ones_like(x), grid), grid)
        taps = module_of(x).where(values == low, inside, taps)
    taps = as_type(taps, np.dtype(np.int64))
    offsets, base = (like(part, taps) for part in tap_offsets(x.shape[:2], grid, storage_order))
    found = module_of(x).take(offsets, taps)
    found += base
    return values, found


def greatest_taps(x: Array, grid: Windows) -> tuple[Array, Array]:
    """The maximum of each window of a padded x, and the number of the first tap to reach it."""
    xp, writes = module_of(x), library_of(x).writes
    parts = (xp.asarray(x[(..., *reach)], copy=True) for _, reach in grid.taps())  # read twice
    best = next(parts)
    dtype = np.dtype(np.uint8 if math.prod(grid.kernel) < 256 else np.int64)
    taps = xp.zeros_like(best, dtype=getattr(xp, dtype.name))
    for number, part in enumerate(parts, 1):  # numbers grow: the maximum is the last one
        reached = as_type(part > best, dtype) * number
        if writes:
            xp.maximum(taps, reached, out=taps)
            xp.maximum(best, part, out=best)
        else:
            taps, best = xp.maximum(taps, reached), xp.maximum(best, part)
    return best, taps


def tap_offsets(lead: Sequence[int], grid: Windows, column_major: int) -> tuple[Array, Array]:
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
    sums = slide(padded(x, grid), grid, module_of(x).add)
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
    return slide(padded(abs(x) ** p, grid), grid, module_of(x).add) ** (1 / p)


def over_space(x: Array) -> tuple[int, ...]:
    """The spatial axes."""
    return tuple(range(2, x.ndim))


kernel("GlobalAveragePool", wide=True, tensors=True)(lambda x: x.mean(over_space(x), keepdims=True))
kernel("GlobalMaxPool", tensors=True)(lambda x: module_of(x).amax(x, over_space(x), keepdims=True))


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
    sums = slide(padded(squares, grid), grid, module_of(x).add).swapaxes(1, -1)
    return x / (bias + alpha / size * sums) ** beta
