"""Steps: a graph as a flat list, and which of its steps a result needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from ....ops.node import SURROGATE, Step

SHAPES = frozenset({"Shape", "Size"})
"""Operators that read only the shape of their input."""


def steps_of(graph: ir.Graph, opsets: Mapping[str, int]) -> tuple[Step, ...]:
    """The nodes of a graph in the order they run."""
    numbered = enumerate(graph)
    return tuple(step_of(node, opsets, f"{node.op_type}_{index}") for index, node in numbered)


def reads(step: Step) -> Iterator[str]:
    """The names of the tensors a step uses, including those that its subgraphs capture."""
    for name in step.inputs:
        if name is not None:
            yield name
    for value in step.attrs.values():
        if type(value) is ir.Graph:
            yield from captured(value)


def captured(graph: ir.Graph) -> set[str]:
    """The names of outer tensors that a subgraph uses."""
    used = _names(graph.outputs)
    own = _names(graph.inputs) | set(graph.initializers)
    for node in graph:
        used |= _names(node.inputs)
        own |= _names(node.outputs)
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.GRAPH:
                used |= captured(attribute.value)
    return used - own


def needed(
    steps: tuple[Step, ...], wanted: Iterable[str], given: Collection[str] = ()
) -> tuple[list[int], set[str]]:
    """The indices of the steps that the wanted tensors need, and all names that are used.

    A given tensor needs no steps, whether or not it is an input of the model.
    """
    used = set(wanted)
    kept = []
    for index in range(len(steps) - 1, -1, -1):
        if any(name in used and name not in given for name in steps[index].outputs):
            kept.append(index)
            used.update(reads(steps[index]))
    return kept[::-1], used


def last_uses(steps: Sequence[Step], names: Iterable[str]) -> list[list[str]]:
    """For each step, the values that are not needed after it."""
    seen, finished = set(names), []
    for step in reversed(steps):
        now = {*reads(step), *filter(None, step.outputs)} - seen
        seen |= now
        finished.append(list(now))
    return finished[::-1]


def tensor_of(value: ir.Value) -> ir.TensorProtocol:
    """The data of an initializer; loading has checked that it is there."""
    assert value.const_value is not None
    return value.const_value


def array_of(value: ir.Value) -> np.ndarray:
    """The numbers of an initializer."""
    return numbers_of(tensor_of(value))


def numbers_of(tensor: ir.TensorProtocol) -> np.ndarray:
    """The numbers of a tensor; strings as an object array of `str`, as in ONNX's reference."""
    array = tensor.numpy()
    if tensor.dtype is not ir.DataType.STRING:
        return array
    return np.char.decode(array.astype(np.bytes_), "utf-8", "surrogateescape").astype(object)


def _names(values: Iterable[ir.Value | None]) -> set[str]:
    return {value.name for value in values if value is not None and value.name}


def step_of(node: ir.Node, opsets: Mapping[str, int], name: str = "") -> Step:
    """A node as a step; its values have names, and a node without a name gets the given one."""
    return Step(
        op_type=node.op_type,
        domain=node.domain,
        version=opsets.get(node.domain, 1),
        name=node.name or name,
        inputs=tuple(value.name or None if value is not None else None for value in node.inputs),
        outputs=tuple(value.name or None for value in node.outputs),
        attrs={name: python_of(attribute) for name, attribute in node.attributes.items()},
        surrogate=node.meta.get(SURROGATE),
    )


def python_of(attribute: ir.Attr) -> Any:
    """An attribute as int, float, str, tuple, array or graph."""
    match attribute.type:
        case ir.AttributeType.TENSOR:
            return numbers_of(attribute.value)
        case ir.AttributeType.INTS | ir.AttributeType.FLOATS | ir.AttributeType.STRINGS:
            return tuple(attribute.value)
    return attribute.value
