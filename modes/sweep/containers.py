"""Containers: a case between sequences and optionals as the same case between tensors.

A sequence that goes in is constructed of tensors that go in; one that comes out is read at every
position. So every floating tensor in and out has a name, and a derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .cases import Case


def between_tensors(case: Case) -> Case:
    """The case, its containers packed and unpacked inside the model."""
    graph = case.model.graph
    if all(is_tensor(value.type) for value in (*graph.input, *graph.output)):
        return case
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    packed, unpacked = Box(), Box()
    for value in graph.input:
        packed.pack(value.name, value.type, case.feeds[value.name])
    for value in graph.output:
        unpacked.unpack(value.name, value.type, case.results[value.name])
    nodes = [*packed.nodes, *graph.node, *unpacked.nodes]
    for old, new in ((model.graph.node, nodes), (model.graph.input, packed.values),
                     (model.graph.output, unpacked.values)):  # fmt: skip
        del old[:]
        old.extend(new)
    return replace(case, model=model, feeds=packed.data, results=unpacked.data)


def is_tensor(kind: onnx.TypeProto) -> bool:
    return kind.HasField("tensor_type")


@dataclass
class Box:
    """The tensors of some containers, and the nodes between the two."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[onnx.ValueInfoProto] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def pack(self, name: str, kind: onnx.TypeProto, value: Any) -> None:
        """Nodes that make the container of that name from tensors."""
        if is_tensor(kind):
            self._add(name, kind, value)
        elif kind.HasField("sequence_type"):
            parts = list(self._parts(name, kind.sequence_type.elem_type, value))
            self.nodes.append(sequence(parts, kind, name))
        elif value is None:
            held = kind.optional_type.elem_type
            self.nodes.append(helper.make_node("Optional", [], [name], type=held))
        else:
            self.pack(f"{name}_held", kind.optional_type.elem_type, value)
            self.nodes.append(helper.make_node("Optional", [f"{name}_held"], [name]))

    def _parts(self, name: str, kind: onnx.TypeProto, values: list[Any]) -> Iterator[str]:
        for k, value in enumerate(values):
            self._add(f"{name}_{k}", kind, value)
            yield f"{name}_{k}"

    def unpack(self, name: str, kind: onnx.TypeProto, value: Any) -> None:
        """Nodes that read every tensor of the container of that name."""
        if is_tensor(kind):
            self._add(name, kind, value)
        elif kind.HasField("sequence_type"):
            for k, part in enumerate(self._parts(name, kind.sequence_type.elem_type, value)):
                self.nodes += read_at(name, k, part)
        elif value is not None:
            self.nodes.append(helper.make_node("OptionalGetElement", [name], [f"{name}_held"]))
            self.unpack(f"{name}_held", kind.optional_type.elem_type, value)

    def _add(self, name: str, kind: onnx.TypeProto, value: Any) -> None:
        shape = None if value is None else value.shape
        held = kind.tensor_type.elem_type
        self.values.append(helper.make_tensor_value_info(name, held, shape))
        self.data[name] = value


def sequence(parts: list[str], kind: onnx.TypeProto, name: str) -> onnx.NodeProto:
    """The node that makes a sequence of tensors."""
    if parts:
        return helper.make_node("SequenceConstruct", parts, [name])
    held = kind.sequence_type.elem_type.tensor_type.elem_type
    return helper.make_node("SequenceEmpty", [], [name], dtype=held)


def read_at(name: str, k: int, part: str) -> list[onnx.NodeProto]:
    """The nodes that take tensor k of a sequence."""
    position = numpy_helper.from_array(np.array(k))
    held = helper.make_node("Constant", [], [f"{part}_position"], value=position)
    return [held, helper.make_node("SequenceAt", [name, f"{part}_position"], [part])]
