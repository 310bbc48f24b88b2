"""Samples of an image between its entries: Resize, GridSample, DeformConv."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
import sympy as sp

from .number import kernel, nearby_closed_form


def as_ints(value: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.ravel(value))


Kernel = Callable[[Any], Any]
"""φ(u), where u = place - neighbour."""

Continued = Callable[[int, int], int | None]
"""(i, n) -> the entry that continues an axis of length n at i; None for a zero."""


KEYS = sp.Rational(-3, 4)
"""The default parameter of Keys' kernel."""

HALF = sp.S.Half


def tent_kernel(u: Any) -> Any:
    """1 - |u| near 0, else 0."""
    return max(1 - abs(u), 0)


def keys_kernel(u: Any, a: Any = KEYS) -> Any:
    """Keys' cubic convolution kernel."""
    u = abs(u)
    if u <= 1:
        return (a + 2) * u**3 - (a + 3) * u**2 + 1
    return a * u**3 - 5 * a * u**2 + 8 * a * u - 4 * a if u < 2 else 0 * u


MODES: dict[str, tuple[Kernel, int]] = {"linear": (tent_kernel, 1), "cubic": (keys_kernel, 2)}
"""mode -> φ, and its reach on either side."""


def floor(at: Any) -> int:
    """⌊at⌋ at the point."""
    return int(at.floor() if hasattr(at, "floor") else sp.floor(at))


def around(at: Any, reach: int) -> range:
    """The 2 · `reach` integers around `at`."""
    return range(floor(at) + 1 - reach, floor(at) + 1 + reach)


def zero_outside(i: int, n: int) -> int | None:
    """Zeros outside of the image."""
    return i if 0 <= i < n else None


def border(i: int, n: int) -> int:
    """The nearest entry."""
    return min(max(i, 0), n - 1)


def interpolate_entry(
    image: Any, at: Any, phi: Kernel, reach: int, continued: Continued = zero_outside
) -> Any:
    """Σ image[p] ∏ φ(at - p) over the places p around `at`."""
    lines = [
        [(continued(i, n), phi(a - i)) for i in around(a, reach)]
        for a, n in zip(at, image.shape, strict=True)
    ]
    total: Any = 0
    for taps in product(*lines):
        place, weights = zip(*taps, strict=True)
        if None not in place:
            total = total + image[place] * prod(weights)
    return total


@kernel("Resize")
def resize(
    x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, *, axes: Any = None,
    mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel",
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", **how: Any,
) -> Any:  # fmt: skip
    """y[j] = Σᵢ φ(at(j) - i) x[i], with x continued by its edge entries."""
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    axes = [a % x.ndim for a in (range(x.ndim) if axes is None else axes)]
    factors = scales
    if scales is None or not len(scales):  # one for all axes where the aspect ratio is kept
        factors = [sp.Rational(int(m), x.shape[a]) for m, a in zip(sizes, axes, strict=True)]
        if choose := {"not_larger": min, "not_smaller": max}.get(keep_aspect_ratio_policy):
            factors = [choose(factors)] * len(factors)
    outside = nearby_closed_form(extrapolation_value)
    for k, axis in enumerate(axes):
        n, ends = x.shape[axis], (roi[k], roi[k + len(axes)]) if crops else (0, 1)
        m = resized_length(n, k, factors[k], sizes, keep_aspect_ratio_policy, ends)
        if m == n and factors[k] == 1 and not crops:
            continue
        rows = np.moveaxis(x, axis, 0)
        places = [position(j, n, m, factors[k], coordinate_transformation_mode, ends)
                  for j in range(m)]  # fmt: skip
        made = [
            np.full_like(rows[0], outside) if crops and (at < 0 or at > n - 1)
            else sample(rows, at, factors[k], mode, **how)
            for at in places
        ]  # fmt: skip
        x = np.moveaxis(np.stack(made), 0, axis)
    return x


def resized_length(n: int, k: int, scale: Any, sizes: Any, policy: str, ends: Any) -> int:
    """The new length of an axis."""
    if sizes is None or not len(sizes):
        return floor(n * (ends[1] - ends[0]) * scale)
    return int(sizes[k]) if policy == "stretch" else floor(n * scale + HALF)


def position(j: int, n: int, m: int, scale: Any, mode: str, ends: Any) -> Any:
    """Where entry j of the result lies on the axis of x."""
    start, end = ends
    if mode == "tf_crop_and_resize":
        part = sp.Rational(j, m - 1) if m > 1 else HALF
        return (start + part * (end - start)) * (n - 1)
    if mode == "align_corners":
        return sp.Rational(j * (n - 1), max(m - 1, 1))
    if mode == "pytorch_half_pixel" and m == 1:
        return sp.Integer(0)
    if mode == "asymmetric":
        return j / scale
    offset = sp.Rational(n, 2) * (1 - m / (scale * n)) if mode == "half_pixel_symmetric" else 0
    return offset + (j + HALF) / scale - HALF


def sample(
    rows: Any, at: Any, scale: Any, mode: str, nearest_mode: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75, antialias: int = 0, exclude_outside: int = 0,
) -> Any:  # fmt: skip
    """The value at a place between the entries of an axis."""
    n = len(rows)
    if mode == "nearest":
        return rows[border(round_position(at, nearest_mode), n)]
    a = nearby_closed_form(cubic_coeff_a)
    phi, reach = (lambda u: keys_kernel(u, a), 2) if mode == "cubic" else MODES[mode]
    squeeze = min(scale, sp.Integer(1)) if antialias else sp.Integer(1)
    places = around(at, -floor(-reach / squeeze))
    taps = [(i, phi((at - i) * squeeze)) for i in places if 0 <= i < n or not exclude_outside]
    total = sum(w for _, w in taps) if antialias or exclude_outside else 1
    return sum(rows[border(i, n)] * (w / total) for i, w in taps)


def round_position(at: Any, mode: str) -> int:
    """`at` rounded to an integer."""
    if mode in ("ceil", "round_prefer_floor"):
        return -floor(-at if mode == "ceil" else HALF - at)
    return floor(at if mode == "floor" else at + HALF)


@kernel("GridSample")
def grid_sample(
    x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    """Samples of x, continued by its padding, at points that list the last axis of x first."""
    y = np.empty((*x.shape[:2], *grid.shape[1:-1]), object)
    turned = partial(reflection, edge=0 if align_corners else 1)
    paddings: dict[str, Continued] = {"zeros": zero_outside, "border": border, "reflection": turned}
    continued = paddings[padding_mode]
    for n, c, *place in np.ndindex(*y.shape):
        point = [*zip(grid[(n, *place)][::-1], x.shape[2:], strict=True)]
        at = [(g + 1) * (m - 1) / 2 if align_corners else ((g + 1) * m - 1) / 2 for g, m in point]
        if mode == "nearest":
            found = tuple(continued(int(a.rint()), m) for a, (_, m) in zip(at, point, strict=True))
            y[(n, c, *place)] = 0 if None in found else x[(n, c, *found)]
        else:
            phi, reach = MODES[mode.removeprefix("bi")]
            y[(n, c, *place)] = interpolate_entry(x[n, c], at, phi, reach, continued)
    return y


def reflection(i: int, n: int, edge: int) -> int:
    """Reflection at the outermost entries, or half an entry beyond them if edge = 1.

    >>> [reflection(i, 3, 0) for i in range(-3, 6)], [reflection(i, 3, 1) for i in range(-3, 6)]
    ([1, 2, 1, 0, 1, 2, 1, 0, 1], [2, 1, 0, 0, 1, 2, 2, 1, 0])
    """
    period = max(2 * (n - 1 + edge), 1)
    i %= period
    return min(i, period - edge - i)


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
            total = total + interpolate_entry(x[n, channel], at, tent_kernel, 1) * (
                w[(m, c, *tap)] * factor
            )
        y[(n, m, *p)] = total
    return y
