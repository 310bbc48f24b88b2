"""Control: the derivative of an If is an If, and the derivative of a Loop or Scan is one Scan.

A Loop outputs what its derivative reads of every iteration as additional rows. The derivative scans
these rows, forwards with the tangents of the state or backwards with its cotangents. A tensor whose
shape another iteration may change has no rows and is recomputed; see `fission` for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Dag, Joint, Shape, dtype_of, lead, shape_of
from ...jacobians.errors import OnnxJacError
from ...jacobians.symint import Number, at, depth_of, is_symbolic, same
from ...jacobians.threads import cached_property
from ...ops import Recorder, Step
from ...ops.graphs import body_of, operands_of
from ...ops.graphs.infer import data_everywhere
from ..linear.derivatives.derivative import is_open, values_in
from ..linear.derivatives.record import dag_between, differentiated, has_tangent
from ..linear.derivatives.trace import formals_of, replayed, tensors_of, turns_of
from ..model.flow.control import kept_whole, shapes_around
from ..model.flow.steps import Body, bodies_of, explicit
from .fission import Series, Track, Turn, Type, fission, needed

Values = Mapping[str, Any]


def joint_of(op: Recorder, step: Step, values: Values) -> Joint:
    """The derivative of a step with bodies, at these values of its tensors."""
    return Branches(op, step, values) if step.op_type == "If" else Turns(op, step, values)


def tangent_types(step: Step, values: Values, *, back: bool) -> list[dict[int, Type]]:
    """The shapes and dtypes of the tangents in and out, by slot."""
    ends = [
        {k: (shape_of(values[n]), dtype_of(values[n])) for k, n in enumerate(names)
         if n and has_tangent(values[n])} for names in (step.inputs, step.outputs)
    ]  # fmt: skip
    return ends[::-1] if back else ends


class BodyDerivative(Joint):
    """The derivative of a step with bodies, recorded where it is used."""

    def __init__(self, op: Recorder, step: Step, values: Values, *, back: bool = False) -> None:
        self.op, self.step, self.back = op, step, back
        self.values = {n: values[n] for n in (*step.inputs, *step.outputs) if n}
        super().__init__(*tangent_types(step, values, back=back))
        self.first = explicit(step)

    def lead(self, tangents: Mapping[int, Array]) -> Shape:
        """The leading axes of the right-hand sides."""
        slot, tangent = next(iter(tangents.items()))
        return lead(tangent, self.ins[slot][0])

    def fitting(self, op: Recorder, found: Array | None, k: Shape, like: Any) -> Array:
        """The result of a sweep for a tensor, as a value of its type; zeros for None."""
        value = op.value(zero_tangent(op, k, like) if found is None else found)
        assert value is not None
        if dtype_of(value) != dtype_of(like):
            value = op.Cast(value, to=int(ir.DataType.from_numpy(dtype_of(like))))
        return value


class Branches(BodyDerivative):
    """If: the derivatives of both branches, in the same If."""

    def transposed(self) -> Branches:
        return Branches(self.op, self.step, self.values, back=not self.back)

    def run(
        self, op: Recorder, tangents: Mapping[int, Array], wanted: tuple[int, ...]
    ) -> dict[int, Any]:
        k = self.lead(tangents)
        names = self.step.inputs if self.back else self.step.outputs
        likes = [self.values[str(names[o])] for o in wanted]
        with kept_whole(self.step):
            graphs = {
                key: self.branch(op, body, tangents, wanted, likes, k)
                for key, body in bodies_of(self.step).items()
            }
            condition = self.values[str(self.step.inputs[0])]
            types = [((*k, *shape_of(x)), dtype_of(x)) for x in likes]
            found = op.emit("If", (condition,), graphs, types)
        return dict(zip(wanted, found, strict=True))

    def branch(
        self, op: Recorder, body: Body, tangents: Mapping[int, Array], wanted: tuple[int, ...],
        likes: list[Any], k: Shape,
    ) -> ir.Graph:  # fmt: skip
        """The derivative of one branch, as a subgraph."""
        with op.body():
            inner = replayed(op, body, self.values)
            slots, results = dict(enumerate(self.step.inputs)), dict(enumerate(body.results))
            ins = {i: n for i, n in slots.items() if n in body.captured and has_tangent(inner[n])}
            outs = {o: n for o, n in results.items() if has_tangent(inner[n])}
            starts, ends = (outs, ins) if self.back else (ins, outs)
            starts = {i: n for i, n in starts.items() if i in tangents}
            ends = {o: n for o, n in ends.items() if o in wanted}
            reached: dict[str, Array] = {}
            if starts and ends:
                found, to = (tuple(dict.fromkeys(x.values())) for x in (starts, ends))
                wrt, of = (to, found) if self.back else (found, to)
                dag = dag_between(op, differentiated(body), inner, wrt, of)
                seeds = {n: shaped(op, tangents[i], (*k, *shape_of(inner[n])))
                         for i, n in starts.items()}  # fmt: skip
                reached = pushed(op, dag.T if self.back else dag, found, to, seeds)
            made = [
                self.fitting(op, reached.get(ends.get(o, "")), k, like)
                for o, like in zip(wanted, likes, strict=True)
            ]
            return body_of(op, (), made, f"{body.name}_derivative")


class Turns(BodyDerivative):
    """Loop and Scan: one Scan over the rows of the state."""

    def __init__(
        self, op: Recorder, step: Step, values: Values, *, back: bool = False,
        rows: dict[str, ir.Value] | None = None, count: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(op, step, values, back=back)
        self.count = count  # the trip count, if known
        self.rows: dict[str, ir.Value] = {} if rows is None else rows
        self.grows = rows is None  # the primal may output more rows
        self.body: Body = step.attrs["body"]
        self.loop = step.op_type == "Loop"
        self.width = 0 if self.loop else step.attrs["num_scan_inputs"]
        self.lost = 2 if self.loop else 0  # inputs before the state
        self.carried = self.first - self.lost - self.width

    def transposed(self) -> Turns:
        made = Turns(self.op, self.step, self.values, back=not self.back, rows=self.rows,
                     count=self.count)  # fmt: skip
        made.grows = self.grows
        return made

    @cached_property
    def states(self) -> list[tuple[str, str]]:
        """The formal and the result of every state."""
        names = self.body.formals[self.lost : self.lost + self.carried]
        return list(zip(names, self.body.results[self.lost // 2 :], strict=False))

    @cached_property
    def scanned(self) -> list[Track]:
        """The inputs that a Scan reads slice by slice."""
        start = self.first - self.width
        return self.tracks("scan_input", self.body.formals[start : self.first], start)

    @cached_property
    def stacked(self) -> list[Track]:
        """The outputs that are stacked row by row."""
        names = self.body.results[self.lost // 2 + self.carried :]
        return self.tracks("scan_output", names, self.carried)

    def tracks(self, kind: str, names: tuple[str, ...], first: int) -> list[Track]:
        """The series of one kind, whose slots begin with the `first`."""
        axes, back = (self.step.attrs.get(f"{kind}_{told}", (0,) * len(names))
                      for told in ("axes", "directions"))  # fmt: skip
        return [Track(name, first + k, axes[k] % (self.body.like[name].ndim + 1), back[k])
                for k, name in enumerate(names)]  # fmt: skip

    @cached_property
    def operands(self) -> list[Any]:
        """The explicit inputs."""
        return [n and self.values[n] for n in self.step.inputs[: self.first]]

    @cached_property
    def captured(self) -> dict[int, str]:
        """Slot -> the tensor that the body captures."""
        return {k: str(n) for k, n in enumerate(self.step.inputs) if k >= self.first}

    def run(
        self, op: Recorder, tangents: Mapping[int, Array], wanted: tuple[int, ...]
    ) -> dict[int, Any]:
        with kept_whole(self.step):
            return self._run(op, tangents, wanted)

    def _run(
        self, op: Recorder, tangents: Mapping[int, Array], wanted: tuple[int, ...]
    ) -> dict[int, Any]:
        k, back = self.lead(tangents), self.back
        turn = self.turn(op, tangents, wanted, k)
        asked = self.step.inputs if back else self.step.outputs
        first, last = (0, self.lost) if back else (self.lost, 0)  # slots of the state
        initial = [
            tangents[j + first] if j + first in tangents
            else zero_tangent(op, k, self.values[str(self.step.inputs[self.lost + j])])
            for j in turn.state
        ]
        sums = {n: op.value(op.Expand(np.zeros((), dtype_of(x)), shape_of(x)))
                for n, x in turn.terms.items()}  # fmt: skip
        rows: dict[int, Type] = {}
        for t, _ in turn.makes:
            shape, dtype = self.outs[t.slot]
            rows[t.slot] = (*k, *shape), dtype
        types = [(shape_of(x), dtype_of(x)) for x in (*turn.state.values(), *turn.terms.values())]
        series = self.series(op, turn, tangents, k)
        empty = [self.values[str(asked[t.slot])] for t, _ in turn.makes]
        found = self.guarded(
            op, next(iter(series.values())), [*types, *rows.values()],
            lambda: fission(op, turn, series, initial, sums, rows, self.turns(), int(back), len(k)),
            lambda: [*initial, *sums.values(), *(zero_tangent(op, k, x) for x in empty)],
        )
        results = {j + last: y for j, y in zip(turn.state, found, strict=False)}
        totals = dict(zip(turn.terms, found[len(turn.state) :], strict=False))
        results |= {i: totals[n] for i, n in self.captured.items() if n in totals}
        made = found[len(turn.state) + len(turn.terms) :]
        results |= {t.slot: y for (t, _), y in zip(turn.makes, made, strict=True)}
        return {o: y for o, y in results.items() if o in wanted}

    def turn(
        self, op: Recorder, tangents: Mapping[int, Array], wanted: tuple[int, ...], k: Shape
    ) -> Turn:
        """The derivative of one iteration."""
        like, back = self.body.like, self.back
        taken, makes = (self.stacked, self.scanned) if back else (self.scanned, self.stacked)
        slices = [t for t in taken if t.slot in tangents]
        makes = [t for t in makes if t.slot in wanted and has_tangent(like[t.name])]
        around = {i: n for i, n in self.captured.items() if i in (wanted if back else tangents)}
        floats = [j for j, (formal, _) in enumerate(self.states) if has_tangent(like[formal])]
        entry = {j: self.states[j][back] for j in floats}
        leave = {j: self.states[j][not back] for j in floats}
        captured = tuple(dict.fromkeys(around.values()))
        starts = (*entry.values(), *(t.name for t in slices), *(() if back else captured))
        ends = (*leave.values(), *(t.name for t in makes), *(captured if back else ()))
        with op.body():
            formals = formals_of(op, self.step, self.body, self.operands)
            if self.loop:
                go = self.body.formals[1]
                formals[go] = op.initializer(np.ones(like[go].shape, bool))
            inner = replayed(op, self.body, {**self.values, **formals})
            self.check_states(inner)
            primal = [*op.nodes]
            wrt, of = (ends, starts) if back else (starts, ends)
            dag = dag_between(op, differentiated(self.body), inner, wrt, of)
            dag = dag.T if back else dag
            seeded = {j for j in floats if j + (0 if back else self.lost) in tangents}
            active = grown(dag, starts, ends, entry, leave, seeded)
            state = {j: new(op, k, inner[entry[j]]) for j in active}
            given = [(t, new(op, k, inner[t.name])) for t in slices]
            seeds = {entry[j]: value for j, value in state.items()}
            seeds |= {t.name: value for t, value in given}
            seeds |= {} if back else {n: tangents[i] for i, n in around.items()}
            reached = pushed(op, dag, starts, ends, seeds)
            left = {j: self.fitting(op, reached.get(leave[j]), k, inner[leave[j]]) for j in active}
            terms = {n: self.fitting(op, reached[n], k, inner[n])
                     for n in captured if back and n in reached}  # fmt: skip
            made = [(t, self.fitting(op, reached[t.name], k, inner[t.name]))
                    for t in makes if t.name in reached]  # fmt: skip
            named = {n: v for n, v in formals.items() if v.const_value is None}
            named |= self.kept(op, primal, inner, [*named.values()])
            results = [*left.values(), *terms.values(), *(x for _, x in made)]
            nodes, read = needed(op.nodes, results, {*named.values()})
        reads = {n: v for n, v in named.items() if v in read}
        if not reads and not slices:  # a Scan needs an input to scan, if possible one at hand
            at_hand = {*self.rows, *(t.name for t in self.scanned)}
            reads = dict(sorted(named.items(), key=lambda item: item[0] not in at_hand)[:1])
        return Turn(op.depth, nodes, state, left, terms, reads, given, made)

    def kept(
        self, op: Recorder, primal: Iterable[ir.Node], inner: Values, formals: list[ir.Value]
    ) -> dict[str, ir.Value]:
        """The tensors of the primal body that its rows hold, or could hold, by name."""
        moved = {*formals}
        for node in primal:
            if not moved.isdisjoint(operands_of(node)):
                moved.update(node.outputs)
        moved -= {*formals}
        names = (n for step in self.body.steps for n in step.outputs if n and inner[n] in moved)
        return {n: inner[n] for n in names if n in self.rows or self.stacks(op, n, inner[n])}

    def stacks(self, op: Recorder, name: str, value: ir.Value) -> bool:
        """Whether the primal can output a tensor of its body as rows, all of the same shape."""
        if not self.grows or any(depth_of(n) >= op.depth for n in shape_of(value)):
            return False
        node = self.inside[name].producer()
        return node is not None and node.graph is self.primal

    @property
    def primal(self) -> ir.Graph:
        """The recorded body of the primal."""
        node = next(self.values[n].producer() for n in self.step.outputs if n)
        graph: ir.Graph = node.attributes["body"].value
        return graph

    @cached_property
    def inside(self) -> Mapping[str, ir.Value]:
        """The tensors of the recorded body of the primal."""
        return tensors_of(self.primal)

    def series(
        self, op: Recorder, turn: Turn, tangents: Mapping[int, Array], k: Shape
    ) -> dict[ir.Value, Series]:
        """The inputs of the body that a Scan reads slice by slice."""
        back, tracks = self.back, {t.name: t for t in self.scanned}
        self.stack(turn.reads)
        found = {}
        for name, value in turn.reads.items():
            if name in tracks:
                t = tracks[name]
                whole = self.values[str(self.step.inputs[t.slot])]
                found[value] = Series(whole, t.axis, t.back ^ back)
            else:
                whole = self.rows[name] if name in self.rows else self.before(op, name)
                found[value] = Series(whole, 0, int(back))
        for t, value in turn.slices:
            whole = op.value(tangents[t.slot])
            found[value] = Series(whole, len(k) + t.axis, t.back ^ back)
        return found

    def before(self, op: Recorder, name: str) -> ir.Value:
        """The rows of a state before each iteration: the first one, and those after the others."""
        j, after = next((j, new) for j, (old, new) in enumerate(self.states) if old == name)
        first, rows = self.values[str(self.step.inputs[self.lost + j])], self.rows[after]
        made = op.Concat(op.Unsqueeze(first, (0,)), op.Slice(rows, (0,), (-1,), (0,)), axis=0)
        return cast(ir.Value, shaped(op, made, shape_of(rows)))

    def check_states(self, inner: Values) -> None:
        """Raises `OnnxJacError` where a state may change its shape between iterations."""
        given = [None if x is None else shape_of(x) for x in self.operands]
        shapes_around(self.step, given, [[shape_of(inner[n]) for n in self.body.results]], None)

    def guarded(
        self, op: Recorder, series: Series, types: list[Type], make: Callable[[], list[Any]],
        empty: Callable[[], list[Any]],
    ) -> list[Any]:  # fmt: skip
        """A Scan, inside an If where there may be no iteration, which ONNX Runtime refuses."""
        if self.surely_turns():
            return make()
        turns = op.Shape(series.whole, start=series.axis, end=series.axis + 1)
        still = op.Reshape(op.Equal(turns, np.zeros(1, np.int64)), np.zeros(0, np.int64))
        with op.body():
            none = body_of(op, (), empty(), "no_turns")
        with op.body():
            some = body_of(op, (), make(), "turns")
        graphs = {"then_branch": none, "else_branch": some}
        return op.emit("If", (still,), graphs, types)

    def surely_turns(self) -> bool:
        """Whether there is an iteration at every point; a Scan without any is refused anyway."""
        if self.count is not None:
            return self.count > 0
        if not self.loop:
            return True
        limit, go = (*self.step.inputs, None, None)[:2]
        known = [data_everywhere(self.values[name]) for name in (limit, go) if name is not None]
        return limit is not None and all(held is not None and np.all(held > 0) for held in known)

    def hold(self) -> bool:
        """Make the primal output as rows what the operators of a turn hold, which is all that its
        products read; False where products alone tell, which read sizes and inner loops as well.
        """
        op, inner, body = self.op, self.inside, self.body
        foreign = any(bodies_of(s) or s.domain not in ("", "ai.onnx") for s in body.steps)
        if foreign or any(is_symbolic(shape_of(x)) for x in inner.values()):
            return False
        floats = {n for n in inner if has_tangent(inner[n])}
        around = [n for n in self.captured.values() if has_tangent(self.values[n])]
        wrt = *(n for n in body.formals if n in floats), *around
        of = tuple(dict.fromkeys(n for n in body.results if n in floats))
        formals = {n: inner[n] for k, n in enumerate(body.formals) if k != 1 or not self.loop}
        with op.body():
            self.check_states(inner)
            try:
                dag = dag_between(op, body.steps, {**self.values, **inner}, wrt, of)
            except OnnxJacError:  # a rule may need the numbers of constants alone
                return False
            found = values_in(edge.operator for edge in dag.edges)
            named = formals | self.kept(op, self.primal, inner, [*formals.values()])
            _, read = needed([*self.primal, *op.nodes], found, {*named.values()})
            for node in op.nodes:
                for k in range(len(node.inputs)):
                    node.replace_input_with(k, None)
        reads = [n for n, x in named.items() if x in read]
        if not reads or not all(is_open(edge.operator) for edge in dag.edges):
            return False
        self.stack(reads)
        return True

    def stack(self, names: Iterable[str]) -> None:
        """Make the primal output these tensors of its body as rows, one per iteration, or for a
        state the rows after each one.
        """
        scanned = {t.name for t in self.scanned}
        rows = [n for n in names if n not in scanned]
        known = {*rows, *self.rows}
        after = {old: new for old, new in self.states if new in known and old not in self.rows}
        rows = [n for n in rows if n not in after or not self.surely_turns()]
        missing = [n for n in rows if n not in self.rows]
        if not missing:
            return
        node = next(self.values[n].producer() for n in self.step.outputs if n)
        graph, inside = self.primal, self.inside
        start = len(node.outputs)
        node.resize_outputs(start + len(missing))
        for name, row in zip(missing, node.outputs[start:], strict=True):
            value = inside[name]
            if value.producer() is None or value in graph.outputs:
                kept = ir.Value(shape=value.shape, type=value.type)
                graph.append(ir.Node("", "Identity", [value], outputs=[kept]))
            else:  # ONNX Runtime's GemmTransposeFusion loses tensors that are copied
                kept = value
            graph.outputs.append(kept)
            like, turns = self.body.like[name], self.turns()
            typed = self.op.new((1 if turns is None else at(turns), *like.shape), like.dtype)
            row.shape, row.type = typed.shape, typed.type
            row.meta.update(typed.meta)
            self.op.shape(row, (turns, *shape_of(value)))
            self.rows[name] = row
        for key in ("scan_output_axes", "scan_output_directions"):
            if key in node.attributes:
                said = (*node.attributes[key].value, *(0,) * len(missing))
                node.attributes[key] = ir.AttrInt64s(key, said)

    def turns(self) -> Number | None:
        """The trip count, if the size of some tensor tells it."""
        if self.count is not None:
            return self.count
        for track, names in ((self.scanned, self.step.inputs), (self.stacked, self.step.outputs)):
            for t in track:
                if t.slot < len(names) and names[t.slot]:
                    return shape_of(self.values[str(names[t.slot])])[t.axis]
        for row in self.rows.values():
            return shape_of(row)[0]
        return turns_of(self.step, self.values)


def new(op: Recorder, k: Shape, like: ir.Value) -> ir.Value:
    """A new input of a body for a tangent of a tensor."""
    return op.new((*k, *shape_of(like)), dtype_of(like))


def zero_tangent(op: Recorder, k: Shape, like: Array) -> Array:
    """A tangent of zeros."""
    return op.value(op.Expand(np.zeros((), dtype_of(like)), (*k, *shape_of(like))))


def shaped(op: Recorder, value: Array, shape: Shape) -> Array:
    """A value whose shape may be written as another expression of the same sizes."""
    if same(shape_of(value), shape):
        return value
    return op.emit("Identity", (op.value(value),), {}, [(shape, dtype_of(value))])[0]


def pushed(
    op: Recorder, dag: Dag, starts: tuple[str, ...], ends: tuple[str, ...], seeds: Values
) -> dict[str, Array]:
    """The tangents that reach some tensors of a body, by name."""
    vertices = dict(zip(starts, dag.sources, strict=True))
    reached = dag.sweep(op, {vertices[name]: seed for name, seed in seeds.items()})
    pairs = zip(ends, dag.sinks, strict=True)
    return {name: reached[vertex] for name, vertex in pairs if vertex in reached}


def grown(
    dag: Dag, starts: tuple[str, ...], ends: tuple[str, ...], entry: dict[int, str],
    leave: dict[int, str], active: set[int],
) -> list[int]:  # fmt: skip
    """The active states, and the states that tangents reach from them or from other tensors."""
    source, sink = (dict(zip(n, v, strict=True)) for n, v in ((starts, dag.sources),
                                                              (ends, dag.sinks)))  # fmt: skip
    others = {source[name] for name in starts if name not in entry.values()}
    found, before = set(active), None
    while found != before:
        before = set(found)
        alive = others | {source[entry[j]] for j in found}
        found |= {j for j in leave if not alive.isdisjoint(dag.behind(sink[leave[j]]))}
    return sorted(found)
