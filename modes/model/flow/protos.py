"""Protobuf graphs, including subgraphs; operator schemas; the lowest opsets that suffice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir
from onnx import defs

from .contents import Contents


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in the attributes of a node (If, Loop, Scan)."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, each followed by the nodes of its subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from inside(graph.node)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and every graph inside it."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from graphs(inner)


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of the model, graph by graph."""
    for graph in graphs(model.graph):
        yield from graph.node


def opset(model: onnx.ModelProto, domain: str = "") -> int | None:
    """The version of a domain that the model imports; the default domain has two names."""
    aliases = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return next((o.version for o in model.opset_import if o.domain in aliases), None)


def schema_in(model: onnx.ModelProto, domain: str, op_type: str) -> defs.OpSchema | None:
    """The ONNX schema of an operator at the version that the model imports; None if none."""
    return schema_of(op_type, domain, opset(model, domain) or 1)


def schema_of(op_type: str, domain: str, version: int) -> defs.OpSchema | None:
    """The ONNX schema of an operator at a version of its domain; None if there is none."""
    if not 0 < version < 2**31 or not defs.has(op_type, version, domain):
        return None
    return defs.get_schema(op_type, version, domain)


WORKING_OPSET = 21
"""The opset of the default domain that models are raised to."""


def lowest_opsets(model: Contents) -> dict[str, int]:
    """The opset of each domain that the model uses; for the default domain, the lowest opset, from
    `WORKING_OPSET` on, in which all of the model's operators keep their meaning.

    The default domain is always included: derivatives are made of its operators.
    """
    nodes = list(ir.traversal.RecursiveGraphIterator(model.ir.graph))
    used = {node.op_type for node in nodes if not node.domain}
    lowest = max([WORKING_OPSET, *(
        defs.get_schema(op_type, model.opset).since_version
        if defs.has(op_type, model.opset) else model.opset for op_type in used
    )])  # fmt: skip
    given = model.ir.opset_imports.get("", lowest)
    domains = {node.domain for node in nodes}
    others = {d: v for d, v in model.ir.opset_imports.items() if d in domains}
    return {**others, "": min(given, lowest)}
