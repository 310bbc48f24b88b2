"""Gathers and scatters: selections by an index known at the point, and their adjoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Jacobian,
    Op,
    Reshape,
    Scatter,
    Shape,
    Take,
    dtype_of,
    shape_of,
    size,
    take_flat,
)
from ...jacobians.symint import Number, is_symbolic, same, smallest
from ..conventions import FIRST, ORDER, SHARED, convention, kinks, tied
from ..indexed import declare_indexed
from ..indices import count_up, from_the_start
from ..node import Node
from ..numbers import numbers
from ..registry import Blocks, Count, jacobian

declare_indexed(
    "Gather",
    "y[*r, *t] = x[*r, index[*t]]",
    axes=lambda node: {"": (node.axis % len(node.x_shape),)},
)


@jacobian("GatherElements")
def gather_elements(op: Op, node: Node) -> Blocks:
    """y[i, j] = x[index[i, j], j] (for axis 0): any entries of x."""
    index = from_the_start(op, node.inputs[1], node.x_shape[node.axis])
    return {(0, 0): picked(op, index, node.axis, node.x_shape, node.dtype)}


@jacobian("GatherND")
def gather_nd(op: Op, node: Node) -> Blocks:
    """y[b, i] = x[b, index[b, i]], where a row of `index` names a position on the first axes."""
    shape, index, batch = node.x_shape, node.inputs[1], node.batch_dims or 0
    depth = shape_of(index)[-1]
    indexed, rest = shape[batch : batch + depth], shape[batch + depth :]
    at = row_positions(op, index, indexed)
    lead = (*shape[:batch], *(1,) * (len(shape_of(index)) - 1 - batch))
    rows = op.Reshape(count_up(op, size(shape[:batch])), lead)
    at = op.Add(at, op.Mul(rows, size(indexed)))
    flat = (size(shape[: batch + depth]), *rest)
    J = Take(at, 0, flat, node.dtype, shape[:batch]) @ Reshape(flat, shape, node.dtype)
    return {(0, 0): Reshape(node.y_shape, J.out_shape, node.dtype) @ J}


declare_indexed(
    "OneHot",
    "y[*t] = values[hot[*t]]",
    inputs=("x", "depth", "values"),
    grows=True,
    numbers=lambda op, node: {
        "hot": op.OneHot(node.x, node.y_shape[node.axis], np.array([0, 1]), axis=node.axis)
    },
)


@jacobian("TopK")
def top_k(op: Op, node: Node) -> Blocks:
    """The values are entries of x, at the indices in the second output."""
    return {(0, 0): picked(op, node.outputs[1], node.axis, node.x_shape, node.dtype)}


@kinks("TopK", where=ORDER, given=FIRST)
def ties_of_order(node: Node) -> Count:
    """Results that more than one entry along the axis attains."""
    x, y = (np.moveaxis(np.asarray(array), node.axis, -1) for array in (node.x, node.y))
    met = 0
    for row, chosen in zip(x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), strict=True):
        values, counts = np.unique(row, return_counts=True)
        met += int(np.isin(chosen, values[counts > 1]).sum())
    return met, y.size


convention("TopK", "top 1 of [2, 2, 1]", ([2.0, 2.0, 1.0], [1]), ([1.0, 0.0, 0.0],), FIRST,
           "lambda x: x.topk(1)[0]")  # fmt: skip


@jacobian("Compress")
def compress(op: Op, node: Node) -> Blocks:
    """y = the entries of x along an axis, or of all of x, where the condition holds."""
    kept = np.flatnonzero(np.asarray(node.number(1)))
    if node.axis is None:
        return {(0, 0): take_flat(kept, node.x_shape, node.dtype)}
    n = node.x_shape[node.axis]
    if n < shape_of(node.inputs[1])[0]:
        kept = kept[kept < int(n)]
    return {(0, 0): Take(kept, node.axis, node.x_shape, node.dtype)}


def row_positions(op: Op, index: Array, shape: Shape) -> Array:
    """Row-major positions in a tensor of the given shape, one for each row of `index`."""
    at: Array = np.zeros((), np.int64)
    for axis, n in enumerate(shape):
        step = from_the_start(op, op.Gather(index, axis, axis=-1), n)
        at = op.Add(op.Mul(at, n), step)
    return at


def picked(op: Op, index: Array, axis: int, shape: Shape, dtype: np.dtype) -> Jacobian:
    """The entries of a tensor of the given shape at indices along one axis."""
    at, first = flat_positions(op, index, axis, shape), shape[: axis % len(shape)]
    return take_flat(at, shape, dtype, first if same(shape_of(index)[: len(first)], first) else ())


def flat_positions(op: Op, index: Array, axis: int, shape: Shape) -> Array:
    """Row-major positions, in a tensor of the given shape, of entries indexed along one axis."""
    axis %= len(shape)
    at = op.Mul(index, size(shape[axis + 1 :]))
    for k, extent in enumerate(shape_of(index)):
        if k != axis and not same(extent, 1):
            step = op.Mul(count_up(op, extent), size(shape[k + 1 :]))
            at = op.Add(at, op.Reshape(step, (-1, *(1,) * (len(shape) - 1 - k))))
    return at


def last_of_each(op: Op, at: Array, rows: Number) -> Array | None:
    """A mask of the indices, (n, 1), that no later one repeats; None if all are known to differ."""
    if differ(at):
        return None
    count = shape_of(at)[0]
    order = op.Reshape(count_up(op, count), (count, 1))
    none = op.Expand(np.full((1, 1), -1), (rows, 1))
    return op.Equal(op.GatherND(op.ScatterND(none, at, order, reduction="max"), at), order)


def differ(at: Array) -> bool:
    """Whether the indices are known, and known to differ."""
    return isinstance(at, np.ndarray) and np.unique(at).size == at.size


@jacobian("Unique")
def unique(op: Op, node: Node) -> Blocks:
    """y = the unique entries of x, or its unique slices, each at its first occurrence."""
    axis, at = node.axis, node.output(1)
    if at is None:
        at = first_occurrences(op, node)
    if axis is None:
        return {(0, 0): take_flat(at, node.x_shape, node.dtype)}
    return {(0, 0): Take(at, axis, node.x_shape, node.dtype)}


def first_occurrences(op: Op, node: Node) -> Array:
    """Where in x each slice of y occurs first, or each entry without an axis."""
    count = size(node.x_shape) if node.axis is None else node.x_shape[node.axis]
    if not count:  # an ArgMax over nothing is not defined
        return np.zeros(0, np.int64)
    x, y = (rows_along(op, a, node.axis) for a in (node.x, node.y))
    same = op.CastLike(op.Equal(op.Unsqueeze(y, (1,)), op.Unsqueeze(x, (0,))), x)
    return op.ArgMax(op.ReduceMin(same, (-1,), keepdims=0), axis=1, keepdims=0)


def rows_along(op: Op, x: Array, axis: int | None) -> Array:
    """The slices along an axis as rows; without an axis, every entry as a row of length 1."""
    if axis is None:
        return op.Reshape(x, (-1, 1))
    rank = len(shape_of(x))
    order = (axis % rank, *(k for k in range(rank) if k != axis % rank))
    return op.Reshape(op.Transpose(x, perm=order), (shape_of(x)[axis], -1))


@kinks("Unique", "com.microsoft::Unique", where=ORDER, given=FIRST)
def repeated_entries(node: Node) -> Count:
    """Distinct entries, or slices, that occur more than once, or share a first entry where sorted.

    Slices are ordered by their first entries: moving equal first entries apart may swap two slices.
    """
    rows = rows_along(numbers, node.x, node.axis)
    keys = rows[:, :1] if node.sorted else rows
    return tied(np.unique(keys, axis=0, return_counts=True)[1])


REDUCTIONS = ("none", "add", "mul", "max", "min")


@jacobian("ScatterND", reduction=REDUCTIONS)
def scatter_nd(op: Op, node: Node) -> Blocks:
    """Each row of `index` is a position on the first axes, for one slice of the updates."""
    depth = shape_of(node.inputs[1])[-1]
    rows = size(node.x_shape[:depth])
    at = row_positions(op, node.inputs[1], node.x_shape[:depth])
    return scatter_blocks(op, node, op.Reshape(at, (-1,)), (rows, size(node.x_shape[depth:])))


@jacobian("Scatter")
@jacobian("ScatterElements", reduction=REDUCTIONS)
def scatter_elements(op: Op, node: Node) -> Blocks:
    """y[index[i, j], j] = updates[i, j] (for axis 0)."""
    index = from_the_start(op, node.inputs[1], node.x_shape[node.axis])
    at = flat_positions(op, index, node.axis, node.x_shape)
    return scatter_blocks(op, node, op.Reshape(at, (-1,)), (size(node.x_shape), 1))


def scatter_blocks(op: Op, node: Node, at: Array, rows: Shape, updates: int = 2) -> Blocks:
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
        (0, 0): whole @ scale_by_diagonal(kept, whole.T, chooses),
        (0, updates): whole @ place @ scale_by_diagonal(moved, entries, chooses),
    }


def scale_by_diagonal(d: Array | None, J: Jacobian, chooses: bool) -> Jacobian:
    """diag(d) J, where None stands for ones."""
    return J if d is None else Diagonal(d, J.out_shape, chooses=chooses) @ J


Slopes = tuple[Array | None, Array | None]
"""∂y/∂x entry by entry, and ∂y[at]/∂updates; None for ones."""


def scatter_writes(op: Op, x: Array, updates: Array, at: Array, y: Array) -> Slopes:
    """y[at] = updates: x does not count there, nor do updates that a later one overwrites.

    ONNX leaves the order undefined. The kernels write in order, so that the last update stays.
    """
    ones, zeros = (op.Expand(np.full((1, 1), c, dtype_of(x)), (shape_of(a)[0], 1))
                   for c, a in ((1, x), (0, at)))  # fmt: skip
    last = last_of_each(op, at, shape_of(x)[0])
    return op.ScatterND(ones, at, zeros), None if last is None else op.CastLike(last, x)


def scatter_products(op: Op, x: Array, updates: Array, at: Array, y: Array) -> Slopes:
    """y[at] = x[at] ∏ updates: each slope is the product of the other factors, zeros counted."""
    one = op.Expand(np.array(1, dtype_of(x)), shape_of(x))
    kept, old = op.ScatterND(one, at, updates, reduction="mul"), op.GatherND(x, at)
    if differ(at):
        return kept, old
    _, order = op.TopK(at, (shape_of(at)[0],), axis=0, largest=0, outputs=2)
    others = product_of_others(op, op.GatherND(updates, order), 0, op.GatherND(at, order))
    return kept, op.Mul(old, op.ScatterND(others, order, others))


def product_of_others(op: Op, x: Array, axis: int = -1, group: Array | None = None) -> Array:
    """∏ of all other entries along an axis: those before times those after, by doubling.

    Of entries of the same group only, if each has the number of its group, in ascending order. A
    quotient would be cheaper, but at 0 its value and its derivatives would be wrong.
    """

    def shifted(y: Array, step: int) -> Array:
        y = shift_along(op, y, axis, step)
        if group is None:
            return y
        return op.Where(op.Equal(group, shift_along(op, group, axis, step)), y, op.CastLike(1.0, y))

    before, after = shifted(x, 1), shifted(x, -1)
    for step in doublings(shape_of(x)[axis]):
        before = op.Mul(before, shifted(before, step))
        after = op.Mul(after, shifted(after, -step))
    return op.Mul(before, after)


GUARDED_LENGTH = 4096
"""Graphs recorded for a symbolic axis length hold for all lengths up to at least this one."""


def doublings(n: Number) -> Iterator[int]:
    """1, 2, 4, … below n; for a symbolic n, at least below `GUARDED_LENGTH`."""
    step = 1
    while (is_symbolic(n) and step < GUARDED_LENGTH) or step < n:
        yield step
        step *= 2


def shift_along(op: Op, x: Array, axis: int, step: int) -> Array:
    """x shifted along an axis, with ones shifted in."""
    far = smallest(abs(step), shape_of(x)[axis])
    return op.Pad(x, (far, -far) if step > 0 else (-far, far), 1.0, (axis,))


def selected(op: Op, x: Array, updates: Array, at: Array, y: Array) -> Slopes:
    """y[at] = max(x[at], updates), or the minimum; ties share the derivative equally."""
    kept = op.CastLike(op.Equal(x, y), x)
    moved = op.CastLike(op.Equal(updates, op.GatherND(y, at)), x)
    ties = op.ScatterND(kept, at, moved, reduction="add")
    return op.Div(kept, ties), op.Div(moved, op.GatherND(ties, at))


SLOPES: dict[str, Callable[..., Slopes]] = {
    "none": scatter_writes, "add": lambda *_: (None, None), "mul": scatter_products,
    "max": selected, "min": selected,
}  # fmt: skip
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
