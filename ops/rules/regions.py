"""RoiAlign and MaxRoiPool, defined in the vocabulary, from which their derivatives follow.

The number of samples in a bin and the pixels that it covers are piecewise constant in the regions:
these integers are taken at the linearisation point.
"""

from __future__ import annotations

import math

import numpy as np

from ...jacobians import Array, Op, dtype_of, shape_of
from ..conventions import LINE, ON_LINE, ORDER, SHARED, crossed, kinks, marked, tied
from ..node import Node
from ..numbers import numbers
from ..registry import Count, defines, says
from .sampling import Samples, sample_line

Sampled = tuple[Samples, Array, list[list[int]]]
"""Samples, the weights of their neighbours, and the numbers of samples per bin along both axes, for
each region or for all of them at once.
"""


@defines(
    "RoiAlign",
    mode=("avg", "max"),
    coordinate_transformation_mode=("half_pixel", "output_half_pixel"),
    grows=True,
)
def roi_align(op: Op, node: Node) -> list[Array]:
    """y = the mean, or the maximum, of bilinear samples in each bin of each region."""
    samples, weight, counts = region_samples(op, node)
    if node.mode == "avg":
        y = mean_of_samples(op, samples, weight, counts)
    else:  # of the weighted neighbours, as ONNX defines it
        y = op.ReduceMax(candidates(op, samples, weight, counts), (3, 4, 5), keepdims=0)
    return [op.Transpose(y, perm=(0, 3, 1, 2))]


def region_samples(op: Op, node: Node) -> Sampled:
    """The samples of all bins, (regions, *bins, samples down, samples across)."""
    n, c, height, width = node.x_shape
    rows = op.Reshape(op.Transpose(node.x, perm=(0, 2, 3, 1)), (n * height * width, c))
    counts = sample_counts(op, node)
    bins = node.output_height, node.output_width
    lines, valid = [], []
    for k, length in enumerate((height, width)):
        at, present = sample_places(op, node, k, bins[k], counts[k])
        near = op.And(op.GreaterOrEqual(at, -1.0), op.LessOrEqual(at, length))
        inside = op.Mul(op.CastLike(near, at), present.astype(dtype_of(at)))
        at, axes = op.Clip(at, 0.0, length - 1), ((2, 4), (1, 3))[k]
        at, inside = (op.Unsqueeze(a, axes) for a in (at, inside))
        full = (shape_of(at)[0], *bins, *(max(count) for count in counts))
        lines.append(sample_line(op, op.Expand(at, full), length, "linear"))
        valid.append(inside)
    images = op.Reshape(node.inputs[2], (-1, 1, 1, 1, 1))
    samples = Samples(op, rows, lines, op.Mul(images, height * width))
    return samples, op.Mul(samples.weight, op.Unsqueeze(op.Mul(*valid), (-1,))), counts


def at_the_point(op: Op, node: Node) -> np.ndarray:
    """The values of the regions; while recording, those at the linearisation point."""
    rois = node.inputs[1]
    return np.asarray(op.at(rois, str(node.step)) if hasattr(op, "at") else rois)


def mean_of_samples(op: Op, samples: Samples, weight: Array, counts: list[list[int]]) -> Array:
    total = op.ReduceSum(samples.weighted(weight), (3, 4), keepdims=0)
    number = np.maximum(np.prod(counts, axis=0), 1).astype(dtype_of(total))
    return op.Div(total, number.reshape(-1, 1, 1, 1))


def candidates(op: Op, samples: Samples, weight: Array, counts: list[list[int]]) -> Array:
    """The weighted neighbours of all samples, (*Q, taps, C); the lowest number if missing."""
    picked = op.Gather(samples.rows, samples.index, axis=0)
    products = op.Mul(picked, op.Unsqueeze(weight, (-1,)))
    missing = np.zeros((len(counts[0]), 1, 1, *map(max, counts), 1, 1), bool)
    for r, (h, w) in enumerate(zip(*counts, strict=True)):
        missing[r, ..., h:, :, :, :] = missing[r, ..., w:, :, :] = h * w > 0
    least = np.full((), np.finfo(dtype_of(products)).min, dtype_of(products))
    return op.Where(missing, least, products)


def extents(op: Op, node: Node, k: int) -> tuple[Array, Array]:
    """The start and the length of each region along axis k."""
    half = 0.5 if node.coordinate_transformation_mode == "half_pixel" else 0.0
    first, last = (
        op.Sub(op.Mul(op.Gather(node.inputs[1], 1 - k + 2 * end, axis=1), node.spatial_scale), half)
        for end in (0, 1)
    )
    length = op.Sub(last, first)
    return first, length if half else op.Max(length, np.ones((), dtype_of(length)))


def sample_counts(op: Op, node: Node) -> list[list[int]]:
    """Samples per bin along the two axes: as given, or for each region ⌈length / bins⌉."""
    if node.sampling_ratio:
        return [[node.sampling_ratio]] * 2
    counts, rois = [], at_the_point(op, node)
    for k, bins in enumerate((node.output_height, node.output_width)):
        length = (rois[:, 3 - k] - rois[:, 1 - k]) * rois.dtype.type(node.spatial_scale)
        if node.coordinate_transformation_mode != "half_pixel":
            length = np.maximum(length, 1)
        counts.append([int(count) for count in np.maximum(np.ceil(length / bins), 0)] or [0])
    return counts


def sampled_bytes(node: Node) -> int:
    """Bytes of the neighbours of all samples, four per sample."""
    samples = math.prod(max(count) for count in sample_counts(numbers, node))
    bins, channels = node.output_height * node.output_width, int(node.x_shape[1])
    regions = int(shape_of(node.inputs[1])[0])
    return 4 * regions * bins * samples * channels * int(dtype_of(node.x).itemsize)


says("RoiAlign", memory=sampled_bytes)


def sample_places(
    op: Op, node: Node, k: int, bins: int, counts: list[int]
) -> tuple[Array, np.ndarray]:
    """Sample positions along axis k before they are clipped to the image, (regions, bins, samples),
    and which of them a region has.
    """
    start, extent = (op.Unsqueeze(a, (1, 2)) for a in extents(op, node, k))
    most, number = max(counts), np.maximum(counts, 1).reshape(-1, 1, 1)
    offset = (np.arange(bins)[:, None] + (np.arange(most) + 0.5) / number) / bins
    at = op.Add(start, op.Mul(extent, offset.astype(dtype_of(start))))
    return at, np.arange(most) < np.reshape(counts, (-1, 1, 1))


@defines("MaxRoiPool", grows=True)
def max_roi_pool(op: Op, node: Node) -> list[Array]:
    """y = the maximum of each bin of each region, 0 for an empty bin."""
    rois = at_the_point(op, node)
    c, height, width = node.x_shape[1:]
    index, empty = bin_pixels(rois, node.pooled_shape, node.spatial_scale, (height, width))
    flat = op.Reshape(op.Transpose(node.x, perm=(0, 2, 3, 1)), (-1, c))
    greatest_ = op.ReduceMax(op.Gather(flat, index, axis=0), (3,), keepdims=0)
    y = op.Where(empty[..., None], np.zeros((), dtype_of(node.x)), greatest_)
    return [op.Transpose(y, perm=(0, 3, 1, 2))]


def bin_pixels(
    rois: np.ndarray, pooled: tuple[int, int], scale: float, space: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The flat pixels of every bin, (regions, *pooled, most pixels), padded with the last one; and
    which bins are empty.
    """
    scaled = rois[:, 1:].astype(np.float64) * np.float32(scale)
    corners = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled).astype(np.int64)
    spans = [
        [edges(first, last, bins, n) for first, last in corners[:, [1 - k, 3 - k]]]
        for k, (bins, n) in enumerate(zip(pooled, space, strict=True))
    ]
    plane = np.arange(math.prod(space)).reshape(space)
    found = {
        (r, i, j): (batch * plane.size + plane[rows, columns]).ravel()
        for r, (batch, down, across) in enumerate(zip(rois[:, 0].astype(int), *spans, strict=True))
        for i, rows in enumerate(down)
        for j, columns in enumerate(across)
    }
    most = max([1, *(p.size for p in found.values())])
    index = np.zeros((len(rois), *pooled, most), np.int64)
    empty = np.ones((len(rois), *pooled), bool)
    for place, p in found.items():
        if p.size:
            index[place], empty[place] = np.pad(p, (0, most - p.size), mode="edge"), False
    return index, empty


def edges(first: int, last: int, bins: int, n: int) -> list[slice]:
    """The pixels of each bin of a region along an axis."""
    size = max(last - first + 1, 1) / bins
    ends = [(int(np.floor(b * size)), int(np.ceil((b + 1) * size))) for b in range(bins)]
    return [slice(*(min(max(e + first, 0), n) for e in pair)) for pair in ends]


@kinks("MaxRoiPool", where=ORDER, given=SHARED)
def ties_of_regions(node: Node) -> Count:
    """Results that more than one pixel of their bin attains."""
    rois, (c, h, w) = np.asarray(node.inputs[1]), node.x_shape[1:]
    index, empty = bin_pixels(rois, node.pooled_shape, node.spatial_scale, (h, w))
    pixels = np.moveaxis(node.x, 1, -1).reshape(-1, c)[index]
    first = np.diff(index, prepend=-1) != 0  # a bin is filled up by repeating its last pixel
    met = (pixels == pixels.max(axis=-2, keepdims=True)) & first[..., None]
    return tied(met.sum(axis=-2) * ~empty[..., None])


@kinks("RoiAlign", where=ON_LINE, given=f"{LINE}; a maximum is {SHARED}", moves=(1,))
def samples_on_lines(node: Node) -> Count:
    """Samples of regions; for the maximum, also results that several neighbours attain."""
    counts = sample_counts(numbers, node)
    (down, present), (across, there) = (
        sample_places(numbers, node, k, bins, counts[k])
        for k, bins in enumerate((node.output_height, node.output_width))
    )
    down, present = (a[:, :, None, :, None] for a in (down, present))
    across, there = (a[:, None, :, None, :] for a in (across, there))
    height, width = node.x_shape[2:]
    on = crossed([(down, -1.0, height), (across, -1.0, width)]) & present & there
    met, of = marked(on) if node.wants(1) else (0, on.size)
    if node.mode == "avg":
        return met, of
    samples, weight, counts = region_samples(numbers, node)
    found = candidates(numbers, samples, weight, counts)
    most = (found == found.max(axis=(3, 4, 5), keepdims=True)) & (weight[..., None] != 0)
    ties, results = tied(most.sum(axis=(3, 4, 5)))
    return met + ties, of + results
