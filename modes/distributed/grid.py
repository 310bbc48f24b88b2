"""Grid: the operators of the parts of some data on the workers; a map over them, and a sum."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any, final

import numpy as np

from ..data.streamed import Outline
from .parts import Grid, Parts
from .placement import persistently
from .shares import compiled, described, diagonal, evenly, product


@final
class Shares:
    """The operators of the parts of some data, on the workers, and what is known of them.

    Where there are fewer parts than workers, each part has copies, among which the columns of a
    product are shared out.
    """

    def __init__(self, parts: Parts, stacked: bool) -> None:
        self.parts, self.stacked = parts, stacked
        self.outlines: list[Outline] = parts.ask(described)
        self.ends = tuple(accumulate((o.shape[0] for o in self.outlines), initial=0))

    def product(self, v: np.ndarray, transposed: bool) -> np.ndarray:
        """C v or Cᵀ v, for v of shape (K, n)."""
        parts = self.parts
        return persistently(
            lambda: self._product(v, transposed), parts.renew, parts.placement.client
        )

    def diagonal(self) -> np.ndarray:
        """Σ of the diagonals of all parts."""
        return np.asarray(self.parts.summed(diagonal))

    def _product(self, v: np.ndarray, transposed: bool) -> np.ndarray:
        self.parts.placement.refresh()
        cuts = evenly(len(v), self.parts.copies)
        found = [self._columns(c, v[a:b], transposed) for c, (a, b) in enumerate(cuts)]
        return np.concatenate([np.concatenate(self.parts.gathered(f), axis=-1) for f in found])

    def _columns(self, copy: int, v: np.ndarray, transposed: bool) -> list[Any]:
        """The futures of a product of one copy of each part."""
        parts = self.parts
        if transposed and self.stacked:
            rows = [v[:, a:b] for a, b in pairwise(self.ends)]
            return parts.added([parts.submit(p, copy, product, rows[p], True)
                                for p in range(len(parts.grid))])  # fmt: skip
        sent = parts.placement.everywhere(v)
        found = [parts.submit(p, copy, product, sent, transposed) for p in range(len(parts.grid))]
        return found if self.stacked else parts.added(found)

    def compiled(self, options: dict[str, Any]) -> Shares:
        """The same shares, each of which compiles what it keeps."""

        def build() -> tuple[Grid, Any]:
            grid, origin = self.parts.build()
            submit = self.parts.placement.submit
            made = [
                [submit(p * len(row) + c, compiled, future, options)
                 for c, future in enumerate(row)]
                for p, row in enumerate(grid)
            ]  # fmt: skip
            return made, (grid, origin)

        return Shares(Parts(self.parts.placement, build), self.stacked)
