"""Resize: axis by axis, a weighted sum of the entries around the place of each new one."""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy as sp

from .exact import closed_form
from .interpolation import MODES, around, border, cubic, floor
from .table import kernel

HALF = sp.S.Half


@kernel("Resize")
def resize(
    x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, *, axes: Any = None,
    mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel",
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", **how: Any,
) -> Any:  # fmt: skip
    """y[j] = Σᵢ φ(at(j) - i) x[i], with x continued by its ends."""
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    axes = [a % x.ndim for a in (range(x.ndim) if axes is None else axes)]
    factors = (
        scales
        if scales is not None and len(scales)
        else ratios([x.shape[a] for a in axes], sizes, keep_aspect_ratio_policy)
    )
    outside = closed_form(extrapolation_value)
    for k, axis in enumerate(axes):
        n, ends = x.shape[axis], (roi[k], roi[k + len(axes)]) if crops else (0, 1)
        m = resized(n, k, factors[k], sizes, keep_aspect_ratio_policy, ends)
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


def ratios(lengths: list[int], sizes: Any, policy: str) -> list[sp.Rational]:
    """The factors that sizes stand for: one for all axes where the aspect ratio is kept."""
    each = [sp.Rational(int(m), n) for m, n in zip(sizes, lengths, strict=True)]
    choose = {"not_larger": min, "not_smaller": max}.get(policy)
    return [choose(each)] * len(each) if choose else each


def resized(n: int, k: int, scale: Any, sizes: Any, policy: str, ends: Any) -> int:
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
    """The value of an axis between its entries."""
    n = len(rows)
    if mode == "nearest":
        return rows[border(nearest(at, nearest_mode), n)]
    a = closed_form(cubic_coeff_a)
    phi, reach = (lambda u: cubic(u, a), 2) if mode == "cubic" else MODES[mode]
    squeeze = min(scale, sp.Integer(1)) if antialias else sp.Integer(1)
    places = around(at, -floor(-reach / squeeze))
    taps = [(i, phi((at - i) * squeeze)) for i in places if 0 <= i < n or not exclude_outside]
    total = sum(w for _, w in taps) if antialias or exclude_outside else 1
    return sum(rows[border(i, n)] * (w / total) for i, w in taps)


def nearest(at: Any, mode: str) -> int:
    """The whole number next to `at`."""
    return {
        "floor": lambda: floor(at),
        "ceil": lambda: -floor(-at),
        "round_prefer_floor": lambda: -floor(HALF - at),
        "round_prefer_ceil": lambda: floor(at + HALF),
    }[mode]()
