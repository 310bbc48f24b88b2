"""Checkpoint: residuals computed again at every product, segment by segment, instead of held.

With n steps in √n segments, only the tensors between segments are held, about √n times fewer.
A product then costs about one more run of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import isqrt
from typing import Any

from ....jacobians import Array, Dag, Jacobian, Joint, Op, Part, dtype_of, shape_of
from ....jacobians.dag import Ends
from ....jacobians.threads import cached_property
from ....ops import Step
from ...model.flow.steps import reads
from ...model.primal.evaluate import evaluate
from ...model.primal.model import Model
from .point import Point
from .record import Entry, Names, dag_of, shapes_in, specs_at_ends, types_of

DagAt = Callable[[Mapping[str, Any]], Dag]
"""The inputs of a segment ↦ its DAG there."""


@dataclass(frozen=True)
class Segment:
    """Consecutive steps, the tensors that their blocks join, and the tensors that they read."""

    ins: Names
    outs: Names
    given: Names


class Checkpointed(Joint):
    """The derivative of a segment: the DAG that `rebuild` makes, at every product, from the arrays
    that are `held`.
    """

    holds = ("held",)

    def __init__(
        self, rebuild: Callable[[], Dag], held: tuple[Array, ...], ins: Ends, outs: Ends, *,
        back: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(ins, outs)
        self.rebuild, self.held, self.back = rebuild, held, back

    def run(
        self, op: Op, tangents: Mapping[int, Array], wanted: tuple[int, ...]
    ) -> dict[int, Any]:
        dag = self.rebuild()
        dag = dag.T if self.back else dag
        reached = dag.sweep(op, {dag.sources[i]: v for i, v in tangents.items()})
        return {o: reached[dag.sinks[o]] for o in wanted if dag.sinks[o] in reached}

    def transposed(self) -> Checkpointed:
        return Checkpointed(self.rebuild, self.held, self.outs, self.ins, back=not self.back)

    @cached_property
    def flops(self) -> int:
        """The share of one block in the product's; recomputed residuals are not counted."""
        return self.rebuild().flops // (len(self.ins) * len(self.outs))


def is_checkpointed(operator: Jacobian) -> bool:
    """Whether an operator is a block of a segment."""
    return isinstance(operator, Part) and isinstance(operator.joint, Checkpointed)


def segmented(
    model: Model, inputs: Mapping[str, Any], parts: Iterable[tuple[Segment, DagAt]], of: Names,
    wrt: Names, engine: str | None,
) -> Point:  # fmt: skip
    """The model at a point by the tensors between segments; its DAG recomputes the others."""
    parts = tuple(parts)
    between = (n for part, _ in parts for n in (*part.given, *part.ins, *part.outs))
    names = tuple(dict.fromkeys((*between, *of, *wrt)))
    values = evaluate(model, inputs, names, engine=engine)
    model.sessions.clear()  # which would hold more than the checkpoints save
    types = types_of(values)
    ends, constants = specs_at_ends(types, of, wrt), model.constants.keys() - inputs.keys()
    entries = tuple(checkpointed(part, dag_at, values, constants) for part, dag_at in parts)
    dag = dag_of(entries, shapes_in(types), wrt, of, ends[2])
    return Point({name: values[name] for name in of}, ends, entries=(), dag=dag)


def checkpointed(
    part: Segment, dag_at: DagAt, values: Mapping[str, Any],
    constants: Collection[str],
) -> Entry:  # fmt: skip
    """The blocks of a segment, with the values from which residuals are computed."""
    held = {name: values[name] for name in part.given if name not in constants}
    ins, outs = ({k: (shape_of(values[n]), dtype_of(values[n])) for k, n in enumerate(names)}
                 for names in (part.ins, part.outs))  # fmt: skip
    J = Checkpointed(partial(dag_at, held), tuple(held.values()), ins, outs)
    step = Step("Segment", "", 1, "", part.ins, part.outs)
    return Entry(step, {(o, i): J.part(o, i) for o in outs for i in ins})


def as_it_is(dag: Dag) -> Jacobian:
    """The DAG unchanged: operators that are rebuilt at every product cannot be multiplied out."""
    return dag


def segments(
    steps: tuple[Step, ...], active: tuple[Step, ...], of: Names, wrt: Names, count: int,
    discrete: Collection[str] = (),
) -> tuple[Segment, ...]:  # fmt: skip
    """The steps in about `count` segments; 0 stands for the square root of the number of steps.

    `discrete` are the tensors of integers and booleans, which have no tangents.
    """
    known = {step.key: step for step in active}
    bounds = cuts(steps, of, wrt, count or isqrt(len(active)))
    found = []
    for start, stop in zip((0, *bounds), (*bounds, len(steps)), strict=True):
        inside = [known[s.key] for s in steps[start:stop] if s.key in known]
        if inside:
            later = {n for s in steps[stop:] for n in reads(s)} | set(of)
            found.append(segment(steps[start:stop], inside, later, discrete))
    return tuple(found)


def segment(
    steps: tuple[Step, ...], inside: list[Step], later: set[str], discrete: Collection[str]
) -> Segment:
    """The segment that consists of some steps, some of them active."""
    made = {name for step in steps for name in step.outputs}
    ends = {s.outputs[o] for s in inside for o, _ in s.wanted} - {*discrete}
    starts = [s.inputs[i] for s in inside for _, i in sorted(s.wanted)]
    others = {*made, *discrete}
    ins = dict.fromkeys(name for name in starts if name is not None and name not in others)
    outs = tuple(name for step in steps for name in step.outputs if name in ends & later)
    given = dict.fromkeys(name for step in steps for name in reads(step) if name not in made)
    return Segment(tuple(ins), tuple(filter(None, outs)), tuple(given))


def cuts(steps: tuple[Step, ...], of: Names, wrt: Names, count: int) -> list[int]:
    """The starts of segments: about even, where few tensors cross, and after tensors of `wrt`."""
    width = max(1, len(steps) // max(count, 1))
    passing = crossings(steps, of)
    chosen = {
        min(range(at, min(at + max(1, width // 2), len(steps))), key=passing.__getitem__)
        for at in range(width, len(steps), width)
    }
    moved = {k + 1 for k, step in enumerate(steps) if not set(wrt).isdisjoint(step.outputs)}
    return sorted((chosen | moved) - {len(steps)})


def crossings(steps: tuple[Step, ...], of: Names) -> list[int]:
    """For each step, the number of tensors computed before it and needed there or later."""
    last = {name: k for k, step in enumerate(steps) for name in reads(step)}
    last |= dict.fromkeys(of, len(steps))
    change = [0] * (len(steps) + 2)
    for k, step in enumerate(steps):
        for name in step.outputs:
            if name in last:
                change[k + 1] += 1
                change[min(last[name], len(steps)) + 1] -= 1
    return list(accumulate(change))[: len(steps)]
