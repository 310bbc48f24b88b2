"""Memory: buffers that are never needed at the same time share it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .instruction import Instruction
from .places import ALIGNMENT, Buffer, Role

Interval = tuple[int, int]
"""The first and the last instruction that touch a buffer."""


def lifetimes(instructions: Iterable[Instruction]) -> dict[Buffer, Interval]:
    """When each buffer is needed."""
    found: dict[Buffer, Interval] = {}
    for now, instruction in enumerate(instructions):
        for place in instruction.places:
            first, _ = found.get(place.buffer, (now, now))
            found[place.buffer] = first, now
    return found


def offsets(lives: dict[Buffer, Interval]) -> tuple[dict[Buffer, int], int]:
    """Where each work buffer begins in one piece of memory, and how long that is.

    In order of birth, each at the lowest gap between those that live at the same time.
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
    """The lowest start of a free stretch of that length.

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
    """Bytes that begin at a cache line."""
    room = np.empty(length + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + length]
