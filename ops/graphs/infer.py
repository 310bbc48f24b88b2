"""Infer: shapes and dtypes of node outputs, by ONNX's own shape inference.

Symbolic sizes are passed to it as named dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians import shape_of
from ...jacobians.errors import OnnxJacError
from ...jacobians.symint import SymInt, at, is_symbolic
from ..node import AT
from .shapes import SMALL, STILL, Known, Sizes, content, sizes_by_formula

Type = tuple[tuple[int, ...], np.dtype]
Values = tuple[ir.Value | None, ...]


def output_types(
    op_type: str, domain: str, version: int, values: Values, attrs: Mapping[str, Any], outputs: int
) -> tuple[Type, ...]:
    """(shape, dtype), at the point, of the first outputs of a node.

    Raises `OnnxJacError` where they depend on data.
    """
    try:
        found = inferred(op_type, domain, version, values, attrs, outputs, type_at, data_at)
    except Exception as error:
        raise OnnxJacError(f"cannot record {op_type} on {described(values)}: {error}") from error
    return tuple(_type(kind, op_type, values) for kind in found)


def inferred(
    op_type: str, domain: str, version: int, values: Values, attrs: Mapping[str, Any],
    outputs: int, type_of: Any, data_of: Any,
) -> list[onnx.TypeProto | None]:  # fmt: skip
    """The output types that ONNX infers for a node on operands of these types and data."""
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(values)]
    results = [f"o{k}" for k in range(outputs)]
    node = onnx.helper.make_node(op_type, names, results, domain=domain, **attrs)
    present = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    data = {name: data_of(value) for name, value in present.items()}
    found = onnx.shape_inference.infer_node_outputs(
        onnx.defs.get_schema(op_type, version, domain),
        node,
        {name: type_of(value) for name, value in present.items()},
        {name: tensor for name, tensor in data.items() if tensor is not None},
        opset_imports=[onnx.helper.make_opsetid(domain, version)],
    )
    return [found.get(name) for name in results]


def is_open(values: Values) -> bool:
    """Whether some operand has a symbolic shape, or tracked integers that are not constant."""
    return any(
        is_symbolic(shape_of(v)) or (v.const_value is None and content(v) is not None)
        for v in values if v is not None
    )  # fmt: skip


def symbolic_shapes(
    op_type: str, domain: str, version: int, values: Values, attrs: Mapping[str, Any], outputs: int
) -> list[Known | None]:
    """The symbolic shapes of the outputs of a node, as far as they are known."""
    try:
        told = sizes_by_formula(op_type, domain, values, attrs)
    except OnnxJacError:
        raise
    except Exception as error:  # operands that do not fit
        raise OnnxJacError(f"cannot record {op_type} on {described(values)}: {error}") from error
    if told is not None:
        return [*told, *(None,) * (outputs - len(told))][:outputs]
    sizes: dict[str, SymInt] = {}

    def type_of(value: ir.Value) -> onnx.TypeProto:
        shape: Sizes = shape_of(value)
        named = [f"s{n.key}" if isinstance(n, SymInt) else n for n in shape]
        sizes.update((f"s{n.key}", n) for n in shape if isinstance(n, SymInt))
        assert value.dtype is not None
        return onnx.helper.make_tensor_type_proto(int(value.dtype), named)

    try:
        found = inferred(op_type, domain, version, values, attrs, outputs, type_of, data_everywhere)
    except Exception:  # no inference, or none for symbolic sizes
        return [None] * outputs
    known = [sizes_in(kind, sizes) for kind in found]
    if None in known and not domain:
        fix_lengths(values)
    return known


def fix_lengths(values: Values) -> None:
    """Restrict the recording to the lengths of integer vectors, which may determine the rank."""
    for value in values:
        if value is not None and value.dtype == ir.DataType.INT64 and len(shape_of(value)) == 1:
            int(shape_of(value)[0])


def sizes_in(proto: onnx.TypeProto | None, sizes: Mapping[str, SymInt]) -> Known | None:
    """The shape in an inferred type."""
    if proto is None or not proto.tensor_type.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param)
        for d in proto.tensor_type.shape.dim
    )


def _type(proto: onnx.TypeProto | None, op_type: str, values: tuple[ir.Value | None, ...]) -> Type:
    dims = proto.tensor_type.shape.dim if proto and proto.tensor_type.HasField("shape") else None
    if proto is None or dims is None or not all(d.HasField("dim_value") for d in dims):
        raise OnnxJacError(
            f"the shape of {op_type} on {described(values)} depends on data: it cannot be recorded"
        )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(proto.tensor_type.elem_type)
    return tuple(d.dim_value for d in dims), np.dtype(dtype)


def type_at(value: ir.Value) -> onnx.TypeProto:
    """The type of a value at the point, as inference takes it."""
    assert value.dtype is not None
    return onnx.helper.make_tensor_type_proto(int(value.dtype), at(shape_of(value)))


def data_everywhere(value: ir.Value) -> onnx.TensorProto | None:
    """The numbers of a small constant, as data for inference: a shape, axes, pads, scales."""
    held = value.const_value
    if held is None and STILL in value.meta and AT in value.meta:
        return onnx.numpy_helper.from_array(value.meta[AT])
    if held is None or held.size > SMALL or held.dtype is ir.DataType.STRING:
        return None
    return onnx.numpy_helper.from_array(held.numpy())


def data_at(value: ir.Value) -> onnx.TensorProto | None:
    """The integers of a small value at the point, as data for inference."""
    held = content(value)
    if held is None or held.dtype != object or value.dtype == ir.DataType.BOOL:
        return data_everywhere(value)
    return onnx.numpy_helper.from_array(np.array([at(n) for n in held.ravel()]).reshape(held.shape))


def described(values: tuple[ir.Value | None, ...]) -> str:
    """The operands of a node, for a message."""
    return ", ".join("none" if v is None else f"{v.dtype}{list(v.shape or ())}" for v in values)
