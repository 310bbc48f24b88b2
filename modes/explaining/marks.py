"""Marks: how many entries, or norms, have the one value at which an operator bends."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ...ops import Node
from .ties import Count, Counts, tied


def marked(mask: np.ndarray) -> Count:
    """Where a mask is true."""
    return int(np.count_nonzero(mask)), np.size(mask)


def at_bounds(node: Node) -> Count:
    """Entries that equal a bound."""
    bounds = (node.x == bound for bound in node.inputs[1:3] if bound is not None)
    return marked(reduce(np.logical_or, bounds, np.zeros(node.x_shape, bool)))


def zeros(node: Node) -> Count:
    """Entries that are 0."""
    return marked(node.x == 0)


def zero_results(node: Node) -> Count:
    """Norms that are 0."""
    return marked(node.y == 0)


def zero_norms(node: Node) -> Count:
    """For p = 1 entries that are 0, else norms that are."""
    return zeros(node) if node.p == 1 else zero_results(node)


def zero_rows(node: Node) -> Count:
    """Rows along the axis of length 0, or for p = 1 entries that are 0."""
    return zeros(node) if node.p == 1 else marked(np.all(node.x == 0, axis=node.axis))


def normalizers(node: Node) -> Count:
    """For L1 entries that are 0, for L2 rows that are, for MAX rows with two greatest entries."""
    if node.norm == "MAX":
        sizes = np.abs(node.x)
        return tied((sizes == sizes.max(axis=-1, keepdims=True)).sum(axis=-1))
    return zeros(node) if node.norm == "L1" else marked(np.all(node.x == 0, axis=-1))


def replaced(node: Node) -> Count:
    """Entries that are the replaced value."""
    value = node.replaced_value_float
    return marked(np.isnan(node.x) if np.isnan(value) else node.x == value)


def whole_range(node: Node) -> Count:
    """Whether the limit is met exactly, so that a longer range has one entry more."""
    start, limit, delta = (np.asarray(x, np.float64) for x in node.inputs[:3])
    turns = (limit - start) / delta
    return marked((turns == np.floor(turns)) & (turns >= 0))


def powers_of_zero(node: Node) -> Count:
    """Entries that are 0⁰."""
    return marked((node.x == 0) & (node.inputs[1] == 0))


MARKS: Counts = {
    "Clip": at_bounds,
    "ReduceL1": zeros,
    "ReduceL2": zero_results,
    "GlobalLpPool": zero_norms,
    "LpPool": zero_norms,
    "LpNormalization": zero_rows,
    "ai.onnx.ml::Normalizer": normalizers,
    "ai.onnx.ml::Imputer": replaced,
    "Range": whole_range,
}
