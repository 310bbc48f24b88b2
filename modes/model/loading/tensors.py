"""Tensors: dense, checked to be readable, and kept apart from the model while ONNX processes it.

ONNX's checker, inliner, version converter and shape inference take a serialized model, which must
stay below 2 GiB. These tools need no weights, only types, so a large initializer becomes a graph
input on the way in (`detach`), and an initializer again on the way out (`attach`).

External data, weights in separate files, are read into memory (`in_memory`). A memory-mapped file
would take no memory until it is needed, but writing to the file would change the weights of a
loaded model, and truncating it would crash the process that reads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from typing import Any, TypeGuard

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from ....jacobians.errors import LoadError, first_line, warn
from ..flow.contents import graphs
from ..flow.steps import Limits, stored_tensor
from ..primal.inputs import OPTIONAL

FLOAT = onnx.TensorProto.FLOAT

# Small initializers may be axes, shapes or scales, read by the converter and shape inference.
INLINE_BYTES = 1024
Weights = dict[str, ir.TensorProtocol]


def detach(model: ir.Model) -> tuple[onnx.ModelProto, Weights]:
    """The model without its large weights, and all its weights in their order."""
    graph = model.graph
    weights = {name: _data(value) for name, value in graph.initializers.items()}
    both = [str(value.name) for value in graph.inputs if value.name in weights]
    if both and model.ir_version >= 4:  # before, every initializer was a graph input too
        model.metadata_props[OPTIONAL] = "\n".join(both)
    _drop_inputs(graph, weights)
    model.ir_version = max(model.ir_version, 10)
    for name, tensor in weights.items():
        value = graph.initializers[name]
        _fill(value, tensor)
        if tensor.nbytes > INLINE_BYTES:
            graph.initializers.pop(name)
            value.const_value = None
            graph.inputs.append(value)
    return _converted(ir.to_proto, model), weights


def _converted(convert: Callable[[Any], Any], model: Any) -> Any:
    """The model, converted from or to protobuf; raises `LoadError` if that fails."""
    try:
        return convert(model)
    except Exception as error:  # onnx-ir meets a file that anybody may have written
        raise LoadError(f"the graph is broken: {first_line(error)}") from error


def attach(proto: onnx.ModelProto, weights: Weights) -> ir.Model:
    """The model with its weights, in their order; initializers that a pass added come last."""
    model: ir.Model = _converted(ir.from_proto, proto)
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
    """The tensor of an initializer, checked to be readable and copied out of the protobuf."""
    array, tensor = data_of(value.const_value, repr(value.name)), stored_tensor(value)
    if tensor.dtype is ir.DataType.STRING:  # no fixed width
        return tensor
    copied = isinstance(tensor, ir.TensorProtoTensor) or tensor.nbytes <= INLINE_BYTES
    if copied and tensor.dtype.bitwidth >= 8:
        return ir.Tensor(np.array(array), dtype=tensor.dtype, name=value.name)
    return tensor


def readable(model: ir.Model, folder: str | None = None) -> ir.Model:
    """The model with readable attributes; weights of the main graph may stay in the folder.

    Without a folder, file names are rejected: they could refer to any file.
    """
    for value in model.graph.initializers.values():
        _place(value.const_value, repr(value.name), folder)
    owners: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for node in chain.from_iterable(map(_inside, owners)):
        for name, attribute in node.attributes.items():
            if not attribute.is_ref():
                _check_attribute(node, name, attribute, folder)
    return model


def _inside(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """The nodes of a graph and of its subgraphs, except graphs that a caller passes."""
    for node in graph:
        yield node
        for attribute in node.attributes.values():
            for inner in _graphs(attribute):
                yield from _inside(inner)


def _graphs(attribute: ir.Attr) -> Sequence[ir.Graph]:
    """The graphs in an attribute; a reference has none."""
    if attribute.is_ref():
        return ()
    if attribute.type is ir.AttributeType.GRAPHS:
        return attribute.as_graphs()
    return (attribute.as_graph(),) if attribute.type is ir.AttributeType.GRAPH else ()


def _check_attribute(node: ir.Node, name: str, attribute: ir.Attr, folder: str | None) -> None:
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
    """Resolve external data in a folder; onnx-ir follows no path that leaves it."""
    if isinstance(tensor, ir.ExternalTensor):
        if folder is None:
            raise LoadError(
                f"the data of {owner} is in the file {tensor.location!r}: pass the model's path."
            )
        tensor.base_dir = folder


ZERO_ENTRIES = 2**20
"""The most elements of a tensor without data, which onnx-ir fills with zeros."""


def _held(tensor: ir.TensorProtocol | None, owner: str, folder: str | None) -> ir.TensorProtocol:
    """The tensor, checked to be readable and read into memory."""
    _place(tensor, owner, folder)
    array = data_of(tensor, owner)
    if isinstance(tensor, ir.ExternalTensor):
        return ir.Tensor(np.array(array), dtype=tensor.dtype, name=tensor.name)
    assert tensor is not None
    return tensor


def data_of(tensor: ir.TensorProtocol | None, owner: str) -> np.ndarray:
    """The data of a tensor; raises `LoadError` if it does not have the declared shape."""
    if tensor is None:
        raise LoadError(f"{owner} has no data.")
    stored = getattr(tensor, "raw", None)
    if isinstance(stored, onnx.TensorProto) and tensor.size > 2 * stored.ByteSize() + ZERO_ENTRIES:
        raise LoadError(
            f"the data of {owner} cannot be read: it has shape {list(tensor.shape.numpy())}, and "
            f"{stored.ByteSize()} bytes are there for it."
        )
    if isinstance(tensor, ir.ExternalTensor) and not is_plain(tensor.path):
        raise LoadError(f"the data of {owner} cannot be read: {tensor.path!r} is no regular file.")
    try:
        array, shape = tensor.numpy(), tuple(tensor.shape.numpy())
    except Exception as error:  # tensors of PyTorch and of other libraries are read here too
        raise LoadError(f"the data of {owner} cannot be read: {first_line(error)}") from error
    if array.shape != shape:
        raise LoadError(
            f"the data of {owner} cannot be read: it has shape {list(array.shape)}, not "
            f"{list(shape)} as it says."
        )
    return array


def is_plain(path: str) -> bool:
    """Whether a path is a regular file or does not exist: opening a pipe would block."""
    return os.path.isfile(path) or not os.path.exists(path)


DISK_BLOCK_BYTES = 512
"""The size of a block in the system's `st_blocks`, in bytes."""


def in_memory(weights: Weights) -> Weights:
    """The weights, read from their files, unless they would take more memory than the files.

    Tensors that share bytes, or lie in a hole of a sparse file, could exhaust the memory.
    """
    mapped = [tensor for tensor in weights.values() if is_mapped(tensor)]
    if sum(tensor.nbytes for tensor in mapped) > disk_bytes({tensor.path for tensor in mapped}):
        return weights
    return {
        name: read_tensor(tensor) if is_mapped(tensor) else tensor
        for name, tensor in weights.items()
    }


def is_mapped(tensor: ir.TensorProtocol) -> TypeGuard[ir.ExternalTensor]:
    """Whether a tensor maps a file; tensors with less than a byte per element are unpacked."""
    return isinstance(tensor, ir.ExternalTensor) and tensor.dtype.bitwidth >= 8


def disk_bytes(paths: Iterable[str]) -> int:
    """The disk space of files, or their sizes if the system does not report it."""
    try:
        found = [os.stat(path) for path in paths]
    except OSError as error:
        raise LoadError(f"the data of the model cannot be read: {error}.") from error
    return sum(getattr(s, "st_blocks", 0) * DISK_BLOCK_BYTES or s.st_size for s in found)


def read_tensor(tensor: ir.ExternalTensor) -> ir.Tensor:
    """A tensor, read from its file."""
    dtype = tensor.dtype.numpy()
    try:
        flat = np.fromfile(
            tensor.path, dtype.newbyteorder("<"), tensor.size, offset=tensor.offset or 0
        )
    except (OSError, MemoryError) as error:
        raise LoadError(
            f"the data of {tensor.name!r} cannot be read: {error}; oj.load(..., mmap=True) maps it."
        ) from error
    if flat.size < tensor.size:
        raise LoadError(f"the data of {tensor.name!r} cannot be read: {tensor.path!r} has changed.")
    array = flat.astype(dtype, copy=False).reshape(tensor.shape.numpy())
    tensor.release()
    return ir.Tensor(array, dtype=tensor.dtype, name=tensor.name)


def densely(model: onnx.ModelProto, limits: Limits) -> onnx.ModelProto:
    """The model with dense tensors in place of sparse ones; the model itself if it has none.

    Raises `LimitError` where dense tensors take more bytes than a run may hold, `LoadError` where
    values and indices do not fit.
    """
    if not any(
        graph.sparse_initializer or any(sparse_constants(graph)) for graph in graphs(model.graph)
    ):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for graph in graphs(made.graph):
        for tensor in graph.sparse_initializer:
            graph.initializer.append(densify(tensor, tensor.values.name, limits))
        del graph.sparse_initializer[:]
        for name, attribute in sparse_constants(graph):
            tensor = densify(attribute.sparse_tensor, name, limits)
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
    return made


def without_maps(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with tensors in place of outputs that are maps, as scikit-learn's classifiers have.

    The probabilities keep the name of the output; the keys of the maps are the labels of the model.
    """
    maps = {v.name for v in model.graph.output if "map_type" in str(v.type)}
    untyped = {v.name for v in model.graph.output if not v.HasField("type")}
    zipped = {
        name: node for node in model.graph.node for name in node.output
        if len(node.input) == 1 and (name in maps or (name in untyped and node.op_type == "ZipMap"))
    }  # fmt: skip
    if not zipped:
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for node in made.graph.node:
        if node.output[:1] and node.output[0] in zipped:
            node.CopyFrom(onnx.helper.make_node("Identity", node.input, node.output, node.name))
    for value in made.graph.output:
        if value.name in zipped:
            keys = keys_of(zipped[value.name])
            shape = None if keys is None else [None, keys]
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, FLOAT, shape))
            warn(f"the output {value.name!r} is a list of maps: its tensor is taken, with a column "
                 f"for each key of {zipped[value.name].op_type}")  # fmt: skip
    return made


def keys_of(node: onnx.NodeProto) -> int | None:
    """How many keys a ZipMap gives each map; None for other operators."""
    lists = {"classlabels_int64s": "ints", "classlabels_strings": "strings"}
    counts = [len(getattr(attribute, lists[attribute.name])) for attribute in node.attribute
              if attribute.name in lists]  # fmt: skip
    return max(counts, default=0) or None


def sparse_constants(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.AttributeProto]]:
    """The sparse constants of a graph, without its subgraphs, by the names of their outputs."""
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.HasField("sparse_tensor"):
                yield node.output[0], attribute


def densify(tensor: onnx.SparseTensorProto, name: str, limits: Limits) -> onnx.TensorProto:
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
