"""Gradient: the node of `ai.onnx.preview.training` by its specification, as recorded products.

`Gradient(xs, zs, y)` takes values for the tensors that `xs` and `zs` name and gives ∂(Σ y)/∂xs
there. What y is as a function of these tensors is read off the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Dag, shape_of
from ...jacobians.errors import UnsupportedOp
from ...ops import Step
from ...ops.graphs import operands_of
from ..flow.failure import NotKept
from ..flow.steps import reads
from ..recording.derive import present
from ..tape.bodies import closed
from ..tape.reuse import moving
from ..tape.trace import Trace
from . import checks
from .scope import Scope
from .substitution import substituted
from .walk import ancestors, step_of


def gradient(low: Scope, step: Step, inputs: Sequence[Any]) -> list[Array]:
    """∂(Σ y)/∂x for every x of `xs` whose output is asked for; None for the others."""
    xs, zs, y = checks.attributes(step)
    checks.arity(step, inputs, xs, zs)
    named = [checks.find(low.values, step, name) for name in (*xs, *zs)]
    target = checks.find(low.values, step, y)
    checks.floating(step, (*xs, y), (*named[: len(xs)], target))
    checks.same_types(step, (*xs, *zs), named, inputs)
    checks.independent(step, (*xs, *zs), named)
    nodes = ancestors([target], set(named))
    checks.complete(step, nodes, named, target)
    low.name_all((*named, target, *met_by(nodes)))
    given = substituted(low, step, nodes, dict(zip(named, inputs, strict=True)))
    wanted = [x for x, name in zip(named, step.outputs, strict=False) if name]
    found = dict(zip(wanted, pulled_back(low, step, nodes, given, wanted, target), strict=True))
    return [found.get(x) for x, _ in zip(named, step.outputs, strict=False)]


def met_by(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """What some nodes read and make."""
    return [value for node in nodes for value in (*operands_of(node), *node.outputs)]


def pulled_back(
    low: Scope,
    step: Step,
    nodes: list[ir.Node],
    given: Mapping[ir.Value, ir.Value],
    wanted: list[ir.Value],
    target: ir.Value,
) -> list[Array]:
    """Jᵀ · 1 in the wanted tensors; the DAG has the named tensors' roles and the given values."""
    met = (target, *wanted, *met_by(nodes))
    values = {value.name or "": given.get(value, value) for value in met}
    steps = closed_steps(low, nodes)
    wrt, of = tuple(value.name or "" for value in wanted), (target.name or "",)
    low.symbols.reader = str(step)
    try:
        dag = Trace(low.op, values, (), steps).dag(wrt, of)
        checks.differentiable(step, steps, dag, wrt, of[0])
        return swept(low, dag.T, values[of[0]])
    except NotKept as error:
        through = next((s for s in steps if error.output in s.outputs), step)
        message = f"{step} would differentiate through {through}: {error}"
        raise UnsupportedOp(message) from error


def closed_steps(low: Scope, nodes: Iterable[ir.Node]) -> tuple[Step, ...]:
    """The steps of some nodes, what their bodies capture among the inputs."""
    some = list(nodes)
    steps = tuple(step_of(node, low.op.opset_imports) for node in some)
    constants = {value.name for value in met_by(some) if value.const_value is not None}
    moved = moved_in(steps, constants)
    return tuple(closed(step, low.op.opset_imports, moved) for step in steps)


def moved_in(steps: tuple[Step, ...], constants: Collection[str | None]) -> set[str]:
    """What may be other numbers: all that the steps read from elsewhere, and what follows."""
    known = {*constants, *(name for step in steps for name in step.outputs)}
    return moving(steps, {name for step in steps for name in reads(step)} - known)


def swept(low: Scope, dag: Dag, y: ir.Value) -> list[Array]:
    """The cotangents that ones at y give, at every sink."""
    assert y.dtype is not None
    ones = low.op.Expand(np.ones((), y.dtype.numpy()), shape_of(y))
    reached = dag.sweep(low.op, {dag.sources[0]: ones})
    return [present(low.op, reached, dag, sink) for sink in dag.sinks]
