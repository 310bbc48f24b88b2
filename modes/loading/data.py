"""Data: every tensor in a model is proved to be there, in the shape that it says, and in no file
outside of the folder of the model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians.errors import LoadError
from .messages import first_line


def settle(model: ir.Model, folder: str | None = None) -> ir.Model:
    """The model with all attributes readable; weights of the main graph may stay in the folder.

    Without a folder, a file name could mean any file, and is refused.
    """
    for value in model.graph.initializers.values():
        _place(value.const_value, repr(value.name), folder)
    for node in _nodes(model):
        for name, attribute in node.attributes.items():
            if not attribute.is_ref():
                _settle(node, name, attribute, folder)
    return model


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    owners: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for graph in owners:
        yield from _inside(graph)


def _inside(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """The nodes of a graph and of those inside it; what a function's caller gives is not there."""
    for node in graph:
        yield node
        for attribute in node.attributes.values():
            for inner in _graphs(attribute):
                yield from _inside(inner)


def _graphs(attribute: ir.Attr) -> Sequence[ir.Graph]:
    """The graphs in an attribute, of which a reference has none."""
    if attribute.is_ref():
        return ()
    if attribute.type is ir.AttributeType.GRAPHS:
        return attribute.as_graphs()
    return (attribute.as_graph(),) if attribute.type is ir.AttributeType.GRAPH else ()


def _settle(node: ir.Node, name: str, attribute: ir.Attr, folder: str | None) -> None:
    owner = f"attribute {name!r} of {node.op_type} (node {node.name!r})"
    match attribute.type:
        case ir.AttributeType.UNDEFINED:
            raise LoadError(f"{owner} has no type.")
        case ir.AttributeType.STRING if isinstance(attribute.value, bytes):
            raise LoadError(f"{owner} is not text in UTF-8.")
        case ir.AttributeType.TENSOR:
            held = _held(attribute.value, owner, folder)
            node.attributes[name] = ir.AttrTensor(name, held)
        case ir.AttributeType.TENSORS:
            tensors = [_held(tensor, owner, folder) for tensor in attribute.value]
            node.attributes[name] = ir.AttrTensors(name, tensors)
        case ir.AttributeType.GRAPH | ir.AttributeType.GRAPHS:
            for graph in _graphs(attribute):
                for value in graph.initializers.values():
                    value.const_value = _held(value.const_value, repr(value.name), folder)


def _place(tensor: ir.TensorProtocol | None, owner: str, folder: str | None) -> None:
    """A tensor in a file is in one of this folder: onnx-ir follows no way out of it."""
    if isinstance(tensor, ir.ExternalTensor):
        if folder is None:
            raise LoadError(
                f"the data of {owner} is in the file {tensor.location!r}: pass the model's path."
            )
        tensor.base_dir = folder


EMPTY = 2**20
"""Numbers of a tensor without data, which are zeros to ONNX's own IR."""


def _held(
    tensor: ir.TensorProtocol | None, owner: str, folder: str | None
) -> ir.TensorProtocol:
    """The tensor, proved to be readable; what was in a file is in memory now."""
    _place(tensor, owner, folder)
    array = data_of(tensor, owner)
    if isinstance(tensor, ir.ExternalTensor):
        return ir.Tensor(np.array(array), dtype=tensor.dtype, name=tensor.name)
    assert tensor is not None
    return tensor


def data_of(tensor: ir.TensorProtocol | None, owner: str) -> np.ndarray:
    """The numbers of a tensor, which are as many as its shape says."""
    if tensor is None:
        raise LoadError(f"{owner} has no data.")
    stored = getattr(tensor, "raw", None)
    if isinstance(stored, onnx.TensorProto) and tensor.size > 2 * stored.ByteSize() + EMPTY:
        raise LoadError(
            f"the data of {owner} cannot be read: it has shape {list(tensor.shape.numpy())}, and "
            f"{stored.ByteSize()} bytes are there for it."
        )
    if isinstance(tensor, ir.ExternalTensor) and not is_plain(tensor.path):
        raise LoadError(f"the data of {owner} cannot be read: {tensor.path!r} is no regular file.")
    try:
        array, shape = tensor.numpy(), tuple(tensor.shape.numpy())
    except Exception as error:
        raise LoadError(f"the data of {owner} cannot be read: {first_line(error)}") from error
    if array.shape != shape:
        raise LoadError(
            f"the data of {owner} cannot be read: it has shape {list(array.shape)}, not "
            f"{list(shape)} as it says."
        )
    return array


def is_plain(path: str) -> bool:
    """Whether a path leads to a regular file or to nothing: to open a pipe is to wait for ever."""
    return os.path.isfile(path) or not os.path.exists(path)
