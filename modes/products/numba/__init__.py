"""numba as the engine of products: elementwise, broadcast and stencil nodes fused into loops.

`loops` decides which nodes are fused and generates their loops, `kernels` compiles them. All other
nodes are NumPy calls.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....jacobians import shape_of
from ..numpy import Program
from ..record import Recording
from .kernels import kernel
from .loops import Groups, Loop, TooManyPieces


def compile(recording: Recording) -> Program:
    """The program of a recorded product, with its loops compiled."""
    groups, loops = fused(recording)
    made = {
        root: (kernel(loop.source, root.outputs[0]), [*loop.reads]) for root, loop in loops.items()
    }
    program = Program(recording, made, groups.inlined)
    program(np.zeros(shape_of(recording.v), program.dtype))
    return program


def fused(recording: Recording) -> tuple[Groups, dict[ir.Node, Loop]]:
    """The groups and their loops; frames that would split a loop too often stay out of it."""
    apart: set[ir.Node] = set()
    while True:
        groups = Groups(recording, apart)
        try:
            return groups, {root: Loop(groups, root) for root in groups.roots}
        except TooManyPieces as error:
            apart |= error.frames
