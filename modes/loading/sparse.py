"""Sparse: sparse initializers and constants of a file as dense tensors, which all engines take."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from ...jacobians.errors import LoadError
from ..support.limits import Limits
from .protos import graphs


def densely(model: onnx.ModelProto, limits: Limits) -> onnx.ModelProto:
    """The model with dense tensors in place of sparse ones; the model itself if it has none.

    Raises `LimitError` where dense tensors take more bytes than a run may hold, `LoadError` where
    values and indices do not fit.
    """
    if not any(sparse_tensors(graph) for graph in graphs(model.graph)):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for graph in graphs(made.graph):
        for tensor in graph.sparse_initializer:
            graph.initializer.append(dense(tensor, tensor.values.name, limits))
        del graph.sparse_initializer[:]
        for node in graph.node:
            for attribute in node.attribute if node.op_type == "Constant" else ():
                if attribute.HasField("sparse_tensor"):
                    tensor = dense(attribute.sparse_tensor, node.output[0], limits)
                    attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
    return made


def sparse_tensors(graph: onnx.GraphProto) -> list[onnx.SparseTensorProto]:
    """The sparse tensors of a graph, without its subgraphs."""
    constants = (a for node in graph.node if node.op_type == "Constant" for a in node.attribute)
    return [*graph.sparse_initializer,
            *(a.sparse_tensor for a in constants if a.HasField("sparse_tensor"))]  # fmt: skip


def dense(tensor: onnx.SparseTensorProto, name: str, limits: Limits) -> onnx.TensorProto:
    """A dense tensor of this name; indices are flat, or one row of coordinates for each value."""
    shape, where = tuple(tensor.dims), f"the sparse tensor {name!r} of shape {list(tensor.dims)}"
    if any(map(uses_external_data, (tensor.values, tensor.indices))):
        raise LoadError(f"{where} lies in a file of its own: store it in the model.")
    try:
        values = numpy_helper.to_array(tensor.values)
        at = numpy_helper.to_array(tensor.indices)
        limits.check("bytes", prod(shape) * values.itemsize, where)
        full = np.zeros(shape, values.dtype)
        full[tuple(at.T) if at.ndim == 2 else np.unravel_index(at, shape)] = values
    except (TypeError, ValueError, IndexError) as error:
        raise LoadError(f"{where} has values or indices that do not fit: {error}") from error
    return numpy_helper.from_array(full, name)
