"""Trace: the tape in the graphs reading. The same steps, their tensors as values of a new graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from ....jacobians import Dag
from ....jacobians.symint import Symbols
from ....ops import Recorder, Step
from ....ops import numbers as arithmetic
from ....ops.graphs.infer import output_types
from ....ops.graphs.recorder import is_still
from ...model.flow.contents import free_sizes, lowest_opsets
from ...model.flow.control import NotKept, kept_whole, note
from ...model.flow.steps import SMALL, moving, needed, reads
from ...model.primal.evaluate import evaluate
from ...model.primal.model import Model, TensorSpec
from .bodies import again, bodies_of, closed
from .record import between, without
from .unroll import asked_in, fixed, unrolled

Made = TypeVar("Made")


@dataclass(frozen=True)
class Trace:
    """The primal as recorded nodes: every tensor that `of` needs, by name.

    `numbers` are the tensors at the point, where floating tensors of several elements are zeros.
    `asked` maps the tensors whose numbers were read before recording to their readers, and `behind`
    are the steps before these and all other tensors. `unrolled` maps an output of each control flow
    that had to be unrolled to the reason.
    """

    recorder: Recorder
    values: dict[str, ir.Value]
    inputs: tuple[ir.Value, ...]
    steps: tuple[Step, ...]
    numbers: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)
    behind: tuple[Step, ...] = ()
    unrolled: Mapping[str, str] = field(default_factory=dict)

    def dag(self, wrt: tuple[str, ...], of: tuple[str, ...]) -> Dag:
        """The DAG between `wrt` and `of` with graph values as data: its products are recorded."""
        return between(self.recorder, self.steps, self.values, wrt, of)


def trace(
    model: Model, point: Mapping[str, Any], names: Iterable[str], engine: str | None = None,
    *, given: Iterable[str] = (), perturbed: Collection[str] = (), symbols: Symbols | None = None,
    types: Mapping[str, Any] | None = None,
) -> Trace:  # fmt: skip
    """Record the steps that the named tensors need; shapes and integers are those at the point,
    or, with `symbols`, follow the free sizes and the integers of the inputs.

    Weights and intermediates that are `given` become inputs too.

    A `perturbed` tensor is copied where it is computed. What is recorded of the step that computes
    the tensor, such as its derivative, reads the original and does not move with the copy.

    Given the `types` of some tensors, the model is not run: only shapes, types and the results of
    constants are known then.
    """
    wanted = tuple(names)
    sampled, known = fixed(model, point, engine), model.derived.unkept
    spread = {n: known[n] for n in needed(sampled.steps, wanted)[1] if n in known}
    model = unrolled(sampled, point, wanted, 0, engine, model.derived.unkept, symbols)
    chosen_by = asked_in(model.ir.graph)
    if symbols is not None:  # the sizes and entries of the others are known
        chosen_by = {n: why for n, why in chosen_by.items() if n in symbols.pinned}
    asked = {**asked_in(sampled.ir.graph), **chosen_by}
    given = set(given)
    steps, behind = (without([model.steps[k] for k in needed(model.steps, names, given)[0]], given)
                     for names in (wanted, (*wanted, *asked)))  # fmt: skip
    met = {n for step in behind for n in (*reads(step), *step.outputs) if n is not None}
    if types is None:
        numbers = evaluate(model, point, met.union(wanted, model.inputs), engine=engine)
    else:
        shaped = {n: zeros(s.shape, s.dtype) for n, s in types.items() if isinstance(s, TensorSpec)}
        numbers = {**shaped, **model.constants, **point}
    recorder = Recorder(lowest_opsets(model), symbols)
    entered = [name for name in model.inputs if name in numbers]
    entries = dict.fromkeys((*entered, *sorted(given & met.union(wanted))))
    inputs = tuple(recorder.like(numbers[name], name) for name in entries)
    if symbols is not None:
        recorder.open(inputs, free_sizes(model.inputs))
    values: dict[str, Any] = dict(zip(entries, inputs, strict=True))
    for name in met.union(wanted) & model.constants.keys() - values.keys():
        values[name] = recorder.initializer(model.constants[name], name)
    moved = moving(steps, entries)
    opsets = model.ir.opset_imports
    steps = tuple(closed(part, opsets, moved) for step in steps
                  for part in apart(step, perturbed, numbers))  # fmt: skip
    for step in steps:
        if types is not None:
            numbers.update(found(step, values, numbers))
        with kept_whole(step) if bodies_of(step) else nullcontext():
            made = again(recorder, step, values, [n and numbers[n] for n in step.outputs])
        values.update((n, v) for n, v in zip(step.outputs, made, strict=True) if n is not None)
    behind = tuple(closed(step, opsets, moved) for step in behind)
    kept = {name: light(array) for name, array in numbers.items()}
    return Trace(recorder, values, inputs, steps, kept, asked, behind, unrolled=spread)


def found(
    step: Step, values: Mapping[str, Any], known: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The outputs of a step where constants determine them; else zeros for those not `known`."""
    operands = tuple(None if name is None else values[name] for name in step.inputs)
    names = {name: k for k, name in enumerate(step.outputs) if name is not None}
    if is_still(step, operands):
        held = [name and known[name] for name in step.inputs]
        made = arithmetic.run(step.op_type, held, step.attrs, domain=step.domain,
                              version=step.version, outputs=len(step.outputs))  # fmt: skip
        return {name: made[k] for name, k in names.items()}
    if known.keys() >= names.keys():
        return {}
    types = output_types(step.op_type, step.domain, step.version, operands, step.attrs,
                         len(step.outputs))  # fmt: skip
    return {name: zeros(*types[k]) for name, k in names.items()}


def zeros(shape: Any, dtype: Any) -> np.ndarray:
    """Zeros that take no memory."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def staying(make: Callable[..., Made]) -> Callable[..., Made]:
    """Record with control flow kept where that is possible and unrolled elsewhere."""

    @wraps(make)
    def made(model: Model, *args: Any, symbols: Symbols | None = None, **kwargs: Any) -> Made:
        before = symbols and (dict(symbols.guards), dict(symbols.pinned))
        while True:
            try:
                return make(model, *args, symbols=symbols, **kwargs)
            except NotKept as reason:
                note(model, reason)
                if symbols is not None and before:
                    symbols.guards, symbols.pinned = (dict(d) for d in before)

    return made


def apart(step: Step, names: Collection[str], numbers: dict[str, Any]) -> Iterator[Step]:
    """A step, and Identity nodes that copy its outputs of these names; `numbers` get both."""
    copied = {n: f"{n} (computed)" for n in step.outputs if n is not None and n in names}
    numbers.update((original, numbers[name]) for name, original in copied.items())
    outputs = tuple(copied.get(n, n) if n else n for n in step.outputs)
    yield replace(step, outputs=outputs) if copied else step
    for name, original in copied.items():
        yield Step("Identity", "", step.version, f"{name} (copied)", (original,), (name,))


def light(array: Any) -> Any:
    """The tensor to keep: zeros for a floating tensor of many elements, whose shape is enough."""
    if isinstance(array, np.ndarray) and array.dtype.kind not in "iub" and array.size > SMALL:
        return np.broadcast_to(np.zeros((), array.dtype), array.shape)
    return array
