"""Guard: how large a model is with everything written out, before anything is written out.

Functions may call functions twice each, so that a small file becomes a huge graph, or call each
other in a circle, so that there is no end to it. Both are seen in the calls alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import onnx

from ...jacobians.errors import LoadError
from ..support.limits import Limits

Key = tuple[str, str, str]


class Extent(NamedTuple):
    """How many nodes, and how deep the graphs and functions in one another."""

    nodes: int
    depth: int


def guard(model: onnx.ModelProto, limits: Limits) -> None:
    """Raises `LimitError` for too many nodes or too deep a nest, `LoadError` for a circle."""
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    found: dict[Key, Extent] = {}
    for key in _inner_first(functions):
        found[key] = _extent(functions[key].node, found)
        _check(found[key], limits, f"the function {key[1]!r}, written out,")
    _check(_extent(model.graph.node, found), limits, "the model, its functions written out,")


def _check(extent: Extent, limits: Limits, what: str) -> None:
    limits.check("nodes", extent.nodes, what)
    limits.check("depth", extent.depth, what)


def _extent(nodes: Iterable[onnx.NodeProto], functions: Mapping[Key, Extent]) -> Extent:
    """The extent of some nodes, with those of the functions that they call."""
    count, depth = 0, 0
    for node in nodes:
        inside = [_extent(graph.node, functions) for graph in subgraphs(node)]
        called = functions.get(_key(node))
        parts = inside if called is None else [*inside, called]
        count += sum(part.nodes for part in parts) + (called is None)
        depth = max(depth, *(part.depth + 1 for part in parts), 0)
    return Extent(count, depth)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in the attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _key(node: onnx.NodeProto) -> Key:
    return node.domain, node.op_type, node.overload


def _inner_first(functions: Mapping[Key, onnx.FunctionProto]) -> list[Key]:
    """The functions in such an order that each one calls only those before it."""
    waiting = {key: _called(f.node) & functions.keys() for key, f in functions.items()}
    order: list[Key] = []
    while waiting:
        ready = [key for key, called in waiting.items() if not called & waiting.keys()]
        if not ready:
            names = ", ".join(sorted(repr(key[1]) for key in waiting))
            raise LoadError(f"functions of the model call each other in a circle: among {names}.")
        order.extend(ready)
        for key in ready:
            del waiting[key]
    return order


def _called(nodes: Iterable[onnx.NodeProto]) -> set[Key]:
    found: set[Key] = set()
    for node in nodes:
        found.add(_key(node))
        for graph in subgraphs(node):
            found |= _called(graph.node)
    return found
