"""Program: instructions, the memory they work in, and the products that they compute.

An instruction is a call of a function on arrays whose places are known. Buffers that are never
needed at the same time share memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from sys import maxsize
from typing import Any

import numpy as np

from ....jacobians.cached import cached_property
from ..pool import ResultPool
from .places import ALIGNMENT, Buffer, Place, Role

LINE, SETS, WAYS = 64, 64, 8
"""Bytes of a cache line; number of sets of the L1 cache and lines per set, on most machines:
lines that are `SETS` apart share a set.
"""


class Workspace:
    """The memory of one product, and the calls that are bound to it."""

    def __init__(self, program: Program) -> None:
        arena = allocate(program.length)
        self.memory: dict[Buffer, np.ndarray] = {b: arena[k:] for b, k in program.starts.items()}
        for buffer in program.kept:
            self.memory[buffer] = np.zeros(buffer.ghost.shape, buffer.ghost.dtype)
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
        self.results = ResultPool(y.shape, y.dtype)
        self._idle: deque[Workspace] = deque()

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one workspace and of residuals copied into another order."""
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


Memory = Mapping[Buffer, np.ndarray]
Action = Callable[[], Any]


@dataclass(frozen=True)
class Instruction:
    """`function(*arrays)`, which writes into the last array."""

    function: Callable[..., Any]
    places: tuple[Place, ...]

    def bound(self, memory: Memory) -> Action:
        """The call with its arrays bound; if v or y takes part, they are looked up at each call."""
        bindings = [place.binding() for place in self.places]
        if any(place.buffer.role in (Role.INPUT, Role.OUTPUT) for place in self.places):
            return partial(late, self.function, bindings, memory)
        return partial(self.function, *(binding(memory) for binding in bindings))


def late(function: Callable[..., Any], bindings: list[Any], memory: Memory) -> None:
    """A call that looks up its arrays."""
    function(*[binding(memory) for binding in bindings])


def copy(x: np.ndarray, y: np.ndarray) -> None:
    """y ← x, converted if the dtypes differ.

    Adjacent entries of y come from distant cache lines of x, which also hold the entries of the
    next pass. Blocks are so small that the cache holds these lines until then.
    """
    many = together(x.strides[-1]) if x.ndim else 1
    if not x.ndim or x.shape[-1] <= many:
        np.copyto(y, x, casting="unsafe")
        return
    for start in range(0, x.shape[-1], many):
        part = ..., slice(start, start + many)
        np.copyto(y[part], x[part], casting="unsafe")


def together(stride: int) -> int:
    """The number of cache lines, `stride` bytes apart, that the L1 cache holds at once.

    >>> together(4096), together(2048), together(2048 + 64)
    (8, 16, 512)
    """
    lines, rest = divmod(abs(stride), LINE)
    return maxsize if rest or not lines else WAYS * SETS // gcd(SETS, lines)


Interval = tuple[int, int]
"""The first and the last instruction that touch a buffer."""


def lifetimes(instructions: Iterable[Instruction]) -> dict[Buffer, Interval]:
    """The lifetime of each buffer."""
    found: dict[Buffer, Interval] = {}
    for now, instruction in enumerate(instructions):
        for place in instruction.places:
            first, _ = found.get(place.buffer, (now, now))
            found[place.buffer] = first, now
    return found


def offsets(lives: dict[Buffer, Interval]) -> tuple[dict[Buffer, int], int]:
    """The offset of each work buffer in one arena, and the length of the arena.

    First fit in order of birth: the lowest gap between buffers that live at the same time.
    """
    placed: dict[Buffer, tuple[int, int]] = {}
    for buffer, (first, last) in sorted(lives.items(), key=lambda item: item[1]):
        if buffer.role is Role.WORK:
            others = (b for b in placed if lives[b][0] <= last and first <= lives[b][1])
            taken = sorted(placed[b] for b in others)
            start = lowest_gap(taken, buffer.ghost.nbytes)
            placed[buffer] = start, start + aligned(buffer.ghost.nbytes)
    end = max((end for _, end in placed.values()), default=0)
    return {buffer: start for buffer, (start, _) in placed.items()}, end


def lowest_gap(taken: list[tuple[int, int]], length: int) -> int:
    """The lowest start of a free gap of the given length.

    >>> lowest_gap([(0, 64), (128, 192)], 64), lowest_gap([(0, 64), (128, 192)], 65)
    (64, 192)
    """
    start = 0
    for low, high in taken:
        if low - start >= length:
            break
        start = max(start, high)
    return start


def aligned(length: int) -> int:
    """A length rounded up to whole cache lines."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def allocate(length: int) -> np.ndarray:
    """An array of bytes that begins at a cache line."""
    room = np.empty(length + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + length]
