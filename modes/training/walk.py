"""Walks over recorded values: what a value is computed from."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import onnx_ir as ir

from ...ops import Step
from ...ops.graphs import operands_of
from ..flow.steps import python_of

INITIALIZER = "onnxjac.initializer"
"""Key, in the metadata of an input, that says that it takes the place of an initializer."""


def ancestors(values: Iterable[ir.Value], stop: Container[ir.Value] = ()) -> list[ir.Node]:
    """The nodes that compute some values, each after those it reads; none behind a `stop`."""
    order: dict[ir.Node, None] = {}
    stack = [node for value in values if value not in stop and (node := value.producer())]
    while stack:
        read = (value.producer() for value in operands_of(stack[-1]) if value not in stop)
        waiting = [node for node in read if node is not None and node not in order]
        if waiting:
            stack.extend(waiting)
        else:
            order[stack.pop()] = None
    return list(order)


def outputs_of(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """The values that some nodes make."""
    return [value for node in nodes for value in node.outputs]


def leaves(nodes: Iterable[ir.Node], target: ir.Value) -> list[ir.Value]:
    """The values that are read, but not computed, by the nodes on the way to a target."""
    order = list(nodes)
    made = set(outputs_of(order))
    read = dict.fromkeys(value for node in order for value in operands_of(node))
    return [value for value in (*read, target) if value not in made]


def step_of(node: ir.Node, opsets: Mapping[str, int]) -> Step:
    """A recorded node as a step; its values must have names."""
    return Step(
        op_type=node.op_type,
        domain=node.domain,
        version=opsets.get(node.domain, 1),
        name=node.name or "",
        inputs=tuple(None if value is None else value.name or None for value in node.inputs),
        outputs=tuple(value.name or None for value in node.outputs),
        attrs={name: python_of(attribute) for name, attribute in node.attributes.items()},
    )
