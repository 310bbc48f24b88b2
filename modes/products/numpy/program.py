"""Program: instructions, the memory they work in, and the products that they compute."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from ....jacobians.cached import cached_property
from ..results import Results
from .instruction import Action, Instruction
from .memory import allocate, lifetimes, offsets
from .places import Buffer, Place, Role


class Workspace:
    """The memory of one product, and the calls that are made in it."""

    def __init__(self, program: Program) -> None:
        arena = allocate(program.length)
        self.memory: dict[Buffer, np.ndarray] = {b: arena[k:] for b, k in program.starts.items()}
        for buffer in program.kept:
            self.memory[buffer] = np.full(buffer.ghost.shape, buffer.fill, buffer.ghost.dtype)
        self.actions: list[Action] = [i.bound(self.memory) for i in program.instructions]


class Program:
    """v ↦ J v. The result belongs to the caller; several threads may call at the same time.

    Each concurrent call has a workspace of its own, which is reused by later calls.
    """

    def __init__(
        self, instructions: Sequence[Instruction], v: Place, y: Place, packed: int = 0
    ) -> None:
        self.instructions, self.v, self.y, self.packed = tuple(instructions), v, y, packed
        lives = lifetimes(self.instructions)
        self.kept = [buffer for buffer in lives if buffer.role is Role.KEPT]
        self.starts, self.length = offsets(lives)
        self.results = Results(y.shape, y.dtype)
        self._idle: deque[Workspace] = deque()

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one workspace and of the residuals that were copied into another order."""
        return self.length + sum(b.ghost.nbytes for b in self.kept) + self.packed

    def __call__(self, v: np.ndarray) -> np.ndarray:
        v = np.ascontiguousarray(v, self.v.dtype)
        y = self.results.empty()
        try:
            workspace = self._idle.pop()
        except IndexError:
            workspace = Workspace(self)
        memory = workspace.memory
        memory[self.v.buffer], memory[self.y.buffer] = v, y
        with np.errstate(all="ignore"):  # infinities and NaN are values, as in every engine
            for action in workspace.actions:
                action()
        del memory[self.v.buffer], memory[self.y.buffer]
        self._idle.append(workspace)
        return y
