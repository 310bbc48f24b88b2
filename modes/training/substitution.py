"""Substitution: a part of the graph evaluated again, at other values of some of its tensors."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...ops import Step
from ...ops.graphs import operands_of
from ...ops.node import AT
from ..tape.bodies import again, closed
from .scope import Scope
from .walk import step_of


def substituted(
    low: Scope, gradient: Step, nodes: list[ir.Node], given: Mapping[ir.Value, ir.Value]
) -> dict[ir.Value, ir.Value]:
    """value ↦ what it is where the given tensors replace theirs; what stays the same is absent.

    Only nodes behind a tensor that really differs are recorded again.
    """
    new = {old: value for old, value in given.items() if value is not old}
    for node in nodes:
        if any(value in new for value in operands_of(node)):
            new.update(zip(node.outputs, anew(low, gradient, node, new), strict=True))
    return new


def anew(
    low: Scope, gradient: Step, node: ir.Node, new: Mapping[ir.Value, ir.Value]
) -> tuple[ir.Value, ...]:
    """A node on new inputs."""
    step = step_of(node, low.op.opset_imports)
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
    """A node with bodies on new tensors, explicit and captured."""
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
