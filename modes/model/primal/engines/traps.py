"""Traps: nodes at which ONNX Runtime crashes the process, or loses updates of a reduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper, shape_inference

from .....ops.node import Step
from ...flow.protos import nodes, opset, subgraphs

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


def is_fatal(step: Step, inputs: Sequence[Any]) -> bool:
    """Whether ONNX Runtime 1.31 is known to crash the process for operands of these shapes.

    ONNX Runtime crashes for a transposed convolution with three or more spatial axes, one of them
    empty, and for an STFT with frames of length 0.
    """
    if step.domain:
        return False
    if step.op_type == "ConvTranspose":
        space = np.shape(inputs[0])[2:]
        return len(space) > 2 and 0 in space
    if step.op_type == "STFT":
        _, _, window, length = (*inputs, None, None)[:4]
        return np.shape(window) == (0,) or (length is not None and not np.any(length))
    return False


def without_traps(model: onnx.ModelProto, shared: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with functions in place of the operators that are traps; itself if it has none.

    The least integer divided by -1 overflows, which crashes the process: the division here wraps
    around to the least integer, as NumPy does. The threads of ScatterND reduce several updates for
    one place at the same time, so that some updates are lost.
    """
    if not any(map(may_be_trap, nodes(model))):
        return model
    try:
        typed = shape_inference.infer_shapes(model)
    except Exception:  # then the types of few tensors are known
        typed = model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    guarded = _guard(made.graph, typed.graph, shared)
    if not guarded:
        return model
    for op_type in sorted(guarded):
        made.functions.append(onnx.parser.parse_function(FUNCTIONS[op_type]))
        made.functions[-1].opset_import[0].version = opset(model) or 1
    made.opset_import.add(domain=GUARD, version=1)
    return made


def _guard(
    graph: onnx.GraphProto, typed: onnx.GraphProto, shared: Mapping[str, np.ndarray]
) -> set[str]:
    """Guard the traps in a graph, unless known constants make them safe; the guarded operators.

    Subgraphs may use the same names for other tensors.
    """
    types = {value.name: value.type.tensor_type.elem_type
             for value in (*typed.input, *typed.value_info, *typed.output)}  # fmt: skip
    known = {**_stored(graph), **shared}
    guarded = set()
    for node, its in zip(graph.node, typed.node, strict=True):
        for inner, its_inner in zip(subgraphs(node), subgraphs(its), strict=True):
            guarded |= _guard(inner, its_inner, {})
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
