"""Sizes: the bytes of the outputs of a step, computed before it runs.

ONNX's shape inference does the work for one step at a time, from the shapes of its inputs and from
the numbers of small inputs, such as shapes, axes and counts. The padding around a tensor, and the
intermediate products of an Einsum, may take far more memory than the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper, shape_inference

from ....jacobians import dtype_of, label_sizes, shape_of
from ....jacobians.arrays import host
from ....jacobians.errors import InputError
from ....jacobians.foreign import is_tensor
from ....ops import numbers
from ....ops.node import Node, Step
from ....ops.numbers.fallback import proto
from ....ops.numbers.matmul import contraction_order
from ....ops.numbers.windows import CROPPING, GEOMETRY, transposed_windows, windows
from ....ops.rules.einsum import expand_equation
from ....ops.rules.regions import sampled_bytes
from ..limits import Limits

SMALL = 1024
"""Elements of the largest tensor whose numbers may decide a shape."""

GROWING = frozenset({
    "AffineGrid", "AveragePool", "BlackmanWindow", "CenterCropPad", "Col2Im",
    "ConstantOfShape", "Conv", "ConvInteger", "ConvTranspose", "DFT", "DeformConv", "Expand",
    "EyeLike", "HammingWindow", "HannWindow", "LpPool", "MaxPool", "MaxRoiPool", "MaxUnpool",
    "MelWeightMatrix", "OneHot", "Pad", "QLinearConv", "RandomNormal", "RandomUniform", "Range",
    "Resize", "RoiAlign", "STFT", "TfIdfVectorizer", "Tile", "Upsample",
})  # fmt: skip
"""Operators whose output size depends on a number; the outputs of all other operators have no more
elements than the product of the numbers of elements of their inputs.
"""

Types = Mapping[str, onnx.TypeProto]


def check_step(step: Step, inputs: Sequence[Any], limits: Limits) -> None:
    """Raises `LimitError` where a step's outputs would be too large, or its time steps too many."""
    shapes = [outlined(x) for x in inputs]
    limits.check("steps", turns(step, shapes), step)
    if not may_grow(step, shapes, limits):
        return
    inputs = [outlined(x, numbers=True) for x in inputs]
    check_operands(step, inputs, limits)
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    arrays = {name: x for name, x in zip(names, inputs, strict=True) if isinstance(x, np.ndarray)}
    node = helper.make_node(step.op_type, names, [f"y{k}" for k in range(len(step.outputs))])
    node.domain = step.domain
    node.attribute.extend(proto(name, value) for name, value in step.attrs.items())
    types = {name: type_of(array) for name, array in arrays.items()}
    found = inferred(node, step.version, types, arrays)
    check_sizes(found)
    for kind in found.values():
        limits.check("bytes", bytes_of(kind) or 0, step)


def check_sizes(kinds: Types, where: str = "") -> None:
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
    if step.domain or step.op_type not in ("GRU", "LSTM", "RNN") or np.ndim(inputs[0]) != 3:
        return 0
    return int(np.shape(inputs[0])[1 if step.attrs.get("layout", 0) else 0])


def check_operands(step: Step, inputs: Sequence[Any], limits: Limits) -> None:
    """Raises `LimitError` for cases that shape inference does not see: padding, and integers so
    large that their products overflow.
    """
    limits.check("bytes", frame_bytes(step, inputs), step)
    if step.op_type in GROWING and step.op_type != "Range":
        limits.check("bytes", max(map(_largest, (*inputs, *step.attrs.values())), default=0), step)


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
    if step.op_type in GROWING:
        return True
    return math.prod(max(_elements(x), 1) for x in inputs if x is not None) * 16 > limits.bytes


def _elements(value: Any) -> int:
    """The elements of a tensor, or of all tensors of a sequence, whose shapes may differ."""
    return sum(map(_elements, value)) if isinstance(value, list) else np.size(value)


def inferred(
    node: onnx.NodeProto, version: int, types: Types, known: Mapping[str, np.ndarray]
) -> dict[str, onnx.TypeProto]:
    """The types of the outputs by name, as far as ONNX can tell."""
    if not defs.has(node.op_type, version, node.domain):
        return {}
    data = {name: numpy_helper.from_array(known[name]) for name in node.input
            if name in known and known[name].size <= SMALL and known[name].dtype.kind in "iuf"}
    try:
        return shape_inference.infer_node_outputs(
            defs.get_schema(node.op_type, version, node.domain), node,
            {name: types[name] for name in node.input if name in types}, data,
            opset_imports=[helper.make_opsetid(node.domain, version)],
        )  # fmt: skip
    except Exception:  # the node is invalid, and will fail when it runs
        return {}


def type_of(array: np.ndarray) -> onnx.TypeProto:
    """The type of an array."""
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def shape_in(kind: onnx.TypeProto | None) -> tuple[int, ...] | None:
    """The shape of a type; None if it is not fully known."""
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return tuple(d.dim_value for d in dims) if all(d.HasField("dim_value") for d in dims) else None


def dtype_in(kind: onnx.TypeProto) -> np.dtype[Any]:
    """The dtype of a type; float64 if it has none."""
    return helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type or onnx.TensorProto.DOUBLE)


def bytes_of(kind: onnx.TypeProto | None) -> int | None:
    """The bytes of a tensor of a type; None if the shape is not fully known."""
    shape = shape_in(kind)
    if kind is None or shape is None:
        return None
    item = dtype_in(kind).itemsize
    return math.prod(size if size >= 0 else 2**63 for size in shape) * item  # they overflowed


WEIGHTS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}
"""Operator with a kernel -> the index of the kernel among its inputs."""

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def frame_bytes(step: Step, inputs: Sequence[Any]) -> int:
    """Bytes of the padded input, or of the output of a transposed convolution before cropping.

    For Einsum, bytes of the largest intermediate product; for RoiAlign, bytes of the samples.
    0 for other operators, and where the attributes do not fit.
    """
    if step.op_type == "Einsum":
        return product_bytes(step, inputs, left_to_right=False)
    if step.op_type not in POOLS and step.op_type not in WEIGHTS and step.op_type != "RoiAlign":
        return 0
    try:
        if step.op_type == "RoiAlign":
            return sampled_bytes(numbers, Node(step, tuple(inputs), (None,)))
        x, attrs = inputs[0], step.attrs
        at = WEIGHTS.get(step.op_type)
        kernel = tuple(attrs["kernel_shape"]) if at is None else inputs[at].shape[2:]
        said = {name: attrs[name] for name in (*GEOMETRY, *CROPPING) if name in attrs}
        transposed = step.op_type == "ConvTranspose"
        grid = (transposed_windows if transposed else windows)(x.shape[2:], kernel, **said)
        channels = inputs[1].shape[1] * attrs.get("group", 1) if transposed else x.shape[1]
        return int(x.shape[0] * channels * math.prod(grid.framed) * x.itemsize)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError):
        return 0  # the kernel will say what is wrong


def product_bytes(step: Step, inputs: Sequence[Any], *, left_to_right: bool) -> int:
    """Bytes of the largest intermediate product of an Einsum, in NumPy's order or from left to
    right; 0 where the operands do not fit.
    """
    try:
        equation, shapes = step.attrs["equation"], tuple(x.shape for x in inputs)
        order = [(0, 1), *((0, n) for n in range(len(shapes) - 2, 0, -1))]
        if not left_to_right:
            order = (contraction_order(equation, *shapes) or [])[1:]
        return int(largest(equation, shapes, order) * inputs[0].itemsize)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError):
        return 0  # the kernel will say what is wrong


def largest(
    equation: str, shapes: tuple[tuple[int, ...], ...], order: Iterable[tuple[int, ...]]
) -> int:
    """Elements of the largest intermediate product; each is appended to the remaining operands.

    If three or more operands are contracted at once, all terms that the loop visits are counted.

    >>> largest("a,b,ab->", ((2,), (3,), (2, 3)), [(0, 1), (0, 1)])
    6
    """
    terms, out = expand_equation(equation, tuple(map(len, shapes)))
    sizes, most = label_sizes(shapes, terms), 0
    left = [set(term) for term in terms]
    for group in order:
        met = set[str]().union(*(left[k] for k in group))
        left = [labels for k, labels in enumerate(left) if k not in group]
        left.append(met & set(out).union(*left))
        held = left[-1] if len(group) < 3 else met
        most = max(most, math.prod(sizes[label] for label in held))
    return most
