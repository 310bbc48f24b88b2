"""Bodies: If, Loop and Scan with their subgraphs lowered, each at its first turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians.errors import OnnxJacError, UnsupportedOp
from ...ops import Step
from ...ops.graphs import copied, name_nodes, reachable
from ..flow.control import CONTROL, begin, end
from ..flow.shapes import shape_formals, shape_outputs
from ..flow.steps import array_of
from .scope import Scope
from .walk import outputs_of

Arrays = list[np.ndarray]


def control(low: Scope, step: Step, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """A step with subgraphs, which are lowered in the scope of the tensors around them."""
    if step.op_type not in CONTROL or step.domain:
        raise UnsupportedOp(f"{step} has a subgraph and is not If, Loop or Scan")
    held = [None if value is None else low.samples[value] for value in inputs]
    for steady in (True, False):
        bodies, found = {}, {}
        for name, graph in step.attrs.items():
            if isinstance(graph, ir.Graph):
                given = begin(step, held)
                bodies[name], found[name] = body(low, step, graph, inputs, given, steady)
        lowered = replace(step, attrs={**step.attrs, **bodies})
        made = low.copy(lowered, inputs, end(step, held, found), step.outputs)
        try:
            shape_outputs(low.op, step, bodies, inputs, made)
        except OnnxJacError:  # a state that changes its shape
            for value in filter(None, made):
                low.op.shape(value, None)
        else:
            break
    return made


def body(
    low: Scope, step: Step, graph: ir.Graph, inputs: Sequence[Any], numbers: Iterable[Any],
    steady: bool,
) -> tuple[ir.Graph, Arrays]:  # fmt: skip
    """A subgraph of a step lowered, and its outputs for some numbers of its inputs, whose shapes
    are `steady` where no turn changes them.
    """
    with low.inner():
        pairs = zip(graph.inputs, map(np.asarray, numbers), strict=True)
        formals = [low.entry(value.name or "", at) for value, at in pairs]
        if steady:
            shape_formals(low.op, step, formals, inputs)
        else:
            for value in formals:
                low.op.shape(value, None)
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
    return ir.Graph(formals, results, nodes=nodes, name=graph.name), found


def own(low: Scope, value: ir.Value, taken: list[ir.Value]) -> ir.Value:
    """A value as an output of a subgraph: one that the subgraph makes, once."""
    if value.producer() in low.op.nodes and value not in taken:
        return value
    return copied(low.op, value, low.fresh("identity"))
