"""From what the caller has (path, bytes, ModelProto, onnx_ir.Model) to a model of our own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import onnx
import onnx_ir as ir
from onnx import serialization

from ...jacobians.errors import LimitError, LoadError
from ..support.limits import Limits
from .data import settle
from .guard import guard, guard_bytes
from .messages import first_line

T = TypeVar("T")

TRIES = 100
"""How often a file is read that is always overwritten meanwhile."""


def settled(source: Any, work: Callable[[], T]) -> T:
    """What work makes of a source, once more where it fails and the file is another by then.

    Whoever overwrites a model removes the weights of the old one.
    """
    for _ in range(TRIES):
        before = _stamp(source)
        try:
            return work()
        except LoadError:
            if _stamp(source) == before:
                raise
    return work()


def _stamp(source: Any) -> tuple[int, ...] | None:
    """What tells a file from another one of its name."""
    if not isinstance(source, str | os.PathLike):
        return None
    try:
        found = os.stat(source)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read(source: Any, limits: Limits) -> ir.Model:
    """A model that shares no node or value with the source; external data stays on disk."""
    model = _open(source, limits)
    for imports in (model.opset_imports, *(f.opset_imports for f in model.functions.values())):
        if "ai.onnx" in imports:  # the long name of the default domain
            imports[""] = imports.pop("ai.onnx")
    return model


def _open(source: Any, limits: Limits) -> ir.Model:
    match source:
        case str() | os.PathLike():
            return _from_path(os.path.abspath(source), limits)
        case bytes() | bytearray() | memoryview():
            return settle(_from_bytes(bytes(source), limits))
        case onnx.ModelProto():
            return settle(_from_proto(source, "the ModelProto", limits))
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
    except Exception as error:
        raise LoadError(f"{path!r} is not a readable ONNX file: {first_line(error)}") from error
    return settle(_from_proto(proto, repr(path), limits), os.path.dirname(path))


def _from_bytes(data: bytes, limits: Limits) -> ir.Model:
    guard_bytes(data, limits)
    try:
        proto = onnx.ModelProto.FromString(data)
    except Exception as error:
        reason = first_line(error)
        raise LoadError(f"the {len(data)} bytes are not an ONNX model: {reason}") from error
    return _from_proto(proto, "the bytes", limits)


def _from_proto(proto: onnx.ModelProto, what: str, limits: Limits) -> ir.Model:
    if not proto.HasField("graph") or not proto.ir_version:
        raise LoadError(f"no ONNX model is in {what}: it has no graph or no IR version.")
    guard(proto, limits)  # a node of onnx-ir takes more memory than one of ONNX
    if proto.graph.sparse_initializer:
        name = proto.graph.sparse_initializer[0].values.name
        raise LoadError(f"initializer {name!r} is sparse: store it densely.")
    try:
        return ir.from_proto(proto)
    except Exception as error:
        raise LoadError(f"the graph in {what} is broken: {first_line(error)}") from error
