"""Gradient: the node of `ai.onnx.preview.training` by its specification, as recorded products.

`Gradient(xs, zs, y)` takes values for the tensors that `xs` and `zs` name and gives ∂(Σ y)/∂xs
there. What y is as a function of these tensors is read off the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.helper import make_tensor_type_proto

from ...jacobians import Array, Dag, shape_of
from ...ops import Step
from ...ops.graphs import operands_of
from ..flow.steps import array_of, reads
from ..recording.derive import present
from ..recording.sizes import Sizes
from ..recording.trace import Trace
from ..tape.active import active_steps
from ..tape.bodies import closed, holds_sizes
from ..tape.moving import moving
from ..tape.template import names_of
from . import checks
from .scope import Scope
from .substitution import substituted
from .walk import ancestors, outputs_of, step_of


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
    sizes = sizes_of(low, target)
    checks.kept(step, steps, sizes)
    sized = [a for a in active_steps(steps, wrt, of) if holds_sizes(a.step)]
    names = {name for a in sized for name in names_of(a)}
    checks.sized(step, sizes, names)
    dag = Trace(low.op, values, (), steps).dag(wrt, of)
    checks.differentiable(step, steps, dag, wrt, of[0])
    return swept(low, dag.T, values[of[0]])


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


def sizes_of(low: Scope, target: ir.Value) -> Sizes:
    """The sizes of all that a value is computed from."""
    nodes = ancestors([target])
    met = dict.fromkeys((target, *met_by(nodes)))
    low.name_all(met)
    named = {value.name or "": value for value in met}
    constants = {n: array_of(v) for n, v in named.items() if v.const_value is not None}
    made = set(outputs_of(nodes))
    types = {
        n: make_tensor_type_proto(int(v.dtype), shape_of(v))
        for n, v in named.items() if v not in made and v.dtype is not None
    }  # fmt: skip
    sizes = Sizes(types, constants, lambda name: low.samples[named[name]])
    return sizes.run(closed_steps(low, nodes))


def swept(low: Scope, dag: Dag, y: ir.Value) -> list[Array]:
    """The cotangents that ones at y give, at every sink."""
    assert y.dtype is not None
    ones = np.broadcast_to(np.ones((), y.dtype.numpy()), shape_of(y))
    reached = dag.sweep(low.op, {dag.sources[0]: ones})
    return [present(low.op, reached, dag, sink) for sink in dag.sinks]
