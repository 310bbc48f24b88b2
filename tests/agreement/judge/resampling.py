"""Samples between pixels: resizing, grids, regions of interest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .graphs import Node, NoKernel, integers, kernel
from .windows import windows_of


@kernel("Upsample")
def upsample(node: Node, x: Tensor, scales: Tensor | None = None) -> Tensor:
    factors = torch.tensor(node["scales"]).double() if scales is None else scales
    for axis, factor in enumerate(factors):
        size = stretched(x.shape[axis], factor)
        at = torch.arange(size).double() / factor
        mode = "linear" if node["mode"] in ("linear", "bilinear") else "nearest"
        x = along(x, axis, weights(at, x.shape[axis], mode, "floor", factor, node))
    return x


def stretched(size: int, factor: Tensor) -> int:
    """The size after scaling, with the product taken in single precision."""
    return math.floor(np.float32(size) * np.float32(factor.item()))


def along(x: Tensor, axis: int, matrix: Tensor) -> Tensor:
    """x multiplied by a matrix along an axis."""
    return (x.movedim(axis, -1) @ matrix.to(x.dtype).T).movedim(-1, axis)


@kernel("Resize")
def resize(node: Node, x: Tensor, *others: Tensor | None) -> Tensor:
    if node.opset < 11:
        return upsample(node, x, *others)
    roi, scales, sizes = (*others, None, None, None)[:3]
    axes = [k % x.ndim for k in node["axes"] or range(x.ndim)]
    space = [x.shape[k] for k in axes]
    if scales is not None and scales.numel():
        factors = scales
        wide = [stretched(n, f) for n, f in zip(space, factors, strict=True)]
    else:
        wide = integers(sizes)
        factors = torch.tensor(wide).double() / torch.tensor(space)
        policy = node["keep_aspect_ratio_policy"] or "stretch"
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = factor.expand(len(axes))
            wide = [math.floor(factor.item() * n + 0.5) for n in space]
    outside = torch.tensor(False)
    cropped = node["coordinate_transformation_mode"] == "tf_crop_and_resize"
    for k, axis in enumerate(axes):
        ends = (roi[k], roi[k + len(axes)]) if cropped else (0.0, 1.0)
        at = coordinates(node, space[k], wide[k], factors[k], ends)
        if cropped:
            shape = [-1 if a == axis else 1 for a in range(x.ndim)]
            beyond = (at < 0) | (at > space[k] - 1)
            outside = outside | beyond.reshape(shape)
        matrix = weights(at, space[k], node["mode"], node["nearest_mode"], factors[k], node)
        x = along(x, axis, matrix)
    return torch.where(outside, node["extrapolation_value"], x)


def coordinates(
    node: Node, size: int, wide: int, factor: Tensor, ends: tuple[Any, Any]
) -> Tensor:
    """Where the entries of the output lie in the input."""
    i, mode = torch.arange(wide, dtype=torch.float64), node["coordinate_transformation_mode"]
    half = (i + 0.5) / factor - 0.5
    if mode == "half_pixel":
        return half
    if mode == "pytorch_half_pixel":
        return half if wide > 1 else 0 * i
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - wide / (factor * size)) + half
    if mode == "align_corners":
        return i * (size - 1) / (wide - 1) if wide > 1 else 0 * i
    if mode == "asymmetric":
        return i / factor
    if mode == "tf_half_pixel_for_nn":
        return (i + 0.5) / factor
    if mode == "tf_crop_and_resize":
        first, last = ends
        if wide == 1:
            return 0 * i + 0.5 * (first + last) * (size - 1)
        return first * (size - 1) + i * (last - first) * (size - 1) / (wide - 1)
    raise NoKernel(f"coordinates {mode}")


def cubic(distance: Tensor, a: float) -> Tensor:
    """The cubic convolution weights at the given distances."""
    d = distance.abs()
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, 0.0))


ROUND = {
    "round_prefer_floor": lambda at: torch.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: torch.floor(at + 0.5),
    "floor": torch.floor,
    "ceil": torch.ceil,
}


def weights(
    at: Tensor, size: int, mode: str, rounding: str, factor: Tensor, node: Node
) -> Tensor:
    """The interpolation matrix (samples, pixels) of one axis."""
    if mode == "nearest":
        return hot(ROUND[rounding](at.detach()), size)
    if mode not in ("linear", "cubic"):
        raise NoKernel(f"Resize of mode {mode}")
    shrink = factor.clamp(max=1) if node["antialias"] else torch.tensor(1.0).double()
    start = math.floor(-(1 if mode == "linear" else 2) / shrink.item()) + 1
    places = torch.floor(at.detach()).unsqueeze(1) + torch.arange(start, 2 - start)
    distance = (places - at.unsqueeze(1)) * shrink
    if mode == "linear" and not node["antialias"]:
        w = torch.cat([1 + distance[:, :1], 1 - distance[:, 1:]], 1)  # no kinks at pixels
    elif mode == "linear":
        w = torch.clamp(1 - distance.abs(), 0, 1)
    else:
        w = cubic(distance, node["cubic_coeff_a"])
    if node["exclude_outside"]:
        w = torch.where((places >= 0) & (places < size), w, torch.zeros_like(w))
    if node["exclude_outside"] or node["antialias"]:
        w = w / w.sum(1, keepdim=True)
    return (w.unsqueeze(-1) * hot(places, size)).sum(1)


def hot(places: Tensor, size: int) -> Tensor:
    """One-hot rows; indices out of range go to the nearest end."""
    return F.one_hot(places.clamp(0, size - 1).to(torch.int64), size).double()


@kernel("AffineGrid")
def affine_grid(node: Node, theta: Tensor, size: Tensor) -> Tensor:
    return F.affine_grid(theta, integers(size), bool(node["align_corners"]))


def pixels(x: Tensor, places: Sequence[Tensor]) -> Tensor:
    """Entries of x (N, C, *space) at integer positions, each (N, P): (N, C, P)."""
    flat = places[0]
    for size, place in zip(x.shape[3:], places[1:], strict=True):
        flat = flat * size + place
    return torch.gather(x.flatten(2), 2, flat.unsqueeze(1).expand(-1, x.shape[1], -1))


def sampled(x: Tensor, at: Sequence[Tensor]) -> Tensor:
    """Linear interpolation at positions, each (N, P); x is padded with zeros."""
    return torch.stack(list(shares(x, at))).sum(0)


def shares(x: Tensor, at: Sequence[Tensor]) -> Iterator[Tensor]:
    """The contribution of each neighbouring pixel to the linear interpolation."""
    low = [torch.floor(p).detach() for p in at]
    for corner in product((0, 1), repeat=len(at)):
        weight, places = torch.ones((), dtype=x.dtype), []
        for p, base, up, size in zip(at, low, corner, x.shape[2:], strict=True):
            place = base + up
            weight = weight * (p - base if up else base + 1 - p)
            weight = torch.where((place >= 0) & (place < size), weight, torch.zeros_like(weight))
            places.append(place.clamp(0, size - 1).to(torch.int64))
        yield pixels(x, places) * weight.unsqueeze(1)


def reflected(p: Tensor, low: float, high: float) -> Tensor:
    """Positions reflected into [low, high]."""
    if high <= low:
        return torch.zeros_like(p)
    span = high - low
    beyond = (p - low).abs()
    turns = torch.floor(beyond / span).detach()
    rest = beyond - turns * span
    return torch.where(turns.remainder(2) == 0, low + rest, high - rest)


@kernel("GridSample")
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    rank, corners, border = x.ndim - 2, bool(node["align_corners"]), node["padding_mode"]
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node["mode"], node["mode"])
    flat = grid.reshape(x.shape[0], -1, rank)
    sizes = x.shape[2:]
    at = []
    for k, size in enumerate(sizes):
        g = flat[..., rank - 1 - k]
        at.append((g + 1) / 2 * (size - 1) if corners else ((g + 1) * size - 1) / 2)

    def inside(p: Tensor, size: int) -> Tensor:
        if border == "border":
            return p.clamp(0, size - 1)
        if border == "reflection":
            ends = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
            return reflected(p, *ends).clamp(0, size - 1)
        return p

    if mode == "cubic":
        y = cubic_samples(x, at, inside)
    elif mode == "linear":
        y = sampled(x, [inside(p, size) for p, size in zip(at, sizes, strict=True)])
    else:
        near = [torch.round(inside(p, n)).detach() for p, n in zip(at, sizes, strict=True)]
        y = sampled(x, near)
    return y.reshape((*x.shape[:2], *grid.shape[1:-1]))


def cubic_samples(x: Tensor, at: Sequence[Tensor], inside: Any) -> Tensor:
    """Cubic interpolation; neighbours outside follow the padding mode."""
    a = -0.75
    y = torch.zeros((), dtype=x.dtype)
    low = [torch.floor(p).detach() for p in at]
    for corner in product((-1, 0, 1, 2), repeat=len(at)):
        weight, places = torch.ones((), dtype=x.dtype), []
        for p, base, step, size in zip(at, low, corner, x.shape[2:], strict=True):
            d = (p - base - step) * (-1 if step > 0 else 1)  # the distance, nonnegative
            near = ((a + 2) * d - (a + 3)) * d * d + 1
            far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            weight = weight * (near if step in (0, 1) else far)
            place = inside(base + step, size)
            weight = torch.where((place >= 0) & (place < size), weight, torch.zeros_like(weight))
            places.append(place.clamp(0, size - 1).to(torch.int64))
        y = y + pixels(x, places) * weight.unsqueeze(1)
    return y


@kernel("DeformConv")
def deform_conv(
    node: Node, x: Tensor, w: Tensor, offset: Tensor, bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    rank, n, group, fields = x.ndim - 2, x.shape[0], node["group"], node["offset_group"]
    lay = windows_of(node, x.shape[2:], node["kernel_shape"] or w.shape[2:])
    kernels = list(product(*(range(k) for k in w.shape[2:])))
    offset = offset.reshape(n, fields, len(kernels), rank, -1)
    lines = zip(lay.counts, lay.steps, lay.begins, strict=True)
    starts = torch.meshgrid(*(torch.arange(c) * s - b for c, s, b in lines), indexing="ij")
    columns = []
    for field, part in enumerate(x.chunk(fields, 1)):
        taps = []
        for k, tap in enumerate(kernels):
            at = [
                starts[d].reshape(1, -1) + tap[d] * lay.gaps[d] + offset[:, field, k, d]
                for d in range(rank)
            ]
            y = sampled(part, at)
            if mask is not None:
                y = y * mask.reshape(n, fields, len(kernels), 1, -1)[:, field, k]
            taps.append(y)
        columns.append(torch.stack(taps, 2))
    column = torch.cat(columns, 1).reshape(n, group, x.shape[1] // group, len(kernels), -1)
    filters = w.reshape(group, w.shape[0] // group, w.shape[1], len(kernels))
    y = torch.einsum("gock,ngckp->ngop", filters, column).reshape((n, w.shape[0], *lay.counts))
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)


@kernel("RoiAlign")
def roi_align(node: Node, x: Tensor, rois: Tensor, images: Tensor) -> Tensor:
    half = node["coordinate_transformation_mode"] == "half_pixel"
    shape, scale = (node["output_height"], node["output_width"]), node["spatial_scale"]
    results = []
    for roi, image in zip(rois, integers(images), strict=True):
        corners = roi * scale - (0.5 if half else 0.0)
        axes = []
        for k, out in enumerate(shape):
            begin, span = corners[1 - k], corners[3 - k] - corners[1 - k]
            span = span if half else torch.clamp(span, min=1.0)
            count = node["sampling_ratio"] or max(math.ceil(span.item() / out), 1)
            steps = (torch.arange(out * count, dtype=x.dtype) + 0.5) / count
            axes.append((begin + steps * (span / out), count))
        results.append(roi_samples(x[image : image + 1], axes, shape, node["mode"]))
    return torch.stack(results)


def roi_samples(
    x: Tensor, axes: list[tuple[Tensor, int]], shape: tuple[int, int], mode: str
) -> Tensor:
    """Samples of one region, pooled within its bins."""
    at = torch.meshgrid(*(p for p, _ in axes), indexing="ij")
    far = torch.zeros_like(at[0], dtype=torch.bool)
    places = []
    for p, size in zip(at, x.shape[2:], strict=True):
        far = far | (p < -1) | (p > size)
        places.append(p.clamp(0, size - 1).reshape(1, -1))
    y = torch.cat(list(shares(x, places))).reshape(4, -1, *at[0].shape).masked_fill(far, 0.0)
    (_, tall), (_, broad) = axes
    bins = y.reshape(4, -1, shape[0], tall, shape[1], broad)
    # The maximum over contributions of pixels, not over samples, as in ONNX's own cases.
    return bins.sum(0).mean((2, 4)) if mode == "avg" else bins.amax((0, 3, 5))


@kernel("MaxRoiPool")
def max_roi_pool(node: Node, x: Tensor, rois: Tensor) -> Tensor:
    shape, results = node["pooled_shape"], []
    for image, *corners in rois.tolist():
        x1, y1, x2, y2 = (math.floor(c * node["spatial_scale"] + 0.5) for c in corners)
        spans = []
        for first, last, count, size in (
            (y1, y2, shape[0], x.shape[2]), (x1, x2, shape[1], x.shape[3])
        ):  # fmt: skip
            width = max(last - first + 1, 1) / count
            spans.append([
                (min(max(math.floor(k * width) + first, 0), size),
                 min(max(math.ceil((k + 1) * width) + first, 0), size))
                for k in range(count)
            ])  # fmt: skip
        picture, empty = x[int(image)], x.new_zeros(x.shape[1])
        cells = [
            picture[:, a:b, c:d].amax((1, 2)) if b > a and d > c else empty
            for (a, b), (c, d) in product(*spans)
        ]
        results.append(torch.stack(cells, 1).reshape(-1, *shape))
    return torch.stack(results)
