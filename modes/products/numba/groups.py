"""Groups: which nodes are fused into the loop of the node that reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of
from ..numpy.padding import frame
from ..record import Recording

ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Neg"})
MOVES = frozenset({"Identity", "Transpose", "Slice", "Squeeze", "Unsqueeze", "Expand"})
LARGEST = 48
"""The most operations in one loop: more would not fit into registers, and compile slowly."""


class Groups:
    """`inlined` nodes are computed by who reads them; `roots` are loops with what they inline.

    Nodes that are to be kept `apart` are neither.
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
        """Inlined where all readers are loops, else the root of a loop if it computes."""
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
        """Whether an entry of the result depends on the entries of the operands at known places."""
        y = node.outputs[0]
        if dtype_of(y).kind != "f" or dtype_of(y).itemsize < 4 or 0 in shape_of(y):
            return False
        if node.op_type == "Pad":
            return frame(self.recording, node) is not None
        if node.op_type == "Reshape":
            return squeezed(node.inputs[0]) == squeezed(y)
        return node.op_type in ARITHMETIC | MOVES

    def bound_sizes(self) -> None:
        """What would make a loop too large is computed by a loop of its own."""
        sizes: dict[ir.Node, int] = {}
        for node in self.recording.nodes:
            if node in self.inlined or node in self.roots:
                sizes[node] = self.size(node, sizes)
                if sizes[node] > LARGEST and node in self.inlined and node.op_type in ARITHMETIC:
                    self.inlined.remove(node)
                    self.roots.add(node)
                    sizes[node] = 0

    def size(self, node: ir.Node, sizes: dict[ir.Node, int]) -> int:
        """Operations in the loop up to this node, those that it inlines several times as often."""
        before = (x.producer() for x in node.inputs if x is not None)
        inside = (sizes[p] for p in before if p in self.inlined and p in sizes)
        return (node.op_type in ARITHMETIC) + sum(inside)

    def drop_single_calls(self) -> None:
        """A loop that would hold one operation and no movement is a call of NumPy."""
        for node in list(self.roots):
            if not any(x.producer() in self.inlined for x in node.inputs if x is not None):
                self.roots.remove(node)


def squeezed(value: ir.Value | None) -> Shape:
    """The shape without axes of length 1."""
    assert value is not None
    return tuple(n for n in shape_of(value) if n > 1)
