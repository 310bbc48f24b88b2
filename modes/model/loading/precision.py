"""``dtype="float64"``: every floating-point number of a model in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import defs

from ..flow.contents import schema_of
from .bodies import has_body

DOUBLE, FLOAT = ir.DataType.DOUBLE, ir.DataType.FLOAT
RAISED = frozenset({FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})

# Attributes that name a data type. BitCast's `to` is about bits, not about precision.
TYPES = ("to", "dtype", "output_datatype", "stash_type", "precision", "softmax_precision")


def to_double(model: ir.Model) -> ir.Model:
    """The model with tensors, constants, casts and declared types raised from float to double.

    Inputs and outputs that must be float32 (the scales of Resize, ai.onnx.ml) get casts.
    """
    for graph in list(model.graphs()):
        for value in (*graph.inputs, *graph.initializers.values()):
            _raise_value(value)
        for node in list(graph):
            _raise_node(node, model.opset_imports.get(node.domain, 1))
    return model


def _raise_node(node: ir.Node, version: int) -> None:
    schema = schema_of(node.op_type, node.domain, version)
    _raise_types(node, schema)
    _raise_tensors(node)
    raised = [value for value in node.outputs if _raise_value(value)]
    # A function body works for any float type, even if the schema lists only some.
    if schema is not None and not has_body(schema):
        _keep_float_inputs(node, schema)
        _keep_float_outputs(node, schema, raised)


def _raise_value(value: ir.Value) -> bool:
    if value.const_value is not None:
        value.const_value = _raise_tensor(value.const_value)
    if value.type is None or value.dtype not in RAISED:
        return False
    value.type = _raise_type(value.type)
    return True


def _raise_type(kind: Any) -> ir.TypeProtocol:
    """The same tensor, sequence or optional type, of doubles."""
    inner = kind.elem_type
    return type(kind)(DOUBLE if isinstance(inner, ir.DataType) else _raise_type(inner))


def _raise_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    if tensor.dtype not in RAISED:
        return tensor
    return ir.tensor(tensor.numpy().astype(np.float64), name=tensor.name)


def _raise_types(node: ir.Node, schema: defs.OpSchema | None) -> None:
    """Change attributes that name a float type to double, even where float is the default."""
    formal = schema.attributes if schema else {}
    for name in TYPES if node.op_type != "BitCast" else ():
        default = formal[name].default_value.i if name in formal else 0
        if node.attributes.get_int(name, default) in RAISED:
            node.attributes[name] = ir.AttrInt64(name, DOUBLE)


def _raise_tensors(node: ir.Node) -> None:
    attributes = node.attributes
    if node.op_type == "ConstantOfShape" and "value" not in attributes:
        attributes["value"] = ir.AttrTensor("value", ir.tensor(np.zeros(1, np.float32)))
    for name in {"value_float", "value_floats"} & attributes.keys():  # a float32 Constant
        array = np.asarray(attributes.pop(name).value, np.float32)
        attributes["value"] = ir.AttrTensor("value", ir.tensor(array))
    for name, attribute in list(attributes.items()):
        if attribute.type is ir.AttributeType.TENSOR:
            attributes[name] = ir.AttrTensor(name, _raise_tensor(attribute.value))


def _keep_float_inputs(node: ir.Node, schema: defs.OpSchema) -> None:
    for index, value in enumerate(node.inputs):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if value is not None and value.dtype is DOUBLE and _only_float(formal):
            cast = ir.node("Cast", [value], {"to": FLOAT})
            cast.outputs[0].name = f"{node.outputs[0].name}_{formal.name}_float"
            cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(FLOAT), value.shape
            _graph(node).insert_before(node, cast)
            node.replace_input_with(index, cast.outputs[0])


def _keep_float_outputs(node: ir.Node, schema: defs.OpSchema, raised: list[ir.Value]) -> None:
    """Cast outputs to double; the double, which the rest of the model uses, keeps the name."""
    for index, value in enumerate(node.outputs):
        formal = schema.outputs[min(index, len(schema.outputs) - 1)]
        if value in raised and _only_float(formal):
            double = ir.Value(name=value.name, type=value.type, shape=value.shape)
            ir.convenience.replace_all_uses_with(value, double, replace_graph_outputs=True)
            value.name, value.type = f"{value.name}_float", ir.TensorType(FLOAT)
            cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", DOUBLE)], outputs=[double])
            _graph(node).insert_after(node, cast)


def _only_float(formal: defs.OpSchema.FormalParameter) -> bool:
    return "tensor(float)" in formal.types and "tensor(double)" not in formal.types


def _graph(node: ir.Node) -> ir.Graph:
    assert isinstance(node.graph, ir.Graph)
    return node.graph
