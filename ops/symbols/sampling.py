"""Operators that read between the entries of an image: sums over pixels, by distance."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import sympy as sp

from .table import kernel

HALF = sp.S.Half


def tent(u: Any) -> Any:
    """1 - |u| near 0, else 0."""
    return max(1 - abs(u), 0)


def cubic(u: Any, a: Any = -0.75) -> Any:
    """Keys' kernel."""
    u = abs(u)
    if u <= 1:
        return (a + 2) * u**3 - (a + 3) * u**2 + 1
    return a * u**3 - 5 * a * u**2 + 8 * a * u - 4 * a if u < 2 else 0 * u


def bilinear(image: Any, at: tuple[Any, ...]) -> Any:
    """Σ image[p] ∏ tent(at - p) over all pixels: those outside count zero."""
    total: Any = 0
    for place in np.ndindex(*image.shape):
        weight: Any = 1
        for a, p in zip(at, place, strict=True):
            weight = tent(a - p) * weight
        total = total + weight * image[place]
    return total


@kernel("GridSample")
def grid_sample(
    x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    """Bilinear samples at the points of a grid whose last axis names the last axis of x first."""
    if mode not in ("linear", "bilinear") or padding_mode == "reflection":
        raise NotImplementedError(f"GridSample with {mode}, {padding_mode}")
    y = np.empty((*x.shape[:2], *grid.shape[1:-1]), object)
    for n, c, *place in np.ndindex(*y.shape):
        point = grid[(n, *place)][::-1]
        lengths = x.shape[2:]
        at = [unnormalised(g, m, align_corners) for g, m in zip(point, lengths, strict=True)]
        if padding_mode == "border":
            at = [min(max(a, 0), m - 1) for a, m in zip(at, lengths, strict=True)]
        y[(n, c, *place)] = bilinear(x[n, c], tuple(at))
    return y


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
            total = total + bilinear(x[n, channel], at) * (w[(m, c, *tap)] * factor)
        y[(n, m, *p)] = total
    return y


@kernel("Resize")
def resize(
    x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, *, axes: Any = None,
    mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor", cubic_coeff_a: float = -0.75, **_: Any,
) -> Any:  # fmt: skip
    """Axis by axis, y[j] = Σᵢ φ(i - at(j)) x[i], with x continued by its ends."""
    for axis in range(x.ndim) if axes is None else axes:
        n = x.shape[axis]
        given = 1 if scales is None or not np.size(scales) else scales[axis]
        m = int(np.ravel(sizes)[axis]) if sizes is not None else int(np.floor(n * float(given)))
        scale = sp.Rational(m, n) if sizes is not None else given
        if m == n and not _differs(scale):
            continue
        rows = np.moveaxis(x, axis, 0)
        ends = None if roi is None else (roi[axis], roi[axis + x.ndim])
        at = [position(j, n, m, scale, coordinate_transformation_mode, ends) for j in range(m)]
        made = [sample(rows, a, n, mode, nearest_mode, cubic_coeff_a) for a in at]
        x = np.moveaxis(np.stack(made), 0, axis)
    return x


def _differs(scale: Any) -> bool:
    return bool(float(scale) != 1.0)


def position(j: int, n: int, m: int, scale: Any, mode: str, ends: Any = None) -> Any:
    """Where entry j of the result lies on the axis of x."""
    if mode == "tf_crop_and_resize":
        return ends[0] * (n - 1) + (ends[1] - ends[0]) * (n - 1) * sp.Rational(j, max(m - 1, 1))
    if mode == "align_corners":
        return sp.Rational(j * (n - 1), max(m - 1, 1))
    return j / scale if mode == "asymmetric" else (j + HALF) / scale - HALF


def sample(rows: Any, at: Any, n: int, mode: str, nearest: str, a: float) -> Any:
    """The value of an axis between its entries."""
    if mode == "nearest":
        half = sp.ceiling(at - HALF) if nearest == "round_prefer_floor" else sp.floor(at + HALF)
        rounded = {"floor": sp.floor(at), "ceil": sp.ceiling(at)}.get(nearest, half)
        return rows[min(max(int(rounded), 0), n - 1)]
    phi = tent if mode == "linear" else lambda u: cubic(u, sp.Rational(a))
    low = int(np.floor(float(at)))
    total: Any = 0
    for i in range(low - 1, low + 3):
        total = total + rows[min(max(i, 0), n - 1)] * phi(i - at)
    return total


@kernel("RoiAlign")
def roi_align(
    x: Any, rois: Any, batch: Any, *, mode: str = "avg",
    output_height: int = 1, output_width: int = 1,
    sampling_ratio: int = 0, spatial_scale: float = 1.0,
    coordinate_transformation_mode: str = "half_pixel",
) -> Any:  # fmt: skip
    """The mean of bilinear samples, evenly spread over each bin of each region."""
    if mode != "avg" or not sampling_ratio:
        raise NotImplementedError("RoiAlign is transcribed for means of a given number of samples")
    shift = HALF if coordinate_transformation_mode == "half_pixel" else 0
    bins, r = (output_height, output_width), sampling_ratio
    y = np.empty((len(rois), x.shape[1], *bins), object)
    for k, c, *place in np.ndindex(*y.shape):
        first = [rois[k, 1 - d] * spatial_scale - shift for d in (0, 1)]
        last = [rois[k, 3 - d] * spatial_scale - shift for d in (0, 1)]
        total: Any = 0
        for tap in np.ndindex(r, r):
            at = tuple(
                first[d] + (last[d] - first[d]) * (place[d] + (tap[d] + HALF) / r) / bins[d]
                for d in (0, 1)
            )
            inner = tuple(min(max(a, 0), n - 1) for a, n in zip(at, x.shape[2:], strict=True))
            total = total + bilinear(x[int(np.ravel(batch)[k]), c], inner)
        y[(k, c, *place)] = total / r**2
    return y
