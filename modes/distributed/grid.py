"""Grid: the operators of the parts of some data on the workers; a map over them, and a sum."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ..data.streamed import Outline
from .placement import Placement, persistently
from .shares import compiled, described, diagonal, evenly, grouped, product, total

FAN = 8
"""Results that one task adds up."""

Grid = list[list[Any]]
"""Futures of the operators: for each part of the data, its copies."""

Build = Callable[[], tuple[Grid, Any]]
"""What gives these futures, and all those that have to live as long."""


class Shares:
    """The operators of the parts of some data, on the workers, and what is known of them.

    Where there are fewer parts than workers, each part has copies, among which the columns of a
    product are shared out. `build` sends what they are made of, and gives their futures.
    """

    def __init__(self, placement: Placement, build: Build, stacked: bool) -> None:
        self.placement, self.build, self.stacked = placement, build, stacked
        self.renew()
        self.outlines: list[Outline] = self.ask(described)
        self.ends = tuple(accumulate((o.shape[0] for o in self.outlines), initial=0))

    def renew(self) -> None:
        """Everything sent anew."""
        self.placement.refresh()
        self.grid, self._origin = self.build()

    @property
    def copies(self) -> int:
        """How many workers hold the same part."""
        return len(self.grid[0])

    def submit(self, part: int, copy: int, task: Callable[..., Any], *arguments: Any) -> Any:
        """A task with the operator of a part, where that is."""
        place = part * self.copies + copy
        return self.placement.submit(place, task, self.grid[part][copy], *arguments)

    def ask(self, task: Callable[..., Any]) -> list[Any]:
        """What a task says of every part."""
        return persistently(lambda: self._gathered(self._asked(task)), self.renew)

    def product(self, v: np.ndarray, transposed: bool) -> np.ndarray:
        """C v or Cᵀ v, for v of shape (K, n)."""
        return persistently(lambda: self._product(v, transposed), self.renew)

    def diagonal(self) -> np.ndarray:
        """Σ of the diagonals of all parts."""
        return persistently(self._diagonal, self.renew)

    def _diagonal(self) -> np.ndarray:
        return np.asarray(self._gathered(self.added(self._asked(diagonal)))[0])

    def _asked(self, task: Callable[..., Any]) -> list[Any]:
        return [self.submit(p, 0, task) for p in range(len(self.grid))]

    def _gathered(self, futures: list[Any]) -> list[Any]:
        return list(self.placement.client.gather(futures))

    def _product(self, v: np.ndarray, transposed: bool) -> np.ndarray:
        self.placement.refresh()
        cuts = evenly(len(v), self.copies)
        found = [self._columns(c, v[a:b], transposed) for c, (a, b) in enumerate(cuts)]
        return np.concatenate([np.concatenate(self._gathered(f), axis=-1) for f in found])

    def _columns(self, copy: int, v: np.ndarray, transposed: bool) -> list[Any]:
        """The futures of a product of one copy of each part."""
        parts = range(len(self.grid))
        if transposed and self.stacked:
            rows = [v[:, a:b] for a, b in pairwise(self.ends)]
            return self.added([self.submit(p, copy, product, rows[p], True) for p in parts])
        sent = self.placement.everywhere(v)
        found = [self.submit(p, copy, product, sent, transposed) for p in parts]
        return found if self.stacked else self.added(found)

    def added(self, futures: list[Any]) -> list[Any]:
        """The future of the sum, computed by a tree on the workers."""
        while len(futures) > 1:
            submit = self.placement.client.submit
            futures = [submit(total, *group, pure=False) for group in grouped(futures, FAN)]
        return futures

    def compiled(self, options: dict[str, Any]) -> Shares:
        """The same shares, each of which compiles what it keeps."""

        def build() -> tuple[Grid, Any]:
            grid, origin = self.build()
            made = [
                [self.placement.submit(p * len(row) + c, compiled, future, options)
                 for c, future in enumerate(row)]
                for p, row in enumerate(grid)
            ]  # fmt: skip
            return made, (grid, origin)

        return Shares(self.placement, build, self.stacked)
