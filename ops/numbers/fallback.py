"""Fallback: one node run by ONNX's reference implementation, for operators without a kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx_ir
from onnx.reference import ReferenceEvaluator

from ...jacobians.errors import UnsupportedOp
from ..node import remedy
from ..registry import find

EMPTY = {"value_floats": onnx.AttributeProto.FLOATS, "value_strings": onnx.AttributeProto.STRINGS}
"""Types of empty lists in these attributes of Constant; all other empty lists hold integers."""


def run_reference(
    op_type: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    *,
    domain: str = "",
    version: int = 21,
    outputs: int = 1,
) -> tuple[Any, ...]:
    """The outputs of one node, computed by `onnx.reference`."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = onnx.helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], domain=domain)
    node.attribute.extend(proto(name, value) for name, value in attributes.items())
    feeds = {name: x for name, x in zip(names, inputs, strict=True) if name}
    return tuple(evaluator(node.SerializeToString(), version).run(None, feeds))


@functools.lru_cache(maxsize=512)
def evaluator(node: bytes, version: int) -> ReferenceEvaluator:
    """The evaluator of one node, given as bytes so that equal nodes share a cache entry."""
    parsed = onnx.NodeProto.FromString(node)
    try:
        return ReferenceEvaluator(parsed, opsets={parsed.domain: version, "": version})
    except (NotImplementedError, RuntimeError) as error:
        name = f"{parsed.domain or 'ai.onnx'}::{parsed.op_type}"
        otherwise = (
            f"Define it with @onnxjac.defines({name!r}): its values and derivatives follow. Or try "
            "engine='onnxruntime', which may know its values. Its outputs can be given with the "
            "inputs, but are constants then, without derivatives."
        )
        declared = find(parsed.op_type, parsed.domain)
        why = f": {declared.refused}" if declared and declared.refused else ""
        raise UnsupportedOp(
            f"{name} at opset {version} has neither a kernel in onnxjac nor a reference "
            f"implementation in onnx{why}. {remedy(parsed.domain, otherwise)}"
        ) from error


def proto(name: str, value: Any) -> onnx.AttributeProto:
    """An attribute as ONNX stores it: arrays become tensors, graphs of onnx_ir become graphs."""
    if isinstance(value, np.ndarray | np.generic):
        value = onnx.numpy_helper.from_array(np.asarray(value))
    elif isinstance(value, onnx_ir.Graph):
        value = onnx_ir.to_proto(value)
    empty = isinstance(value, Sequence) and not value and not isinstance(value, str | bytes)
    kind = EMPTY.get(name, onnx.AttributeProto.INTS) if empty else None
    return onnx.helper.make_attribute(name, value, attr_type=kind)
