"""Choice: the cheaper of accumulating local matrices and taking products by a colouring."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array, eye_array, vstack

from ...jacobians import Jacobian
from ...jacobians.errors import LimitError
from ...jacobians.sparse import count, entries
from ..elimination.cost import seconds
from ..tape.tape import Tape
from .accumulated import Accumulated
from .coloring import Coloring, best, coloring, cover, width
from .program import Product
from .sweep import swept

LAID_OUT = 2e-8
"""Extra seconds to lay out a term, compared with finding its position."""

COLORED = 1e-7
"""Seconds per entry to find the colours."""

Fixed = Container[int] | None
"""The ids of the operators whose values never change; None for all operators."""


class Method(Protocol):
    """A way to find the entries of J, in the order of `pattern`."""

    @property
    def pattern(self) -> csr_array[Any]:
        """The positions of the entries, sorted."""

    def fits(self, operator: Jacobian) -> bool:
        """Whether the method works for an operator of the same structure."""

    def knows(self, tape: Tape | None) -> bool:
        """Whether the residuals at a point suffice, whatever the operators are."""

    def learn(self, operator: Jacobian, tape: Tape | None) -> None:
        """Take note of an operator that fits, and of the residuals that it was built from."""

    def values(self, operator: Jacobian, out: np.ndarray | None = None) -> np.ndarray:
        """The entries of an operator; into `out`, at least the entries that may vary."""


def method(
    operator: Jacobian, fixed: Fixed, limit: int, *, symmetric: bool,
    known: Iterable[Product] = (),
) -> Method:  # fmt: skip
    """The cheaper of accumulation, from the better end, and products by a colouring.

    `known` are products of arrays of the operator that the model computes.
    """
    (forward, entries), (backward, others) = estimate(operator), estimate(operator.T)
    entries = min(entries, others)
    check_entries(operator, entries, limit)
    turned = backward < forward / 2
    colors = entries / max(min(operator.shape), 1)
    products = COLORED * entries + colors * seconds(operator)
    if LAID_OUT * min(forward, backward) <= products:
        return Accumulated(operator, fixed, limit, backward=turned, products=known)
    return colored(where(operator, fixed, backward=turned), symmetric=symmetric)


def estimate(operator: Jacobian) -> tuple[float, float]:
    """Estimates of the terms in a sweep for all entries, and of the number of entries."""
    tally, n = Tally(), operator.shape[1]
    found = swept(operator, Estimated(n, n, n, tally))
    return tally.terms, found.entries


def check_entries(operator: Jacobian, entries: float, limit: int) -> None:
    """Raises `LimitError` where the matrix alone would take more than the limit."""
    need = entries * (operator.dtype.itemsize + np.dtype(np.int32).itemsize)
    if need > limit:
        m, n = operator.shape
        raise LimitError(
            f"the sparse Jacobian of shape {m}×{n} ({operator.dtype}) has about {entries:.0f} "
            f"entries and needs {need:.0f} bytes, more than the limit of {limit}: keep it lazy, "
            f"take a block, or raise tosparse(limit=...)"
        )


def where(operator: Jacobian, fixed: Fixed, *, backward: bool) -> csr_array[Any]:
    """The pattern, by a sweep from either end."""
    source = operator.T if backward else operator
    unit = csr_array(eye_array(source.shape[1], dtype=bool, format="csr"))
    found = swept(source, Boolean(unit, fixed)).matrix
    found = csr_array(found.T) if backward else found
    found.sort_indices()
    return found


def colored(pattern: csr_array[Any], *, symmetric: bool) -> Coloring:
    """The colouring with the partition that promises the fewest products."""
    if symmetric:
        return coloring(pattern + pattern.T, "symmetric")
    bounds = {"column": width(pattern), "row": width(pattern.T)}
    bounds["bidirectional"] = best(pattern, cover(pattern))[0] + 2
    return coloring(pattern, min(bounds, key=lambda name: bounds[name]))


@dataclass
class Tally:
    """The number of products of two entries in a sweep."""

    terms: float = 0.0


@dataclass(frozen=True)
class Estimated:
    """A matrix by its size and an estimated number of entries, spread evenly."""

    rows: int
    columns: int
    entries: float
    tally: Tally

    def under(self, operator: Jacobian) -> Estimated:
        """operator · A: every entry of the operator multiplies a row of A."""
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
        """Matrices with the same columns, stacked vertically; a number stands for zero rows."""
        blocks = [self._with(part, 0) if isinstance(part, int) else part for part in parts]
        return self._with(sum(B.rows for B in blocks), sum(B.entries for B in blocks))

    def _with(self, rows: int, entries: float) -> Estimated:
        return Estimated(rows, self.columns, min(entries, rows * self.columns), self.tally)


class Boolean:
    """A pattern; zeros of operators with fixed values are left out."""

    def __init__(self, matrix: csr_array[Any], fixed: Fixed) -> None:
        self.matrix, self.fixed = matrix, fixed

    def under(self, operator: Jacobian) -> Boolean:
        """operator · A."""
        E = entries(operator)
        if not E.held or self.fixed is None or id(operator) in self.fixed:
            E = E.known()
        local = csr_array((np.ones(len(E.rows), bool), (E.rows, E.columns)), operator.shape)
        return Boolean(local @ self.matrix, self.fixed)

    def plus(self, others: list[Boolean]) -> Boolean:
        """A + B + …"""
        return Boolean(sum((B.matrix for B in others), self.matrix), self.fixed)

    def part(self, start: int, stop: int) -> Boolean:
        """The rows from start to stop."""
        return Boolean(self.matrix[start:stop], self.fixed)

    def stacked(self, parts: list[Boolean | int]) -> Boolean:
        """Matrices with the same columns, stacked vertically; a number stands for zero rows."""
        columns = self.matrix.shape[1]
        blocks = [
            csr_array((part, columns), dtype=bool) if isinstance(part, int) else part.matrix
            for part in parts
        ]
        return Boolean(csr_array(vstack(blocks, format="csr")), self.fixed)
