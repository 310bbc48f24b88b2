"""Destination passing: places where consumers want a value, so that its producer writes it there.

From the result backwards: operands of Concat are written into the concatenation, operands of Pad
inside its frame, the result into y. Values that share a place are reshapes of the same numbers: a
value is never wanted where a different one will be written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator

import numpy as np
import onnx_ir as ir

from ....jacobians import dtype_of, shape_of
from ...flow.steps import python_of
from ..record import Recording
from .places import Place, new

Want = tuple[ir.Value, Place]
Asking = Callable[["Destinations", ir.Node, Place | None], Iterator[Want]]

TABLE: dict[str, Asking] = {}
"""op_type -> the function that asks for places of operands, of the result, or of both."""


def asks_for(*names: str) -> Callable[[Asking], Asking]:
    """Register a function that asks for places; it gets the place wanted for the result, if any."""

    def enter(function: Asking) -> Asking:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return enter


class Destinations:
    """The place where each value is wanted, if any; the result is wanted in y.

    The results of `absent` nodes are not stored, so that these nodes ask for no places.
    """

    def __init__(self, recording: Recording, y: Place, absent: Collection[ir.Node] = ()) -> None:
        self.recording = recording
        self.places: dict[ir.Value, Place] = {}
        self.uses = Counter(x for node in recording.nodes for x in node.inputs if x is not None)
        self.ask(recording.y, y)
        for node in reversed(recording.nodes):
            if node not in absent and node.op_type in TABLE:
                for want in TABLE[node.op_type](self, node, self.places.get(node.outputs[0])):
                    self.ask(*want)

    def ask(self, value: ir.Value, place: Place) -> None:
        """Records that a value is wanted at a place, unless it is v, known, or wanted elsewhere."""
        fixed = value is self.recording.v or self.recording.array(value) is not None
        if not fixed and value not in self.places:
            self.places[value] = place


@asks_for("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")
def _in_its_own_shape(asked: Destinations, node: ir.Node, place: Place | None) -> Iterator[Want]:
    x = operand(node)
    if place and (found := place.reshaped(shape_of(x))):
        yield x, found


@asks_for("Transpose")
def _in_its_own_order(asked: Destinations, node: ir.Node, place: Place | None) -> Iterator[Want]:
    if place is not None:
        perm = python_of(node.attributes["perm"])
        inverse = [perm.index(k) for k in range(len(perm))]
        yield operand(node), place.moved(np.transpose, inverse)


@asks_for("Concat")
def _side_by_side(asked: Destinations, node: ir.Node, place: Place | None) -> Iterator[Want]:
    y = node.outputs[0]
    place = place or new(shape_of(y), dtype_of(y))
    yield y, place
    yield from parts(node, place)


def parts(node: ir.Node, place: Place) -> Iterator[Want]:
    """Each input of a Concat, and the part of the result that it fills."""
    inputs = [x for x in node.inputs if x is not None]
    axis = python_of(node.attributes["axis"])
    ends = np.cumsum([shape_of(x)[axis] for x in inputs])
    for x, view in zip(inputs, np.split(place.view, ends[:-1], axis), strict=True):
        yield x, Place(place.buffer, view)


def operand(node: ir.Node, place: int = 0) -> ir.Value:
    """An input of a node, by default the first, which must be present."""
    x = node.inputs[place]
    assert x is not None
    return x
