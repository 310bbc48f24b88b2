"""Weights travel beside the model, not through it.

ONNX's checker, inliner, version converter and shape inference take a serialized model, which must
stay below 2 GiB. They need no weights, only types, so that a large initializer becomes a graph
input on the way in, and an initializer again on the way out.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians.errors import LoadError
from ..flow.steps import tensor_of
from .data import data_of
from .messages import first_line

# Small initializers may be axes, shapes or scales, which converter and shape inference read.
SMALL = 1024
Weights = dict[str, ir.TensorProtocol]


def detach(model: ir.Model) -> tuple[onnx.ModelProto, Weights]:
    """The model without its large weights, and all its weights in their order."""
    graph = model.graph
    weights = {name: _data(value) for name, value in graph.initializers.items()}
    _drop_inputs(graph, weights)  # before IR version 4 every initializer was a graph input too
    model.ir_version = max(model.ir_version, 10)
    for name, tensor in weights.items():
        value = graph.initializers[name]
        _fill(value, tensor)
        if tensor.nbytes > SMALL:
            graph.initializers.pop(name)
            value.const_value = None
            graph.inputs.append(value)
    return _written(model), weights


def _parsed(proto: onnx.ModelProto) -> ir.Model:
    try:
        return ir.from_proto(proto)
    except Exception as error:
        raise LoadError(f"the graph is broken: {first_line(error)}") from error


def _written(model: ir.Model) -> onnx.ModelProto:
    try:
        return ir.to_proto(model)
    except Exception as error:
        raise LoadError(f"the graph is broken: {first_line(error)}") from error


def attach(proto: onnx.ModelProto, weights: Weights) -> ir.Model:
    """The model with its weights, in their order; what a pass has added comes after them."""
    model = _parsed(proto)
    graph = model.graph
    values = {value.name: value for value in (*graph.inputs, *graph.initializers.values())}
    tensors = {name: _data(value) for name, value in graph.initializers.items()}
    _drop_inputs(graph, weights)
    graph.initializers.clear()
    for name, tensor in (weights | {n: t for n, t in tensors.items() if n not in weights}).items():
        value = values.get(name) or ir.Value(name=name)
        _fill(value, tensor)
        graph.register_initializer(value)
    return model


def _fill(value: ir.Value, tensor: ir.TensorProtocol) -> None:
    value.const_value, value.dtype = tensor, tensor.dtype
    value.shape = ir.Shape(tensor.shape.numpy())


def _drop_inputs(graph: ir.Graph, names: Container[str]) -> None:
    kept = [value for value in graph.inputs if value.name not in names]
    graph.inputs.clear()
    graph.inputs.extend(kept)


def _data(value: ir.Value) -> ir.TensorProtocol:
    """The tensor of an initializer, proved to be there and freed from the protobuf around it."""
    array, tensor = data_of(value.const_value, repr(value.name)), tensor_of(value)
    if tensor.dtype is ir.DataType.STRING:  # has no width
        return tensor
    copied = isinstance(tensor, ir.TensorProtoTensor) or tensor.nbytes <= SMALL
    if copied and tensor.dtype.bitwidth >= 8:
        return ir.Tensor(np.array(array), dtype=tensor.dtype, name=value.name)
    return tensor
