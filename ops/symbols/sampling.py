"""Operators that read an image between its entries: GridSample and DeformConv."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from .interpolation import MODES, Continued, border, interpolated, tent, zeros
from .table import kernel


@kernel("GridSample")
def grid_sample(
    x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    """Samples of x, continued by its padding, at points that name the last axis of x first."""
    y = np.empty((*x.shape[:2], *grid.shape[1:-1]), object)
    turned = partial(reflection, edge=0 if align_corners else 1)
    paddings: dict[str, Continued] = {"zeros": zeros, "border": border, "reflection": turned}
    continued = paddings[padding_mode]
    value = nearest if mode == "nearest" else between(*MODES[mode.removeprefix("bi")])
    for n, c, *place in np.ndindex(*y.shape):
        point = zip(grid[(n, *place)][::-1], x.shape[2:], strict=True)
        at = [unnormalised(g, m, align_corners) for g, m in point]
        y[(n, c, *place)] = value(x[n, c], at, continued)
    return y


def between(phi: Any, reach: int) -> Callable[..., Any]:
    """Values by the kernel φ."""
    return lambda image, at, continued: interpolated(image, at, phi, reach, continued)


def nearest(image: Any, at: Any, continued: Continued) -> Any:
    """The entry at the place, rounded."""
    place = tuple(continued(int(a.rint()), n) for a, n in zip(at, image.shape, strict=True))
    return 0 if None in place else image[place]


def reflection(i: int, n: int, edge: int) -> int:
    """Mirrors stand at the outermost entries, or where edge = 1 half an entry beyond.

    >>> [reflection(i, 3, 0) for i in range(-3, 6)], [reflection(i, 3, 1) for i in range(-3, 6)]
    ([1, 2, 1, 0, 1, 2, 1, 0, 1], [2, 1, 0, 0, 1, 2, 2, 1, 0])
    """
    period = max(2 * (n - 1 + edge), 1)
    i %= period
    return min(i, period - edge - i)


def unnormalised(g: Any, n: int, align_corners: int) -> Any:
    """The position on an axis of length n of a coordinate in [-1, 1]."""
    return (g + 1) * (n - 1) / 2 if align_corners else ((g + 1) * n - 1) / 2


@kernel("DeformConv")
def deform_conv(
    x: Any, w: Any, offset: Any, b: Any = None, mask: Any = None, *, dilations: Any = None,
    group: int = 1, kernel_shape: Any = None, offset_group: int = 1, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    """y[n, m, p] = b[m] + Σ w[m, c, k] mask · x(n, c, p · stride + k · dilation - pad + offset)."""
    d = x.ndim - 2
    strides, dilations, pads = strides or (1,) * d, dilations or (1,) * d, pads or (0,) * 2 * d
    taps, positions = list(np.ndindex(*w.shape[2:])), offset.shape[2:]
    y = np.empty((x.shape[0], w.shape[0], *positions), object)
    inner, per_group = w.shape[1], w.shape[0] // group
    for n, m, *p in np.ndindex(*y.shape):
        total: Any = 0 if b is None else b[m]
        for c, (t, tap) in product(range(inner), enumerate(taps)):
            channel = m // per_group * inner + c
            og = channel // (x.shape[1] // offset_group)
            row = (og * len(taps) + t) * d
            at = tuple(
                offset[(n, row + k, *p)] + (p[k] * strides[k] + tap[k] * dilations[k] - pads[k])
                for k in range(d)
            )
            factor = 1 if mask is None else mask[(n, og * len(taps) + t, *p)]
            total = total + interpolated(x[n, channel], at, tent, 1) * (w[(m, c, *tap)] * factor)
        y[(n, m, *p)] = total
    return y
