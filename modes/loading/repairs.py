"""Where ONNX's version converter changes what a model computes, and what is done about it.

Each was found by running the original and the converted model side by side; `tests/modes/test_opsets`
does the same for every opset from 7 on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.helper import get_attribute_value, make_attribute, make_node

from .bodies import inline
from .protos import graphs, nodes


def before_conversion(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Rewrite, in the old opset, the operators whose new meaning the converter overlooks."""
    if version < 13:
        _replace(model, "Hardmax", _flatten)
    if 18 <= version < 21:  # scale and bias went from one number a group to one a channel
        model = inline(model, lambda domain, op_type: op_type == "GroupNormalization")
    return model


def after_conversion(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Say on converted nodes what the old opset took for granted."""
    constants = _constants(model)
    for node in nodes(model):
        if node.op_type == "Resize" and not node.domain:
            _leave_out_empty(node, constants)
            if version < 11:
                _be_asymmetric(node, constants)
    return model


Rewrite = Callable[[onnx.NodeProto], list[onnx.NodeProto]]


def _replace(model: onnx.ModelProto, op_type: str, rewrite: Rewrite) -> None:
    for graph in graphs(model.graph):
        old = list(graph.node)
        new = [rewrite(n) if (n.domain, n.op_type) == ("", op_type) else [n] for n in old]
        if any(len(group) > 1 for group in new):
            copies = [onnx.NodeProto.FromString(n.SerializeToString()) for g in new for n in g]
            del graph.node[:]
            graph.node.extend(copies)


def _flatten(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Before opset 13, Hardmax saw a matrix: the axes before `axis`, by the rest."""
    x, y = node.input[0], node.output[0]
    shape, flat, peak = (f"{y}_{part}" for part in ("shape", "flat", "peak"))
    return [
        make_node("Shape", [x], [shape]),
        make_node("Flatten", [x], [flat], axis=_attribute(node, "axis", 1)),
        make_node("Hardmax", [flat], [peak], axis=1),
        make_node("Reshape", [peak, shape], [y], name=node.name),
    ]


def _leave_out_empty(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> None:
    """Before opset 13, an empty tensor stood for an input that was left out."""
    for index in (1, 2):
        tensor = constants.get(node.input[index]) if index < len(node.input) else None
        if tensor is not None and 0 in tensor.dims:
            node.input[index] = ""


def _be_asymmetric(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> None:
    """Before opset 11: x_original = x / scale, rounded down, or up where the image shrinks."""
    scales = constants.get(node.input[2])
    shrinks = scales is not None and bool((numpy_helper.to_array(scales) < 1).any())
    rounding = "ceil" if shrinks else "floor"
    node.attribute.append(make_attribute("coordinate_transformation_mode", "asymmetric"))
    node.attribute.append(make_attribute("nearest_mode", rounding))


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    held = (a for a in node.attribute if a.name == name)
    return next((get_attribute_value(a) for a in held), default)


def _constants(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in nodes(model):
        value = _attribute(node, "value", None) if node.op_type == "Constant" else None
        if value is not None:
            known[node.output[0]] = value
    return known
