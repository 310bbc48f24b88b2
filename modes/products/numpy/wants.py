"""Wants: where consumers want a value to lie, so that its producer writes it there at once.

From the result backwards: what is concatenated is written into the concatenation, what is padded
inside its frame, the operand of a sum where the sum is to be, the result into y.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of
from ...flow.steps import python_of
from ..record import Recording
from .places import Place, new, reshaped

Want = tuple[ir.Value, np.ndarray]
Wanting = Callable[["Wants", ir.Node, Place], Iterator[Want]]
TABLE: dict[str, Wanting] = {}
OPENS: dict[str, Callable[["Wants", ir.Node], Place | None]] = {}
"""Operators that ask for a place though nobody asks them, with what gives them one."""


def wants_for(*names: str) -> Callable[[Wanting], Wanting]:
    """Enter the function that tells where some operators want their operands."""

    def enter(function: Wanting) -> Wanting:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return enter


class Wants:
    """The places that are asked for so far."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.places: dict[ir.Value, Place] = {}
        self.uses = Counter(x for node in recording.nodes for x in node.inputs if x is not None)

    def ask(self, value: ir.Value, place: Place) -> None:
        """A value is wanted at a place, unless it is there already or wanted elsewhere."""
        fixed = value is self.recording.v or self.recording.array(value) is not None
        if not fixed and value not in self.places:
            self.places[value] = place

    def node(self, node: ir.Node) -> None:
        """What one node asks for."""
        place = self.places.get(node.outputs[0])
        if place is None and node.op_type in OPENS:
            place = OPENS[node.op_type](self, node)
            if place is not None:
                self.ask(node.outputs[0], place)
        if place is not None and node.op_type in TABLE:
            for value, view in TABLE[node.op_type](self, node, place):
                self.ask(value, Place(place.buffer, view))


def wants(recording: Recording, y: Place) -> dict[ir.Value, Place]:
    """The place where each value is wanted, if it is; the result is wanted in y."""
    asked = Wants(recording)
    asked.ask(recording.y, y)
    for node in reversed(recording.nodes):
        asked.node(node)
    return asked.places


@wants_for("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")
def _in_its_own_shape(wants: Wants, node: ir.Node, place: Place) -> Iterator[Want]:
    x = operand(node)
    view = reshaped(place.view, shape_of(x))
    if view is not None:
        yield x, view


@wants_for("Transpose")
def _in_its_own_order(wants: Wants, node: ir.Node, place: Place) -> Iterator[Want]:
    perm = python_of(node.attributes["perm"])
    yield operand(node), place.view.transpose([perm.index(k) for k in range(len(perm))])


@wants_for("Add", "Sub", "Mul", "Div", "Neg")
def _where_the_result_is(wants: Wants, node: ir.Node, place: Place) -> Iterator[Want]:
    for x in node.inputs:
        if x is not None and fits(x, place) and wants.uses[x] == 1 and x.producer() is not None:
            yield x, place.view
            return


@wants_for("Concat")
def _side_by_side(wants: Wants, node: ir.Node, place: Place) -> Iterator[Want]:
    yield from parts(node, place.view)


def parts(node: ir.Node, view: np.ndarray) -> Iterator[Want]:
    """Each input of a Concat, and the view of the result that it fills."""
    inputs = [x for x in node.inputs if x is not None]
    axis = python_of(node.attributes["axis"])
    ends = np.cumsum([shape_of(x)[axis] for x in inputs])
    yield from zip(inputs, np.split(view, ends[:-1], axis), strict=True)


def operand(node: ir.Node) -> ir.Value:
    """The first input of a node."""
    x = node.inputs[0]
    assert x is not None
    return x


def fits(x: ir.Value, place: Place) -> bool:
    """Whether a value has the shape and the dtype of a place."""
    return shape_of(x) == place.shape and dtype_of(x) == place.dtype


def fresh(wants: Wants, node: ir.Node) -> Place:
    """A new buffer for the result of a node."""
    shape: Shape = shape_of(node.outputs[0])
    return new(shape, dtype_of(node.outputs[0]))


OPENS["Concat"] = fresh
