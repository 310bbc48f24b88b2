"""Stream: the operators of one batch after the other, of which one is alive at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ...jacobians import Jacobian
from ...jacobians.arrays import buffer_of
from ...jacobians.progress import counting
from .batches import Batch, Batches

T = TypeVar("T")

Make = Callable[[Batch], Jacobian]
"""What makes the operator of a batch: `linearize`, `hessian`, … with all but the batch given."""

WASTE = 64 * 2**20
"""Bytes of operators that are done with, after which memory is collected."""


class Stream:
    """C_b = make(batch b) for b = 1, 2, …; the first ones stay, as far as `keep` bytes hold them.

    Kept operators are made once, and where all are kept, the data is read once. Counted are the
    arrays that they hold, shared ones once; plans that they make of them come on top.
    """

    def __init__(
        self, make: Make, batches: Batches, keep: int = 0, label: str = "pass over the data"
    ) -> None:
        self.make, self.batches, self.keep, self.label = make, batches, keep, label
        self._kept: dict[int, Jacobian] = {}
        self._buffers: dict[int, int] = {}
        self._count: int | None = None
        self._waste = 0

    def each(self, use: Callable[[int, Jacobian], T]) -> Iterator[T]:
        """use(b, C_b) for every batch. C_b is dropped before the next one is made."""
        if len(self._kept) == self._count:
            yield from (use(b, C) for b, C in sorted(self._kept.items()))
            return
        count = 0
        with counting(self.label, "batches", self._count or self.batches.count) as tick:
            for b, batch in enumerate(self.batches):
                yield self._used(use, b, batch)
                count = b + 1
                tick(1)
        self._count = count

    def _used(self, use: Callable[[int, Jacobian], T], b: int, batch: Batch) -> T:
        if b in self._kept:
            return use(b, self._kept[b])
        C = self.make(batch)
        used = use(b, C)
        if not self._keeps(b, C):
            self._drop(C)
        return used

    def _keeps(self, b: int, C: Jacobian) -> bool:
        """Whether there is room for an operator, which then stays."""
        if self.keep <= 0:
            return False
        buffers = {**self._buffers, **{buffer_of(a): a.nbytes for a in C.arrays()}}
        if sum(buffers.values()) > self.keep:
            return False
        self._kept[b], self._buffers = C, buffers
        return True

    def _drop(self, C: Jacobian) -> None:
        """An operator and its transpose hold each other: memory that counting does not free."""
        self._waste += C.nbytes
        if self._waste > WASTE:
            gc.collect()
            self._waste = 0

    @property
    def kept(self) -> tuple[Jacobian, ...]:
        """The operators that stayed."""
        return tuple(self._kept.values())

    def __getstate__(self) -> dict[str, Any]:
        """What is kept stays where it is."""
        return {name: vars(self)[name] for name in ("make", "batches", "keep", "label")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
