"""``oj.load``: from a path, bytes, ModelProto, module or function to a checked model.

`guard` computes how large a model is with all functions inlined, before anything is inlined. A
chain of functions that call the next one twice turns a small file into a huge graph, and functions
may call each other in an endless cycle; the calls alone reveal both. An empty node takes two bytes
in a file and a thousand in memory, so nodes are counted (`guard_bytes`) before any is created.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import onnx
import onnx_ir as ir
from onnx import serialization

from ....jacobians import hooks
from ....jacobians.arguments import validated
from ....jacobians.errors import InputError, LimitError, LoadError, first_line
from ....jacobians.text import joined
from ..flow.contents import nodes_inside, subgraphs
from ..flow.steps import Limits, amount
from ..primal.model import Model
from .batch import free_batch
from .bodies import unblocked
from .frameworks import Batch, exported, is_source, name_layers
from .patterns import recognise
from .precision import to_double
from .tensors import Weights, attach, densely, detach, in_memory, readable, without_maps
from .upgrade import upgrade

DOUBLE = "float64", "torch.float64"


@validated
def load(
    source: Any,
    *,
    dtype: Any = None,
    example_inputs: Any = None,
    dynamic_batch: Batch = False,
    dynamic_shapes: Any = None,
    straight_through: bool = False,
    limits: Limits | None = None,
    mmap: bool = False,
) -> Model:
    """The model in a path, bytes, ModelProto or onnx_ir.Model; the source is left as it is.

    Model-local functions are inlined, an opset below 21 is raised to 21, and operators that have a
    function body but no rule are replaced by that body. Every tensor keeps its name. Patterns such
    as the logarithm of a sigmoid become an operator that keeps its digits: see `patterns`.
    ``dtype="float64"`` raises all floating-point tensors, weights and casts to double precision.

    A `torch.nn.Module` or a JAX function is exported first, at ``example_inputs``: a tuple of
    arguments, one array, or a dict by name. Inputs are named as in the function's signature,
    weights as in the module (``"fc1.weight"``), arrays in a nest ``"params.fc1.w"``. A module is
    exported in evaluation mode, with its current weights. ``dynamic_shapes`` are passed to
    ``torch.onnx.export``. Shapes: as in the file, or as in the examples; with
    ``dynamic_batch=True`` the first axis of all inputs is free, or of the inputs which
    ``dynamic_batch`` names. A file that holds its batch in constants is rewritten, and tried at two
    sizes, sample by sample; where that fails, an error names the node. A
    ``torch.export.ExportedProgram`` and a function of onnxscript are taken without examples.

    With ``straight_through=True`` tangents pass rounding and quantisation in all derivatives of the
    model: see `linearize`.

    External weights are read, or with ``mmap=True`` mapped: then they take memory only as far as
    they are needed, and the files must not change while the model is in use.

    `limits` bound the memory and work of the model and its products: see `Limits`.

    - `source`: the path, bytes, model, module or function.

    Raises `LoadError` for a file or module that cannot be read or exported, `LimitError` for one
    that is too large.
    Needs ``onnxjac[torch]``, or ``onnxjac[jax2onnx]``.
    """
    if dtype is not None and getattr(dtype, "__name__", str(dtype)) not in DOUBLE:
        raise LoadError(f"dtype={dtype!r} is not offered: leave it out, or say dtype='float64'.")
    if limits is not None and not isinstance(limits, Limits):
        raise InputError(f"limits must be Limits, not {type(limits).__name__}: Limits(bytes=2**30)")
    limits = limits or Limits()
    if hasattr(source, "to_model_proto"):  # a function of onnxscript
        source = source.to_model_proto()
    given, source = source, exported(source, example_inputs, dynamic_batch, dynamic_shapes)
    proto, weights = retried(source, lambda: stored_parts(source, limits, mmap))
    model = attach(upgrade(proto), weights)
    recognise(model)
    loaded = Model(model if dtype is None else to_double(model), limits)
    if dynamic_batch and not is_source(given):
        loaded = free_batch(loaded, dynamic_batch)
    return loaded.estimating if straight_through else loaded


for _kind in (str, os.PathLike, bytes, onnx.ModelProto, ir.Model):  # in place of a model
    hooks.loaded.register(_kind)(load)


def stored_parts(source: Any, limits: Limits, mmap: bool) -> tuple[onnx.ModelProto, Weights]:
    """The model as it is stored, and its weights."""
    proto, weights = detach(read_model(source, limits))
    guard(proto, limits)
    return proto, weights if mmap else in_memory(weights)


T = TypeVar("T")

READING_TRIES = 100
"""How often a file is read again if it was overwritten in the meantime."""


def retried(source: Any, work: Callable[[], T]) -> T:
    """The result of `work`, retried if it fails and the file was overwritten in the meantime.

    Overwriting a model removes the weights of the old model.
    """
    for _ in range(READING_TRIES):
        before = _stamp(source)
        try:
            return work()
        except LoadError:
            if _stamp(source) == before:
                raise
    return work()


def _stamp(source: Any) -> tuple[int, ...] | None:
    """Inode, time and size of a file, which change when it is overwritten."""
    if not isinstance(source, str | os.PathLike):
        return None
    try:
        found = os.stat(source)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_model(source: Any, limits: Limits) -> ir.Model:
    """A model that shares no node or value with the source; external data stays on disk."""
    model = _open(source, limits)
    for imports in (model.opset_imports, *(f.opset_imports for f in model.functions.values())):
        if "ai.onnx" in imports:  # the long name of the default domain
            imports[""] = imports.pop("ai.onnx")
    owners: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for graph in owners:
        with suppress(ValueError, TypeError):  # a cycle, or a graph passed by a caller
            graph.sort()
    name_layers(model)
    return model


def _open(source: Any, limits: Limits) -> ir.Model:
    match source:
        case str() | os.PathLike():
            return _from_path(os.path.abspath(source), limits)
        case bytes() | bytearray() | memoryview():
            return readable(_from_bytes(bytes(source), limits))
        case onnx.ModelProto():
            return readable(_from_proto(source, "the ModelProto", limits))
        case ir.Model():
            return source.clone()
    kind = type(source).__name__
    raise LoadError(
        f"cannot load a {kind}: pass a path, bytes, onnx.ModelProto or onnx_ir.Model, or a "
        "torch.nn.Module or JAX function with example_inputs."
    )


def _from_path(path: str, limits: Limits) -> ir.Model:
    if not os.path.isfile(path):
        raise LoadError(f"there is no file {path!r}.")
    text = serialization.registry.get_format_from_file_extension(os.path.splitext(path)[1])
    try:
        data = Path(path).read_bytes()
        if text in (None, "protobuf"):
            guard_bytes(data, limits)
        proto = onnx.load_model_from_string(data, text or "protobuf")
    except LimitError:
        raise
    except Exception as error:  # each format has its own errors
        raise LoadError(f"{path!r} is not a readable ONNX file: {first_line(error)}") from error
    return readable(_from_proto(proto, repr(path), limits), os.path.dirname(path))


def _from_bytes(data: bytes, limits: Limits) -> ir.Model:
    guard_bytes(data, limits)
    try:
        proto = onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf's own, which is not typed
        reason = first_line(error)
        raise LoadError(f"the {len(data)} bytes are not an ONNX model: {reason}") from error
    return _from_proto(proto, "the bytes", limits)


def _from_proto(proto: onnx.ModelProto, what: str, limits: Limits) -> ir.Model:
    if not proto.HasField("graph") or not proto.ir_version:
        raise LoadError(f"no ONNX model is in {what}: it has no graph or no IR version.")
    guard(proto, limits)  # a node of onnx-ir takes more memory than an ONNX node
    try:
        return ir.from_proto(unblocked(without_maps(densely(proto, limits))))
    except (LimitError, LoadError):
        raise
    except Exception as error:  # onnx-ir meets a file that anybody may have written
        raise LoadError(f"the graph in {what} is broken: {first_line(error)}") from error


Key = tuple[str, str, str]

MESSAGE_DEPTH = 100
"""The nesting depth of messages at which protobuf gives up."""

PARTS = 32
"""Parts per node: attributes, names, and types and sizes of its tensors."""

BASE = 2**16
"""Parts that are allowed whatever the number of nodes."""

NODE, TENSOR = onnx.NodeProto.DESCRIPTOR, onnx.TensorProto.DESCRIPTOR


def guard_bytes(data: bytes, limits: Limits) -> None:
    """Raises `LimitError` for too many nodes, or other parts, in the bytes of a model."""
    if len(data) > 2 * limits.nodes:  # each takes at least two bytes
        Count(data, limits).inside(onnx.ModelProto.DESCRIPTOR, 0, len(data), MESSAGE_DEPTH)


class Count:
    """Counts the messages and repeated strings in bytes, except in tensors."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.data, self.limits, self.nodes, self.parts = data, limits, 0, 0
        self.most = PARTS * limits.nodes + BASE

    def inside(self, kind: Any, at: int, end: int, deepest: int) -> None:
        """Count the parts between two positions of a message of the given kind.

        Bytes that are not valid protobuf end the count: they cannot be parsed either.
        """
        data, counted = self.data, _counted(kind)
        while at < end and deepest:
            tag, at = (data[at], at + 1) if data[at] < 128 else varint(data, at)
            match tag & 7:
                case 0:
                    _, at = varint(data, at)
                case 1:
                    at += 8
                case 5:
                    at += 4
                case 2:
                    length, at = varint(data, at)
                    if length > end - at:
                        return
                    if tag >> 3 in counted:
                        inner = counted[tag >> 3]
                        self._add(inner)
                        if length and inner not in (None, TENSOR):
                            self.inside(inner, at, at + length, deepest - 1)
                    at += length
                case 6 | 7:
                    return
                # 3 and 4 begin and end a group, which ONNX does not use: its fields are counted too

    def _add(self, kind: Any) -> None:
        self.parts += 1
        if kind is NODE:
            self.nodes += 1
            self.limits.check("nodes", self.nodes, "the model, up to where it was read,")
        if self.parts > self.most:
            raise LimitError(
                f"the model has more than {self.most:,} attributes, types, sizes and names, too "
                f"many for the limit of {amount('nodes', self.limits.nodes)}. If the model can be "
                f"trusted: onnxjac.load(..., limits=Limits(nodes={2 * self.limits.nodes}))."
            )


@cache
def _counted(kind: Any) -> dict[int, Any]:
    """field number -> message type, or None for repeated strings, in a kind of message."""
    texts = [f for f in kind.fields if f.is_repeated and f.type == f.TYPE_STRING]
    messages = [f for f in kind.fields if f.message_type is not None]
    return {f.number: f.message_type for f in (*texts, *messages)}


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer at some position, and the position after it.

    >>> varint(bytes([0x96, 0x01]), 0)
    (150, 2)
    """
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return value, at


class Extent(NamedTuple):
    """The number of nodes, and the depth of nested graphs and functions."""

    nodes: int
    depth: int


def guard(model: onnx.ModelProto, limits: Limits) -> None:
    """Raises `LimitError` for too many nodes or too deep nesting, `LoadError` for a cycle."""
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    found: dict[Key, Extent] = {}
    for key in _inner_first(functions):
        found[key] = _extent(functions[key].node, found)
        _check(found[key], limits, f"the function {key[1]!r}, written out,")
    _check(_extent(model.graph.node, found), limits, "the model, its functions written out,")


def _check(extent: Extent, limits: Limits, what: str) -> None:
    limits.check("nodes", extent.nodes, what)
    limits.check("depth", extent.depth, what)


def _extent(nodes: Iterable[onnx.NodeProto], functions: Mapping[Key, Extent]) -> Extent:
    """The extent of some nodes, including the functions that they call."""
    count, depth = 0, 0
    for node in nodes:
        inside = [_extent(graph.node, functions) for graph in subgraphs(node)]
        called = functions.get(_key(node))
        parts = inside if called is None else [*inside, called]
        count += sum(part.nodes for part in parts) + (called is None)
        depth = max(depth, *(part.depth + 1 for part in parts), 0)
    return Extent(count, depth)


def _key(node: onnx.NodeProto) -> Key:
    return node.domain, node.op_type, node.overload


def _inner_first(functions: Mapping[Key, onnx.FunctionProto]) -> list[Key]:
    """The functions in an order in which each calls only functions before it."""
    called = {
        key: {*map(_key, nodes_inside(f.node))} & functions.keys() for key, f in functions.items()
    }
    try:
        return [*TopologicalSorter(called).static_order()]
    except CycleError as error:
        names = joined(sorted({repr(key[1]) for key in error.args[1]}), ", ")
        raise LoadError(
            f"functions of the model call each other in a circle: among {names}."
        ) from error
