"""At a point: the derivative of a long loop as one operator, which runs recorded programs.

The rows that it reads, which the primal outputs for all iterations, are computed once at a point; a
product is then one Scan over them, forwards or backwards. The program of a product is recorded once
for each shape of right-hand sides, for all points that share a derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ...jacobians import Array, Joint, Op, shape_of
from ...jacobians.arrays import host
from ...jacobians.errors import OnnxJacError
from ...jacobians.readings import is_kept, library_of
from ...jacobians.symint import is_symbolic
from ...jacobians.threads import Latest
from ...ops import Recorder, Step, build, numbers
from ..linear.derivatives.derivative import Derivative, evaluate_static
from ..linear.derivatives.record import JOINTS, has_tangent
from ..linear.derivatives.trace import again, number
from ..model.flow.control import kept_whole
from ..model.flow.steps import Body
from ..model.primal.inputs import is_float
from ..model.primal.model import Model
from .control import Turns, joint_of, tangent_types

Values = Mapping[str, Any]
Arrays = tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class LoopDerivative:
    """The derivative of a Loop or Scan without the tensors that it reads; `turns` is None where the
    tensors of a point tell how many there are.

    `names` are the tensors around the body that it reads, also the first states where `rows` hold
    the states after each turn; `rows` are the tensors of the body, and `still` all other tensors of
    the step: constants, or zeros where the shape is enough.
    """

    step: Step
    turns: int | None
    names: tuple[str, ...]
    rows: tuple[str, ...]
    still: Values
    programs: Latest[Any, Model] = field(default_factory=partial(Latest, 8))
    made: WeakValueDictionary[bool, LoopAtPoint] = field(default_factory=WeakValueDictionary)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle without the cached programs and derivatives."""
        return LoopDerivative, (self.step, self.turns, self.names, self.rows, self.still)

    def turning(self, op: Recorder, read: Arrays, back: bool) -> Turns:
        """The derivative with these tensors, as what records its products."""
        values = [op.value(x) for x in read]
        known = {n: op.value(x) for n, x in self.still.items()}
        known |= dict(zip(self.names, values, strict=False))
        rows: dict[str, Any] = dict(zip(self.rows, values[len(self.names) :], strict=True))
        return Turns(op, self.step, known, back=back, rows=rows, count=self.count(read))

    def count(self, read: Arrays) -> int:
        """The trip count."""
        if self.turns is None:
            return int(shape_of(read[len(self.names)])[0])
        return self.turns


class LoopAtPoint(Joint):
    """The derivative of a Loop or Scan; `read` are the tensors that it reads, or a function that
    computes them.
    """

    holds = ("read",)

    def __init__(
        self, form: LoopDerivative, read: Arrays | Callable[[], Arrays], back: bool = False
    ) -> None:
        self.form, self._read, self.back = form, read, back
        super().__init__(*tangent_types(form.step, form.still, back=back))

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle with the tensors that it reads, which are computed for it."""
        return LoopAtPoint, (self.form, self.read, self.back)

    def at(self, read: Arrays) -> LoopAtPoint:
        """The same derivative with other tensors: one object for all its blocks."""
        known = self.form.made.get(self.back)
        if known is None or any(a is not b for a, b in zip(known.read, read, strict=True)):
            known = self.form.made[self.back] = LoopAtPoint(self.form, read, self.back)
        return known

    @property
    def read(self) -> Arrays:
        """The tensors that it reads."""
        if callable(self._read):
            self._read = self._read()
        return self._read

    def transposed(self) -> LoopAtPoint:
        return LoopAtPoint(self.form, lambda: self.read, not self.back)

    def run(
        self, op: Any, tangents: Mapping[int, Array], wanted: tuple[int, ...]
    ) -> dict[int, Any]:
        if isinstance(op, Recorder):
            return self.form.turning(op, self.read, self.back).run(op, tangents, wanted)
        if there := [v for v in tangents.values() if is_kept(v)]:

            def run(*arrays: Any) -> tuple[Any, ...]:
                found = self.run(numbers, dict(zip(tangents, arrays, strict=True)), wanted)
                return tuple(map(found.get, wanted))

            name = self.form.step.op_type
            made = library_of(there[0]).by_numbers(name, run, *tangents.values())
            return {o: y for o, y in zip(wanted, made, strict=True) if y is not None}
        if numbers not in (op, op.over):
            raise OnnxJacError(f"{self.form.step} is no operator of {type(op).__name__}")
        feeds = {i: np.asarray(v, self.ins[i][1]) for i, v in tangents.items()}
        key = self.back, tuple((i, v.shape) for i, v in sorted(feeds.items())), wanted
        program = self.form.programs.get(key)
        if program is None:
            program = self.form.programs[key] = self.program(feeds, wanted)
        every = {f"read {k}": host(x) for k, x in enumerate(self.read)}
        every |= {f"tangent {i}": v for i, v in feeds.items()}
        found = computed(program, every)
        return {o: found[f"product {o}"] for o in wanted if f"product {o}" in found}

    def program(self, feeds: Mapping[int, np.ndarray], wanted: tuple[int, ...]) -> Model:
        """(tensors, tangents) ↦ products."""
        with kept_whole(self.form.step):
            op = Recorder(self.form.step.attrs["body"].opsets)
            read = tuple(op.like(host(x), f"read {k}") for k, x in enumerate(self.read))
            tangents = {i: op.like(v, f"tangent {i}") for i, v in feeds.items()}
            found = self.form.turning(op, read, self.back).run(op, tangents, wanted)
            outputs = {f"product {o}": y for o, y in found.items()}
            return Model(build(op, [*read, *tangents.values()], outputs, "loop"))

    @property
    def flops(self) -> int:
        """An estimate: iterations multiply by all captured tensors, and by all rows."""
        form = self.form
        body: Body = form.step.attrs["body"]
        held = (int(np.prod(shape_of(form.still[n]))) for n in body.captured
                if has_tangent(form.still[n]))  # fmt: skip
        states = sum(body.like[n].size for n in form.rows)
        return 4 * form.count(self.read) * (sum(held) + states)

    def __repr__(self) -> str:
        kind = f"{self.form.step.op_type.lower()} of {self.form.count(self.read):,} turns"
        return f"({kind}{' backwards' if self.back else ''})"


def computed(program: Model, values: Values) -> dict[str, np.ndarray]:
    """All outputs of a program."""
    feeds = {name: values[name] for name in program.inputs}
    return evaluate_static(program, feeds, program.outputs)


def opened(op: Recorder, step: Step, values: Values) -> LoopAtPoint:
    """The derivative of a recorded Loop or Scan, whose rows the primal outputs from now on.

    Raises `OnnxJacError` where products cannot be recorded for all points.
    """
    before = op.symbols
    form, read = derivative_of(op, step, values)
    op.symbols = before
    if form.turns is None:
        raise OnnxJacError(f"points decide on the turns of {step}")
    if not all(map(has_tangent, read)):
        raise OnnxJacError(f"points decide on integers in {step}")
    return LoopAtPoint(form, read)


def derivative_of(op: Recorder, step: Step, values: Values) -> tuple[LoopDerivative, Arrays]:
    """The derivative of a recorded Loop or Scan, and the tensors that it reads."""
    if step.op_type == "If":
        raise OnnxJacError(f"points decide on the branch of {step}")
    with kept_whole(step):
        turns = Turns(op, step, values)
        for side in () if turns.hold() else (turns, turns.T):
            side.run(op, {i: op.new(*end) for i, end in side.ins.items()}, tuple(side.outs))
        count = turns.turns()
    begun = (step.inputs[turns.lost + j] for j, (old, new) in enumerate(turns.states)
             if new in turns.rows and old not in turns.rows)  # fmt: skip
    around = (*turns.captured.values(), *(step.inputs[t.slot] for t in turns.scanned), *begun)
    names = tuple(dict.fromkeys(n for n in around if n and values[n].const_value is None))
    still = {n: number(values[n], shapes=True) for n in (*step.inputs, *step.outputs) if n}
    known = None if count is None or is_symbolic(count) else int(count)
    read = (*(values[n] for n in names), *turns.rows.values())
    return LoopDerivative(step, known, names, tuple(turns.rows), still), read


def at_point(op: Op, step: Step, values: Values) -> Joint:
    """The derivative of a long loop at a point; raises `NotKept` if no program can be recorded."""
    with kept_whole(step):
        recorder = Recorder(step.attrs["body"].opsets)
        inputs: dict[str, Any] = {}
        held: dict[str, np.ndarray] = {}
        for name in filter(None, step.inputs):
            array = held[name] = host(values[name])
            new = recorder.like if is_float(array.dtype) else recorder.initializer
            inputs[name] = inputs.get(name, new(array, name))
        outputs = [n and host(values[n]) for n in step.outputs]
        made = again(recorder, step, inputs, outputs)
        known = {**inputs, **{n: v for n, v in zip(step.outputs, made, strict=True) if n}}
        form, found = derivative_of(recorder, step, known)
        names = (f"{n} (rows)" for n in form.rows)
        rows = dict(zip(names, found[len(form.names) :], strict=True))
        given = [v for v in inputs.values() if v.const_value is None]
        program = Model(build(recorder, given, rows, "rows"))

    def read() -> Arrays:
        made = computed(program, held) if rows else {}
        return *(held[n] for n in form.names), *(made[n] for n in rows)

    return LoopAtPoint(form, read)


JOINTS[Recorder] = joint_of
JOINTS[type(numbers)] = at_point
JOINTS[Derivative] = opened
