"""ConvTranspose: one matrix product per block of inputs, added at the places of the taps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .convolution import MOST, blocks, check_kernel, grouped, shifted
from .table import kernel, wide
from .windows import Windows, transposed_windows


@kernel("ConvTranspose")
@wide
def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Any = None,
    **geometry: Any,
) -> Array:
    """y[n, m, i · stride + t · dilation − begin] is Σ w[c, m, t] x[n, c, i], plus b[m]."""
    check_kernel(w, kernel_shape)
    grid = transposed_windows(x.shape[2:], w.shape[2:], **geometry)
    y: Array = np.zeros((len(x), w.shape[1] * group, *grid.framed), x.dtype)
    if x.shape[1] == group > 1:
        spread_depthwise(y, x, w, grid)
    else:
        spread(y, x, w, grid, group)
    kept = (slice(a, a + n) for a, n in zip(grid.begins, grid.space, strict=True))
    return shifted(y[(..., *kept)], b)


def spread(y: Array, x: Array, w: Array, grid: Windows, group: int) -> None:
    """Add to y the kernel, weighted by each element of x, around the place of the element."""
    weights = grouped(w, group).swapaxes(1, 2)
    row = y.shape[1] * math.prod(grid.kernel + grid.count[1:]) * x.itemsize
    if row > MOST and math.prod(grid.kernel) > 1:
        for part, taps, at in grid.halves():
            spread(y[at], x, w[taps], part, group)
        return
    for images, rows in blocks(len(x), grid.count[0], row, w.nbytes):
        part = x[images, :, rows].swapaxes(0, 1)
        size = math.prod(part.shape[1:])
        product = np.matmul(weights, part.reshape(group, weights.shape[2], size))
        taps = product.reshape(y.shape[1], *grid.kernel, *part.shape[1:])
        lower = y[images, :, rows.start * grid.strides[0] :]
        stamp(lower.swapaxes(0, 1), taps, replace(grid, count=part.shape[2:]))


def spread_depthwise(y: Array, x: Array, w: Array, grid: Windows) -> None:
    """The same for one input channel per group, without a product of matrices."""
    y = y.reshape(*x.shape[:2], w.shape[1], *y.shape[2:])
    if is_mostly_kernel(grid):
        for at, reach in turned(grid).taps():
            y[(..., *reach)] += w[None] * x[(..., *at)].reshape(*x.shape[:2], *(1,) * (w.ndim - 1))
        return
    for tap, reach in grid.taps():
        weight = w[(..., *tap)].reshape(*w.shape[:2], *(1,) * len(tap))
        y[(..., *reach)] += weight * x[:, :, None]


def stamp(y: Array, taps: Array, grid: Windows) -> None:
    """Add taps (channels, *kernel, n, *count) to y (channels, n, *space) where each tap falls."""
    if is_mostly_kernel(grid):
        rank = len(grid.kernel)
        kernel, count = range(1, 1 + rank), range(2 + rank, 2 + 2 * rank)
        taps, grid = taps.transpose(0, *count, 1 + rank, *kernel), turned(grid)
    for tap, reach in grid.taps():
        y[(..., *reach)] += taps[(slice(None), *tap)]


def is_mostly_kernel(grid: Windows) -> bool:
    """Whether there are more taps than elements of x, which then take fewer steps."""
    return math.prod(grid.count) < math.prod(grid.kernel)


def turned(grid: Windows) -> Windows:
    """Elements of x as the taps of a window that slides over the kernel: the sum is the same."""
    return replace(
        grid, kernel=grid.count, count=grid.kernel, strides=grid.dilations, dilations=grid.strides
    )
