"""Operands: inputs that a node leaves out by an empty name, on which ONNX Runtime may crash."""

from __future__ import annotations

import onnx
from onnx import defs

from ...jacobians.errors import LoadError
from .protos import nodes, opset

OPTIONAL = defs.OpSchema.FormalParameterOption.Optional


def settle_operands(model: onnx.ModelProto) -> None:
    """Empty names at the end go; `LoadError` where one stands for an input that is not optional."""
    for node in nodes(model):
        if "" in node.input and (schema := schema_of(model, node)) is not None:
            _check(node, schema)
            while node.input and not node.input[-1]:
                del node.input[-1]


def _check(node: onnx.NodeProto, schema: defs.OpSchema) -> None:
    for index, name in enumerate(node.input):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)] if schema.inputs else None
        if not name and formal is not None and formal.option != OPTIONAL:
            raise LoadError(
                f"{node.op_type} (node {node.name!r}) leaves out its input {formal.name!r} "
                f"(number {index}), which it needs."
            )


def schema_of(model: onnx.ModelProto, node: onnx.NodeProto) -> defs.OpSchema | None:
    """What ONNX says of the operator of a node."""
    version = opset(model, node.domain) or 1
    if not 0 < version < 2**31 or not defs.has(node.op_type, version, node.domain):
        return None
    return defs.get_schema(node.op_type, version, node.domain)
