"""Estimate: how much work a sparse product is, before anything is laid out."""

from __future__ import annotations

from dataclasses import dataclass

from ...jacobians import Jacobian
from ...jacobians.sparse import count


@dataclass
class Tally:
    """How many products of two entries a sweep takes."""

    terms: float = 0.0


@dataclass(frozen=True)
class Estimated:
    """So many entries in so many rows and columns, spread evenly."""

    rows: int
    columns: int
    entries: float
    tally: Tally

    def under(self, operator: Jacobian) -> Estimated:
        """operator · A: every entry of one meets a row of the other."""
        terms = count(operator) * self.entries / max(self.rows, 1)
        self.tally.terms += terms
        return self._with(operator.shape[0], terms)

    def plus(self, others: list[Estimated]) -> Estimated:
        """A + B + …"""
        return self._with(self.rows, self.entries + sum(B.entries for B in others))

    def part(self, start: int, stop: int) -> Estimated:
        """The rows from start to stop."""
        return self._with(stop - start, self.entries * (stop - start) / max(self.rows, 1))

    def stacked(self, parts: list[Estimated | int]) -> Estimated:
        """Matrices of these columns, one below the other; a number stands for rows of zeros."""
        blocks = [self._with(part, 0) if isinstance(part, int) else part for part in parts]
        return self._with(sum(B.rows for B in blocks), sum(B.entries for B in blocks))

    def _with(self, rows: int, entries: float) -> Estimated:
        return Estimated(rows, self.columns, min(entries, rows * self.columns), self.tally)
