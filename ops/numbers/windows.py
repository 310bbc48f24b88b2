"""The geometry of convolutions and pools: where a window that slides over space lies.

Along each spatial axis, tap t of window o lies at element  o · stride + t · dilation − begin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .layout import framed

Shape = tuple[int, ...]
Cut = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """How windows lie over space, one number per spatial axis.

    >>> same = windows((5, 6), (3, 3), strides=(1, 2), pads=(1, 1, 1, 1))
    >>> same.count, same.frame
    ((5, 3), [(1, 1), (1, 0)])
    """

    space: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    begins: Shape
    ends: Shape
    count: Shape
    """How many windows there are: the spatial shape of what comes out."""

    @property
    def frame(self) -> list[tuple[int, int]]:
        """The padding (before, after) of each axis that all windows need to lie inside."""
        needed = (self.covered(axis, n) for axis, n in enumerate(self.count))
        axes = zip(needed, self.begins, self.space, strict=True)
        return [(begin, max(end - begin - n, 0)) for end, begin, n in axes]

    def covered(self, axis: int, count: int) -> int:
        """The length along an axis that its first `count` windows cover."""
        extent = self.dilations[axis] * (self.kernel[axis] - 1) + 1
        return (count - 1) * self.strides[axis] + extent

    def reach(self, axis: int, tap: int) -> slice:
        """The padded elements at which one tap meets all the windows along an axis."""
        first, step = tap * self.dilations[axis], self.strides[axis]
        return slice(first, first + step * (self.count[axis] - 1) + 1, step)

    def taps(self) -> Iterator[tuple[Shape, tuple[slice, ...]]]:
        """Each tap, and the padded elements at which it meets all the windows."""
        for tap in itertools.product(*map(range, self.kernel)):
            yield tap, tuple(self.reach(axis, t) for axis, t in enumerate(tap))

    def halves(self) -> Iterator[tuple[Windows, Cut, Cut]]:
        """Each half of the taps along the longest axis: how it lies, which taps, from where on."""
        axis = int(np.argmax(self.kernel))
        half, end = self.kernel[axis] // 2, self.kernel[axis]
        for first, last in ((0, half), (half, end)):
            kernel = (*self.kernel[:axis], last - first, *self.kernel[axis + 1 :])
            rest = (slice(None),) * (len(kernel) - axis - 1)
            taps, start = slice(first, last), slice(first * self.dilations[axis], None)
            yield replace(self, kernel=kernel), (..., taps, *rest), (..., start, *rest)


def windows(
    space: Sequence[int],
    kernel: Sequence[int],
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Windows:
    """The windows that ONNX's attributes describe."""
    strides, dilations = filled(strides, 1, len(space)), filled(dilations, 1, len(space))
    extents = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    if auto_pad.startswith("SAME"):
        pads = same_pads(space, extents, strides, auto_pad)
    begins, ends = halves(None if auto_pad == "VALID" else pads, len(space))
    axes = zip(space, begins, ends, extents, strides, strict=True)
    count = tuple(positions(n, a, b, extent, stride, ceil_mode) for n, a, b, extent, stride in axes)
    return Windows(tuple(space), tuple(kernel), strides, dilations, begins, ends, count)


def filled(values: Sequence[int] | None, default: int, rank: int) -> Shape:
    """An attribute with one number per axis, or its default."""
    return tuple(values) if values is not None and len(values) else (default,) * rank


def halves(pads: Sequence[int] | None, rank: int) -> tuple[Shape, Shape]:
    """(begins, ends) of ONNX's pads."""
    both = filled(pads, 0, 2 * rank)
    return both[:rank], both[rank:]


def same_pads(space: Any, extents: Any, strides: Any, auto_pad: str) -> Shape:
    """The pads with which there are ⌈n / stride⌉ windows."""
    axes = zip(space, extents, strides, strict=True)
    return split_pads([max((-(-n // s) - 1) * s + e - n, 0) for n, e, s in axes], auto_pad)


def split_pads(totals: Sequence[int], auto_pad: str) -> Shape:
    """Half of the padding on each side: SAME_UPPER has the odd one at the end.

    >>> split_pads([3, 2], "SAME_UPPER"), split_pads([3, 2], "SAME_LOWER")
    ((1, 1, 2, 1), (2, 1, 1, 1))
    """
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (*small, *large) if auto_pad == "SAME_UPPER" else (*large, *small)


def positions(n: int, begin: int, end: int, extent: int, stride: int, ceil_mode: int) -> int:
    """The number of windows along an axis; none may start in the padding at the end."""
    room = n + begin + end - extent
    if not ceil_mode:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= n + begin else count


def padded(x: Array, grid: Windows, value: Any = 0) -> Array:
    """X inside the frame that the windows need."""
    return framed(x, [(0, 0)] * (x.ndim - len(grid.space)) + grid.frame, value)


def patches(x: Array, grid: Windows) -> Array:
    """The view (..., *count, *kernel) of a padded x: every window with its taps."""
    lead = x.ndim - len(grid.space)
    outer, inner = x.strides[:lead], np.array(x.strides[lead:])
    steps = (*outer, *inner * grid.strides, *inner * grid.dilations)
    shape = x.shape[:lead] + grid.count + grid.kernel
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)
