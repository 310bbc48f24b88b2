"""Gradient: the node of `ai.onnx.preview.training` by its specification, as recorded products.

`Gradient(xs, zs, y)` takes values for the tensors that `xs` and `zs` name and computes ∂(Σ y)/∂xs
there. The graph says how y depends on these tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ...jacobians import Array, Dag, dtype_of, shape_of
from ...jacobians.errors import InputError, UnknownTensor, UnsupportedOp, closest
from ...ops import Step
from ...ops.graphs import operands_of
from ...ops.node import AT
from ..linear.tape.active import is_zero, reach_forward
from ..linear.tape.bodies import again, closed
from ..linear.tape.dependence import moving
from ..linear.tape.trace import Trace
from ..model.flow.failure import NotKept
from ..model.flow.steps import reads, step_of
from ..model.primal.names import is_float
from ..recording.derive import present
from .scope import INITIALIZER, Scope, ancestors, outputs_of


def gradient(low: Scope, step: Step, inputs: Sequence[Any]) -> list[Array]:
    """∂(Σ y)/∂x for every x of `xs` whose output is asked for; None for the others."""
    xs, zs, y = read_attributes(step, inputs)
    named = [named_tensor(low.values, step, name) for name in (*xs, *zs)]
    target = named_tensor(low.values, step, y)
    for name, value in ((y, target), *zip(xs, named, strict=False)):
        if not is_float(kind := dtype_of(value)):
            raise InputError(f"{step} cannot differentiate: {name!r} is a tensor of {kind}")
    check_listed(step, (*xs, *zs), named, inputs)
    nodes = ancestors([target], set(named))
    check_complete(step, nodes, named, target)
    low.name_all((*named, target, *values_of(nodes)))
    given = substituted(low, step, nodes, dict(zip(named, inputs, strict=True)))
    wanted = [x for x, name in zip(named, step.outputs, strict=False) if name]
    found = dict(zip(wanted, pulled_back(low, step, nodes, given, wanted, target), strict=True))
    return [found.get(x) for x, _ in zip(named, step.outputs, strict=False)]


def values_of(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """The values that some nodes read and compute."""
    return [value for node in nodes for value in (*operands_of(node), *node.outputs)]


def pulled_back(
    low: Scope,
    step: Step,
    nodes: list[ir.Node],
    given: Mapping[ir.Value, ir.Value],
    wanted: list[ir.Value],
    target: ir.Value,
) -> list[Array]:
    """Jᵀ · 1 for the wanted tensors, at the given values."""
    met = (target, *wanted, *values_of(nodes))
    values = {value.name or "": given.get(value, value) for value in met}
    steps = closed_steps(low, nodes)
    wrt, of = tuple(value.name or "" for value in wanted), (target.name or "",)
    low.symbols.reader = str(step)
    try:
        dag = Trace(low.op, values, (), steps).dag(wrt, of)
        check_differentiable(step, steps, dag, wrt, of[0])
        y, back = values[of[0]], dag.T
        assert y.dtype is not None
        ones = low.op.Expand(np.ones((), y.dtype.numpy()), shape_of(y))
        reached = back.sweep(low.op, {back.sources[0]: ones})
        return [present(low.op, reached, back, sink) for sink in back.sinks]
    except NotKept as error:
        through = next((s for s in steps if error.output in s.outputs), step)
        message = f"{step} would differentiate through {through}: {error}"
        raise UnsupportedOp(message) from error


def closed_steps(low: Scope, nodes: list[ir.Node]) -> tuple[Step, ...]:
    """The steps of some nodes, with captured tensors of their bodies among the inputs."""
    steps = tuple(step_of(node, low.op.opset_imports) for node in nodes)
    constants = {value.name for value in values_of(nodes) if value.const_value is not None}
    known = {*constants, *(name for step in steps for name in step.outputs)}
    outside = {name for step in steps for name in reads(step)} - known
    moved = moving(steps, outside)  # what may vary
    return tuple(closed(step, low.op.opset_imports, moved) for step in steps)


def substituted(
    low: Scope, gradient: Step, nodes: list[ir.Node], given: Mapping[ir.Value, ir.Value]
) -> dict[ir.Value, ir.Value]:
    """value ↦ its new value where the given tensors replace others; unchanged values are absent.

    Only nodes that depend on a replaced tensor are recorded again.
    """
    new = {old: value for old, value in given.items() if value is not old}
    for node in nodes:
        if any(value in new for value in operands_of(node)):
            new.update(zip(node.outputs, anew(low, gradient, node, new), strict=True))
    return new


def anew(
    low: Scope, gradient: Step, node: ir.Node, new: Mapping[ir.Value, ir.Value]
) -> tuple[ir.Value, ...]:
    """The outputs of a node on new inputs."""
    step = step_of(node, low.op.opset_imports)
    if step.surrogate is not None and (value := node.inputs[0]) is not None:
        return (new.get(value, value),)
    if any(isinstance(value, ir.Graph) for value in step.attrs.values()):
        return whole(low, step, node, new)
    inputs = [None if value is None else new.get(value, value) for value in node.inputs]
    known = low.op.recall(step, inputs)
    if known is not None:
        return known
    names = tuple(name and low.fresh(f"{gradient.name}_{name}") for name in step.outputs)
    return low.copy(step, inputs, low.samples.step(step, inputs), names)


def whole(
    low: Scope, step: Step, node: ir.Node, new: Mapping[ir.Value, ir.Value]
) -> tuple[ir.Value, ...]:
    """The outputs of a node with bodies, on new inputs and captured tensors."""
    low.name_all(operands_of(node))
    values = {value.name or "": new.get(value, value) for value in operands_of(node)}
    held = [low.samples[value] for value in node.outputs]
    step = closed(step, low.op.opset_imports, values)
    made = again(low.op, step, values, held)
    for value, at in zip(made, held, strict=True):
        value.name = None
        value.meta.pop(AT, None)
        low.samples[value] = at
    return made


Names = tuple[str, ...]


def read_attributes(step: Step, inputs: Sequence[Any]) -> tuple[Names, Names, str]:
    """`xs`, `zs` and `y`: each tensor once, with one input each, at most one output per x."""
    xs, zs = tuple(step.attrs.get("xs", ())), tuple(step.attrs.get("zs", ()))
    listed = (*xs, *zs)
    twice = [name for k, name in enumerate(listed) if name in listed[:k]]
    if twice:
        raise InputError(f"{step} lists {twice[0]!r} twice in xs and zs")
    if len(inputs) != len(listed) or None in inputs:
        given, names = len(inputs) - list(inputs).count(None), ", ".join(listed)
        raise InputError(f"{step} has {given} inputs, but lists {len(listed)} tensors: {names}")
    if len(step.outputs) > len(xs):
        raise InputError(f"{step} has {len(step.outputs)} outputs for {len(xs)} tensors in xs")
    return xs, zs, step.attrs["y"]


def named_tensor(values: Mapping[str, ir.Value], step: Step, name: str) -> ir.Value:
    """The tensor with this name, which must be computed before the node."""
    if name not in values:
        raise UnknownTensor(
            f"{step} names {name!r}, which is no input, no initializer and nothing that an earlier "
            f"node computes.{closest(name, values)}"
        )
    return values[name]


def check_listed(
    step: Step, names: Names, values: Sequence[ir.Value], inputs: Sequence[ir.Value]
) -> None:
    """Raises where a listed tensor is given another type, or is computed from another one."""
    known: dict[ir.Value, str] = {}
    for name, value, given in zip(names, values, inputs, strict=True):
        old, new = dtype_of(value), dtype_of(given)
        if old != new:
            raise InputError(f"{step} is given {new} for {name!r}, which is {old}")
        if value in known:
            first = known[value]
            raise InputError(f"{step} lists {first!r} and {name!r}, which are the same tensor")
        known[value] = name
    for value, name in known.items():
        for node in ancestors([value]):
            for other in operands_of(node):
                if other in known:
                    raise InputError(
                        f"{step} lists {name!r}, which is determined by {known[other]!r}, listed "
                        "too: the tensors in xs and zs must be independent"
                    )


def check_complete(
    step: Step, nodes: list[ir.Node], listed: Sequence[ir.Value], y: ir.Value
) -> None:
    """Raises unless the listed tensors and initializers determine y."""
    known = {*listed, *outputs_of(nodes)}
    read = dict.fromkeys((*(value for node in nodes for value in operands_of(node)), y))
    missing = [value.name or "" for value in read if value not in known
               and value.const_value is None and INITIALIZER not in value.meta]  # fmt: skip
    if missing:
        named = ", ".join(map(repr, missing))
        raise InputError(
            f"{step}: {step.attrs['y']!r} also depends on {named}, in neither xs nor zs: list "
            "what it depends on and is not differentiated in zs"
        )


def check_differentiable(step: Step, steps: Sequence[Step], dag: Dag, wrt: Names, y: str) -> None:
    """Raises where y depends on an x, but no path has a derivative.

    Steps without a name come from other Gradients. Where such a step cuts a path, its derivative
    vanishes almost everywhere, as for the step function in the derivative of Relu: zero is right.
    """
    for name, source in zip(wrt, dag.sources, strict=True):
        if dag.joins(source, dag.sinks[0]) or name == y:
            continue
        reached = reach_forward(steps, [name])
        cut = [s for s in steps if s.name and is_zero(s) and not reached.isdisjoint(reads(s))]
        if cut:
            raise InputError(
                f"{step}: {y!r} is not differentiable in {name!r}, as {cut[0]} lies between"
            )
