"""numba as the engine of products: elementwise, broadcast and stencil nodes fused into loops.

`loops` decides which nodes are fused and generates their loops, `kernels` compiles them. All other
nodes are NumPy calls.
"""

from __future__ import annotations

import onnx_ir as ir

from ..numpy.assemble import Assembler
from ..numpy.program import Program
from ..record import Recording
from .kernels import kernel
from .loops import Groups, Loop, TooManyPieces


class Fuser(Assembler):
    """An assembler that emits a loop for the root of each group."""

    def __init__(self, recording: Recording, groups: Groups, loops: dict[ir.Node, Loop]) -> None:
        super().__init__(recording, groups.inlined)
        self.loops = loops

    def node(self, node: ir.Node) -> None:
        if node not in self.loops:
            super().node(node)
            return
        loop = self.loops[node]
        reads = [self.place(x) for x in loop.reads]
        places = (*reads, self.target(node))
        self.emit(kernel(loop.source, [place.view for place in places]), *places)


def compile(recording: Recording) -> Program:
    """The program of a recorded product."""
    groups, loops = fused(recording)
    return Fuser(recording, groups, loops).program()


def fused(recording: Recording) -> tuple[Groups, dict[ir.Node, Loop]]:
    """The groups and their loops; frames that would split a loop too often stay out of it."""
    apart: set[ir.Node] = set()
    while True:
        groups = Groups(recording, apart)
        try:
            return groups, {root: Loop(groups, root) for root in groups.roots}
        except TooManyPieces as error:
            apart |= error.frames
