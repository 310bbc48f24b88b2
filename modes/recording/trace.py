"""Trace: the tape in the graphs reading. The same steps, their tensors as values of a new graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from ...jacobians import Dag, chosen, common, dtype_of, shape_of
from ...ops import Recorder, Step
from ...ops.node import AT, NAN
from ..flow.opsets import lowest_opsets
from ..flow.steps import needed
from ..model import Model
from ..primal.draws import fixed
from ..primal.evaluate import evaluate
from ..tape.active import active_steps
from ..tape.moving import moving
from ..tape.record import dag_of, record
from ..tape.unroll import unrolled


@dataclass(frozen=True)
class Trace:
    """The primal as recorded nodes: every tensor that `of` needs, by name."""

    recorder: Recorder
    values: dict[str, ir.Value]
    inputs: tuple[ir.Value, ...]
    steps: tuple[Step, ...]

    def dag(self, wrt: tuple[str, ...], of: tuple[str, ...]) -> Dag:
        """The DAG between `wrt` and `of` with graph values as data: its products are recorded."""
        entries = record(active_steps(self.steps, wrt, of), dict(self.values), op=self.recorder)
        shapes = {name: shape_of(value) for name, value in self.values.items()}
        dtypes = [dtype_of(self.values[name]) for name in (*wrt, *of)]
        return chosen(self.recorder, dag_of(entries, shapes, wrt, of, common(*dtypes)))


def trace(
    model: Model, point: Mapping[str, Any], names: Iterable[str], engine: str | None = None,
    *, general: bool = False,
) -> Trace:  # fmt: skip
    """Record the steps that the named tensors need; shapes and integers are those at the point.

    A `general` one tells no number that may be another at a point of the same shapes: a rule that
    asks for one raises `OnnxJacError`.
    """
    wanted = tuple(names)
    model = unrolled(fixed(model, point, engine), point, wanted)
    steps = tuple(model.steps[k] for k in needed(model.steps, wanted)[0])
    met = {n for step in steps for n in (*step.inputs, *step.outputs) if n is not None}
    numbers = evaluate(model, point, met.union(wanted, model.inputs), engine=engine)
    recorder = Recorder(lowest_opsets(model))
    inputs = tuple(recorder.like(numbers[name], name) for name in model.inputs)
    values: dict[str, Any] = dict(zip(model.inputs, inputs, strict=True))
    for name in met.union(wanted) & model.constants.keys() - values.keys():
        values[name] = recorder.initializer(model.constants[name], name)
    for step in steps:
        made = recorder.copy(step, [n and values[n] for n in step.inputs],
                             [n and numbers[n] for n in step.outputs])  # fmt: skip
        values.update((n, v) for n, v in zip(step.outputs, made, strict=True) if n is not None)
    if general:
        forget(values, moving(steps, {*model.inputs, *point}))
    return Trace(recorder, values, inputs, steps)


def forget(values: Mapping[str, ir.Value], names: Iterable[str]) -> None:
    """Take their numbers from the named values, any of which may then be not a number."""
    for name in values.keys() & names:
        values[name].meta.pop(AT, None)
        values[name].meta[NAN] = True
