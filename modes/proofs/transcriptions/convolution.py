"""Conv and ConvTranspose: sums over the taps of a kernel and the channels of a group."""

from __future__ import annotations

from itertools import product
from typing import Any

from .table import Index, tabulate, transcription
from .windows import Axis, axes, halves, taps


@transcription("Conv")
def conv(
    x: Any, w: Any, b: Any = None, *, group: int = 1, kernel_shape: Any = None, **how: Any
) -> Any:
    """y[n, m, o] = b[m] + Σ w[m, c, t] x[n, g C + c, o · stride + t · dilation - begin]."""
    space = axes(x.shape[2:], w.shape[2:], **how)
    outputs, channels = w.shape[0] // group, w.shape[1]

    def entry(index: Index) -> Any:
        n, m, *window = index
        first = m // outputs * channels
        terms = (
            w[(m, c, *tap)] * x[(n, first + c, *place)]
            for tap, place in taps(space, tuple(window))
            for c in range(channels)
        )
        return sum(terms) if b is None else b[m] + sum(terms)

    return tabulate((x.shape[0], w.shape[0], *(a.count for a in space)), entry)


@transcription("ConvTranspose")
def conv_transpose(
    x: Any, w: Any, b: Any = None, *, group: int = 1, kernel_shape: Any = None, **how: Any
) -> Any:
    """y[n, m, o] = b[m] + Σ w[c, m, t] x[n, c, i], over i · stride + t · dilation - begin = o."""
    rank, inner, outer = x.ndim - 2, x.shape[1] // group, w.shape[1]
    space = [spread(x.shape[2 + i], w.shape[2 + i], i, rank, **how) for i in range(rank)]

    def entry(index: Index) -> Any:
        n, m, *place = index
        g = m // outer
        pairs = (list(reached(a, o)) for a, o in zip(space, place, strict=True))
        terms = (
            w[(c, m - g * outer, *(t for _, t in met))] * x[(n, c, *(i for i, _ in met))]
            for met in product(*pairs)
            for c in range(g * inner, (g + 1) * inner)
        )
        return sum(terms) if b is None else b[m] + sum(terms)

    return tabulate((x.shape[0], outer * group, *(a.count for a in space)), entry)


def reached(axis: Axis, place: int) -> Any:
    """The inputs i whose tap t falls on a place of the output."""
    for i, t in product(range(axis.length), range(axis.kernel)):
        if axis.place(i, t) == place:
            yield i, t


def spread(
    n: int, k: int, i: int, rank: int, *, auto_pad: str = "NOTSET", dilations: Any = None,
    output_padding: Any = None, output_shape: Any = None, pads: Any = None, strides: Any = None,
) -> Axis:  # fmt: skip
    """Axis i: n inputs are windows over `count` outputs.

    >>> spread(3, 2, 0, 1, strides=[2], pads=[1, 0]).count
    5
    """
    stride, dilation = strides[i] if strides else 1, dilations[i] if dilations else 1
    extra = output_padding[i] if output_padding else 0
    full = stride * (n - 1) + extra + (k - 1) * dilation + 1
    begin, end = (pads[i], pads[i + rank]) if pads and auto_pad == "NOTSET" else (0, 0)
    if output_shape:
        begin, end = halves(full - output_shape[i - rank], auto_pad)
    elif auto_pad.startswith("SAME"):
        begin, end = halves(full - n * stride, auto_pad)
    return Axis(n, k, stride, dilation, begin, end, full - begin - end)
