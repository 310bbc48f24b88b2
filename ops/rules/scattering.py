"""Scatters: entries of one tensor written to, or combined with, positions of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Jacobian,
    Reshape,
    Scatter,
    Shape,
    dtype_of,
    shape_of,
    size,
)
from ..conventions import ORDER, SHARED, convention, kinks, tied
from ..node import Node
from ..numbers import numbers
from ..registry import Blocks, Count, jacobian
from .indexing import flat_positions, from_the_start, last_of_each, row_positions

REDUCTIONS = ("none", "add", "mul", "max", "min")


@jacobian("ScatterND", reduction=REDUCTIONS)
def scatter_nd(op: Any, node: Node) -> Blocks:
    """Each row of `index` is a position on the first axes, for one slice of the updates."""
    depth = shape_of(node.inputs[1])[-1]
    rows = size(node.x_shape[:depth])
    at = row_positions(op, node.inputs[1], node.x_shape[:depth])
    return scattered(op, node, op.Reshape(at, (-1,)), (rows, size(node.x_shape[depth:])))


@jacobian("Scatter")
@jacobian("ScatterElements", reduction=REDUCTIONS)
def scatter_elements(op: Any, node: Node) -> Blocks:
    """y[index[i, j], j] = updates[i, j] (for axis 0)."""
    index = from_the_start(op, node.inputs[1], node.x_shape[node.axis])
    at = flat_positions(op, index, node.axis, node.x_shape)
    return scattered(op, node, op.Reshape(at, (-1,)), (size(node.x_shape), 1))


def scattered(op: Any, node: Node, at: Array, rows: Shape, updates: int = 2) -> Blocks:
    """The blocks for data and an input of updates; data is a matrix, and `at` indexes its rows.

    y[at] = x[at] ∘ updates, so that ∂y/∂x = diag(kept) and ∂y/∂updates = scatter · diag(moved).
    """
    place = Scatter(at, 0, rows, node.dtype)
    x, y = (op.Reshape(a, rows) for a in (node.x, node.y))
    given = node.inputs[updates]
    reduction = node.reduction or "none"
    kept, moved = SLOPES[reduction](
        op, x, op.Reshape(given, place.in_shape), op.Reshape(at, (-1, 1)), y
    )
    whole = Reshape(node.y_shape, rows, node.dtype)
    entries = Reshape(place.in_shape, shape_of(given), node.dtype)
    chooses = reduction in ("none", "max", "min")
    return {
        (0, 0): whole @ diagonal(kept, whole.T, chooses),
        (0, updates): whole @ place @ diagonal(moved, entries, chooses),
    }


def diagonal(d: Array | None, J: Jacobian, chooses: bool) -> Jacobian:
    """diag(d) J, where None stands for ones."""
    return J if d is None else Diagonal(d, J.out_shape, chooses=chooses) @ J


Slopes = tuple[Array | None, Array | None]
"""∂y/∂x entry by entry, and ∂y[at]/∂updates; None for ones."""


def added(op: Any, x: Array, updates: Array, at: Array, y: Array) -> Slopes:
    """y[at] = x[at] + Σ updates."""
    return None, None


def written(op: Any, x: Array, updates: Array, at: Array, y: Array) -> Slopes:
    """y[at] = updates: x does not count there, nor do updates that a later one overwrites.

    ONNX leaves the order undefined. The kernels write in order, so that the last update stays.
    """
    ones, zeros = (op.Expand(np.full((1, 1), c, dtype_of(x)), (shape_of(a)[0], 1))
                   for c, a in ((1, x), (0, at)))  # fmt: skip
    last = last_of_each(op, at, shape_of(x)[0])
    return op.ScatterND(ones, at, zeros), None if last is None else op.CastLike(last, x)


def multiplied(op: Any, x: Array, updates: Array, at: Array, y: Array) -> Slopes:
    """y[at] = x[at] ∏ updates: each slope is the product of the other factors, zeros counted.

    Where an entry gets two updates and one of them is 0, its higher derivatives are missing.
    """
    one, none = (op.Expand(np.array(c, dtype_of(x)), shape_of(x)) for c in (1, 0))
    kept = op.ScatterND(one, at, updates, reduction="mul")
    zero = op.CastLike(op.Equal(updates, 0.0), updates)
    zeros = op.GatherND(op.ScatterND(none, at, zero, reduction="add"), at)
    factors = op.Add(updates, zero)
    product = op.GatherND(op.ScatterND(x, at, factors, reduction="mul"), at)
    return kept, op.Where(op.Equal(zeros, zero), op.Div(product, factors), 0.0)


def selected(op: Any, x: Array, updates: Array, at: Array, y: Array) -> Slopes:
    """y[at] = max(x[at], updates), or the minimum; ties share the derivative equally."""
    kept = op.CastLike(op.Equal(x, y), x)
    moved = op.CastLike(op.Equal(updates, op.GatherND(y, at)), x)
    ties = op.ScatterND(kept, at, moved, reduction="add")
    return op.Div(kept, ties), op.Div(moved, op.GatherND(ties, at))


SLOPES: dict[str, Callable[..., Slopes]] = {
    "none": written,
    "add": added,
    "mul": multiplied,
    "max": selected,
    "min": selected,
}
"""reduction -> the slopes of y in its operands."""


@kinks("ScatterND", "ScatterElements",
       where=f"for max and min, {ORDER}; without a reduction, at positions named twice",
       given=f"{SHARED}; of updates written, the last")  # fmt: skip
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


convention("ScatterElements", "max written at 2, with 2", ([2.0, 1.0], [0], [2.0]),
           ([0.5, 1.0], [0.5]), SHARED,
           "lambda x, u: x.scatter_reduce(0, torch.tensor([0]), u, 'amax')",
           attrs={"reduction": "max"})  # fmt: skip
