"""Attributes: integers so absurd that a process would end, and values that no rule knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import onnx
import onnx.helper

from ...jacobians.errors import LoadError
from ...ops.registry import find
from .guard import subgraphs

AXES = frozenset({
    "axes", "axis", "batch_axis", "time_axis", "scan_input_axes", "scan_output_axes",
})  # fmt: skip
"""Shape inference cuts them to 32 bits, and so may count below the first axis."""

COUNTS = frozenset({
    "dilations", "group", "kernel_shape", "num_groups", "offset_group", "strides",
})  # fmt: skip
"""Kernels divide by them, or windows go on by them."""

FRAMES = frozenset({"output_padding", "pads"})
"""Room around windows; the operator Pad, which may cut off as well, is another matter."""

RANGES = {
    "RandomNormal": "scale", "RandomNormalLike": "scale",
    "RandomUniform": "high", "RandomUniformLike": "high",
}  # fmt: skip
"""The draws, and what says how wide they are."""

EQUATION = re.compile(rb"[A-Za-z,.\s]*(->[A-Za-z.\s]*)?")
"""What Einsum reads; ONNX goes round in circles at others."""


def settle_attributes(model: onnx.ModelProto) -> None:
    """`LoadError` for an axis of more than 32 bits, and for counts, steps and room too small,
    for other parts than a Split gives, for what is no permutation, and for values that the
    declaration of an operator does not name.
    """
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        for node in _inside(nodes):
            own = node.domain in ("", "ai.onnx")
            if declared := find(node.op_type, node.domain):
                _check_values(node, declared.values)
            if own:  # in other domains a name may mean anything
                _check(node)


def _inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of the graphs inside them."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from _inside(graph.node)


def _check(node: onnx.NodeProto) -> None:
    if node.op_type in RANGES:
        _check_range(node)
    for attribute in node.attribute:
        if attribute.ref_attr_name:  # its value comes with a call
            continue
        held = (attribute.i, *attribute.ints)
        if attribute.name in AXES and not all(-(2**31) <= value < 2**31 for value in held):
            _refuse(node, attribute, "no tensor has so many axes")
        if attribute.name == "perm" and sorted(attribute.ints) != [*range(len(attribute.ints))]:
            _refuse(node, attribute, "it must have each axis once")
        if attribute.name == "num_outputs" and attribute.i != len(node.output):
            _refuse(node, attribute, f"it gives {len(node.output)}")
        if attribute.name == "equation" and not EQUATION.fullmatch(attribute.s):
            _refuse(node, attribute, "it must be letters, commas, dots and one arrow")
        least = 1 if attribute.name in COUNTS else 0 if attribute.name in FRAMES else None
        if least is not None and node.op_type != "Pad" and _least(attribute) < least:
            _refuse(node, attribute, f"it must be {least} or more")


def _check_values(node: onnx.NodeProto, values: Mapping[str, Collection[Any]]) -> None:
    for attribute in node.attribute:
        known = values.get(attribute.name)
        if known and not attribute.ref_attr_name and _value(attribute) not in known:
            _refuse(node, attribute, f"it must be one of {', '.join(map(repr, known))}")


def _value(attribute: onnx.AttributeProto) -> Any:
    """What it is in Python; words as text."""
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _check_range(node: onnx.NodeProto) -> None:
    """A normal distribution has a width, and a uniform one begins before it ends.

    ONNX Runtime ends the process at others.
    """
    held = {a.name: a.f for a in node.attribute if not a.ref_attr_name}
    low, high, scale = held.get("low", 0.0), held.get("high", 1.0), held.get("scale", 1.0)
    if RANGES[node.op_type] == "high" and not low <= high:
        reason = f"low={low:g} and high={high:g}: low must not be above high"
    elif RANGES[node.op_type] == "scale" and not scale > 0:
        reason = f"scale={scale:g}: it must be above 0"
    else:
        return
    raise LoadError(f"{node.op_type} (node {node.name!r}) draws with {reason}.")


def _least(attribute: onnx.AttributeProto) -> int:
    """The least of its integers; 1 where it has none."""
    return min((attribute.i,) if attribute.HasField("i") else attribute.ints, default=1)


def _refuse(node: onnx.NodeProto, attribute: onnx.AttributeProto, reason: str) -> None:
    value = _value(attribute)
    names = ", ".join(filter(None, node.input))
    raise LoadError(
        f"{node.op_type} (node {node.name!r}) of {names} has {attribute.name}={value!r}: {reason}."
    )
