"""Infer: shapes and dtypes of node outputs, by ONNX's own shape inference.

Symbolic sizes are passed to it as named dimensions. It is asked once for equal nodes on operands
of equal types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from ...jacobians import shape_of
from ...jacobians.errors import OnnxJacError
from ...jacobians.symint import SymInt, at, is_symbolic
from ..node import AT
from ..numbers.table import proto
from .shapes import STILL, TRACKED_ENTRIES, Known, Sizes, content, sizes_by_formula

Type = tuple[tuple[int, ...], np.dtype]
Values = tuple[ir.Value | None, ...]

REMEMBERED_BYTES = 4096
"""The most bytes of attributes and numbers that are remembered: an index may have millions."""


class Kind(NamedTuple):
    """The type of a tensor: its dtype, as ONNX numbers it, and its sizes, of which some may be
    names, or None. For a sequence or an optional, `other` is its type as bytes.
    """

    dtype: int
    sizes: tuple[int | str | None, ...] | None
    other: bytes = b""


def output_types(
    op_type: str, domain: str, version: int, values: Values, attrs: Mapping[str, Any], outputs: int
) -> tuple[Type, ...]:
    """(shape, dtype), at the point, of the first outputs of a node.

    Raises `OnnxJacError` where they depend on data.
    """
    try:
        kinds, data = [kind_of(v, at) for v in values], [*map(data_at, values)]
        found = inferred(op_type, domain, version, attrs, kinds, data, outputs)
    except Exception as error:  # errors of ONNX's C++ code have no common class
        raise OnnxJacError(
            f"cannot record {op_type} on {describe_operands(values)}: {error}"
        ) from error
    return tuple(_type(kind, op_type, values) for kind in found)


def inferred(
    op_type: str, domain: str, version: int, attrs: Mapping[str, Any],
    kinds: Sequence[Kind | None], data: Sequence[np.ndarray | None], outputs: int,
) -> tuple[Kind | None, ...]:  # fmt: skip
    """The output types that ONNX infers for a node on operands of these types; where their numbers
    are known, as `data`, integers and a few floats may decide sizes.
    """
    said = tuple(proto(name, value).SerializeToString() for name, value in attrs.items())
    told = tuple(
        (x.dtype.str, x.shape, x.tobytes())
        if x is not None and x.dtype.kind in ("iuf" if x.size <= TRACKED_ENTRIES else "iu")
        else ("", (), b"")
        for x in data
    )  # fmt: skip
    bytes_of_key = sum(map(len, said)) + sum(len(x) for *_, x in told)
    infer = _inferred if bytes_of_key <= REMEMBERED_BYTES else _inferred.__wrapped__
    return infer(op_type, domain, version, said, tuple(kinds), told, outputs)


@lru_cache(maxsize=4096)
def _inferred(
    op_type: str, domain: str, version: int, attrs: tuple[bytes, ...],
    kinds: tuple[Kind | None, ...], data: tuple[Any, ...], outputs: int,
) -> tuple[Kind | None, ...]:  # fmt: skip
    names = ["" if kind is None else f"i{k}" for k, kind in enumerate(kinds)]
    results = [f"o{k}" for k in range(outputs)]
    node = onnx.NodeProto(op_type=op_type, domain=domain, input=names, output=results)
    node.attribute.extend(map(onnx.AttributeProto.FromString, attrs))
    known = {name: np.frombuffer(x, dtype).reshape(shape)
             for name, (dtype, shape, x) in zip(names, data, strict=True) if dtype}  # fmt: skip
    found = onnx.shape_inference.infer_node_outputs(
        onnx.defs.get_schema(op_type, version, domain),
        node,
        {name: onnx.TypeProto.FromString(kind.other) if kind.other else
         onnx.helper.make_tensor_type_proto(kind.dtype, kind.sizes)
         for name, kind in zip(names, kinds, strict=True) if kind},
        {name: onnx.numpy_helper.from_array(array) for name, array in known.items()},
        opset_imports=[onnx.helper.make_opsetid(domain, version)],
    )
    return tuple(kind_in(found.get(name)) for name in results)


def kind_in(found: onnx.TypeProto | None) -> Kind | None:
    """A type that ONNX stores."""
    if found is None or not found.HasField("tensor_type"):
        return found and Kind(0, None, found.SerializeToString())
    dtype, shape = found.tensor_type.elem_type, found.tensor_type.shape
    sizes = (n.dim_value if n.HasField("dim_value") else n.dim_param or None for n in shape.dim)
    return Kind(dtype, tuple(sizes) if found.tensor_type.HasField("shape") else None)


def has_open_operand(values: Values) -> bool:
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
        raise OnnxJacError(
            f"cannot record {op_type} on {describe_operands(values)}: {error}"
        ) from error
    if told is not None:
        return [*told, *(None,) * (outputs - len(told))][:outputs]
    sizes: dict[str, SymInt] = {}

    def named(shape: Sizes) -> tuple[int | str, ...]:
        sizes.update((f"s{n.key}", n) for n in shape if isinstance(n, SymInt))
        return tuple(f"s{n.key}" if isinstance(n, SymInt) else int(n) for n in shape)

    try:
        kinds, data = [kind_of(v, named) for v in values], [*map(data_everywhere, values)]
        found = inferred(op_type, domain, version, attrs, kinds, data, outputs)
    except Exception:  # no inference, or none for symbolic sizes
        return [None] * outputs
    known = [None if kind is None or kind.sizes is None else
             tuple(sizes.get(n) if isinstance(n, str) else n for n in kind.sizes)
             for kind in found]  # fmt: skip
    if None in known and not domain:  # the lengths of integer vectors may determine the rank
        for value in values:
            if value is not None and value.dtype == ir.DataType.INT64 and len(shape_of(value)) == 1:
                int(shape_of(value)[0])
    return known


def shape_in(kind: Kind | None) -> tuple[int, ...] | None:
    """The shape of a type; None if it is not fully known."""
    sizes = None if kind is None else kind.sizes
    shape = tuple(n for n in sizes or () if isinstance(n, int))
    return None if sizes is None or len(shape) < len(sizes) else shape


def _type(kind: Kind | None, op_type: str, values: Values) -> Type:
    shape = shape_in(kind)
    if kind is None or shape is None:
        raise OnnxJacError(
            f"the shape of {op_type} on {describe_operands(values)} depends on data: it cannot be "
            "recorded"
        )
    return shape, np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.dtype))


def kind_of(value: ir.Value | None, sizes: Callable[[Any], Any]) -> Kind | None:
    """The type of a value, its shape as inference takes it."""
    return None if value is None else Kind(int(value.dtype or 0), sizes(shape_of(value)))


def data_everywhere(value: ir.Value | None) -> np.ndarray | None:
    """The numbers of a small constant, as data for inference: a shape, axes, pads, scales."""
    held = None if value is None else value.const_value
    if held is None:
        return None if value is None or STILL not in value.meta else value.meta.get(AT)
    return None if held.size > TRACKED_ENTRIES or held.dtype is ir.DataType.STRING else held.numpy()


def data_at(value: ir.Value | None) -> np.ndarray | None:
    """The integers of a small value at the point, as data for inference."""
    held = content(value)
    if value is None or held is None or held.dtype != object or value.dtype == ir.DataType.BOOL:
        return data_everywhere(value)
    return np.array([at(n) for n in held.ravel()]).reshape(held.shape)


def describe_operands(values: tuple[ir.Value | None, ...]) -> str:
    """The operands of a node, for a message."""
    return ", ".join("none" if v is None else f"{v.dtype}{list(v.shape or ())}" for v in values)
