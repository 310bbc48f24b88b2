"""Lines: how many sampled points lie on a line of pixels, where linear interpolation bends.

That matters where the points move: an image that is seen through fixed points is a linear function
of its pixels. Cubic interpolation does not bend, and the nearest pixel stays while points move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce

import numpy as np

from ...ops import Node, Step, numbers
from ...ops.rules.deformable import OFFSET, Deformed
from ...ops.rules.grids import MODES, placed
from ...ops.rules.interpolation import SUPPORT
from ...ops.rules.regions import candidates, region_samples, sample_counts, sample_places
from ...ops.rules.resampling import positions, squeezing
from ...ops.rules.resize import ROI, SCALES, AxisOfResize, resized_axes
from .marks import marked
from .ties import Count, Counts

Along = tuple[np.ndarray, float, float]
"""Positions along an axis, the first line of pixels, and the last one."""


def crossed(axes: Iterable[Along], *, inside: bool = True) -> np.ndarray:
    """Points on a line of some axis; where `inside`, only those within reach along all axes."""
    axes = tuple(axes)
    near = [(at >= first) & (at <= last) for at, first, last in axes]
    met = ((at == np.floor(at)) & n for (at, _, _), n in zip(axes, near, strict=True))
    return reduce(np.logical_or, met) & (reduce(np.logical_and, near) if inside else True)


def points_of_grid(node: Node) -> Count:
    """Points of a grid."""
    points = np.asarray(node.inputs[1]).shape[:-1]
    if not node.wants(1) or MODES.get(node.mode, node.mode) != "linear":
        return 0, int(np.prod(points))
    return marked(crossed(lines_of_grid(node), inside=node.padding_mode == "zeros"))


def lines_of_grid(node: Node) -> Iterator[Along]:
    """Where the points lie, also those beyond the image; a reflection has lines everywhere."""
    attrs, grid = {**node.step.attrs, "padding_mode": "zeros"}, np.asarray(node.inputs[1])
    step = Step("GridSample", "", node.step.version, "", ("x", "grid"), ("y",), attrs)
    for k, n in enumerate(node.x_shape[2:]):
        at, _ = placed(numbers, Node(step, node.inputs, ()), grid[..., -1 - k], n)
        reach = {"zeros": (-1.0, n), "border": (0.0, n - 1), "reflection": (-np.inf, np.inf)}
        if n > 1 or not node.align_corners:  # else all of it is one point
            yield (at, *reach[node.padding_mode])


def taps(node: Node) -> Count:
    """Taps of a deformed convolution."""
    deformed = Deformed(numbers, node)
    if not node.wants(OFFSET):
        return 0, int(np.prod(deformed.points))
    axes = enumerate(node.x_shape[2:])
    return marked(crossed((deformed.position(k), -1.0, n) for k, n in axes))


def samples_of_regions(node: Node) -> Count:
    """Samples of regions; for the maximum, results that several neighbours attain as well."""
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
    tied, results = ties_of_samples(node)
    return met + tied, of + results


def ties_of_samples(node: Node) -> Count:
    """Results that more than one neighbour attains, those that count with weight 0 left out."""
    samples, weight, counts = region_samples(numbers, node)
    found = candidates(numbers, samples, weight, counts)
    greatest = found.max(axis=(3, 4, 5), keepdims=True)
    hits = ((found == greatest) & (weight[..., None] != 0)).sum(axis=(3, 4, 5))
    return marked(hits > 1)


def entries_of_resize(node: Node) -> Count:
    """Places along the axes that are resized."""
    axes = (AxisOfResize(numbers, node, k) for k in range(len(resized_axes(node))))
    found = [bends(node, axis) for axis in axes if not axis.stays]
    return sum(int(f.sum()) for f in found), sum(f.size for f in found)


def bends(node: Node, axis: AxisOfResize) -> np.ndarray:
    """Which places have a neighbour whose weight bends as a parameter moves.

    The weight is that of u = (neighbour - place) · squeeze, and bends where |u| is 0 or 1.
    """
    names = {n for i in (ROI, SCALES) if node.wants(i) for _, n in axis.parameters(i)}
    if not names or node.mode != "linear":
        return np.zeros(axis.m, bool)
    at, slopes = positions(numbers, axis)
    squeeze = squeezing(numbers, axis)
    reach = int(np.ceil(SUPPORT["linear"] / squeeze))
    distance = np.floor(at)[:, None] + np.arange(-reach, reach + 1) - at[:, None]
    widens = distance if squeeze < 1 else 0.0
    moves = [np.reshape(slopes.get(name, np.zeros(axis.m)), (-1, 1)) * -squeeze
             + (widens if name == "scale" else 0.0) for name in sorted(names)]  # fmt: skip
    bent = np.isin(np.abs(distance * squeeze), (0.0, 1.0)) & np.any(np.not_equal(moves, 0), axis=0)
    return bent.any(axis=1) & (at >= 0) & (at <= axis.n - 1)


LINES: Counts = {
    "GridSample": points_of_grid,
    "DeformConv": taps,
    "RoiAlign": samples_of_regions,
    "Resize": entries_of_resize,
}
