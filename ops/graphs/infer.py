"""Infer: shape and dtype of what a node computes, by ONNX's own shape inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians import shape_of
from ...jacobians.errors import OnnxJacError

Type = tuple[tuple[int, ...], np.dtype]


def output_types(
    op_type: str,
    domain: str,
    version: int,
    values: tuple[ir.Value | None, ...],
    attrs: Mapping[str, Any],
    outputs: int,
) -> tuple[Type, ...]:
    """(shape, dtype) of the first outputs of a node; `OnnxJacError` where data decides them."""
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(values)]
    results = [f"o{k}" for k in range(outputs)]
    node = onnx.helper.make_node(op_type, names, results, domain=domain, **attrs)
    present = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    try:
        found = onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(op_type, version, domain),
            node,
            {name: type_proto(value) for name, value in present.items()},
            {name: tensor_proto(value) for name, value in present.items() if small(value)},
            opset_imports=[onnx.helper.make_opsetid(domain, version)],
        )
    except Exception as error:
        raise OnnxJacError(f"cannot record {op_type} on {described(values)}: {error}") from error
    return tuple(_type(found.get(name), op_type, values) for name in results)


def _type(proto: onnx.TypeProto | None, op_type: str, values: tuple[ir.Value | None, ...]) -> Type:
    dims = proto.tensor_type.shape.dim if proto and proto.tensor_type.HasField("shape") else None
    if proto is None or dims is None or not all(d.HasField("dim_value") for d in dims):
        raise OnnxJacError(
            f"the shape of {op_type} on {described(values)} depends on data: it cannot be recorded"
        )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(proto.tensor_type.elem_type)
    return tuple(d.dim_value for d in dims), np.dtype(dtype)


def type_proto(value: ir.Value) -> onnx.TypeProto:
    """The type of a value, as inference takes it."""
    assert value.dtype is not None
    return onnx.helper.make_tensor_type_proto(int(value.dtype), shape_of(value))


def tensor_proto(value: ir.Value) -> onnx.TensorProto:
    """A constant value as data for inference."""
    assert value.const_value is not None
    return onnx.numpy_helper.from_array(value.const_value.numpy())


def small(value: ir.Value) -> bool:
    """Whether a value is a constant of few integers: a shape, axes, pads."""
    held = value.const_value
    return held is not None and held.size <= 64 and held.dtype.is_integer()


def described(values: tuple[ir.Value | None, ...]) -> str:
    """The operands of a node, for a message."""
    return ", ".join("none" if v is None else f"{v.dtype}{list(v.shape or ())}" for v in values)
