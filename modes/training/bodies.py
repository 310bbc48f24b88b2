"""Bodies: If, Loop and Scan with their subgraphs lowered, each at its first turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians.errors import UnsupportedOp
from ...ops import Step
from ...ops.graphs import copied, name_nodes, reachable
from ..flow.control import turn
from ..flow.steps import array_of
from .scope import Scope
from .walk import outputs_of

Arrays = list[np.ndarray]


def control(low: Scope, step: Step, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """A step with subgraphs, which are lowered in the scope of the tensors around them."""
    if step.op_type not in KINDS or step.domain:
        raise UnsupportedOp(f"{step} has a subgraph and is not If, Loop or Scan")
    formals, outputs = KINDS[step.op_type]
    held = [None if value is None else low.samples[value] for value in inputs]
    bodies, found = {}, {}
    for name, graph in step.attrs.items():
        if isinstance(graph, ir.Graph):
            bodies[name], found[name] = body(low, graph, formals(step, held))
    lowered = replace(step, attrs={**step.attrs, **bodies})
    return low.copy(lowered, inputs, outputs(step, held, found), step.outputs)


def body(low: Scope, graph: ir.Graph, numbers: Iterable[Any]) -> tuple[ir.Graph, Arrays]:
    """A subgraph lowered, and its outputs for some numbers of its inputs."""
    with low.inner():
        pairs = zip(graph.inputs, map(np.asarray, numbers), strict=True)
        formals = [low.entry(value.name or "", at) for value, at in pairs]
        for name, value in graph.initializers.items():  # they move to the model
            low.values[name] = low.op.initializer(array_of(value))
        low.run(low.model.body(graph))
        results: list[ir.Value] = []
        for value in graph.outputs:
            results.append(own(low, low.values[value.name or ""], results))
        nodes, _ = reachable(low.op, results)
        low.name_all(outputs_of(nodes))
        name_nodes(nodes)
        found = [low.samples[value] for value in results]
    for value, source in zip(formals, graph.inputs, strict=True):
        if value.shape != ():  # what stands for one turn need not hold for the others
            value.shape = source.shape
    return ir.Graph(formals, results, nodes=nodes, name=graph.name), found


def own(low: Scope, value: ir.Value, taken: list[ir.Value]) -> ir.Value:
    """A value as an output of a subgraph: one that the subgraph makes, once."""
    if value.producer() in low.op.nodes and value not in taken:
        return value
    return copied(low.op, value, low.fresh("identity"))


def of_if(step: Step, held: Sequence[Any]) -> Arrays:
    return []


def of_loop(step: Step, held: Sequence[Any]) -> Arrays:
    """Turn 0, go on, the state."""
    return [*turn(step.attrs["body"], 0), *held[2:]]


def of_scan(step: Step, held: Sequence[Any]) -> Arrays:
    """The state, and the first slice of every scanned input."""
    width = step.attrs["num_scan_inputs"]
    state, series = held[: len(held) - width], held[len(held) - width :]
    axes = step.attrs.get("scan_input_axes", (0,) * width)
    return [*state, *(np.take(x, 0, axis) for x, axis in zip(series, axes, strict=True))]


def after_if(step: Step, held: Sequence[Any], found: dict[str, Arrays]) -> Arrays:
    return found["then_branch" if np.all(held[0]) else "else_branch"]


def after_loop(step: Step, held: Sequence[Any], found: dict[str, Arrays]) -> Arrays:
    """The state of one turn, and its rows for all turns."""
    _, *results = found["body"]
    turns = 1 if held[0] is None else max(int(np.ravel(held[0])[0]), 0)
    carried = len(held) - 2
    return results[:carried] + [np.broadcast_to(x, (turns, *x.shape)) for x in results[carried:]]


def after_scan(step: Step, held: Sequence[Any], found: dict[str, Arrays]) -> Arrays:
    """The state of one turn, and its rows for all turns along their axes."""
    width = step.attrs["num_scan_inputs"]
    carried = len(held) - width
    turns = held[carried].shape[step.attrs.get("scan_input_axes", (0,) * width)[0]]
    rows = found["body"][carried:]
    axes = step.attrs.get("scan_output_axes", (0,) * len(rows))
    return found["body"][:carried] + [
        np.repeat(np.expand_dims(x, axis), turns, axis) for x, axis in zip(rows, axes, strict=True)
    ]


KINDS = {
    "If": (of_if, after_if),
    "Loop": (of_loop, after_loop),
    "Scan": (of_scan, after_scan),
}
"""Operator -> (numbers of the subgraph's inputs, numbers of the step's outputs)."""
