"""Dims: sizes that a model declares of its tensors, as far as they can be sizes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from ...jacobians.errors import LoadError
from .protos import graphs


def settle_dims(model: onnx.ModelProto) -> None:
    """The size -1, by which some exporters mean any, becomes unknown; others below 0 are refused.

    ONNX's shape inference ends the process for some of them.
    """
    for graph in graphs(model.graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            for dim in _dims(value.type):
                if dim.dim_value == -1:
                    dim.Clear()
                elif dim.dim_value < 0:
                    raise LoadError(f"{value.name!r} is declared with an axis of {dim.dim_value}.")


def _dims(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """The dims of a tensor, or of what a sequence or optional holds."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            yield from kind.tensor_type.shape.dim
        case "sparse_tensor_type":
            yield from kind.sparse_tensor_type.shape.dim
        case "sequence_type":
            yield from _dims(kind.sequence_type.elem_type)
        case "optional_type":
            yield from _dims(kind.optional_type.elem_type)
        case "map_type":
            yield from _dims(kind.map_type.value_type)
