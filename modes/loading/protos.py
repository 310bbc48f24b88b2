"""Walking and editing protobuf graphs, subgraphs included."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and every graph inside it (If, Loop, Scan)."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs) if attribute.type in _GRAPHS else ():
                yield from graphs(inner)


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of the model, those of subgraphs included."""
    for graph in graphs(model.graph):
        yield from graph.node


def opset(model: onnx.ModelProto, domain: str = "") -> int | None:
    """The version of a domain that the model imports; the default domain has two names."""
    aliases = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return next((o.version for o in model.opset_import if o.domain in aliases), None)


_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
