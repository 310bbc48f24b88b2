"""Tree: iteration over the messages of a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx


def messages(message: Any) -> Iterator[Any]:
    """The message and all nested messages."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else (value,):
                yield from messages(part)


def of_type(model: onnx.ModelProto, kind: type) -> list[Any]:
    """All messages of one type."""
    return [part for part in messages(model) if isinstance(part, kind)]


def graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The graph and those inside it."""
    return of_type(model, onnx.GraphProto)


def nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """All nodes, those of subgraphs and functions included."""
    return of_type(model, onnx.NodeProto)


def names(model: onnx.ModelProto) -> list[str]:
    """The names of all tensors."""
    found = {name for node in nodes(model) for name in (*node.input, *node.output)}
    return sorted(found) or ["x"]
