"""Ends: where the tensors of v and y lie, so that they need not be cut out and put together."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from ...jacobians import Shape, dtype_of, shape_of, size
from .record import Recording


@dataclass(frozen=True)
class Part:
    """A tensor that begins at an entry of a flat vector."""

    name: str
    start: int
    value: ir.Value

    @property
    def shape(self) -> Shape:
        return shape_of(self.value)


def inputs_of(recording: Recording) -> list[Part]:
    """New inputs in place of what is cut out of a flat v; and v itself where it is read whole."""
    v = recording.v
    parts = [Part("v", 0, v)] if recording.y is v else []
    for node, k in users_of(recording, v):
        start = beginning(recording, node) if k == 0 and len(shape_of(v)) == 1 else None
        cuts = [] if start is None else reshaped(recording, node)
        if start is None or any(cut is recording.y for cut in cuts):
            if all(part.value is not v for part in parts):
                parts.append(Part("v", 0, v))
            continue
        for cut in cuts:
            value = recording.recorder.new(shape_of(cut), dtype_of(v), f"v_{len(parts)}")
            for user, place in users_of(recording, cut):
                user.replace_input_with(place, value)
            parts.append(Part(value.name or "", start, value))
    return parts


def beginning(recording: Recording, node: ir.Node) -> int | None:
    """Where a contiguous cut out of a vector begins; None if the node is no such cut."""
    if node.op_type == "Reshape":
        return 0
    if node.op_type != "Slice":
        return None
    start, _, *more = (None if x is None else recording.array(x) for x in node.inputs[1:])
    stepped = len(more) > 1 and more[1] is not None and more[1].item() != 1
    return None if start is None or stepped else int(start.item())


def reshaped(recording: Recording, node: ir.Node) -> list[ir.Value]:
    """The tensors that a cut is used as: its reshapes where it is only reshaped, else itself."""
    cut = node.outputs[0]
    users = [user for user, _ in users_of(recording, cut)]
    only = users and cut is not recording.y and all(u.op_type == "Reshape" for u in users)
    return [user.outputs[0] for user in users] if only else [cut]


def users_of(recording: Recording, value: ir.Value) -> list[tuple[ir.Node, int]]:
    """The recorded nodes that read a value, each with the place where it does."""
    return [(use.node, use.idx) for use in value.uses() if id(use.node) in recording.present]


def outputs_of(recording: Recording) -> list[Part]:
    """The tensors that a flat y is joined from; y itself where it is not."""
    y = recording.y
    node = y.producer()
    if node is None or node.op_type != "Concat" or len(shape_of(y)) != 1:
        return [Part("y_0", 0, y)]
    parts: list[Part] = []
    start = 0
    for x in filter(None, node.inputs):
        parts.append(Part(f"y_{len(parts)}", start, unshaped(x)))
        start += size(shape_of(x))
    return parts


def unshaped(x: ir.Value) -> ir.Value:
    """The tensor before it was made flat."""
    node = x.producer()
    before = node.inputs[0] if node is not None and node.op_type == "Reshape" else None
    return x if before is None else before
