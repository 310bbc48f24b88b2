"""Counts: how many entries of a node lie on a kink or a jump of its operator.

This module has the operators whose kinks do not follow from a formula: operators that choose among
entries (ties), that bend at a value (marks), that interpolate (lines), and operators without a
derivative that jump. For a new operator, write a counting function and enter it in its table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from ...ops import Node, numbers
from ...ops.numbers.table import lowest
from ...ops.numbers.windows import padded, windows
from ...ops.rules import regions
from ...ops.rules.deformable import OFFSET, Deformed
from ...ops.rules.grids import MODES, placed
from ...ops.rules.indexing import matrix_along
from ...ops.rules.interpolation import SUPPORT
from ...ops.rules.reductions import kept_shape, reduced_axes, spatial
from ...ops.rules.resize import ROI, SCALES, AxisOfResize, positions, resized_axes, squeezing

Count = tuple[int, int]
"""How many entries lie on the kink, out of how many."""

Counts = dict[str, Callable[[Node], Count]]
"""Operator, as domain::name outside ONNX's main domain -> how to count its kinks."""

Along = tuple[np.ndarray, float, float]
"""Positions along an axis, the first line of pixels, and the last one."""


def marked(mask: np.ndarray) -> Count:
    """The number of places where a mask is true."""
    return int(np.count_nonzero(mask)), np.size(mask)


def tied(hits: Any) -> Count:
    """The number of results with more than one hit."""
    return marked(np.asarray(hits) > 1)


# -- ties: results that more than one entry attains ------------------------------------------------


def ties_over(node: Node, axes: tuple[int, ...]) -> Count:
    """Results that more than one entry along the axes attains."""
    return tied((node.x == np.reshape(node.y, kept_shape(node.x_shape, axes))).sum(axis=axes))


def ties_of_order(node: Node) -> Count:
    """Results that more than one entry along the axis attains."""
    x, y = (np.moveaxis(np.asarray(array), node.axis, -1) for array in (node.x, node.y))
    met = 0
    for row, chosen in zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), strict=True):
        values, counts = np.unique(row, return_counts=True)
        met += int(np.isin(chosen, values[counts > 1]).sum())
    return met, y.size


def ties_of_windows(node: Node) -> Count:
    """Results that more than one entry of their window attains."""
    said = {k: v for k, v in node.step.attrs.items() if k not in ("kernel_shape", "storage_order")}
    grid = windows(node.x_shape[2:], node.kernel_shape, **said)
    framed = padded(node.x, grid, lowest(node.x.dtype))
    return tied(sum((framed[(..., *reach)] == node.y).astype(np.int64) for _, reach in grid.taps()))


def ties_of_regions(node: Node) -> Count:
    """Results that more than one pixel of their bin attains."""
    rois, (c, h, w) = np.asarray(node.inputs[1]), node.x_shape[1:]
    index, empty = regions.bin_pixels(rois, node.pooled_shape, node.spatial_scale, (h, w))
    pixels = np.moveaxis(node.x, 1, -1).reshape(-1, c)[index]
    first = np.diff(index, prepend=-1) != 0  # a bin is filled up by repeating its last pixel
    met = (pixels == pixels.max(axis=-2, keepdims=True)) & first[..., None]
    return tied(met.sum(axis=-2) * ~empty[..., None])


def ties_of_updates(node: Node) -> Count:
    """Results attained by more than one of the old entry and its updates, or written twice."""
    if node.reduction in ("add", "mul"):
        return 0, np.size(node.y)
    along = {} if node.axis is None else {"axis": node.axis}
    scatter = getattr(numbers, node.step.op_type)
    if node.reduction not in ("max", "min"):
        none, ones = np.zeros(node.y_shape, np.int64), np.ones_like(node.inputs[2], np.int64)
        return tied(scatter(none, node.inputs[1], ones, reduction="add", **along))
    gather = numbers.GatherND if node.axis is None else numbers.GatherElements
    index, updates = node.inputs[1:3]
    kept, moved = node.x == node.y, updates == gather(node.y, index, **along)
    return tied(scatter(kept.astype(int), index, moved.astype(int), reduction="add", **along))


def repeated_entries(node: Node) -> Count:
    """Distinct entries, or slices, that occur more than once, or share a first entry where sorted.

    Slices are ordered by their first entries: moving equal first entries apart may swap two slices.
    """
    rows = matrix_along(numbers, node.x, node.axis)
    keys = rows[:, :1] if node.sorted else rows
    return tied(np.unique(keys, axis=0, return_counts=True)[1])


TIES: Counts = {
    **dict.fromkeys(("Max", "Min"), lambda node: tied(sum(x == node.y for x in node.inputs))),
    "ReduceMax": lambda node: ties_over(node, reduced_axes(node)),
    "ReduceMin": lambda node: ties_over(node, reduced_axes(node)),
    "GlobalMaxPool": lambda node: ties_over(node, spatial(node.x_shape)),
    "MaxPool": ties_of_windows,
    "MaxRoiPool": ties_of_regions,
    "TopK": ties_of_order,
    "Unique": repeated_entries,
    **dict.fromkeys(("ScatterND", "ScatterElements"), ties_of_updates),
}


# -- marks: entries, or norms, that have the value at which an operator bends ----------------------


def zeros(node: Node) -> Count:
    """Entries that are 0."""
    return marked(node.x == 0)


def at_bounds(node: Node) -> Count:
    """Entries that equal a bound."""
    bounds = (node.x == bound for bound in node.inputs[1:3] if bound is not None)
    return marked(reduce(np.logical_or, bounds, np.zeros(node.x_shape, bool)))


def zero_norms(node: Node) -> Count:
    """For p = 1 entries that are 0, else norms that are 0."""
    return zeros(node) if node.p == 1 else marked(node.y == 0)


def zero_rows(node: Node, axis: int) -> Count:
    """Rows of zeros along an axis."""
    return marked(np.all(node.x == 0, axis=axis))


def normalizers(node: Node) -> Count:
    """Entries that are 0 for L1, rows of zeros for L2, rows with two greatest entries for MAX."""
    if node.norm == "MAX":
        sizes = np.abs(node.x)
        return tied((sizes == sizes.max(axis=-1, keepdims=True)).sum(axis=-1))
    return zeros(node) if node.norm == "L1" else zero_rows(node, -1)


def replaced(node: Node) -> Count:
    """Entries that equal the value to be replaced."""
    value = node.replaced_value_float
    return marked(np.isnan(node.x) if np.isnan(value) else node.x == value)


def whole_range(node: Node) -> Count:
    """Whether the range ends exactly at its limit, so that a longer range has one entry more."""
    start, limit, delta = (np.asarray(x, np.float64) for x in node.inputs[:3])
    turns = (limit - start) / delta
    return marked((turns == np.floor(turns)) & (turns >= 0))


MARKS: Counts = {
    "Clip": at_bounds,
    "ReduceL1": zeros,
    "ReduceL2": lambda node: marked(node.y == 0),
    **dict.fromkeys(("GlobalLpPool", "LpPool"), zero_norms),
    "LpNormalization": lambda node: zeros(node) if node.p == 1 else zero_rows(node, node.axis),
    "ai.onnx.ml::Normalizer": normalizers,
    "ai.onnx.ml::Imputer": replaced,
    "Range": whole_range,
}


# -- lines: sampled points on a line of pixels, where linear interpolation bends -------------------
#
# This matters where the points move: an image sampled at fixed points is a linear function of its
# pixels. Cubic interpolation does not bend, and the nearest pixel stays while points move.


def crossed(axes: Iterable[Along], *, inside: bool = True) -> np.ndarray:
    """Points on a line of some axis; with `inside`, only points within reach along all axes."""
    axes = tuple(axes)
    near = [(at >= first) & (at <= last) for at, first, last in axes]
    met = ((at == np.floor(at)) & n for (at, _, _), n in zip(axes, near, strict=True))
    return reduce(np.logical_or, met) & (reduce(np.logical_and, near) if inside else True)


def points_of_grid(node: Node) -> Count:
    """Points of a grid; outside the image, a reflection has lines everywhere."""
    grid = np.asarray(node.inputs[1])
    if not node.wants(1) or MODES.get(node.mode, node.mode) != "linear":
        return 0, int(np.prod(grid.shape[:-1]))
    step = replace(node.step, attrs={**node.step.attrs, "padding_mode": "zeros"})
    axes = []
    for k, n in enumerate(node.x_shape[2:]):
        at, _ = placed(numbers, Node(step, node.inputs, ()), grid[..., -1 - k], n)
        reach = {"zeros": (-1.0, n), "border": (0.0, n - 1), "reflection": (-np.inf, np.inf)}
        if n > 1 or not node.align_corners:  # else the whole axis is one point
            axes.append((at, *reach[node.padding_mode]))
    return marked(crossed(axes, inside=node.padding_mode == "zeros"))


def taps(node: Node) -> Count:
    """Taps of a deformed convolution."""
    deformed = Deformed(numbers, node)
    if not node.wants(OFFSET):
        return 0, int(np.prod(deformed.points))
    axes = enumerate(node.x_shape[2:])
    return marked(crossed((deformed.position(k), -1.0, n) for k, n in axes))


def samples_of_regions(node: Node) -> Count:
    """Samples of regions; for the maximum, also results that several neighbours attain."""
    counts = regions.sample_counts(numbers, node)
    (down, present), (across, there) = (
        regions.sample_places(numbers, node, k, bins, counts[k])
        for k, bins in enumerate((node.output_height, node.output_width))
    )
    down, present = (a[:, :, None, :, None] for a in (down, present))
    across, there = (a[:, None, :, None, :] for a in (across, there))
    height, width = node.x_shape[2:]
    on = crossed([(down, -1.0, height), (across, -1.0, width)]) & present & there
    met, of = marked(on) if node.wants(1) else (0, on.size)
    if node.mode == "avg":
        return met, of
    samples, weight, counts = regions.region_samples(numbers, node)
    found = regions.candidates(numbers, samples, weight, counts)
    greatest = (found == found.max(axis=(3, 4, 5), keepdims=True)) & (weight[..., None] != 0)
    ties, results = tied(greatest.sum(axis=(3, 4, 5)))
    return met + ties, of + results


def entries_of_resize(node: Node) -> Count:
    """Places along the axes that are resized."""
    axes = (AxisOfResize(numbers, node, k) for k in range(len(resized_axes(node))))
    found = [bends(node, axis) for axis in axes if not axis.stays]
    return sum(int(f.sum()) for f in found), sum(f.size for f in found)


def bends(node: Node, axis: AxisOfResize) -> np.ndarray:
    """Which places have a neighbour whose weight bends as a parameter moves.

    The weight is a function of u = (neighbour - place) · squeeze, and bends where |u| is 0 or 1.
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


# -- jumps: entries where an operator without a derivative changes its value -----------------------
#
# The derivative is 0 on either side of a jump. Whatever a jump selects, like the branch of a
# Where, is differentiated as selected at the point.


WHOLE = "where x is a whole number", lambda node: marked(node.x == np.floor(node.x))
HALF = ("where x is half way between two whole numbers",
        lambda node: marked(node.x - np.floor(node.x) == 0.5))  # fmt: skip
EQUAL = "where both sides are equal", lambda node: marked(node.x == np.asarray(node.inputs[1]))

JUMPS: dict[str, tuple[str, Callable[[Node], Count]]] = {
    "Floor": WHOLE, "Ceil": WHOLE, "Round": HALF, "Sign": ("x = 0", zeros),
    **dict.fromkeys(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"), EQUAL),
}  # fmt: skip
"""Operator -> where its value changes, and how many entries lie there."""

COUNTS: Counts = TIES | MARKS | LINES | {name: count for name, (_, count) in JUMPS.items()}
"""All counts; the kinks of an operator with a formula come from the formula instead."""
