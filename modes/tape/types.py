"""Types: shape and dtype of every tensor at a point, by ONNX's inference, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from ...jacobians import shape_of
from ..contents import Contents, TensorSpec
from ..primal.engines.cut import cut

Types = dict[str, TensorSpec]


def types_of(model: Contents, point: Mapping[str, Any], names: Iterable[str]) -> Types | None:
    """The named tensors at a point; None where only a run can tell a shape."""
    types = {name: _spec(name, array) for name, array in {**model.constants, **point}.items()}
    asked = tuple(name for name in dict.fromkeys(names) if name not in types)
    proto, _ = cut(model, frozenset(point), asked)
    for value in proto.graph.input:
        array = point[value.name]
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind, array.shape))
    graph = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    found = {value.name: _inferred(value) for value in (*graph.value_info, *graph.output)}
    inferred = {name: spec for name in asked if (spec := found.get(name)) is not None}
    return {**types, **inferred} if len(inferred) == len(asked) else None


def _spec(name: str, array: Any) -> TensorSpec:
    return TensorSpec(name, shape_of(array), array.dtype)


def _inferred(value: onnx.ValueInfoProto) -> TensorSpec | None:
    """What inference says of a tensor, if it says all of it."""
    tensor = value.type.tensor_type
    dims = tensor.shape.dim
    whole = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
    if not whole or not tensor.elem_type:
        return None
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return TensorSpec(value.name, tuple(dim.dim_value for dim in dims), dtype)
