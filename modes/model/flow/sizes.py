"""Sizes: the bytes of the outputs of a step, computed before it runs.

ONNX's shape inference does the work for one step at a time, from the shapes of its inputs and from
the numbers of small inputs, such as shapes, axes and counts. The padding around a tensor, and the
intermediate products of an Einsum, may take far more memory than the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from ....jacobians import dtype_of, shape_of
from ....jacobians.arrays import host, is_tensor
from ....jacobians.errors import InputError, OnnxJacError
from ....ops.graphs.infer import Kind, inferred, shape_in
from ....ops.graphs.shapes import sizes_by_formula
from ....ops.node import Node, Step
from ....ops.registry import traits_of
from ..limits import Limits

SMALL = 1024
"""Elements of the largest tensor whose numbers may decide a shape."""


def check_step(step: Step, inputs: Sequence[Any], limits: Limits) -> None:
    """Raises `LimitError` where a step's outputs would be too large, or its time steps too many."""
    shapes = [outlined(x) for x in inputs]
    limits.check("steps", turns(step, shapes), step)
    if not may_grow(step, shapes, limits):
        return
    inputs = [outlined(x, numbers=True) for x in inputs]
    check_operands(step, inputs, limits)
    named = {n: x for n, x in zip(step.inputs, inputs, strict=True) if isinstance(x, np.ndarray)}
    found = outputs_of(step, {n: kind_of(x) for n, x in named.items()}, named)
    check_sizes(found)
    for kind in found.values():
        limits.check("bytes", bytes_of(kind) or 0, step)


def check_sizes(kinds: Mapping[str, Kind | None], where: str = "") -> None:
    """Raises `InputError` where an output would have a negative size that is no overflow."""
    for shape in filter(None, map(shape_in, kinds.values())):
        if -(2**31) < min(shape) < 0:
            raise InputError(f"{where}the input is too small, since the output would have the "
                             f"shape {list(shape)}")  # fmt: skip


def outlined(value: Any, *, numbers: bool = False) -> Any:
    """A tensor of PyTorch as an array of its shape, with its `numbers` where they may be sizes."""
    if not is_tensor(value):
        return value
    shape, dtype = shape_of(value), dtype_of(value)
    if numbers and dtype.kind in "iu" and math.prod(shape) <= SMALL:
        return host(value)
    return np.broadcast_to(np.zeros((), dtype), shape)


def turns(step: Step, inputs: Sequence[Any]) -> int:
    """The time steps of a recurrent layer, which is unrolled like a Loop; 0 for other operators."""
    count = traits_of(step).turns
    return count(Node(step, tuple(inputs), (None,))) if count else 0


def check_operands(step: Step, inputs: Sequence[Any], limits: Limits) -> None:
    """Raises `LimitError` for cases that shape inference does not see: padding, and integers so
    large that their products overflow.
    """
    limits.check("bytes", kernel_bytes(step, inputs), step)
    if traits_of(step).grows and step.op_type != "Range":
        limits.check("bytes", max(map(_largest, (*inputs, *step.attrs.values())), default=0), step)


def kernel_bytes(step: Step, inputs: Sequence[Any]) -> int:
    """Bytes that a kernel needs besides its outputs, or of an output by a declared shape."""
    try:
        memory = traits_of(step).memory
        held = memory(Node(step, tuple(inputs), (None,))) if memory else 0
        made = step.domain and sizes_by_formula(step.op_type, step.domain, inputs, step.attrs)
        sizes = (math.prod(n or 0 for n in shape) for shape in made or ())
        return int(max(held, max(sizes, default=0) * inputs[0].itemsize))
    except (OnnxJacError, AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
        return 0  # the kernel will say what is wrong


def _largest(value: Any) -> int:
    """The largest absolute value of some integers; 0 for values that cannot be sizes."""
    if isinstance(value, int):
        return abs(value)
    if isinstance(value, tuple):
        return max(map(_largest, value), default=0)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and 0 < value.size <= SMALL:
        return max(abs(int(value.min())), int(value.max()))
    return 0


def may_grow(step: Step, inputs: Sequence[Any], limits: Limits) -> bool:
    """Whether an output may be too large, judging by the sizes of the inputs alone."""
    if traits_of(step).grows:
        return True
    return math.prod(max(_elements(x), 1) for x in inputs if x is not None) * 16 > limits.bytes


def _elements(value: Any) -> int:
    """The elements of a tensor, or of all tensors of a sequence, whose shapes may differ."""
    return sum(map(_elements, value)) if isinstance(value, list) else np.size(value)


def outputs_of(
    step: Step, types: Mapping[Any, Kind], known: Mapping[Any, np.ndarray]
) -> dict[str, Kind | None]:
    """The types of the outputs by name, as far as ONNX can tell."""
    data = [x if x is not None and x.size <= SMALL else None for x in map(known.get, step.inputs)]
    try:
        kinds = [None if name is None else types[name] for name in step.inputs]
        found = inferred(step.op_type, step.domain, step.version, step.attrs, kinds, data,
                         len(step.outputs))  # fmt: skip
    except Exception:  # a type is unknown, or the node is invalid, and will fail when it runs
        return {}
    return {name: kind for name, kind in zip(step.outputs, found, strict=True) if name}


def kind_of(array: np.ndarray) -> Kind:
    """The type of an array."""
    return Kind(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def dtype_in(kind: Kind) -> np.dtype[Any]:
    """The dtype of a type; float64 if it has none."""
    return helper.tensor_dtype_to_np_dtype(kind.dtype or TensorProto.DOUBLE)


def bytes_of(kind: Kind | None) -> int | None:
    """The bytes of a tensor of a type; None if the shape is not fully known."""
    shape = shape_in(kind)
    if kind is None or shape is None:
        return None
    item = dtype_in(kind).itemsize
    return math.prod(size if size >= 0 else 2**63 for size in shape) * item  # they overflowed
