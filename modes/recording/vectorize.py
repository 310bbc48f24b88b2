"""Vectorize: what no turn of a loop hands to the next, recorded for all turns at once.

A node of the body whose operands are known outside of the loop, the same in all turns or stacked
over the turns, is recorded outside, with the turns as a new first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx_ir as ir

from ...jacobians import Array, shape_of, size
from ...jacobians.symint import Number, depth_of, same
from ...ops import Recorder
from ...ops.graphs.build import graphs_of
from ...ops.graphs.shapes import depth_in
from ...ops.numbers.pointwise import UFUNCS
from ...ops.rules.elementwise import FORMULAS
from ..model.flow.steps import array_of, python_of


class Vectorized:
    """Values of a body ↦ values outside of it: `same` in all turns, or `rows`, one per turn.

    There are `depth` other bodies around the loop.
    """

    def __init__(
        self, op: Recorder, depth: int, turns: Number | None, rows: Mapping[ir.Value, ir.Value],
        same: Mapping[ir.Value, ir.Value],
    ) -> None:  # fmt: skip
        self.op, self.depth, self.turns = op, depth, turns
        self.rows, self.same = dict(rows), dict(same)

    def record(self, nodes: Iterable[ir.Node]) -> list[ir.Node]:
        """Record the nodes that can be recorded outside of the loop; return the other nodes."""
        return [node for node in nodes if not self.take(node)]

    def take(self, node: ir.Node) -> bool:
        """Record a node outside of the loop, if that is possible."""
        if node.domain or len(node.outputs) != 1 or any(graphs_of(node)):
            return False
        if not all(x is None or self.knows(x) for x in node.inputs):
            return False
        attrs = {name: python_of(attribute) for name, attribute in node.attributes.items()}
        y, moves = node.outputs[0], any(x in self.rows for x in node.inputs)
        lift = LIFTS.get(node.op_type)
        if not moves:
            made = self.op.call(node.op_type, *map(self.outside, node.inputs), **attrs)
        elif lift and self.is_seen(y):
            made = lift(self, node, attrs)
        else:
            return False
        value = self.op.value(made)
        if value is not None:
            (self.rows if moves else self.same)[y] = value
        return value is not None

    def knows(self, x: ir.Value) -> bool:
        """Whether a value is known outside of the loop."""
        outer = x.const_value is not None or depth_in(x) <= self.depth
        return outer or x in self.rows or x in self.same

    def is_seen(self, x: ir.Value) -> bool:
        """Whether the shape of a value is known outside, and so the same in all turns."""
        return all(depth_of(n) <= self.depth for n in shape_of(x))

    def outside(self, x: ir.Value | None) -> Any:
        """The value outside of the loop."""
        return x if x is None else self.rows.get(x) or self.same.get(x, x)

    def ranked(self, x: ir.Value | None, rank: int) -> Any:
        """The value outside, whose rows get axes of size 1 up to a rank, to broadcast."""
        value = self.outside(x)
        if x is None or x not in self.rows or len(shape_of(x)) >= rank:
            return value
        turns, *sizes = shape_of(value)
        return self.op.Reshape(value, (turns, *(1,) * (rank - len(sizes)), *sizes))

    def total(self, x: ir.Value) -> Array:
        """Σ of the rows of a value: one product for a sum of products."""
        node, op = x.producer(), self.op
        kind = None if node is None or node.domain else node.op_type
        parts = [n for n in node.inputs if n in self.rows] if node is not None else []
        if kind == "Add" and len(parts) == 2 and all(same(shape_of(n), shape_of(x)) for n in parts):
            return op.Add(*map(self.total, parts))
        if kind == "MatMul" and len(parts) == 2 and min(len(shape_of(n)) for n in parts) >= 2:
            a, b = (self.rows[n] for n in parts)
            return op.MatMul(self.turned(self.joined(self.turned(a))), self.joined(b))
        return op.ReduceSum(self.rows[x], (0,), keepdims=0)

    def joined(self, rows: Array) -> Array:
        """The rows, matrices, one below the other in one matrix."""
        turns, *outer, n, m = shape_of(rows)
        order = (*range(1, len(outer) + 1), 0, len(outer) + 1, len(outer) + 2)
        return self.op.Reshape(self.op.Transpose(rows, perm=order), (*outer, turns * n, m))

    def turned(self, x: Array) -> Array:
        """The transposes of matrices."""
        rank = len(shape_of(x))
        return self.op.Transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


Lift = Callable[[Vectorized, ir.Node, dict[str, Any]], Array | None]
"""The output of a node for all turns, some of its operands being rows; None if there is no way."""


def pointwise(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array:
    rank = len(shape_of(node.outputs[0]))
    return low.op.call(node.op_type, *(low.ranked(x, rank) for x in node.inputs), **attrs)


def matmul(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array | None:
    ranks = [len(shape_of(x)) for x in node.inputs if x is not None]
    return None if min(ranks) < 2 else pointwise(low, node, attrs)


def transpose(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array:
    axes = reversed(range(len(shape_of(node.outputs[0]))))
    perm = (0, *(axis + 1 for axis in attrs.get("perm", axes)))
    return low.op.Transpose(low.outside(node.inputs[0]), perm=perm)


def reshape(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array | None:
    if node.inputs[0] not in low.rows:
        return None
    return low.op.Reshape(low.rows[node.inputs[0]], (low.turns, *shape_of(node.outputs[0])))


def expand(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array | None:
    if node.inputs[0] not in low.rows:
        return None
    shape = shape_of(node.outputs[0])
    return low.op.Expand(low.ranked(node.inputs[0], len(shape)), (low.turns, *shape))


def reduction(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array | None:
    x, axes = (*node.inputs, None)[:2]
    if x is None or x not in low.rows or (axes is not None and axes.const_value is None):
        return None
    rank = len(shape_of(x))
    chosen = range(rank) if axes is None else [int(a) % rank for a in array_of(axes).ravel()]
    if not chosen:
        return None
    shifted = tuple(axis + 1 for axis in chosen)
    return low.op.call(node.op_type, low.rows[x], shifted, keepdims=attrs.get("keepdims", 1))


def along(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array:
    """An operator on the entries along an axis, by default the last one."""
    axis = shifted(attrs.get("axis", -1))
    return low.op.call(node.op_type, low.outside(node.inputs[0]), **{**attrs, "axis": axis})


def concat(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array:
    whole = (low.outside(x) if x in low.rows else
             low.op.Expand(low.outside(x), (low.turns, *shape_of(x)))
             for x in node.inputs if x is not None)  # fmt: skip
    return low.op.Concat(*whole, axis=shifted(attrs["axis"]))


def slices(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array | None:
    x, starts, stops, axes, *steps = (*node.inputs, None)[:5]
    still = all(part is None or part.const_value is not None for part in node.inputs[1:])
    if not still or starts is None or stops is None:
        return None
    chosen = range(size(shape_of(starts))) if axes is None else array_of(axes).tolist()
    rest = (low.outside(step) for step in steps)
    return low.op.Slice(low.outside(x), starts, stops, tuple(map(shifted, chosen)), *rest)


def gather(low: Vectorized, node: ir.Node, attrs: dict[str, Any]) -> Array | None:
    x, index = node.inputs
    if index in low.rows:
        return None
    axis = shifted(attrs.get("axis", 0))
    return low.op.Gather(low.outside(x), low.outside(index), axis=axis)


def shifted(axis: int) -> int:
    """An axis after another one was put in front; negative ones stay."""
    return axis + 1 if axis >= 0 else axis


LIFTS: dict[str, Lift] = {
    **dict.fromkeys(
        (*UFUNCS, *FORMULAS, "Cast", "Clip", "Identity", "Max", "Min", "Pow", "Where"), pointwise),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), reshape),
    **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"), reduction),
    **dict.fromkeys(("LogSoftmax", "Softmax"), along),
    "MatMul": matmul, "Transpose": transpose, "Expand": expand, "Concat": concat, "Slice": slices,
    "Gather": gather,
}  # fmt: skip
"""Operators that can be recorded for all turns at once."""
