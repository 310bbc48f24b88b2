"""Defects of ONNX Runtime 1.31: where it ends the process, departs from ONNX, or loses updates.

What ends the process or departs from ONNX at some operands is refused, and the operators that are
traps for some numbers are replaced by functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from .....ops.node import Step
from .....ops.rules import recurrent
from ...flow.contents import opset, subgraphs


def is_fatal(step: Step, inputs: Sequence[Any]) -> bool:
    """Whether ONNX Runtime 1.31 is known to crash the process for operands of these shapes.

    ONNX Runtime crashes for a transposed convolution with three or more spatial axes, one of them
    empty, for an STFT with frames of length 0, and for an Einsum with an empty operand.
    """
    if step.domain:
        return False
    if step.op_type == "ConvTranspose":
        space = np.shape(inputs[0])[2:]
        return len(space) > 2 and 0 in space
    if step.op_type == "Einsum":
        return any(0 in np.shape(x) for x in inputs)
    if step.op_type == "STFT":
        _, _, window, length = (*inputs, None, None)[:4]
        return np.shape(window) == (0,) or (length is not None and not np.any(length))
    return False


def is_misread(step: Step, inputs: Sequence[Any]) -> bool:
    """Whether ONNX Runtime 1.31 is known to deviate from ONNX for operands of these shapes.

    MaxUnpool places values by the inferred shape, not by the given `output_shape`. Pools with
    `auto_pad=SAME_*` ignore dilations, and crop where a stride exceeds the window. Resize ignores
    `roi` when it computes the output size, and `scales` when no size changes. Window coefficients,
    and all of Shrink, are computed in float32 even for double. Losses accept fewer labels than
    samples, and a number of weights other than one per class. RNN, GRU and LSTM depart in the cases
    of `recurrent.is_misread`. AffineGrid with aligned corners puts the only point of an axis at its
    end, and a onesided inverse DFT of another length than 2 (n - 1) mirrors the wrong numbers.
    MatMulNBits with `g_idx` reads two bits as four, beyond the end of the weights.
    """
    if (step.domain, step.op_type) == ("com.microsoft", "MatMulNBits"):
        return step.attrs.get("bits") == 2 and any(name is not None for name in step.inputs[4:5])
    if step.domain:
        return False
    if step.op_type in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        shape = np.shape(inputs[0])
        wanted = shape, (*shape[:1], *shape[2:]), shape[1:2]
        pairs = zip(inputs, wanted, strict=False) if shape else ()
        return any(x is not None and np.shape(x) != n for x, n in pairs)
    if step.op_type in ("HammingWindow", "BlackmanWindow"):
        return bool(step.attrs.get("output_datatype", 1) == TensorProto.DOUBLE)
    if step.op_type == "Shrink":
        return inputs[0] is None or bool(inputs[0].dtype == np.float64)
    if step.op_type in ("RNN", "GRU", "LSTM"):
        return recurrent.is_misread(step)
    if step.op_type == "AffineGrid":
        sizes = inputs[1] if len(inputs) > 1 else None
        return bool(step.attrs.get("align_corners")) and (sizes is None or 1 in sizes[2:])
    if step.op_type == "DFT":
        return is_misread_transform(step, *inputs)
    if step.op_type == "MaxUnpool":
        return len(inputs) > 2 and inputs[2] is not None
    if step.op_type in ("AveragePool", "LpPool", "MaxPool"):
        return str(step.attrs.get("auto_pad", "")).startswith("SAME") and leaps(step)
    return step.op_type == "Resize" and is_misread_resize(step, *inputs)


def leaps(step: Step) -> bool:
    """Whether the windows of a pool are dilated, or have strides longer than the windows."""
    sizes = step.attrs.get("strides", ()), step.attrs.get("kernel_shape", ())
    return any(n > 1 for n in step.attrs.get("dilations", ())) or any(map(int.__gt__, *sizes))


def is_misread_transform(step: Step, x: Any, length: Any = None, axis: Any = None) -> bool:
    """Whether a onesided spectrum is turned back into another number of samples than 2 (n - 1)."""
    back = step.attrs.get("inverse") and step.attrs.get("onesided")
    if not back or len(step.inputs) < 2 or step.inputs[1] is None:
        return False
    along = step.attrs.get("axis", -2) if axis is None else int(axis)
    return x is None or length is None or int(length) != 2 * (np.shape(x)[along] - 1)


def is_misread_resize(step: Step, x: Any, roi: Any = None, scales: Any = None, *_: Any) -> bool:
    """Whether a region is cropped, or scales ≠ 1 keep, or if unknown may keep, the size of x."""
    if step.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return True
    if scales is None or not np.size(scales):
        return False
    if x is None:  # its size is not known before the run
        return bool(np.any(np.asarray(scales) != 1))
    axes, rank = step.attrs.get("axes", range(np.ndim(x))), np.ndim(x)
    if np.shape(scales) != (len(axes),) or not all(-rank <= axis < rank for axis in axes):
        return False  # the engine will report the error
    lengths = np.array([np.shape(x)[axis] for axis in axes], np.float32)
    same = np.all(np.floor(lengths * scales) == lengths)
    return bool(same and np.any(scales != 1)) or not np.all(scales)


# -- traps ----------------------------------------------------------------------------------------

TRAPPED = (TensorProto.INT32, TensorProto.INT64, TensorProto.UNDEFINED)
"""Types of a quotient at which the processor may trap, and the unknown type."""

GUARD = "onnxjac.guard"
"""The domain of the functions that replace operators of ONNX Runtime."""

DIVISION = """
<domain: "onnxjac.guard", opset_import: ["": 21]>
Div (a, b) => (y) {
    minus_one = Constant<value_int = -1>()
    zero = Constant<value_int = 0>()
    minus_one_like_b = CastLike(minus_one, b)
    zero_like_b = CastLike(zero, b)
    equal = Equal(b, minus_one_like_b)
    negative = Less(b, zero_like_b)
    by_minus_one = And(equal, negative)
    product = Mul(a, b)
    one = Mul(b, b)
    divisor = Where(by_minus_one, one, b)
    quotient = Div(a, divisor)
    y = Where(by_minus_one, product, quotient)
}
"""
"""a / b, but a b where b = -1; no unsigned b is negative."""

REDUCTION = """
<domain: "onnxjac.guard", opset_import: ["": 21]>
ScatterND <reduction> (x, at, updates) => (y) {
    none = Constant<value_int = 0>()
    step = Constant<value_int = 1>()
    first = Constant<value_ints = [0]>()
    one = Constant<value_ints = [1]>()
    end = Constant<value_ints = [9223372036854775807]>()
    shape = Shape(x)
    depth = Shape<start = -1>(at)
    sizes = Slice(shape, first, depth)
    rest = Slice(shape, depth, end)
    rest_or_one = Concat<axis = 0>(rest, one)
    width = ReduceProd(rest_or_one)
    count = ReduceProd<keepdims = 0>(sizes)
    places = Range(none, count, step)
    numbered = Reshape<allowzero = 1>(places, sizes)
    index = GatherND(numbered, at)
    rows = Size(index)
    rows_alone = Reshape(rows, one)
    count_alone = Reshape(count, one)
    column_shape = Concat<axis = 0>(rows_alone, one)
    rows_shape = Concat<axis = 0>(rows_alone, width)
    flat_shape = Concat<axis = 0>(count_alone, width)
    column = Reshape<allowzero = 1>(index, column_shape)
    columns = Expand(column, rows_shape)
    flat_x = Reshape<allowzero = 1>(x, flat_shape)
    moved = Reshape<allowzero = 1>(updates, rows_shape)
    flat_y = ScatterElements<axis = 0, reduction: string = @reduction>(flat_x, columns, moved)
    y = Reshape<allowzero = 1>(flat_y, shape)
}
"""
"""y[at] = reduction(x[at], updates), one update after the other; slices of x as rows."""

FUNCTIONS = {"Div": DIVISION, "ScatterND": REDUCTION}


def guard_traps(model: onnx.ModelProto, shared: Mapping[str, np.ndarray]) -> None:
    """Put functions in place of the operators of a model that are traps, unless it states why not.

    The least integer divided by -1 overflows, which crashes the process: the division here wraps
    around to the least integer, as NumPy does. The threads of ScatterND reduce several updates for
    one place at the same time, so that some updates are lost. A quotient that is declared as no
    whole number is none of these.
    """
    guarded = _guard(model.graph, shared)
    for op_type in sorted(guarded):
        model.functions.append(onnx.parser.parse_function(FUNCTIONS[op_type]))
        model.functions[-1].opset_import[0].version = opset(model) or 1
    if guarded:
        model.opset_import.add(domain=GUARD, version=1)


def _guard(graph: onnx.GraphProto, shared: Mapping[str, np.ndarray]) -> set[str]:
    """Guard the traps in a graph, unless known constants make them safe; the guarded operators.

    Subgraphs may use the same names for other tensors.
    """
    types = {value.name: value.type.tensor_type.elem_type
             for value in (*graph.output, *graph.value_info)}  # fmt: skip
    known = {**_stored(graph), **shared}
    guarded = set()
    for node in graph.node:
        for inner in subgraphs(node):
            guarded |= _guard(inner, {})
        if may_be_trap(node) and not is_safe(node, types, known):
            node.domain = GUARD
            guarded.add(node.op_type)
    return guarded


def _stored(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """The integer constants that are stored in a graph itself, by name."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            stored.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
    return {
        name: numpy_helper.to_array(tensor)
        for name, tensor in stored.items()
        if tensor.data_type in TRAPPED[:2] and not tensor.external_data
    }


def may_be_trap(node: onnx.NodeProto) -> bool:
    """Whether a node is a division, or may reduce several slices for one place."""
    if node.domain:
        return False
    reduces = any(a.name == "reduction" and a.s != b"none" for a in node.attribute)
    return node.op_type == "Div" or (node.op_type == "ScatterND" and reduces)


def is_safe(
    node: onnx.NodeProto, types: Mapping[str, int], known: Mapping[str, np.ndarray]
) -> bool:
    """Whether no integer is divided by -1, or all places differ."""
    operand = known.get(node.input[1])
    if node.op_type == "Div":
        whole = types.get(node.output[0], TensorProto.UNDEFINED) in TRAPPED
        return not whole or (operand is not None and not np.any(operand == -1))
    if operand is None or np.any(operand < 0):
        return False
    places = operand.reshape(-1, operand.shape[-1])
    return len(np.unique(places, axis=0)) == len(places)
