"""Loops: the fusion of nodes into the nodes that read them, and the loops as Python source.

Frames of zeros split the loop's axes at their borders, so that each piece lies entirely inside or
outside of each frame: the loop needs no tests. Along each axis an operand is read at a · i + b,
with i a loop variable, or at a constant index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of
from ....ops.numbers.layout import cuts, pad_widths
from ...flow.steps import python_of
from ..record import Recording

PIECES = 32
"""The most pieces of a loop: a frame in 3-D has 27, and more would compile slowly."""
CHUNKS = 16
"""The number of chunks of the outer axis, which threads share."""
SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/"}

ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Neg"})

MOVES = frozenset({"Identity", "Transpose", "Slice", "Squeeze", "Unsqueeze", "Expand"})

LARGEST = 48
"""The most operations in one loop: more would not fit into registers, and compile slowly."""


class TooManyPieces(Exception):
    """Raised if its `frames` would split a loop into more than `PIECES`."""

    def __init__(self, frames: set[ir.Node]) -> None:
        super().__init__(f"{len(frames)} frames split a loop into more than {PIECES} pieces")
        self.frames = frames


class Loop:
    """y[i] = expression for all i, as the source of a function of the arrays it reads and of y."""

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
        """The operands of a node, each with its index for the result's entry at `index`."""
        inputs = [x for x in node.inputs if x is not None]
        if node.op_type in ARITHMETIC:
            yield from ((x, broadcast(index, shape_of(x))) for x in inputs)
        else:
            yield inputs[0], moved(self.recording, node, index)

    def read(self, x: ir.Value, index: Index) -> str:
        """The text of an entry of an array; a scalar is read once, before the loop."""
        name = self.reads.setdefault(x, f"x{len(self.reads)}")
        return f"{name}[{', '.join(map(str, index))}]" if index else f"{name}_"

    def find_cuts(self, node: ir.Node, index: Index) -> None:
        """Finds where the frames begin and end on the axes of the loop."""
        for x, place in self.operands(node, index):
            if node.op_type == "Pad":
                self.frames.add(node)
                self.cut(shape_of(x), place)
            producer = x.producer()
            if producer in self.groups.inlined:
                self.find_cuts(producer, place)

    def cut(self, shape: Shape, index: Index) -> None:
        """Cuts the axes where an index enters and leaves a tensor of the given shape."""
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
        """The source of the function, which loops over chunks of the outer axis."""
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
    """The loops over a box of entries that lies entirely inside or outside of each frame."""

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
        """The bounds of the loop over an axis; for the outer axis, the bounds of this chunk."""
        start, stop = self.spans[axis]
        if axis == self.loop.outer:
            return f"max(low, {start}), min(high, {stop})"
        return f"{start}, {stop}"

    def entry(self, node: ir.Node, index: Index) -> str | None:
        """The text of an entry of a node's result; None if it is zero."""
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
        """The text of an operand's entry, computed here or read; None for the zero of a frame."""
        shape = shape_of(x)
        inside = all(0 <= a.at(self.point) < n for a, n in zip(index, shape, strict=True))
        if node.op_type == "Pad" and not inside:
            return None
        producer = x.producer()
        if producer is not None and producer in self.loop.groups.inlined:
            return self.entry(producer, index)
        return self.loop.read(x, index)


def combined(op_type: str, values: list[str | None]) -> str | None:
    """The text of an operation on texts, where None is zero."""
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


class Groups:
    """`inlined` nodes are computed by their readers; `roots` become loops with their inlined nodes.

    Nodes in `apart` are neither.
    """

    def __init__(self, recording: Recording, apart: Collection[ir.Node] = ()) -> None:
        self.recording, self.apart = recording, apart
        self.inlined: set[ir.Node] = set()
        self.roots: set[ir.Node] = set()
        self.readers: defaultdict[ir.Value, list[ir.Node]] = defaultdict(list)
        for node in recording.nodes:
            for x in node.inputs:
                if x is not None:
                    self.readers[x].append(node)
        for node in reversed(recording.nodes):
            self.assign(node)
        self.bound_sizes()
        self.drop_single_calls()

    def assign(self, node: ir.Node) -> None:
        """Inlines a node if all its readers are fused; else makes it a root if it computes."""
        if node in self.apart or not self.fusible(node):
            return
        y = node.outputs[0]
        readers = self.readers[y]
        fused = readers and all(r in self.inlined or r in self.roots for r in readers)
        if fused and y is not self.recording.y:
            self.inlined.add(node)
        elif node.op_type in ARITHMETIC:
            self.roots.add(node)

    def fusible(self, node: ir.Node) -> bool:
        """Whether each entry of the result depends on operand entries at known indices."""
        y = node.outputs[0]
        if dtype_of(y).kind != "f" or dtype_of(y).itemsize < 4 or 0 in shape_of(y):
            return False
        if node.op_type == "Pad":
            return frame(self.recording, node) is not None
        if node.op_type == "Reshape":
            return squeezed(node.inputs[0]) == squeezed(y)
        return node.op_type in ARITHMETIC | MOVES

    def bound_sizes(self) -> None:
        """Gives a node its own loop if it would make another loop too large."""
        sizes: dict[ir.Node, int] = {}
        for node in self.recording.nodes:
            if node in self.inlined or node in self.roots:
                sizes[node] = self.size(node, sizes)
                if sizes[node] > LARGEST and node in self.inlined and node.op_type in ARITHMETIC:
                    self.inlined.remove(node)
                    self.roots.add(node)
                    sizes[node] = 0

    def size(self, node: ir.Node, sizes: dict[ir.Node, int]) -> int:
        """Operations in the loop up to this node; nodes inlined repeatedly count repeatedly."""
        before = (x.producer() for x in node.inputs if x is not None)
        inside = (sizes[p] for p in before if p in self.inlined and p in sizes)
        return (node.op_type in ARITHMETIC) + sum(inside)

    def drop_single_calls(self) -> None:
        """Turns a loop with one operation and no movement into a NumPy call."""
        for node in list(self.roots):
            if not any(x.producer() in self.inlined for x in node.inputs if x is not None):
                self.roots.remove(node)


def frame(recording: Recording, node: ir.Node) -> list[tuple[int, int]] | None:
    """The widths of a frame of zeros; None for any other padding."""
    x, pads, value, axes = (*node.inputs, None, None)[:4]
    assert x is not None
    mode = node.attributes.get("mode")
    known = [None if v is None else recording.array(v) for v in (pads, value, axes)]
    if (mode is not None and python_of(mode) != "constant") or known[0] is None:
        return None
    if value is not None and (known[1] is None or np.any(known[1])):
        return None
    shape = shape_of(x)
    along = range(len(shape)) if known[2] is None else known[2].tolist()
    widths = pad_widths(np.broadcast_to(np.zeros(()), shape), tuple(known[0].tolist()), along)
    return widths if all(min(pair) >= 0 for pair in widths) else None


def squeezed(value: ir.Value | None) -> Shape:
    """The shape without axes of length 1."""
    assert value is not None
    return tuple(n for n in shape_of(value) if n > 1)


class Affine(NamedTuple):
    """factor · i[axis] + shift; just `shift` if the axis is None."""

    axis: int | None
    factor: int
    shift: int

    def then(self, factor: int, shift: int) -> Affine:
        """factor · self + shift."""
        return Affine(self.axis, self.factor * factor, self.shift * factor + shift)

    def at(self, point: Shape) -> int:
        """The index at a point of the loop."""
        return self.shift + (0 if self.axis is None else self.factor * point[self.axis])

    def reaches(self, place: int) -> int:
        """The first point at which the index reaches or passes `place`, in its own direction.

        >>> Affine(0, 2, 1).reaches(4), Affine(0, -2, 5).reaches(1), Affine(0, -2, 5).reaches(2)
        (2, 2, 2)
        """
        if self.factor > 0:
            return -((self.shift - place) // self.factor)
        return -((place - self.shift) // -self.factor)

    def __str__(self) -> str:
        if self.axis is None:
            return str(self.shift)
        text = f"i{self.axis}" if self.factor == 1 else f"{self.factor} * i{self.axis}"
        return f"{text} + {self.shift}" if self.shift else text


Index = tuple[Affine, ...]
FIRST = Affine(None, 0, 0)


def whole(shape: Shape) -> Index:
    """The index of every entry, with one loop axis per axis."""
    return tuple(FIRST if n == 1 else Affine(k, 1, 0) for k, n in enumerate(shape))


def broadcast(index: Index, shape: Shape) -> Index:
    """The index of the entry of an operand of the given shape, broadcast as in ONNX."""
    last = index[len(index) - len(shape) :]
    return tuple(FIRST if n == 1 else place for n, place in zip(shape, last, strict=True))


def moved(recording: Recording, node: ir.Node, index: Index) -> Index:
    """The index of the operand's entry that a move puts at `index`."""
    x = node.inputs[0]
    assert x is not None
    shape = shape_of(x)
    if node.op_type == "Transpose":
        perm = python_of(node.attributes["perm"])
        return tuple(index[perm.index(k)] for k in range(len(perm)))
    if node.op_type == "Slice":
        return sliced(recording, node, index, shape)
    if node.op_type == "Pad":
        widths = frame(recording, node) or []
        return tuple(place.then(1, -a) for place, (a, _) in zip(index, widths, strict=True))
    if node.op_type in ("Squeeze", "Unsqueeze", "Reshape"):
        made = shape_of(node.outputs[0])
        kept = iter([place for place, n in zip(index, made, strict=True) if n != 1])
        return tuple(FIRST if n == 1 else next(kept) for n in shape)
    return broadcast(index, shape)


def sliced(recording: Recording, node: ir.Node, index: Index, shape: Shape) -> Index:
    """start + step · index along the sliced axes."""
    known = (None if x is None else recording.array(x) for x in node.inputs[1:])
    bounds = (cut.indices(n) for n, cut in zip(shape, cuts(shape, *known), strict=True))
    places = zip(index, bounds, strict=True)
    return tuple(place.then(step, start) for place, (start, _, step) in places)
