"""Source: the loop of a group as Python text.

Frames of zeros split the loop's axes where they begin and end, so that inside each piece every
entry is known to be inside or outside of them: no entry is tested while the loop runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import onnx_ir as ir

from ....jacobians import Shape, shape_of
from ..record import Recording
from .groups import ARITHMETIC, Groups
from .index import Index, broadcast, moved, whole

PIECES = 32
"""The most pieces a loop may have: a frame in space has 27, and more would compile slowly."""
CHUNKS = 16
"""The chunks of the outer axis that threads share."""
SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}


class TooManyPieces(Exception):
    """A loop would be split into more than `PIECES` by its `frames`."""

    def __init__(self, frames: set[ir.Node]) -> None:
        super().__init__(f"{len(frames)} frames split a loop into more than {PIECES} pieces")
        self.frames = frames


class Loop:
    """y[i] = expression for all i, as the text of a function of the arrays that it reads, and y."""

    def __init__(self, groups: Groups, root: ir.Node) -> None:
        self.groups, self.root = groups, root
        self.recording: Recording = groups.recording
        self.shape: Shape = shape_of(root.outputs[0])
        self.reads: dict[ir.Value, str] = {}
        self.frames: set[ir.Node] = set()
        self.cuts: list[set[int]] = [{0, n} for n in self.shape]
        self.find_cuts(root, whole(self.shape))
        pieces = list(product(*(pairwise(sorted(cut)) for cut in self.cuts)))
        if len(pieces) > PIECES:
            raise TooManyPieces(self.frames)
        self.body = [line for spans in pieces for line in Piece(self, spans).lines()]

    def operands(self, node: ir.Node, index: Index) -> Iterator[tuple[ir.Value, Index]]:
        """What a node reads for the entry at an index."""
        inputs = [x for x in node.inputs if x is not None]
        if node.op_type in ARITHMETIC:
            yield from ((x, broadcast(index, shape_of(x))) for x in inputs)
        else:
            yield inputs[0], moved(self.recording, node, index)

    def read(self, x: ir.Value, index: Index) -> str:
        """An entry of an array; a number is read once, before the loop."""
        name = self.reads.setdefault(x, f"x{len(self.reads)}")
        return f"{name}[{', '.join(map(str, index))}]" if index else f"{name}_"

    def find_cuts(self, node: ir.Node, index: Index) -> None:
        """Where the frames that are read begin and end, on the axes of the loop."""
        for x, place in self.operands(node, index):
            if node.op_type == "Pad":
                self.frames.add(node)
                self.cut(shape_of(x), place)
            producer = x.producer()
            if producer in self.groups.inlined:
                self.find_cuts(producer, place)

    def cut(self, shape: Shape, index: Index) -> None:
        """The axes are cut where an index enters and leaves a tensor of that shape."""
        for n, along in zip(shape, index, strict=True):
            if along.axis is not None:
                ends = (0, n) if along.factor > 0 else (-1, n - 1)
                points = map(along.reaches, ends)
                self.cuts[along.axis].update(p for p in points if 0 < p < self.shape[along.axis])

    @property
    def outer(self) -> int:
        """The axis that threads share: the first long one, else the longest."""
        long = [k for k, n in enumerate(self.shape) if n >= CHUNKS]
        axes = range(len(self.shape))
        return long[0] if long else max(axes, key=self.shape.__getitem__, default=-1)

    @property
    def source(self) -> str:
        """The function, over chunks of the outer axis."""
        n = self.shape[self.outer] if self.shape else 1
        names = self.reads.items()
        head = [
            f"def loop({', '.join((*self.reads.values(), 'y'))}):",
            *(f"    {name}_ = {name}[()]" for x, name in names if not shape_of(x)),
            f"    for chunk in prange({CHUNKS}):",
            f"        low, high = chunk * {n} // {CHUNKS}, (chunk + 1) * {n} // {CHUNKS}",
        ]
        return "\n".join(head + self.body)


class Piece:
    """The loops over a box of entries, inside of which every frame is met or is not."""

    def __init__(self, loop: Loop, spans: tuple[tuple[int, int], ...]) -> None:
        self.loop, self.spans = loop, spans
        self.point = tuple(start for start, _ in spans)
        self.known: dict[tuple[ir.Node, Index], str | None] = {}
        self.statements: list[str] = []

    def lines(self) -> list[str]:
        """The loops, and in the innermost one the statements that compute an entry."""
        shape = self.loop.shape
        axes = [axis for axis, n in enumerate(shape) if n > 1]
        heads = [f"for i{axis} in range({self.bounds(axis)}):" for axis in axes]
        value = self.entry(self.loop.root, whole(shape))
        place = ", ".join("0" if n == 1 else f"i{axis}" for axis, n in enumerate(shape))
        body = [*self.statements, f"y[{place or '()'}] = {value or 0}"]
        indented = [f"{'    ' * (2 + depth)}{head}" for depth, head in enumerate(heads)]
        return indented + ["    " * (2 + len(axes)) + statement for statement in body]

    def bounds(self, axis: int) -> str:
        """From where to where an axis is run through; of the outer one, only this chunk."""
        start, stop = self.spans[axis]
        if axis == self.loop.outer:
            return f"max(low, {start}), min(high, {stop})"
        return f"{start}, {stop}"

    def entry(self, node: ir.Node, index: Index) -> str | None:
        """The text of an entry of what a node makes; None where it is zero."""
        key = node, index
        if key not in self.known:
            operands = self.loop.operands(node, index)
            values = [self.value(node, x, place) for x, place in operands]
            text = combined(node.op_type, values)
            if text is not None and text not in values:
                self.statements.append(f"t{len(self.statements)} = {text}")
                text = f"t{len(self.statements) - 1}"
            self.known[key] = text
        return self.known[key]

    def value(self, node: ir.Node, x: ir.Value, index: Index) -> str | None:
        """An operand: computed here, or read; None where it is the zero of a frame."""
        shape = shape_of(x)
        inside = all(0 <= a.at(self.point) < n for a, n in zip(index, shape, strict=True))
        if node.op_type == "Pad" and not inside:
            return None
        producer = x.producer()
        if producer is not None and producer in self.loop.groups.inlined:
            return self.entry(producer, index)
        return self.loop.read(x, index)


def combined(op_type: str, values: list[str | None]) -> str | None:
    """An operation on texts, where None is zero."""
    if op_type not in ARITHMETIC or op_type == "Neg":
        (x,) = values
        return f"-{x}" if x is not None and op_type == "Neg" else x
    a, b = values
    if op_type == "Mul" and (a is None or b is None):
        return None
    if op_type == "Div":
        return None if a is None else f"{a} / {b}"
    if a is None or b is None:
        return a if b is None else (b if op_type == "Add" else f"-{b}")
    return f"{a} {SIGNS[op_type]} {b}"
