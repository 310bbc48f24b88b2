"""At a point: the derivative of a long loop as one operator, which runs recorded programs.

The states of all iterations are computed once; a product is then one Scan over them, forwards or
backwards, recorded once for each shape of right-hand sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Joint
from ...jacobians.arrays import host
from ...jacobians.cached import cached_property
from ...jacobians.errors import OnnxJacError
from ...jacobians.foreign import is_tensor
from ...ops import Recorder, Step, build, numbers
from ..flow.failure import kept_whole
from ..naming.names import is_float
from ..primal.engines import onnxruntime as ort
from ..primal.evaluate import evaluate
from ..primal.model import Model
from ..tape.bodies import Body, again
from ..tape.record import JOINTS, has_tangent
from .control import Turns, joint_of

Values = Mapping[str, Any]


class LoopAtPoint(Joint):
    """The derivative of a Loop or Scan at given values of its tensors."""

    def __init__(
        self, step: Step, values: Values, *, back: bool = False, other: LoopAtPoint | None = None
    ) -> None:
        self.step, self.back, self.other = step, back, other
        self.values = {n: host(values[n]) for n in (*step.inputs, *step.outputs) if n}
        ends = [
            {k: (self.values[n].shape, self.values[n].dtype) for k, n in enumerate(names)
             if n and has_tangent(self.values[n])} for names in (step.inputs, step.outputs)
        ]  # fmt: skip
        super().__init__(*(ends[::-1] if back else ends))
        self.body: Body = step.attrs["body"]
        self.programs: dict[Any, Model] = {}

    def transposed(self) -> LoopAtPoint:
        return LoopAtPoint(self.step, self.values, back=not self.back, other=self)

    def arrays(self) -> Iterator[Array]:
        yield from (self.values[n] for n in self.step.inputs if n)
        yield from self.rows.values()

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """The inputs of the body at the start of every iteration, stacked, by formal."""
        if self.other is not None:
            return self.other.rows
        with kept_whole(self.step):
            op = Recorder(self.body.opsets)
            inputs, values = self.given(op)
            outputs = [n and self.values[n] for n in self.step.outputs]
            made = again(op, self.step, values, outputs)
            values |= {n: v for n, v in zip(self.step.outputs, made, strict=True) if n}
            turns = Turns(op, self.step, values)
            turns.stack([n for n in self.body.formals if n not in turns.unstacked])
            found = ran(op, inputs, turns.rows, self.values)
            return {n: found[n] for n in turns.rows}

    @property
    def turns(self) -> int:
        """The trip count."""
        if self.rows:
            return len(next(iter(self.rows.values())))
        width = self.step.attrs["num_scan_inputs"]
        series = self.values[str(self.step.inputs[len(self.body.formals) - width])]
        return int(series.shape[self.step.attrs.get("scan_input_axes", (0,))[0]])

    def given(self, op: Recorder) -> tuple[list[ir.Value], dict[str, Any]]:
        """The inputs of a program, and all tensors that a step reads: non-floats are constants."""
        values: dict[str, Any] = {}
        for name in filter(None, self.step.inputs):
            array = self.values[name]
            new = op.like if is_float(array.dtype) else op.initializer
            values[name] = values.get(name, new(array, name))
        return [v for v in values.values() if v.const_value is None], values

    def run(
        self, op: Any, tangents: Mapping[int, Array], wanted: tuple[int, ...]
    ) -> dict[int, Any]:
        if isinstance(op, Recorder):
            known = {n: op.value(array) for n, array in self.values.items()}
            rows: dict[str, Any] = {n: op.value(array) for n, array in self.rows.items()}
            return Turns(op, self.step, known, back=self.back, rows=rows,
                         count=self.turns).run(op, tangents, wanted)  # fmt: skip
        if any(map(is_tensor, tangents.values())):

            def run(*arrays: Any) -> tuple[Any, ...]:
                found = self.run(numbers, dict(zip(tangents, arrays, strict=True)), wanted)
                return tuple(map(found.get, wanted))

            made = op.by_numbers(self.step.op_type, run, *tangents.values())
            return {o: y for o, y in zip(wanted, made, strict=True) if y is not None}
        if op is not numbers:
            raise OnnxJacError(f"{self.step} is no operator of {type(op).__name__}")
        feeds = {i: np.asarray(v, self.ins[i][1]) for i, v in tangents.items()}
        key = tuple((i, v.shape) for i, v in sorted(feeds.items())), wanted
        if key not in self.programs:
            self.programs[key] = self.program(feeds, wanted)
        program = self.programs[key]
        every = {**self.values, **{f"{n} (rows)": x for n, x in self.rows.items()},
                 **{f"tangent {i}": v for i, v in feeds.items()}}  # fmt: skip
        found = computed(program, every)
        return {o: found[f"product {o}"] for o in wanted if f"product {o}" in found}

    def program(self, feeds: Mapping[int, np.ndarray], wanted: tuple[int, ...]) -> Model:
        """(values, rows, tangents) ↦ products."""
        with kept_whole(self.step):
            op = Recorder(self.body.opsets)
            inputs, values = self.given(op)
            outer = {n: op.like(self.values[n]) for n in self.step.outputs if n}
            rows = {n: op.like(x, f"{n} (rows)") for n, x in self.rows.items()}
            tangents = {i: op.like(v, f"tangent {i}") for i, v in feeds.items()}
            turns = Turns(op, self.step, {**outer, **values}, back=self.back, rows=rows,
                          count=self.turns)  # fmt: skip
            found = turns.run(op, tangents, wanted)
            outputs = {f"product {o}": y for o, y in found.items()}
            return Model(build(op, [*inputs, *rows.values(), *tangents.values()], outputs, "loop"))

    @property
    def flops(self) -> int:
        """An estimate: iterations multiply by all captured tensors, once more to recompute."""
        held = sum(self.values[n].size for n in self.body.captured if has_tangent(self.values[n]))
        states = sum(x.size for x in self.rows.values())
        return 4 * self.turns * held + 4 * states

    def __repr__(self) -> str:
        kind = f"{self.step.op_type.lower()} of {self.turns:,} turns"
        return f"({kind}{' backwards' if self.back else ''})"


def ran(
    op: Recorder, inputs: list[ir.Value], outputs: Mapping[str, ir.Value], feeds: Values
) -> dict[str, np.ndarray]:
    """The numbers of recorded values, for the given feeds."""
    return computed(Model(build(op, inputs, outputs, "loop")), feeds)


def computed(program: Model, values: Values) -> dict[str, np.ndarray]:
    """All outputs of a program, by ONNX Runtime if it can run the program."""
    feeds = {name: values[name] for name in program.inputs}
    if ort.installed():
        try:
            return evaluate(program, feeds, program.outputs, engine="onnxruntime")
        except ort.EngineError:
            pass
    return evaluate(program, feeds, program.outputs, engine="numpy")


def at_point(op: Any, step: Step, values: Values) -> Joint:
    """The derivative of a long loop at a point; raises `NotKept` if no program can be recorded."""
    with kept_whole(step):
        joint = LoopAtPoint(step, values)
        for side in (joint, joint.T):
            tangents = {i: np.zeros(shape, dtype) for i, (shape, dtype) in side.ins.items()}
            assert isinstance(side, LoopAtPoint)
            side.program(tangents, tuple(side.outs))
    return joint


JOINTS[Recorder] = joint_of
JOINTS[type(numbers)] = at_point
