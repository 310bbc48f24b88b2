"""Mapped: a graph for many values of some inputs at once, as a Scan over them."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from ...ops.graphs import every, operands_of
from ..model.flow.contents import unique_name

POINTS = "points"
"""The name of the new first axis, unless a size of the model has it."""


def map_over(graph: ir.Graph, names: Collection[str]) -> None:
    """Give the inputs of these names a new first axis, and all outputs that depend on them.

    The nodes that depend on them become the body of a Scan; the others run once.
    """
    scanned = [value for value in graph.inputs if value.name in names]
    moved, inside = {id(value) for value in scanned}, list[ir.Node]()
    for node in graph:
        if not moved.isdisjoint(map(id, operands_of(node))):
            inside.append(node)
            moved.update(map(id, node.outputs))
    results = [value for value in graph.outputs if id(value) in moved]
    taken = {str(value.name) for value in (*graph.inputs, *graph.initializers.values())}
    taken |= {str(value.name) for node in every(graph) for value in node.outputs}
    axis = unique_name(POINTS, {str(n) for value in graph.inputs for n in value.shape or ()})
    outer = {id(value): lifted(value, axis, taken) for value in (*scanned, *results)}
    inputs = [outer.get(id(value), value) for value in graph.inputs]
    outputs = [outer.get(id(value), value) for value in graph.outputs]
    graph.outputs.clear()
    graph.inputs.clear()
    graph.remove(inside)
    body = ir.Graph(scanned, results, nodes=inside, name=f"{graph.name}_each")
    graph.append(ir.Node(
        "", "Scan", [outer[id(value)] for value in scanned],
        [ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", len(scanned))],
        outputs=[outer[id(value)] for value in results], name=unique_name("each", taken),
    ))  # fmt: skip
    graph.inputs.extend(inputs)
    graph.outputs.extend(outputs)


def lifted(value: ir.Value, axis: str, taken: set[str]) -> ir.Value:
    """A value with a new first axis, under the name of this one, which gets another."""
    name = value.name
    value.name = unique_name(f"{name}_each", taken)
    return ir.Value(name=name, shape=ir.Shape([axis, *(value.shape or ())]), type=value.type)
