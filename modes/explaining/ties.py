"""Ties: how many entries decide nothing alone, for operators whose kinks are known in words.

The keys are among those of `proofs.kinked.KINKS`, which says where the kinks are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from ...ops import Node
from ...ops.numbers.table import lowest
from ...ops.numbers.windows import padded, windows
from ...ops.rules.reductions import kept_shape, reduced_axes, spatial

Count = tuple[int | None, int]
"""How many lie on the kink, of how many."""


def at_bounds(node: Node) -> Count:
    """Entries that equal a bound."""
    bounds = [node.x == bound for bound in node.inputs[1:3] if bound is not None]
    return int(np.count_nonzero(reduce(np.logical_or, bounds, False))), np.size(node.x)


def zeros(node: Node) -> Count:
    """Entries that are 0."""
    return int(np.count_nonzero(node.x == 0)), np.size(node.x)


def zero_results(node: Node) -> Count:
    """Norms that are 0."""
    return int(np.count_nonzero(node.y == 0)), np.size(node.y)


def zero_norms(node: Node) -> Count:
    """For p = 1 entries that are 0, else norms that are."""
    return zeros(node) if node.p == 1 else zero_results(node)


def zero_rows(node: Node) -> Count:
    """Rows along the axis of length 0, or for p = 1 entries that are 0."""
    if node.p == 1:
        return zeros(node)
    none = np.all(node.x == 0, axis=node.axis)
    return int(none.sum()), none.size


def ties_of_inputs(node: Node) -> Count:
    """Results that more than one input attains."""
    hits = np.sum([np.asarray(x) == node.y for x in node.inputs], axis=0)
    return int(np.count_nonzero(hits > 1)), np.size(node.y)


def ties_over(node: Node, axes: tuple[int, ...]) -> Count:
    """Results that more than one entry along the axes attains."""
    hits = (node.x == np.reshape(node.y, kept_shape(node.x_shape, axes))).sum(axis=axes)
    return int(np.count_nonzero(hits > 1)), np.size(hits)


def ties_of_order(node: Node) -> Count:
    """Results that more than one entry along the axis attains."""
    x, y = (np.moveaxis(np.asarray(array), node.axis, -1) for array in (node.x, node.y))
    rows = zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), strict=True)
    tied = (np.isin(chosen, repeated(row)).sum() for row, chosen in rows)
    return int(sum(tied)), y.size


def repeated(row: np.ndarray) -> np.ndarray:
    """The values that stand more than once."""
    values, counts = np.unique(row, return_counts=True)
    return values[counts > 1]


def ties_of_windows(node: Node) -> Count:
    """Results that more than one entry of their window attains."""
    said = {k: v for k, v in node.step.attrs.items() if k not in ("kernel_shape", "storage_order")}
    grid = windows(node.x_shape[2:], node.kernel_shape, **said)
    framed = padded(node.x, grid, lowest(node.x.dtype))
    hits = sum((framed[(..., *reach)] == node.y).astype(np.int64) for _, reach in grid.taps())
    return int(np.count_nonzero(hits > 1)), np.size(node.y)


COUNTS: dict[str, Callable[[Node], Count]] = {
    "Clip": at_bounds,
    "Max": ties_of_inputs,
    "Min": ties_of_inputs,
    "ReduceMax": lambda node: ties_over(node, reduced_axes(node)),
    "ReduceMin": lambda node: ties_over(node, reduced_axes(node)),
    "GlobalMaxPool": lambda node: ties_over(node, spatial(node.x_shape)),
    "MaxPool": ties_of_windows,
    "TopK": ties_of_order,
    "ReduceL1": zeros,
    "ReduceL2": zero_results,
    "GlobalLpPool": zero_norms,
    "LpPool": zero_norms,
    "LpNormalization": zero_rows,
}
"""op_type -> how many of its entries lie on a kink."""
