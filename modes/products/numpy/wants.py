"""Wants: where consumers want a value to lie, so that its producer writes it there at once.

From the result backwards: what is concatenated is written into the concatenation, what is padded
inside its frame, the result into y. All that lies at a place is the same numbers in other shapes:
a value is never wanted where another one will be written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

import numpy as np
import onnx_ir as ir

from ....jacobians import dtype_of, shape_of
from ...flow.steps import python_of
from ..record import Recording
from .places import Place, new, reshaped

Want = tuple[ir.Value, Place]
Wanting = Callable[["Wants", ir.Node, Place], Iterator[Want]]
Asking = Callable[["Wants", ir.Node], Iterator[Want]]

PASSED_ON: dict[str, Wanting] = {}
"""Operators that know where they want their operands once they know where they are wanted."""
ASKED: dict[str, Asking] = {}
"""Operators that ask for places on their own: for their result, for an operand."""


def wants_for(*names: str) -> Callable[[Wanting], Wanting]:
    """Enter the function that passes on where some operators are wanted."""

    def enter(function: Wanting) -> Wanting:
        PASSED_ON.update(dict.fromkeys(names, function))
        return function

    return enter


def asks_for(name: str) -> Callable[[Asking], Asking]:
    """Enter the function that asks for places for an operator."""

    def enter(function: Asking) -> Asking:
        ASKED[name] = function
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
        for want in ASKED[node.op_type](self, node) if node.op_type in ASKED else ():
            self.ask(*want)
        place = self.places.get(node.outputs[0])
        if place is not None and node.op_type in PASSED_ON:
            for want in PASSED_ON[node.op_type](self, node, place):
                self.ask(*want)


def wants(
    recording: Recording, y: Place, absent: Collection[ir.Node] = ()
) -> dict[ir.Value, Place]:
    """The place where each value is wanted, if it is; the result is wanted in y.

    What `absent` nodes make has no place, so that they ask for none.
    """
    asked = Wants(recording)
    asked.ask(recording.y, y)
    for node in reversed(recording.nodes):
        if node not in absent:
            asked.node(node)
    return asked.places


@wants_for("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")
def _in_its_own_shape(wants: Wants, node: ir.Node, place: Place) -> Iterator[Want]:
    x = operand(node)
    view = reshaped(place.view, shape_of(x))
    if view is not None:
        yield x, Place(place.buffer, view)


@wants_for("Transpose")
def _in_its_own_order(wants: Wants, node: ir.Node, place: Place) -> Iterator[Want]:
    perm = python_of(node.attributes["perm"])
    inverse = [perm.index(k) for k in range(len(perm))]
    yield operand(node), place.moved(np.transpose, inverse)


@asks_for("Concat")
def _room_for_all(wants: Wants, node: ir.Node) -> Iterator[Want]:
    y = node.outputs[0]
    yield y, new(shape_of(y), dtype_of(y))


@wants_for("Concat")
def _side_by_side(wants: Wants, node: ir.Node, place: Place) -> Iterator[Want]:
    yield from parts(node, place)


def parts(node: ir.Node, place: Place) -> Iterator[Want]:
    """Each input of a Concat, and the part of the result that it fills."""
    inputs = [x for x in node.inputs if x is not None]
    axis = python_of(node.attributes["axis"])
    ends = np.cumsum([shape_of(x)[axis] for x in inputs])
    for x, view in zip(inputs, np.split(place.view, ends[:-1], axis), strict=True):
        yield x, Place(place.buffer, view)


def operand(node: ir.Node, place: int = 0) -> ir.Value:
    """An input that a node has, by default the first."""
    x = node.inputs[place]
    assert x is not None
    return x
