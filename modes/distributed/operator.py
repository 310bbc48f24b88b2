"""Operator: the `Jacobian` whose products are one map over workers and one reduction."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, final

import numpy as np

from ...jacobians import Array, Jacobian, Op, lead
from ...jacobians.errors import InputError
from ...ops import numbers
from ..data.streamed import Outline
from .placement import Placement, persistently
from .shares import described, diagonal, evenly, grouped, product, total

FAN = 8
"""Results that one task adds up."""

Grid = list[list[Any]]
"""Futures of the operators: for each part of the data, its copies."""


class Shares:
    """The operators of the parts of some data, on the workers, and what is known of them.

    Where there are fewer parts than workers, each part has copies, among which the columns of a
    product are shared out.
    """

    def __init__(self, placement: Placement, grid: Grid, stacked: bool) -> None:
        self.placement, self.grid, self.stacked = placement, grid, stacked
        self.copies = len(grid[0])
        asked = [self.submit(p, 0, described) for p in range(len(grid))]
        self.outlines: list[Outline] = placement.client.gather(asked)
        self.ends = tuple(accumulate((o.shape[0] for o in self.outlines), initial=0))

    def submit(self, part: int, copy: int, task: Callable[..., Any], *arguments: Any) -> Any:
        """A task with the operator of a part, where that is."""
        place = part * self.copies + copy
        return self.placement.submit(place, task, self.grid[part][copy], *arguments)

    def product(self, v: np.ndarray, transposed: bool) -> np.ndarray:
        """C v or Cᵀ v, for v of shape (K, n)."""
        self.placement.refresh()
        cuts = evenly(len(v), self.copies)
        found = [self._columns(c, v[a:b], transposed) for c, (a, b) in enumerate(cuts)]
        return np.concatenate([self._assembled(futures, transposed) for futures in found])

    def _columns(self, copy: int, v: np.ndarray, transposed: bool) -> list[Any]:
        """The futures of a product of one copy of each part."""
        parts = range(len(self.grid))
        if transposed and self.stacked:
            rows = [v[:, a:b] for a, b in zip(self.ends[:-1], self.ends[1:], strict=True)]
            return self.added([self.submit(p, copy, product, rows[p], True) for p in parts])
        sent = self.placement.everywhere(v)
        found = [self.submit(p, copy, product, sent, transposed) for p in parts]
        return found if self.stacked else self.added(found)

    def _assembled(self, futures: list[Any], transposed: bool) -> np.ndarray:
        return np.concatenate(self.placement.client.gather(futures), axis=-1)

    def added(self, futures: list[Any]) -> list[Any]:
        """The future of the sum, computed by a tree on the workers."""
        while len(futures) > 1:
            submit = self.placement.client.submit
            futures = [submit(total, *group, pure=False) for group in grouped(futures, FAN)]
        return futures

    def diagonal(self) -> np.ndarray:
        """Σ of the diagonals of all parts."""
        self.placement.refresh()
        found = [self.submit(p, 0, diagonal) for p in range(len(self.grid))]
        return np.asarray(self.added(found)[0].result())


@final
class Distributed(Jacobian):
    """C = Σ_p C_p or [C_1; C_2; …], with C_p the operator of a part of the data, on a worker.

    The same operator as that of `streamed`, up to the order in which numbers are added, and that
    does not depend on which worker does what: two products of one vector are equal.
    """

    def __init__(self, shares: Shares, *, transposed: bool = False) -> None:
        self.shares, self.transposed = shares, transposed
        first = shares.outlines[0]
        m = shares.ends[-1] if shares.stacked else first.shape[0]
        shape = (m, first.shape[1])[:: -1 if transposed else 1]
        super().__init__(shape[:1], shape[1:], first.dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        if op is not numbers:
            raise InputError("a product over workers cannot be written into a graph")
        columns = np.reshape(v, (-1, self.shape[1]))
        y = persistently(lambda: self.shares.product(columns, self.transposed))
        return y.reshape((*lead(v, self.in_shape), self.shape[0]))

    def _transpose(self) -> Jacobian:
        if not self.shares.stacked and self.shares.outlines[0].symmetric:
            return self
        return Distributed(self.shares, transposed=not self.transposed)

    def diagonal(self) -> np.ndarray:
        if self.shares.stacked:
            return super().diagonal()
        return persistently(self.shares.diagonal)

    def __repr__(self) -> str:
        parts, copies = len(self.shares.grid), self.shares.copies
        C = f"[C_1; …; C_{parts}]" if self.shares.stacked else f"Σ_p C_p, p = 1 … {parts}"
        return f"{C}{'ᵀ' if self.transposed else ''}, {copies} × on workers"
