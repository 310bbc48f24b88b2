"""Stencils: which sums of a recorded product are computed as one instruction, and where."""

from __future__ import annotations

from collections import defaultdict

import onnx_ir as ir

from ....jacobians import dtype_of, size
from ..record import Recording
from .assemble import Assembler
from .instruction import copy
from .places import Place, new, reshaped
from .program import Program
from .shifts import LINEAR, MOVES, NoShift, Shifts
from .stencil import MARGIN, Stencil, pass_seconds

PASSES = LINEAR | {"Pad"}
"""Operators that NumPy takes a pass over memory for."""

REPLACED = LINEAR | MOVES
"""Operators that a stencil may stand for."""

Readers = defaultdict[ir.Value, set[ir.Node]]
Found = tuple[Stencil, set[ir.Node]]
"""A stencil and the nodes that it makes superfluous."""


class Stenciler(Assembler):
    """An assembler that emits one instruction for each sum that is cheaper as a stencil."""

    def __init__(self, recording: Recording) -> None:
        self.stencils = stencils(recording)
        super().__init__(recording, {node for _, gone in self.stencils.values() for node in gone})

    def node(self, node: ir.Node) -> None:
        if node in self.stencils:
            self.stencil(node, self.stencils[node][0])
        else:
            super().node(node)

    def stencil(self, root: ir.Node, stencil: Stencil) -> None:
        """One instruction on flat vectors: the sources, room for a block, the result."""
        y = self.target(root)
        made, n = flat(y), size(y.shape)
        places = [self.as_vector(self.place(x)) for x in stencil.sources]
        room = new((min(stencil.length, n),), y.dtype)
        self.packed += stencil.nbytes
        done = self.emit(stencil, *places, room, made or new((n,), y.dtype))
        if made is None:
            self.emit(copy, done.moved(lambda a: a.reshape(y.shape)), y)

    def as_vector(self, place: Place) -> Place:
        """The entries as one vector, copied if they do not lie so."""
        return flat(place) or self.contiguous(place, (size(place.shape),))


def flat(place: Place) -> Place | None:
    """The entries as one vector in memory, if they lie so."""
    view = reshaped(place.view, (-1,))
    return Place(place.buffer, view) if view is not None and view.flags.c_contiguous else None


def compile(recording: Recording) -> Program:
    """The program of a recorded product."""
    return Stenciler(recording).program()


def stencils(recording: Recording) -> dict[ir.Node, Found]:
    """The sums that are cheaper as stencils, by their last node."""
    readers: Readers = defaultdict(set)
    for node in recording.nodes:
        for x in filter(None, node.inputs):
            readers[x].add(node)
    found: dict[ir.Node, Found] = {}
    gone: set[ir.Node] = set()
    for node in reversed(recording.nodes):
        made = stencil(recording, node, readers) if node not in gone else None
        if made is not None:
            found[node] = made
            gone |= made[1]
    return found


def stencil(recording: Recording, root: ir.Node, readers: Readers) -> Found | None:
    """The stencil that ends with a node, if it is cheaper than the nodes that it replaces."""
    y = root.outputs[0]
    if root.op_type not in LINEAR or dtype_of(y).char not in "fd":
        return None
    try:
        shifts = Shifts(recording, root)
    except NoShift:
        return None
    gone = only_inside(recording, shifts, readers)
    passes = sum(node.op_type in PASSES for node in (root, *gone))
    before = passes * pass_seconds(shifts.shape, dtype_of(y))
    if not shifts.terms or before < MARGIN:  # not worth a closer look
        return None
    made = Stencil(shifts)
    return (made, gone) if made.seconds < before else None


def only_inside(recording: Recording, shifts: Shifts, readers: Readers) -> set[ir.Node]:
    """The nodes behind a sum that nobody else reads."""
    gone = set[ir.Node]()
    for node in reversed(recording.nodes):
        y = node.outputs[0]
        inside = node in shifts.inside and node is not shifts.root and y is not recording.y
        if inside and readers[y] <= gone | {shifts.root}:
            gone.add(node)
    return gone
