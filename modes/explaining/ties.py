"""Ties: how many results are attained more than once, by operators that choose among entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ops import Node, numbers
from ...ops.numbers.table import lowest
from ...ops.numbers.windows import padded, windows
from ...ops.rules.indexing import matrix_along
from ...ops.rules.reductions import kept_shape, reduced_axes, spatial
from ...ops.rules.regions import bin_pixels

Count = tuple[int, int]
"""How many lie on the kink, of how many."""

Counts = dict[str, Callable[[Node], Count]]
"""Operator, with its domain where that is not ONNX's main one -> how to count its kinks."""


def tied(hits: Any) -> Count:
    """Where more than one was met."""
    return int(np.count_nonzero(np.asarray(hits) > 1)), np.size(hits)


def ties_of_inputs(node: Node) -> Count:
    """Results that more than one input attains."""
    return tied(np.sum([np.asarray(x) == node.y for x in node.inputs], axis=0))


def ties_over(node: Node, axes: tuple[int, ...]) -> Count:
    """Results that more than one entry along the axes attains."""
    return tied((node.x == np.reshape(node.y, kept_shape(node.x_shape, axes))).sum(axis=axes))


def ties_over_axes(node: Node) -> Count:
    """The same along the axes that a reduction reduces."""
    return ties_over(node, reduced_axes(node))


def ties_over_space(node: Node) -> Count:
    """The same along all axes after batch and channels."""
    return ties_over(node, spatial(node.x_shape))


def ties_of_order(node: Node) -> Count:
    """Results that more than one entry along the axis attains."""
    x, y = (np.moveaxis(np.asarray(array), node.axis, -1) for array in (node.x, node.y))
    rows = zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), strict=True)
    found = (np.isin(chosen, repeated(row)).sum() for row, chosen in rows)
    return int(sum(found)), y.size


def repeated(row: np.ndarray) -> np.ndarray:
    """The values that stand more than once."""
    values, counts = np.unique(row, return_counts=True)
    return values[counts > 1]


def ties_of_windows(node: Node) -> Count:
    """Results that more than one entry of their window attains."""
    said = {k: v for k, v in node.step.attrs.items() if k not in ("kernel_shape", "storage_order")}
    grid = windows(node.x_shape[2:], node.kernel_shape, **said)
    framed = padded(node.x, grid, lowest(node.x.dtype))
    return tied(sum((framed[(..., *reach)] == node.y).astype(np.int64) for _, reach in grid.taps()))


def ties_of_regions(node: Node) -> Count:
    """Results that more than one pixel of their bin attains."""
    rois, (c, *space) = np.asarray(node.inputs[1]), node.x_shape[1:]
    index, empty = bin_pixels(rois, node.pooled_shape, node.spatial_scale, (space[0], space[1]))
    pixels = np.moveaxis(node.x, 1, -1).reshape(-1, c)[index]
    first = np.diff(index, prepend=-1) != 0  # a bin is filled up by repeating its last pixel
    met = (pixels == pixels.max(axis=-2, keepdims=True)) & first[..., None]
    return tied(met.sum(axis=-2) * ~empty[..., None])


def ties_of_updates(node: Node) -> Count:
    """Results that several of the old entry and its updates attain, or that are written twice."""
    if node.reduction in ("add", "mul"):
        return 0, np.size(node.y)
    along = {} if node.axis is None else {"axis": node.axis}
    if node.reduction not in ("max", "min"):
        none, ones = np.zeros(node.y_shape, np.int64), np.ones_like(node.inputs[2], np.int64)
        scatter = getattr(numbers, node.step.op_type)
        return tied(scatter(none, node.inputs[1], ones, reduction="add", **along))
    gather = numbers.GatherND if node.axis is None else numbers.GatherElements
    index, updates = node.inputs[1:3]
    kept, moved = node.x == node.y, updates == gather(node.y, index, **along)
    scatter = getattr(numbers, node.step.op_type)
    return tied(scatter(kept.astype(int), index, moved.astype(int), reduction="add", **along))


def repeated_entries(node: Node) -> Count:
    """Different entries, or slices, that stand more than once, or start alike where sorted.

    Of slices the first entries decide the order: moving them apart may exchange two slices.
    """
    rows = matrix_along(numbers, node.x, node.axis)
    keys = rows[:, :1] if node.sorted else rows
    return tied(np.unique(keys, axis=0, return_counts=True)[1])


TIES: Counts = {
    "Max": ties_of_inputs,
    "Min": ties_of_inputs,
    "ReduceMax": ties_over_axes,
    "ReduceMin": ties_over_axes,
    "GlobalMaxPool": ties_over_space,
    "MaxPool": ties_of_windows,
    "MaxRoiPool": ties_of_regions,
    "TopK": ties_of_order,
    "Unique": repeated_entries,
    "ScatterND": ties_of_updates,
    "ScatterElements": ties_of_updates,
}
