"""The part of a model between given and wanted tensors, as a model of its own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from ...flow.contents import Contents
from ...flow.opsets import lowest_opsets
from ...flow.steps import needed, tensor_of

SMALL = 1024  # bytes; larger weights are shared with the session, not copied into the model


def cut(
    model: Contents, given: frozenset[str], names: tuple[str, ...]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model from the given to the named tensors, and the weights that are left outside it."""
    indices, used = needed(model.steps, names, given)
    opsets = [helper.make_opsetid(*pair) for pair in lowest_opsets(model).items()]
    proto = onnx.ModelProto(ir_version=10, opset_import=opsets)
    graph = proto.graph
    graph.name = model.name or "graph"
    nodes = list(model.ir.graph)
    for index in indices:
        ir.serde.serialize_node_into(graph.node.add(), nodes[index])
        _yield_to_given(graph.node[-1], given)
    values = ir.convenience.create_value_mapping(model.ir.graph, include_subgraphs=False)
    inputs = used & (given | model.inputs.keys())
    graph.input.extend(ir.serde.serialize_value(values[name]) for name in sorted(inputs))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return proto, _add_initializers(graph, values, model, used - given)


def _yield_to_given(node: onnx.NodeProto, given: frozenset[str]) -> None:
    """What the caller gives is computed under another name, beside an output that is needed."""
    for index, name in enumerate(node.output):
        if name in given:
            node.output[index] = f"{name}_computed"


def _add_initializers(
    graph: onnx.GraphProto, values: dict[str, ir.Value], model: Contents, names: Iterable[str]
) -> dict[str, np.ndarray]:
    shared = {}
    for name in sorted(model.constants.keys() & set(names)):
        array, tensor = model.constants[name], tensor_of(values[name])
        if array.nbytes > SMALL and array.dtype.kind in "fiub":
            shared[name] = array
            graph.initializer.append(placeholder(name, array))
        else:
            graph.initializer.append(ir.to_proto(tensor))
            graph.initializer[-1].name = name
    return shared


def placeholder(name: str, array: np.ndarray) -> onnx.TensorProto:
    """A tensor whose numbers are elsewhere: in no file, but in memory that the session is given."""
    dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=dtype)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "memory"), ("offset", 0), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor
