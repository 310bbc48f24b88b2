"""Bodies: control flow that is kept, with all that it depends on among its inputs.

A tape sees the inputs and outputs of a step, but a body also reads tensors around it. Here they
become inputs: explicit ones first, captured ones behind, under the names that the body knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import shape_of
from ...jacobians.symint import Number, at
from ...ops import Recorder, Step, numbers
from ...ops.graphs import body_of
from ...ops.node import AT, NAN
from ..flow.shapes import shape_formals, shape_outputs, turns_of_scan
from ..flow.steps import SHAPES, captured, steps_of
from .dependence import moving


@dataclass(frozen=True, eq=False)
class Body:
    """A subgraph: its steps by name, and zeros of the shape of every tensor in it.

    `moved` are the tensors in it whose numbers another turn or another point may change.
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
    """How many inputs of a step with bodies are not captured by them."""
    return 1 if step.op_type == "If" else len(step.attrs["body"].formals)


def fixed_turns(step: Step, constants: Callable[[str], Any]) -> bool:
    """Whether a Loop has as many turns at every point; `constants` give None for other tensors."""
    limit, go = (*step.inputs, None, None)[:2]
    known = limit is not None and constants(limit) is not None
    return known and (go is None or constants(go) is not None) and not may_stop(step.attrs["body"])


def may_stop(body: Body) -> bool:
    """Whether a turn of a Loop decides that it is the last one."""
    copies = {s.outputs[0]: s.inputs[0] for s in body.steps if s.op_type == "Identity"}
    name: str | None = body.results[0]
    while name in copies:
        name = copies[name]
    return name != body.formals[1] and name in body.moved


def slots(step: Step, o: int) -> tuple[int, int | None]:
    """Which result of a body is output o, and of which input, if any, it is a later state."""
    if step.op_type == "If":
        return o, None
    lost = step.op_type == "Loop"
    states = explicit(step) - len(series(step)) - 2 * lost
    return o + lost, o + 2 * lost if o < states else None


def series(step: Step) -> range:
    """The inputs that a Scan reads slice by slice."""
    width = step.attrs["num_scan_inputs"] if step.op_type == "Scan" else 0
    return range(explicit(step) - width, explicit(step))


def closed(step: Step, opsets: Mapping[str, int], moved: Iterable[str]) -> Step:
    """A step whose subgraphs are bodies, and what these capture among its inputs."""
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
    """All tensors of a body, recorded on these values of its inputs and of what it captures."""
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
    """A step on these values, its bodies recorded with it; outputs are shaped like `likes`."""
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
    """How many turns there are, where that does not depend on what they do."""
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
        return body_of(op, formals.values(), results, body.name)


def formals_of(
    op: Recorder, step: Step, body: Body, operands: Sequence[Any]
) -> dict[str, ir.Value]:
    """New inputs of a body of a step, whose numbers nobody knows."""
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
    """What is known of a value: its number, or zeros of its shape if that is enough."""
    if not isinstance(value, ir.Value):
        return value
    if value.const_value is not None:
        return value.const_value.numpy()
    return zeros(value) if shapes else value.meta.get(AT)
