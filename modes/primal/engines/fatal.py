"""Fatal: operands at which ONNX Runtime ends the process, so that it must not be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper, shape_inference

from ....ops.node import Step
from ...loading.protos import nodes, opset, subgraphs

TRAPPED = (TensorProto.INT32, TensorProto.INT64, TensorProto.UNDEFINED)
"""Types of a quotient at which the processor may stop, or of which nothing is known."""

GUARD = "onnxjac.guard"
"""The domain of the division that ONNX Runtime is given instead of its own."""

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


def is_fatal(step: Step, inputs: Sequence[Any]) -> bool:
    """Whether ONNX Runtime 1.31 is known to end the process at operands of these shapes.

    It does where a transposed convolution has three axes of space or more, one of them without
    elements, and where frames have no length.
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
    """The model with divisions of integers at which no processor stops; itself if it has none.

    The least integer divided by -1 is one more than the greatest, and ends the process. In the
    division here, as in NumPy, it is the least integer again.
    """
    if not any(map(divides, nodes(model))):
        return model
    try:
        typed = shape_inference.infer_shapes(model)
    except Exception:  # then the types of few tensors are known
        typed = model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    safe = {name for name, array in shared.items() if not np.any(array == -1)}
    if not _guard(made.graph, typed.graph, safe):
        return model
    made.functions.append(onnx.parser.parse_function(DIVISION))
    made.functions[-1].opset_import[0].version = opset(model) or 1
    made.opset_import.add(domain=GUARD, version=1)
    return made


def _guard(graph: onnx.GraphProto, typed: onnx.GraphProto, safe: AbstractSet[str]) -> int:
    """Guard the divisions in a graph but those by what is `safe`; how many there were.

    Graphs inside it may use the same names for other tensors.
    """
    types = {value.name: value.type.tensor_type.elem_type
             for value in (*typed.input, *typed.value_info, *typed.output)}  # fmt: skip
    safe, count = safe | {name for name, tensor in _stored(graph) if never_minus_one(tensor)}, 0
    for node, known in zip(graph.node, typed.node, strict=True):
        pairs = zip(subgraphs(node), subgraphs(known), strict=True)
        count += sum(_guard(inner, its, frozenset()) for inner, its in pairs)
        trapped = divides(node) and types.get(node.output[0], TensorProto.UNDEFINED) in TRAPPED
        if trapped and node.input[1] not in safe:
            node.domain, count = GUARD, count + 1
    return count


def _stored(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """The tensors that are stored in a graph itself, by name."""
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        if node.op_type == "Constant":
            yield from ((node.output[0], a.t) for a in node.attribute if a.name == "value")


def divides(node: onnx.NodeProto) -> bool:
    """Whether a node is a division."""
    return node.op_type == "Div" and not node.domain


def never_minus_one(tensor: onnx.TensorProto) -> bool:
    """Whether all numbers of a tensor are here, and none is -1."""
    if tensor.external_data or tensor.data_type not in TRAPPED[:2]:
        return False
    return not np.any(numpy_helper.to_array(tensor) == -1)
