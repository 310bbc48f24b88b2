"""Replacing functions by their bodies: the model's own, and those of the ONNX schema.

ONNX's inliner does the work, except that it forgets the default of an attribute that a body refers
to and the call leaves out: these are spelled out first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import onnx
from onnx import defs, helper, inliner, shape_inference

from ...jacobians.errors import LoadError
from ...ops import registry
from .gradients import name_by_inputs, name_by_strings
from .messages import first_line
from .protos import nodes, opset

Key = tuple[str, str]

BODIES = "onnxjac.bodies"
"""The domain of bodies on their way into the graph; none is left in a loaded model."""


def inline_local(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every call of a function that the model defines becomes its body, raised to its opset."""
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in model.functions}
    bodies = (node for function in model.functions for node in function.node)
    for node in (*nodes(model), *bodies):
        _spell_out(node, defaults.get((node.domain, node.op_type, node.overload), ()))
    name_by_inputs(model)
    model = _written_out(model, convert_version=True)
    name_by_strings(model)
    return model


def _written_out(model: onnx.ModelProto, *, convert_version: bool = False) -> onnx.ModelProto:
    try:
        return inliner.inline_local_functions(model, convert_version=convert_version)
    except RuntimeError as error:
        reason = first_line(error)
        raise LoadError(f"a function of the model cannot be written out: {reason}") from error


def expand(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every operator without a rule, but with a body, becomes that body, until none is left."""
    return inline(model, lambda domain, op_type: registry.find(op_type, domain) is None)


def inline(model: onnx.ModelProto, chosen: Callable[[str, str], bool]) -> onnx.ModelProto:
    """Replace the operators chosen by (domain, type) by their bodies; a body may need another."""
    while keys := {key for key in _used(model) if chosen(*key) and _has_body(model, *key)}:
        for node in nodes(model):
            if _key(node) in keys:
                _spell_out(node, _defaults(model, *_key(node)))
        before, model = _used(model), _inline(model, sorted(keys))
        if _used(model) == before:  # a body that this very node cannot have, such as a symbolic one
            break
    return model


def _key(node: onnx.NodeProto) -> Key:
    """The operator of a node."""
    return node.domain, node.op_type


def _used(model: onnx.ModelProto) -> dict[Key, int]:
    counts: dict[Key, int] = {}
    for node in nodes(model):
        counts[_key(node)] = counts.get(_key(node), 0) + 1
    return counts


def _schema(model: onnx.ModelProto, domain: str, op_type: str) -> defs.OpSchema | None:
    version = opset(model, domain) or 1
    return defs.get_schema(op_type, version, domain) if defs.has(op_type, version, domain) else None


def has_body(schema: Any) -> bool:
    """Whether ONNX defines the operator by others; the stubs of `OpSchema` miss these two."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def _has_body(model: onnx.ModelProto, domain: str, op_type: str) -> bool:
    schema = _schema(model, domain, op_type)
    return schema is not None and has_body(schema)


def _defaults(model: onnx.ModelProto, domain: str, op_type: str) -> list[onnx.AttributeProto]:
    schema = _schema(model, domain, op_type)
    held = schema.attributes.values() if schema else ()
    return [formal.default_value for formal in held if formal.default_value.name]


def _spell_out(node: onnx.NodeProto, defaults: Iterable[onnx.AttributeProto]) -> None:
    present = {attribute.name for attribute in node.attribute}
    node.attribute.extend(default for default in defaults if default.name not in present)


def _inline(model: onnx.ModelProto, keys: list[Key]) -> onnx.ModelProto:
    """A body may depend on types, which the inliner does not look up in initializers."""
    typed = {value.name for value in (*model.graph.input, *model.graph.value_info)}
    for tensor in model.graph.initializer:
        if tensor.name not in typed:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            model.graph.value_info.append(info)
    try:
        return inliner.inline_selected_functions(model, keys, inline_schema_functions=True)
    except (RuntimeError, ValueError):  # it needs the type of every input, also if left out
        made = _written_out(_with_bodies(model, keys))
        imports = [entry for entry in made.opset_import if entry.domain != BODIES]
        del made.opset_import[:]
        made.opset_import.extend(imports)
        return made


def _with_bodies(model: onnx.ModelProto, keys: list[Key]) -> onnx.ModelProto:
    """The chosen operators as calls of functions of the model, one per node."""
    known = shape_inference.infer_shapes(model).graph
    types = {v.name: v.type for v in (*known.input, *known.value_info, *known.output)}
    for count, node in enumerate(nodes(model)):
        if _key(node) in keys:
            function = _body(model, node, types)
            function.domain, function.name = BODIES, f"{node.op_type}_{count}"
            node.domain, node.op_type = function.domain, function.name
            model.functions.append(function)
    model.opset_import.append(helper.make_opsetid(BODIES, 1))
    return model


def _body(
    model: onnx.ModelProto, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
) -> onnx.FunctionProto:
    """The body of a node, by the schema of its operator."""
    schema: Any = _schema(model, node.domain, node.op_type)
    if schema.has_function:
        return schema.function_body
    given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
    try:
        made = schema.get_context_dependent_function(node.SerializeToString(), given)
    except (RuntimeError, ValueError) as error:
        raise LoadError(
            f"{node.op_type} (node {node.name!r}) of {', '.join(node.input)} has no body: "
            f"{first_line(error)}"
        ) from error
    return onnx.FunctionProto.FromString(made)
