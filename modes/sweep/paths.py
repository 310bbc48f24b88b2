"""Paths: what ONNX's schemas say about the derivative of a model, by the tags of their ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx
from onnx import TensorProto, defs

DIFFERENTIABLE, UNKNOWN, NONE = "differentiable", "unknown", "none"
"""A path through differentiable ports; one that needs ports of unknown kind too; no such path."""

FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
)

_TAG = defs.OpSchema.DifferentiationCategory
_ALLOWED = {DIFFERENTIABLE: {_TAG.Differentiable}, UNKNOWN: {_TAG.Differentiable, _TAG.Unknown}}


def tag(model: onnx.ModelProto) -> str:
    """Along which ports a floating input tensor reaches a floating output tensor."""
    ends = floating(model.graph.output)
    for kind, allowed in _ALLOWED.items():
        if ends & reached(model, allowed):
            return kind
    return NONE


def reached(model: onnx.ModelProto, allowed: set[Any]) -> set[str]:
    """The tensors that depend on floating inputs along ports of the allowed tags."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    found = floating(model.graph.input)
    for node in model.graph.node:
        schema = defs.get_schema(node.op_type, opsets[node.domain], node.domain)
        if not found.isdisjoint(open_ports(node.input, schema.inputs, allowed)):
            found.update(open_ports(node.output, schema.outputs, allowed))
    return found


def open_ports(names: Sequence[str], formal: Sequence[Any], allowed: set[Any]) -> Iterator[str]:
    """The names that stand at ports of the allowed tags; the last port takes all further names."""
    for k, name in enumerate(names):
        if name and formal[min(k, len(formal) - 1)].differentiation_category in allowed:
            yield name


def floating(values: Iterable[onnx.ValueInfoProto]) -> set[str]:
    """The names of floating tensors."""
    return {value.name for value in values if value.type.tensor_type.elem_type in FLOATS}
