"""Slots: the directions that each entry of a tensor moves in, where these are few of all.

A coefficient with slots is (k, *shape) instead of (directions, *shape): slot s of entry e belongs
to the direction `index[s, e]`. The index follows from what depends on what, never from numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np


class Slots:
    """An index (k, *shape) of directions, of length 1 along axes where it repeats; −1 is an empty
    slot, whose number is 0.
    """

    def __init__(self, index: np.ndarray) -> None:
        self.index = repeated_once(index)

    @classmethod
    def of(cls, met: np.ndarray) -> Slots:
        """The slots of entries that move in the directions where met (directions, *shape)."""
        met = repeated_once(met)
        order = np.argsort(~met, axis=0, kind="stable")
        order = order[: max(1, int(met.sum(0).max(initial=0)))]
        return cls(np.where(np.take_along_axis(met, order, 0), order, -1))

    @classmethod
    def every(cls, directions: int, rank: int) -> Slots:
        """The slots of entries that move in all directions."""
        return cls(np.arange(directions).reshape(-1, *(1,) * rank))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slots) and np.array_equal(self.index, other.index)

    def __hash__(self) -> int:
        return hash((self.index.shape, self.index.tobytes()))

    def __len__(self) -> int:
        return len(self.index)

    def aligned(self, rank: int) -> Slots:
        """The same slots with axes of length 1 in front of those of an entry."""
        shape = self.index.shape
        return Slots(self.index.reshape(shape[0], *(1,) * (1 + rank - len(shape)), *shape[1:]))

    def met(self, directions: int) -> np.ndarray:
        """Whether an entry moves in a direction: (directions, *shape)."""
        d = np.arange(directions).reshape(-1, 1, *(1,) * (self.index.ndim - 1))
        return (self.index == d).any(1)

    def has(self, direction: np.ndarray) -> np.ndarray:
        """Where a direction of each entry is in a slot."""
        return ((self.index == direction) & (direction >= 0)).any(0)

    def __or__(self, other: Slots) -> Slots:
        """These slots, and then the directions that only the other has, in empty or in new ones."""
        mine, theirs = aligned_indices(self, other)
        found = [*mine]
        for direction in theirs:
            left = (direction >= 0) & ~Slots(mine).has(direction)
            for s, slot in enumerate(found):
                fits = left & (slot < 0)
                found[s], left = np.where(fits, direction, slot), left & ~fits
            if left.any():
                found.append(np.where(left, direction, -1))
        return Slots(np.stack(found))

    def __and__(self, other: Slots) -> Slots:
        """The slots whose directions the other has too."""
        mine, theirs = aligned_indices(self, other)
        found = [np.where(Slots(theirs).has(slot), slot, -1) for slot in mine]
        return Slots(np.stack([slot for slot in found if (slot >= 0).any()] or found[:1]))

    def moves(self, to: Slots) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (source, mask): in other slots, x is the sum of x[source] ∘ mask over all pairs."""
        mine, theirs = aligned_indices(self, to)
        alike = (mine == theirs[:, None]) & (mine >= 0)
        used = alike.reshape(*alike.shape[:2], -1).any(2)
        count = used.sum(1)
        order = np.argsort(~used, axis=1, kind="stable")
        rows = np.arange(len(used))
        for r in range(max(1, count.max(initial=0))):
            source = order[:, r]
            if r == 0:  # slots that nothing goes to take what spares a Gather
                source = np.where(count > 0, source, np.minimum(rows, len(mine) - 1))
            mask = alike[rows, source]
            free = mine[source] < 0  # where x is 0 already
            whole = mask | free
            yield source, repeated_once(np.ones_like(mask[:1]) if whole.all() else mask)


def aligned_indices(a: Slots, b: Slots) -> tuple[np.ndarray, np.ndarray]:
    """Both indices, broadcast to the same entries."""
    shape = np.broadcast_shapes(a.index.shape[1:], b.index.shape[1:])
    first, second = (np.broadcast_to(s.index, (len(s), *shape)) for s in (a, b))
    return first, second


def repeated_once(x: np.ndarray) -> np.ndarray:
    """The array with length 1 along the axes behind the first where it repeats."""

    def along(x: np.ndarray, axis: int) -> np.ndarray:
        first = x.take([0], axis) if x.shape[axis] > 1 else x
        return first if x.shape[axis] > 1 and (x == first).all() else x

    return reduce(along, range(1, x.ndim), x)
