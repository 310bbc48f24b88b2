"""Scatters: entries of one tensor written to, or added at, positions of another."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..jacobians import Array, Diagonal, Jacobian, Reshape, Scatter, Shape, shape_of, size
from ..jacobians.errors import UnsupportedOp
from .indexing import flat_positions, from_the_start, row_positions
from .node import Node
from .registry import Blocks, jacobian


@jacobian("ScatterND")
def scatter_nd(op: Any, node: Node) -> Blocks:
    """A row of `index` names a position on the first axes; a slice of the updates goes there."""
    depth = shape_of(node.inputs[1])[-1]
    rows = size(node.x_shape[:depth])
    at = row_positions(op, node.inputs[1], node.x_shape[:depth])
    return scattered(op, node, op.Reshape(at, (-1,)), (rows, size(node.x_shape[depth:])))


@jacobian("ScatterElements", "Scatter")
def scatter_elements(op: Any, node: Node) -> Blocks:
    """y[index[i, j], j] = updates[i, j] (for axis 0)."""
    index = from_the_start(op, node.inputs[1], node.x_shape[node.axis])
    at = flat_positions(op, index, node.axis, node.x_shape)
    return scattered(op, node, op.Reshape(at, (-1,)), (size(node.x_shape), 1))


def scattered(op: Any, node: Node, at: Array, rows: Shape) -> Blocks:
    """The blocks in data and updates, once data is a matrix and `at` names its rows."""
    if node.reduction not in (None, "none", "add"):
        raise UnsupportedOp(
            f"{node.step} with reduction={node.reduction!r} has no rule yet: only 'none' and 'add'"
        )
    place: Jacobian = Scatter(at, 0, rows, node.dtype)
    updates = shape_of(node.inputs[2])
    whole = Reshape(node.y_shape, rows, node.dtype)
    into = whole @ place @ Reshape(place.in_shape, updates, node.dtype)
    kept = Reshape(node.y_shape, node.x_shape, node.dtype)
    if node.reduction == "add":
        return {(0, 0): kept, (0, 2): into}
    count = shape_of(at)[0]
    free = op.ScatterND(np.ones((rows[0], 1), node.dtype), op.Reshape(at, (count, 1)),
                        np.zeros((count, 1), node.dtype))  # fmt: skip
    return {(0, 0): whole @ Diagonal(free, rows) @ whole.T, (0, 2): into}
