"""The geometry of convolutions and pooling: the positions of windows that slide over space.

Along each spatial axis, tap t of window o reads element  o · stride + t · dilation − begin.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...jacobians.arrays import Array, Shape
from ...jacobians.symint import at, if_negative, largest, smallest
from .layout import framed

Cut = tuple[Any, ...]

GEOMETRY = ("auto_pad", "ceil_mode", "dilations", "pads", "strides")
"""The attributes that determine the positions of windows."""

CROPPING = ("output_padding", "output_shape")
"""Further attributes of ConvTranspose that determine the positions of windows."""

AUTO_PADS = ("", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True, slots=True)
class Windows:
    """The positions of windows over space, one number per spatial axis.

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
    """The number of windows: the spatial shape of the output."""

    @property
    def frame(self) -> list[tuple[int, int]]:
        """The padding (before, after) of each axis that all windows need to lie inside."""
        needed = (self.covered(axis, n) for axis, n in enumerate(self.count))
        axes = zip(needed, self.begins, self.space, strict=True)
        return [(begin, largest(end - begin - n, 0)) for end, begin, n in axes]

    @property
    def drops(self) -> bool:
        """Whether `ceil_mode` drops a window that would begin behind the last entry.

        ONNX's shape inference counts such a window.
        """
        axes = zip(self.count, self.strides, self.space, self.begins, self.ends, strict=True)
        return any(
            self.covered(axis, n) < begin + size + end and n * s >= begin + size
            for axis, (n, s, size, begin, end) in enumerate(axes)
        )

    @property
    def apart(self) -> bool:
        """Whether no two windows overlap."""
        return all(self.covered(axis, 1) <= s for axis, s in enumerate(self.strides))

    def covered(self, axis: int, count: int) -> int:
        """The length along an axis that its first `count` windows cover."""
        extent = self.dilations[axis] * (self.kernel[axis] - 1) + 1
        return (count - 1) * self.strides[axis] + extent

    @property
    def framed(self) -> list[int]:
        """The lengths of the axes including the frame."""
        return [a + n + b for n, (a, b) in zip(self.space, self.frame, strict=True)]

    def reach(self, axis: int, tap: int) -> slice:
        """The slice of padded elements that one tap reads over all windows along an axis."""
        first, step = tap * self.dilations[axis], self.strides[axis]
        return slice(first, first + max(step * (self.count[axis] - 1) + 1, 0), step)

    def taps(self) -> Iterator[tuple[Shape, tuple[slice, ...]]]:
        """Each tap, and the slices of padded elements that it reads over all windows."""
        for tap in itertools.product(*map(range, self.kernel)):
            yield tap, tuple(self.reach(axis, t) for axis, t in enumerate(tap))

    def halves(self) -> Iterator[tuple[Windows, Cut, Cut]]:
        """Each half of the taps along the longest axis: its windows, its taps, and its start."""
        axis = int(np.argmax(self.kernel))
        half, end = self.kernel[axis] // 2, self.kernel[axis]
        for first, last in ((0, half), (half, end)):
            kernel = (*self.kernel[:axis], last - first, *self.kernel[axis + 1 :])
            rest = (slice(None),) * (len(kernel) - axis - 1)
            taps, start = slice(first, last), slice(first * self.dilations[axis], None)
            yield replace(self, kernel=kernel), (..., taps, *rest), (..., start, *rest)


def given_attributes(attrs: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The named attributes that a node has."""
    return {name: attrs[name] for name in names if name in attrs}


def windows(
    space: Sequence[int], kernel: Sequence[int], *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Any = None, pads: Any = None, strides: Any = None,
) -> Windows:  # fmt: skip
    """The windows that ONNX's attributes describe, for kernels and rules alike.

    Raises `ValueError` for an unknown `auto_pad`, and where not even a part of a window fits.
    """
    rank = len(space)
    strides, dilations = per_axis(strides, 1, rank), per_axis(dilations, 1, rank)
    extents = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    if pads_to_same_size(auto_pad):
        axes = zip(space, extents, strides, strict=True)
        totals = [largest((-(-n // s) - 1) * s + e - n, 0) for n, e, s in axes]
        begins, ends = split_pads(totals, auto_pad)
    else:
        begins, ends = given_pads(pads, auto_pad, rank)
    sides = zip(space, begins, ends, extents, strides, strict=True)
    count = tuple(window_count(n, a, b, e, s, ceil_mode) for n, a, b, e, s in sides)
    if min(at(count), default=0) < 0:
        raise ValueError(f"no window of lengths {tuple(extents)} fits into space {tuple(space)} "
                         f"with the pads {(*begins, *ends)}")  # fmt: skip
    return Windows(tuple(space), tuple(kernel), strides, dilations, begins, ends, count)


def transposed_windows(
    count: Sequence[int], kernel: Sequence[int], *, auto_pad: str = "NOTSET",
    dilations: Any = None, output_padding: Any = None, output_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Windows:  # fmt: skip
    """The windows over the output of a ConvTranspose, one for each entry of its input.

    The frame may be negative: entries that no window covers belong to the space, and so do entries
    that output_padding adds.
    """
    rank = len(count)
    steps = per_axis(strides, 1, rank), per_axis(dilations, 1, rank)
    grid = Windows(tuple(count), tuple(kernel), *steps, (), (), tuple(count))
    extra = per_axis(output_padding, 0, rank)
    full = [grid.covered(axis, n) + extra[axis] for axis, n in enumerate(count)]
    if output_shape is None and pads_to_same_size(auto_pad):
        output_shape = [smallest(f, n * s) for f, n, s in zip(full, count, steps[0], strict=True)]
    if output_shape is not None:
        space = tuple(output_shape)[-rank:]
        totals = [largest(f - n, 0) for f, n in zip(full, space, strict=True)]
        begins, ends = split_pads(totals, auto_pad)
    else:
        begins, ends = given_pads(pads, auto_pad, rank)
        space = tuple(f - a - b for f, a, b in zip(full, begins, ends, strict=True))
    if min(at(tuple(space)), default=0) < 0:
        raise ValueError(f"the pads {(*begins, *ends)} cut off more than the lengths {full}")
    return replace(grid, space=space, begins=begins, ends=ends)


def within_padding(grid: Windows) -> Windows:
    """The windows of a convolution, which must not reach beyond the padding, unlike in pooling."""
    axes = enumerate(zip(grid.space, grid.begins, grid.ends, strict=True))
    if any(at(grid.covered(axis, grid.count[axis]) - n - a - b) > 0 for axis, (n, a, b) in axes):
        raise ValueError(
            f"a kernel {grid.kernel} with dilations {grid.dilations} is longer than space "
            f"{grid.space} with the pads {(*grid.begins, *grid.ends)}"
        )
    return grid


def pads_to_same_size(auto_pad: str) -> bool:
    """Whether padding follows from the sizes; old exporters write an empty string for NOTSET."""
    if auto_pad not in AUTO_PADS:
        raise ValueError(f"auto_pad is {auto_pad!r}: it must be one of {', '.join(AUTO_PADS[1:])}")
    return auto_pad.startswith("SAME")


def per_axis(values: Sequence[int] | None, default: int, rank: int) -> Shape:
    """An attribute with one number per axis, or its default."""
    return tuple(values) if values is not None and len(values) else (default,) * rank


def given_pads(pads: Sequence[int] | None, auto_pad: str, rank: int) -> tuple[Shape, Shape]:
    """(begins, ends) of ONNX's pads, which are ignored if auto_pad is VALID."""
    both = per_axis(None if auto_pad == "VALID" else pads, 0, 2 * rank)
    return both[:rank], both[rank:]


def split_pads(totals: Sequence[int], auto_pad: str) -> tuple[Shape, Shape]:
    """Half of the padding on each side: SAME_UPPER has the odd one at the end.

    >>> split_pads([3, 2], "SAME_UPPER"), split_pads([3, 2], "SAME_LOWER")
    (((1, 1), (2, 1)), ((2, 1), (1, 1)))
    """
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


def window_count(n: int, begin: int, end: int, extent: int, stride: int, ceil_mode: int) -> int:
    """The number of windows along an axis; none may start in the padding at the end.

    The quotient is rounded towards zero, as in ONNX and its runtimes: a window that exceeds the
    padded axis by less than a stride counts as one.

    >>> [window_count(*how) for how in ((1, 0, 0, 2, 2, 0), (1, 0, 0, 2, 1, 0), (4, 0, 0, 3, 2, 1))]
    [1, 0, 2]
    """
    room = n + begin + end - extent
    if not ceil_mode and room >= 0:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - if_negative(n + begin - 1 - (count - 1) * stride, ceil_mode, 0)


def padded(x: Array, grid: Windows, value: Any = 0) -> Array:
    """x inside the frame that the windows need."""
    return framed(x, [(0, 0)] * (x.ndim - len(grid.space)) + grid.frame, value)


def patches(x: Array, grid: Windows) -> Array:
    """The view (..., *count, *kernel) of a padded x: every window with its taps."""
    lead = x.ndim - len(grid.space)
    outer, inner = x.strides[:lead], np.array(x.strides[lead:])
    steps = (*outer, *inner * grid.strides, *inner * grid.dilations)
    shape = x.shape[:lead] + grid.count + grid.kernel
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)
