"""Replacing operators by their function bodies from the ONNX schema."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import defs, helper, inliner

from ...ops import registry
from .protos import nodes, opset

Key = tuple[str, str]


def expand(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every operator without a rule, but with a body, becomes that body, until none is left."""
    return inline(model, lambda domain, op_type: registry.find(op_type, domain) is None)


def inline(model: onnx.ModelProto, chosen: Callable[[str, str], bool]) -> onnx.ModelProto:
    """Replace the operators chosen by (domain, type) by their bodies; a body may need another."""
    while keys := {key for key in _used(model) if chosen(*key) and _has_body(model, *key)}:
        for node in nodes(model):
            if (node.domain, node.op_type) in keys:
                _spell_out_defaults(node, opset(model, node.domain) or 1)
        before, model = _used(model), _inline(model, sorted(keys))
        if _used(model) == before:  # a body that this very node cannot have, such as a symbolic one
            break
    return model


def _used(model: onnx.ModelProto) -> dict[Key, int]:
    counts: dict[Key, int] = {}
    for node in nodes(model):
        key = node.domain, node.op_type
        counts[key] = counts.get(key, 0) + 1
    return counts


def _has_body(model: onnx.ModelProto, domain: str, op_type: str) -> bool:
    version = opset(model, domain) or 1
    if not defs.has(op_type, version, domain):
        return False
    schema = defs.get_schema(op_type, version, domain)
    return schema.has_function or schema.has_context_dependent_function


def _spell_out_defaults(node: onnx.NodeProto, version: int) -> None:
    """The inliner forgets the default of an attribute that a body refers to."""
    present = {attribute.name for attribute in node.attribute}
    for name, formal in defs.get_schema(node.op_type, version, node.domain).attributes.items():
        if name not in present and formal.default_value.name:
            node.attribute.append(formal.default_value)


def _inline(model: onnx.ModelProto, keys: list[Key]) -> onnx.ModelProto:
    """A body may depend on types, which the inliner does not look up in initializers."""
    typed = {value.name for value in (*model.graph.input, *model.graph.value_info)}
    for tensor in model.graph.initializer:
        if tensor.name not in typed:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            model.graph.value_info.append(info)
    return inliner.inline_selected_functions(model, keys, inline_schema_functions=True)
