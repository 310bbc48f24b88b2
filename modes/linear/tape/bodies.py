"""Bodies: If, Loop and Scan as steps whose inputs include every tensor that their bodies read.

A tape sees the inputs and outputs of a step, but a body also reads tensors around it. Here they
become inputs: first the explicit inputs, then the captured tensors, under their names in the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import shape_of
from ....jacobians.symint import Number, at
from ....ops import Recorder, Step, numbers
from ....ops.graphs import body_of
from ....ops.node import AT, NAN
from ...model.flow.control import shape_formals, shape_outputs, turns_of_scan
from ...model.flow.steps import SHAPES, captured, moving, steps_of

INNER = "onnxjac.inner"
"""Metadata key of a recorded body: its tensors, and those around it, by their names in the step."""


@dataclass(frozen=True, eq=False)
class Body:
    """A subgraph: its steps by name, and zeros of the shape of every tensor in it.

    `moved` are its tensors whose numbers may differ at another turn or point.
    """

    formals: tuple[str, ...]
    results: tuple[str, ...]
    steps: tuple[Step, ...]
    captured: tuple[str, ...]
    like: Mapping[str, np.ndarray]
    moved: frozenset[str]
    name: str
    opsets: Mapping[str, int]


def bodies_of(step: Step) -> dict[str, Body]:
    """The bodies of a step, by attribute."""
    return {key: value for key, value in step.attrs.items() if isinstance(value, Body)}


def explicit(step: Step) -> int:
    """The number of inputs of a step with bodies that are not captured tensors."""
    return 1 if step.op_type == "If" else len(step.attrs["body"].formals)


def fixed_turns(step: Step, constants: Callable[[str], Any]) -> bool:
    """Whether the trip count of a Loop is the same at every point; `constants` looks up arrays."""
    limit, go = (*step.inputs, None, None)[:2]
    known = limit is not None and constants(limit) is not None
    return known and (go is None or constants(go) is not None) and not may_stop(step.attrs["body"])


def may_stop(body: Body) -> bool:
    """Whether the body of a Loop computes when to stop."""
    copies = {s.outputs[0]: s.inputs[0] for s in body.steps if s.op_type == "Identity"}
    name: str | None = body.results[0]
    while name in copies:
        name = copies[name]
    return name != body.formals[1] and name in body.moved


def closed(step: Step, opsets: Mapping[str, int], moved: Iterable[str]) -> Step:
    """The step with bodies in place of subgraphs, and the captured tensors among its inputs."""
    graphs = {key: value for key, value in step.attrs.items() if isinstance(value, ir.Graph)}
    if not graphs:
        return step
    bodies = {key: body(graph, opsets, moved) for key, graph in graphs.items()}
    taken = dict.fromkeys(name for made in bodies.values() for name in made.captured)
    made = replace(step, attrs={**step.attrs, **bodies})
    missing = explicit(made) - len(step.inputs)
    return replace(made, inputs=(*step.inputs, *(None,) * missing, *taken))


def body(graph: ir.Graph, opsets: Mapping[str, int], moved: Iterable[str]) -> Body:
    """A flat subgraph, whose tensors all have shapes."""
    steps = steps_of(graph, opsets)
    formals = tuple(str(value.name) for value in graph.inputs)
    inside = frozenset(moving(steps, {*formals, *moved}))
    made = (*graph.inputs, *(value for node in graph for value in node.outputs))
    return Body(
        formals, tuple(str(value.name) for value in graph.outputs),
        tuple(closed(step, opsets, inside) for step in steps), tuple(sorted(captured(graph))),
        {str(value.name): zeros(value) for value in made if value.name}, inside,
        graph.name or "body", opsets,
    )  # fmt: skip


def zeros(value: ir.Value) -> np.ndarray:
    """Zeros of the shape of a value."""
    assert value.dtype is not None
    return np.broadcast_to(np.zeros((), value.dtype.numpy()), at(shape_of(value)))


def replayed(op: Recorder, body: Body, values: Mapping[str, Any]) -> dict[str, Any]:
    """All tensors of a body, recorded with these values for its inputs and captured tensors."""
    known = dict(values)
    for step in body.steps:
        made = again(op, step, known, [n and body.like[n] for n in step.outputs])
        for name, value in zip(step.outputs, made, strict=True):
            if name is not None:
                value.name = None
                told(op, step, known, value, unknown=name in body.moved)
                if name in body.moved:
                    value.meta[NAN] = True  # in some turn it may be
                known[name] = value
    return known


def again(
    op: Recorder, step: Step, values: Mapping[str, Any], likes: Iterable[Any]
) -> tuple[Any, ...]:
    """A step recorded on these values with its bodies; the outputs have the shapes of `likes`."""
    if step.surrogate is not None:  # its value is its first input; the tangents are recorded
        step = replace(step, op_type="Identity", inputs=step.inputs[:1], surrogate=None)
    bodies, inputs, whole = bodies_of(step), step.inputs, step
    if bodies:
        inputs = inputs[: explicit(step)]
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
    operands = [n and values[n] for n in inputs]
    graphs = {key: graph_of(op, step, inner, operands, values) for key, inner in bodies.items()}
    made = op.copy(replace(step, attrs={**step.attrs, **graphs}), operands, likes)
    if bodies:
        shape_outputs(op, whole, graphs, operands, made, turns_of(whole, values))
    return made


def turns_of(step: Step, values: Mapping[str, Any]) -> Number | None:
    """The trip count, where no turn decides it; else None."""
    if step.op_type == "Loop" and fixed_turns(step, lambda name: values[name].const_value):
        return max(int(np.ravel(values[str(step.inputs[0])].const_value.numpy())[0]), 0)
    if step.op_type == "Scan":
        given = filter(None, step.inputs[: explicit(step)])
        return turns_of_scan(step, [shape_of(values[name]) for name in given])
    return None


def graph_of(
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


def told(
    op: Recorder, step: Step, values: Mapping[str, Any], value: ir.Value, *, unknown: bool
) -> None:
    """Give a value of integers its number, where shapes and constants determine it."""
    if value.meta.pop(AT, None) is None or unknown or len(step.outputs) > 1 or bodies_of(step):
        return
    held = [None if n is None else number(values[n], step.op_type in SHAPES) for n in step.inputs]
    if not any(x is None and n for x, n in zip(held, step.inputs, strict=True)):
        (value.meta[AT],) = numbers.run(step.op_type, held, step.attrs, domain=step.domain,
                                        version=step.version, outputs=1)  # fmt: skip


def number(value: Any, shapes: bool) -> Any:
    """The known array of a value, or zeros of its shape where the shape is enough."""
    if not isinstance(value, ir.Value):
        return value
    if value.const_value is not None:
        return value.const_value.numpy()
    return zeros(value) if shapes else value.meta.get(AT)
