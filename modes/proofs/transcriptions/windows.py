"""Windows that slide over space, as the specification counts and places them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from .table import Index


@dataclass(frozen=True)
class Axis:
    """One axis: its length, the taps of a window, and what ONNX's attributes say of it."""

    length: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    count: int

    def place(self, window: int, tap: int) -> int:
        """Where a tap of a window lies; outside 0 ≤ place < length it is in the padding."""
        return window * self.stride + tap * self.dilation - self.begin

    def inside(self, place: int, padding: bool = False) -> bool:
        """Whether a place is in x, or in the padding, if that counts."""
        before, after = (self.begin, self.end) if padding else (0, 0)
        return -before <= place < self.length + after


def axes(space: Sequence[int], kernel: Sequence[int], **attributes: Any) -> list[Axis]:
    """The axes of space."""
    return [axis(n, k, i, len(space), **attributes)
            for i, (n, k) in enumerate(zip(space, kernel, strict=True))]  # fmt: skip


def axis(
    n: int, k: int, i: int, rank: int, *, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Any = None, pads: Any = None, strides: Any = None,
) -> Axis:  # fmt: skip
    """Axis i, by the equations for the shape of the output of a pool.

    >>> axis(5, 3, 0, 1, auto_pad="SAME_LOWER", strides=[2]).count
    3
    >>> axis(5, 2, 0, 1, ceil_mode=1, strides=[2]).count
    3
    """
    stride, dilation = strides[i] if strides else 1, dilations[i] if dilations else 1
    extent = (k - 1) * dilation + 1
    begin, end = (pads[i], pads[i + rank]) if pads and auto_pad == "NOTSET" else (0, 0)
    room = n + begin + end - extent
    upwards = ceil_mode and auto_pad != "VALID"
    count = (-(-room // stride) if upwards else room // stride) + 1
    if auto_pad.startswith("SAME"):
        count = -(-n // stride)
        begin, end = halves(max((count - 1) * stride + extent - n, 0), auto_pad)
    if upwards and (count - 1) * stride >= n + begin:  # it would start in the padding at the end
        count -= 1
    return Axis(n, k, stride, dilation, begin, end, count)


def halves(total: int, auto_pad: str) -> tuple[int, int]:
    """The padding before and after: an odd one is at the end for SAME_UPPER.

    >>> halves(3, "SAME_UPPER"), halves(3, "SAME_LOWER")
    ((1, 2), (2, 1))
    """
    small, large = total // 2, total - total // 2
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


def taps(
    space: Sequence[Axis], window: Index, padding: bool = False
) -> Iterator[tuple[Index, Index]]:
    """Each tap of a window with its place in x, where it has one."""
    for tap in product(*(range(a.kernel) for a in space)):
        place = tuple(a.place(o, t) for a, o, t in zip(space, window, tap, strict=True))
        if all(a.inside(p, padding) for a, p in zip(space, place, strict=True)):
            yield tap, place
