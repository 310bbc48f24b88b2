"""Trace: steps in the graphs reading, their tensors as values of a new graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from ....jacobians import Array, Dag, shape_of
from ....jacobians.arrays import zeros
from ....jacobians.symint import Number, Symbols
from ....jacobians.threads import remembered
from ....ops import Recorder, Step
from ....ops import numbers as arithmetic
from ....ops.graphs import body_of, build
from ....ops.graphs.infer import data_everywhere, output_types
from ....ops.graphs.recorder import has_bodies, is_still
from ....ops.node import AT, NAN
from ...model.flow.contents import ESTIMATES, free_sizes, lowest_opsets
from ...model.flow.control import (
    NotKept,
    kept_whole,
    note,
    shape_formals,
    shape_outputs,
    turns_of_scan,
)
from ...model.flow.steps import (
    DECIDING_ELEMENTS,
    SHAPES,
    Body,
    bodies_of,
    closed,
    explicit,
    fixed_turns,
    moving,
    reads,
    steps_needed,
    zeros_for,
)
from ...model.primal.evaluate import evaluate
from ...model.primal.model import Model, TensorSpec
from .record import dag_between, straight_through, without
from .unroll import fixed, unrolled

Made = TypeVar("Made")


@dataclass(eq=False)
class Trace:
    """A graph under construction: the tensors of a model as recorded nodes, and what is derived.

    `values` are the tensors that `of` needs, by name, and `numbers` these at the point, where
    floating tensors of several elements are zeros. `steps` compute them; `behind` are all steps
    before these and before what the recording was decided by. With `estimates`, roundings are
    straight-through. `inputs` and `outputs`, by name, belong to the graph, and `derived` names the
    outputs that are derivatives. The tensors of `wrt` are kept, so that the graph can be
    differentiated with respect to them again. Unless it is `masked`, what is left out counts: see
    `jacobians.dag.chosen`. `said` becomes metadata of the model.
    """

    recorder: Recorder
    values: dict[str, ir.Value]
    inputs: list[ir.Value]
    steps: tuple[Step, ...] = ()
    numbers: Mapping[str, Any] = field(default_factory=dict)
    behind: tuple[Step, ...] = ()
    estimates: bool = False
    outputs: dict[str, Array] = field(default_factory=dict)
    wrt: list[ir.Value] = field(default_factory=list)
    derived: tuple[str, ...] = ()
    known: dict[Any, Dag] = field(default_factory=dict)
    masked: bool = True
    said: dict[str, str] = field(default_factory=dict)

    def model(self, name: str) -> Model:
        """The graph as a model, which can be linearised like any other."""
        made = build(self.recorder, self.inputs, self.outputs, name, self.wrt)
        made.metadata_props.update(self.said)
        if self.estimates:
            made.metadata_props[ESTIMATES] = "1"
        return Model(made)

    def dag(self, wrt: tuple[str, ...], of: tuple[str, ...]) -> Dag:
        """The DAG between `wrt` and `of` with graph values as data: its products are recorded."""
        make = partial(dag_between, self.recorder, self.active, self.values, wrt, of,
                       masked=self.masked)  # fmt: skip
        return remembered(self.known, (wrt, of), make)

    @property
    def active(self) -> tuple[Step, ...]:
        """The steps as they are differentiated."""
        return straight_through(self.steps) if self.estimates else self.steps


def trace_model(
    model: Model, point: Mapping[str, Any], names: Iterable[str], engine: str | None = None,
    *, given: Iterable[str] = (), perturbed: Collection[str] = (), symbols: Symbols | None = None,
    types: Mapping[str, Any] | None = None,
) -> Trace:  # fmt: skip
    """Record the steps that the named tensors need; shapes and integers are those at the point,
    or, with `symbols`, follow the free sizes and the integers of the inputs.

    Weights and intermediates that are `given` become inputs too.

    A `perturbed` tensor is copied where it is computed. What is recorded of the step that computes
    the tensor, such as its derivative, reads the original and does not move with the copy.

    Given the `types` of some tensors, only what control flow that these leave out needs is run:
    only shapes, types and the results of constants are known then.
    """
    wanted = tuple(names)
    model, unkept = fixed(model, point, engine, symbols), model.cache["unkept"]
    spread = [unkept[n] for n in steps_needed(model.steps, wanted)[1] if n in unkept]
    model = unrolled(model, point, wanted, 0, engine, unkept, symbols)
    if symbols is not None:
        symbols.conditions |= {(c.kind, c.name): c for c in spread}
    decided = symbols.pinned() if symbols else ()
    given = set(given)
    steps, behind = (
        without([model.steps[k] for k in steps_needed(model.steps, names, given)[0]], given)
        for names in (wanted, (*wanted, *decided))
    )
    met = {n for step in behind for n in (*reads(step), *step.outputs) if n is not None}
    if types is None:
        numbers = evaluate(model, point, met.union(wanted, model.inputs), engine=engine)
    else:
        shaped = {n: zeros(shape_of(s), s.dtype)
                  for n, s in types.items() if isinstance(s, TensorSpec)}  # fmt: skip
        whole = [n for step in steps if has_bodies(step) for n in step.outputs
                 if n and n not in shaped]  # fmt: skip
        numbers = {**shaped, **evaluate(model, point, whole, engine=engine),
                   **model.constants, **point}  # fmt: skip
    recorder = Recorder(lowest_opsets(model), symbols)
    entered = [name for name in model.inputs if name in numbers]
    entries = dict.fromkeys((*entered, *sorted(given & met.union(wanted))))
    inputs = [recorder.like(numbers[name], name) for name in entries]
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
        if types is not None and not bodies_of(step):
            numbers.update(found(step, values, numbers))
        with kept_whole(step) if bodies_of(step) else nullcontext():
            made = again(recorder, step, values, [n and numbers[n] for n in step.outputs])
        values.update((n, v) for n, v in zip(step.outputs, made, strict=True) if n is not None)
    behind = tuple(closed(step, opsets, moved) for step in behind)
    kept = {name: shape_stand_in(array) for name, array in numbers.items()}
    return Trace(recorder, values, inputs, steps, kept, behind, model.estimates)


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


def staying(make: Callable[..., Made]) -> Callable[..., Made]:
    """Record with control flow kept where that is possible and unrolled elsewhere."""

    @wraps(make)
    def made(model: Model, *args: Any, symbols: Symbols | None = None, **kwargs: Any) -> Made:
        before = dict(symbols.conditions) if symbols else {}
        while True:
            try:
                return make(model, *args, symbols=symbols, **kwargs)
            except NotKept as reason:
                note(model, reason)
                if symbols is not None:
                    symbols.conditions = dict(before)

    return made


def apart(step: Step, names: Collection[str], numbers: dict[str, Any]) -> Iterator[Step]:
    """A step, and Identity nodes that copy its outputs of these names; `numbers` get both."""
    copied = {n: f"{n} (computed)" for n in step.outputs if n is not None and n in names}
    numbers.update((original, numbers[name]) for name, original in copied.items())
    outputs = tuple(copied.get(n, n) if n else n for n in step.outputs)
    yield replace(step, outputs=outputs) if copied else step
    for name, original in copied.items():
        yield Step("Identity", "", step.version, f"{name} (copied)", (original,), (name,))


def shape_stand_in(array: Any) -> Any:
    """The tensor to keep: zeros for a floating tensor of many elements, whose shape is enough."""
    if (
        isinstance(array, np.ndarray)
        and array.dtype.kind not in "iub"
        and array.size > DECIDING_ELEMENTS
    ):
        return zeros(array.shape, array.dtype)
    return array


# -- steps again, with the bodies of If, Loop and Scan ---------------------------------------------

INNER = "onnxjac.inner"
"""Metadata key of a recorded body: its tensors, and those around it, by their names in the step."""


def again(
    op: Recorder, step: Step, values: Mapping[str, Any], likes: Iterable[Any]
) -> tuple[Any, ...]:
    """A step recorded on these values with its bodies; the outputs have the shapes of `likes`."""
    if step.surrogate is not None:  # its value is its first input; the tangents are recorded
        step = replace(step, op_type="Identity", inputs=step.inputs[:1], surrogate=None)
    bodies, inputs, whole = bodies_of(step), step.inputs, step
    if bodies:
        inputs = inputs[: explicit(step)]  # of a Loop, limit and condition may both be left out
    operands = [n and values[n] for n in inputs]
    graphs = {key: trace_body(op, step, inner, operands, values) for key, inner in bodies.items()}
    made = op.copy(replace(step, attrs={**step.attrs, **graphs}), operands, likes)
    if bodies:
        shape_outputs(op, whole, graphs, operands, made, turns_of(whole, values))
    return made


def replayed(op: Recorder, body: Body, values: Mapping[str, Any]) -> dict[str, Any]:
    """All tensors of a body, recorded with these values for its inputs and captured tensors."""
    known = dict(values)
    for step in body.steps:
        made = again(op, step, known, [n and body.like[n] for n in step.outputs])
        for name, value in zip(step.outputs, made, strict=True):
            if name is not None:
                value.name = None
                set_number(op, step, known, value, unknown=name in body.moved)
                if name in body.moved:
                    value.meta[NAN] = True  # in some turn it may be
                known[name] = value
    return known


def turns_of(step: Step, values: Mapping[str, Any]) -> Number | None:
    """The trip count, where no turn decides it; else None."""
    if step.op_type == "Loop" and fixed_turns(step, lambda name: data_everywhere(values[name])):
        held: Any = data_everywhere(values[str(step.inputs[0])])
        return max(int(np.ravel(held)[0]), 0)
    if step.op_type == "Scan":
        given = filter(None, step.inputs[: explicit(step)])
        return turns_of_scan(step, [shape_of(values[name]) for name in given])
    return None


def trace_body(
    op: Recorder, step: Step, body: Body, operands: Sequence[Any], values: Mapping[str, Any]
) -> ir.Graph:
    """A body of a step as a subgraph among these values."""
    with op.body():
        formals = formals_of(op, step, body, operands)
        inner = replayed(op, body, {**values, **formals})
        results = [inner[name] for name in body.results]
        made = body_of(op, formals.values(), results, body.name)
        made.meta[INNER] = inner
        return made


def tensors_of(graph: ir.Graph) -> Mapping[str, ir.Value]:
    """The tensors of a body by their names in the step that it was recorded for."""
    made = (*graph.inputs, *(value for node in graph for value in node.outputs))
    known: Mapping[str, ir.Value] = graph.meta.get(INNER) or {str(v.name): v for v in made}
    return known


def formals_of(
    op: Recorder, step: Step, body: Body, operands: Sequence[Any]
) -> dict[str, ir.Value]:
    """New inputs for the body of a step, whose numbers are unknown."""
    made = {name: op.like(body.like[name]) for name in body.formals}
    for value in made.values():
        value.meta.pop(AT, None)
        value.meta[NAN] = True
    shape_formals(op, step, made.values(), operands)
    return made


def set_number(
    op: Recorder, step: Step, values: Mapping[str, Any], value: ir.Value, *, unknown: bool
) -> None:
    """Give a value of integers its number, where shapes and constants determine it."""
    if value.meta.pop(AT, None) is None or unknown or len(step.outputs) > 1 or bodies_of(step):
        return
    held = [None if n is None else number(values[n], step.op_type in SHAPES) for n in step.inputs]
    if not any(x is None and n for x, n in zip(held, step.inputs, strict=True)):
        (value.meta[AT],) = arithmetic.run(step.op_type, held, step.attrs, domain=step.domain,
                                           version=step.version, outputs=1)  # fmt: skip


def number(value: Any, shapes: bool) -> Any:
    """The known array of a value, or zeros of its shape where the shape is enough."""
    if not isinstance(value, ir.Value):
        return value
    if value.const_value is not None:
        return value.const_value.numpy()
    return zeros_for(value) if shapes else value.meta.get(AT)
