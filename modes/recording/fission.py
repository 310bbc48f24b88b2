"""Fission: one iteration in three parts, of which only one has to run in turns.

What needs no state is computed for all iterations at once before the loop, what no state needs is
computed for all at once after it, and a Scan computes what one iteration hands to the next.

A node of the body whose operands are known outside of the loop, the same in all turns or stacked
over the turns, is recorded outside, with the turns as a new first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Shape, dtype_of, shape_of, size
from ...jacobians.symint import Number, depth_of, same
from ...ops import Recorder
from ...ops.graphs import body_of, operands_of
from ...ops.graphs.build import every, graphs_of
from ...ops.graphs.shapes import depth_in
from ...ops.numbers.pointwise import UFUNCS
from ...ops.rules.elementwise import FORMULAS
from ..model.flow.steps import array_of, python_of

Type = tuple[Shape, np.dtype]


@dataclass
class Track:
    """A scanned input or output: its name in the body, its slot, its axis and its direction."""

    name: str
    slot: int
    axis: int
    back: int


@dataclass
class Series:
    """A tensor that is read slice by slice along an axis, in a direction."""

    whole: Any
    axis: int
    back: int

    def in_front(self, op: Recorder) -> Any:
        """The tensor with the slices along its first axis."""
        rest = (k for k in range(len(shape_of(self.whole))) if k != self.axis)
        return op.value(op.Transpose(self.whole, perm=(self.axis, *rest)))


@dataclass
class Turn:
    """The derivative of one iteration, as the nodes of a body that computes it.

    `state` holds the tangents of the state at its start by index, `leave` those at its end, and
    `terms` the cotangents that it adds to captured tensors by name. `reads` are the tensors of the
    primal body that it reads by name, `slices` the slices of tangents, `makes` the rows of the
    result. There are `depth` other bodies around the loop.
    """

    depth: int
    nodes: list[ir.Node]
    state: dict[int, ir.Value]
    leave: dict[int, ir.Value]
    terms: dict[str, ir.Value]
    reads: dict[str, ir.Value]
    slices: list[tuple[Track, ir.Value]]
    makes: list[tuple[Track, ir.Value]]


def fission(
    op: Recorder, turn: Turn, series: Mapping[ir.Value, Series], initial: Sequence[Any],
    zeros: Mapping[str, Any], types: Mapping[int, Type], turns: Number | None, back: int,
    leading: int,
) -> list[Any]:  # fmt: skip
    """The states at the end, the sums of the terms and the rows.

    `initial` are the states at the start, `zeros` the sums of no terms by name, and `types` those
    of the rows by slot, with so many `leading` axes. Where the number of turns is unknown, only
    what is the same in all of them leaves the Scan.
    """
    front = {x: s for x, s in series.items() if s.back == back and turns is not None}
    ahead = Vectorized(op, turn.depth, turns, {x: s.in_front(op) for x, s in front.items()}, {})
    deep = ahead.record(turn.nodes)
    core, cut, summed, placed = parts(ahead, deep, turn)
    terms = {n: x for n, x in turn.terms.items() if n not in summed}
    rows = [(t, x) for t, x in turn.makes if t.slot not in placed]
    sums = {n: op.new(shape_of(x), dtype_of(x)) for n, x in terms.items()}
    with op.body():
        op.nodes[:] = core
        ends = [*turn.leave.values(), *(op.Add(sums[n], x) for n, x in terms.items()),
                *(x for _, x in rows), *cut]  # fmt: skip
        read = dict.fromkeys((*(x for node in op.nodes for x in operands_of(node)), *ends))
        renamed = {x: ahead.same[x] for x in read if x in ahead.same}
        given = dict[ir.Value, Series]()
        for x in read:
            if (found := series.get(x)) or x in ahead.rows:
                renamed[x] = formal = op.new(shape_of(x), dtype_of(x))
                formal.meta.update({**x.meta, **formal.meta})
                given[formal] = found or Series(ahead.rows[x], 0, back)
        if not given:  # a Scan reads at least one
            x, found = next(iter(series.items()))
            given[op.new(shape_of(x), dtype_of(x))] = found
        for node in every(op.nodes):
            for k, x in enumerate(node.inputs):
                if x in renamed:
                    node.replace_input_with(k, renamed[x])
        body = body_of(op, [*turn.state.values(), *sums.values(), *given],
                       [renamed.get(x, x) for x in ends], "derivative")  # fmt: skip
    axes = [*((t.axis + leading, t.back ^ back) for t, _ in rows), *((0, back) for _ in cut)]
    attrs = {
        "body": body, "num_scan_inputs": len(given),
        "scan_input_axes": [s.axis for s in given.values()],
        "scan_input_directions": [s.back for s in given.values()],
    }  # fmt: skip
    if axes:
        placed_at, ways = zip(*axes, strict=True)
        attrs |= {"scan_output_axes": placed_at, "scan_output_directions": ways}
    kinds: list[Any] = [(shape_of(x), dtype_of(x)) for x in (*turn.state.values(), *sums.values())]
    kinds += [types[t.slot] for t, _ in rows]
    kinds += [((turns, *shape_of(x)), dtype_of(x)) for x in cut]
    before = [*map(op.value, (*initial, *(zeros[n] for n in terms)))]
    whole = [s.whole for s in given.values()]
    made = iter(op.emit("Scan", (*before, *whole), attrs, kinds) if ends else ())
    states = [next(made) for _ in turn.leave]
    totals = {n: next(made) for n in terms}
    stacked = {t.slot: next(made) for t, _ in rows}
    known = {**ahead.rows, **dict(zip(cut, made, strict=True))}
    after = Vectorized(op, turn.depth, turns, known, ahead.same)
    after.record(node for node in deep if node not in core)
    totals |= {n: after.total(turn.terms[n]) for n in summed}
    for t, x in turn.makes:
        if t.slot in placed:
            order = [*range(1, len(shape_of(after.rows[x])))]
            order.insert(t.axis + leading, 0)
            stacked[t.slot] = op.Transpose(after.rows[x], perm=tuple(order))
    return [*states, *(totals[n] for n in turn.terms), *(stacked[t.slot] for t, _ in turn.makes)]


def parts(
    ahead: Vectorized, deep: list[ir.Node], turn: Turn
) -> tuple[list[ir.Node], list[ir.Value], set[str], set[int]]:
    """Which of the `deep` nodes, which are not recorded ahead of the Scan, must stay in it, the
    values of theirs that the others read, and the terms and rows that are left to the others.

    A node that reads the state need not stay if no state reads it and it can be recorded for all
    turns, as is tried here.
    """
    op, turns, made = ahead.op, ahead.turns, [y for node in deep for y in node.outputs]
    seen = [x for x in (*turn.state.values(), *made) if turns is not None and ahead.is_seen(x)]
    tried = {x: op.new((turns, *shape_of(x)), dtype_of(x)) for x in seen}
    trial = Vectorized(op, turn.depth, turns, {**ahead.rows, **tried}, ahead.same)
    stuck = trial.record(deep)
    summed = {n for n, x in turn.terms.items() if x in trial.rows}
    free = {t.slot for t, x in turn.makes if x in trial.rows and not t.back}
    ends = [*turn.leave.values(), *(y for node in stuck for y in node.outputs),
            *(x for n, x in turn.terms.items() if n not in summed),
            *(x for t, x in turn.makes if t.slot not in free)]  # fmt: skip
    core, _ = needed(deep, ends)
    inside = {*turn.state.values(), *(y for node in core for y in node.outputs)}
    placed = {t.slot for t, x in turn.makes if t.slot in free and x not in inside}
    read = (x for node in deep if node not in core for x in operands_of(node))
    terms = (turn.terms[n] for n in summed)
    cut = [x for x in dict.fromkeys((*read, *terms)) if x in inside]
    return core, cut, summed, placed


def needed(
    nodes: Iterable[ir.Node], ends: Iterable[ir.Value], known: Container[ir.Value] = ()
) -> tuple[list[ir.Node], set[ir.Value]]:
    """The nodes, in order, that compute some values from known ones, and every value they read."""
    read, found = {*ends}, list[ir.Node]()
    for node in reversed([*nodes]):
        if any(y in read and y not in known for y in node.outputs):
            found.append(node)
            read.update(operands_of(node))
    return found[::-1], read


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
        """Σ of the rows of a value: one product for a sum of products, each term once."""
        totals, waiting = dict[ir.Value, Array](), [x]
        while waiting:
            y = waiting[-1]
            kind, parts = self.made_by(y)
            added = kind == "Add" and all(same(shape_of(n), shape_of(y)) for n in parts)
            if added and (left := [n for n in parts if n not in totals]):
                waiting += left
            elif added:
                totals[waiting.pop()] = self.op.Add(*(totals[n] for n in parts))
            else:
                totals[waiting.pop()] = self.summed(y, kind, parts)
        return totals[x]

    def made_by(self, x: ir.Value) -> tuple[str | None, list[ir.Value]]:
        """The operator that makes a value of two rows, and these; None if none does."""
        node = x.producer()
        parts = [n for n in node.inputs if n is not None and n in self.rows] if node else []
        return (node.op_type, parts) if node and not node.domain and len(parts) == 2 else (None, [])

    def summed(self, x: ir.Value, kind: str | None, parts: list[ir.Value]) -> Array:
        """Σ of the rows of a value that is no sum."""
        if kind == "MatMul" and min(len(shape_of(n)) for n in parts) >= 2:
            a, b = (self.rows[n] for n in parts)
            return self.op.MatMul(self.turned(self.joined(self.turned(a))), self.joined(b))
        return self.op.ReduceSum(self.rows[x], (0,), keepdims=0)

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
