"""Symbolic: a sparse matrix whose pattern is known and whose numbers are to be computed."""

from __future__ import annotations

import numpy as np

from ...jacobians import Jacobian
from .program import Program
from .terms import STRIP, Terms, expanded, joined, strips


class Symbolic:
    """A in rows: the terms k of row i are those from indptr[i] to indptr[i + 1].

    They are sorted by column, one for each place. Indices are narrow where that is enough.
    """

    def __init__(
        self, shape: tuple[int, int], indptr: np.ndarray, terms: Terms, program: Program
    ) -> None:
        self.shape, self.indptr, self.terms, self.program = shape, indptr, terms, program

    def under(self, operator: Jacobian) -> Symbolic:
        """operator · A, laid out some rows at a time."""
        E = self.program.entries(operator).by_row()
        counts = np.diff(self.indptr)[E.columns]
        parts: list[Symbolic | int] = [
            self._under(E[some], counts[some], top, height)
            for some, top, height in strips(E.rows, counts, operator.shape[0])
        ]
        return self.stacked(parts)

    def _under(self, E: Terms, counts: np.ndarray, top: int, height: int) -> Symbolic:
        """Rows of the product, where E holds those of the left factor."""
        k, at = expanded(self.indptr[E.columns], counts)
        A = self.terms
        variable = self.program.product(E.variable[k], A.variable[at])
        coefficient = E.coefficient[k] * A.coefficient[at]
        terms = Terms(E.rows[k] - top, A.columns[at], variable, coefficient)
        return assembled((height, self.shape[1]), terms, self.program)

    def plus(self, others: list[Symbolic]) -> Symbolic:
        """A + B + …, some rows at a time."""
        summands, m = (self, *others), self.shape[0]
        height = max(1, m * STRIP // max(sum(len(A.terms) for A in summands), 1))
        parts: list[Symbolic | int] = []
        for top in range(0, max(m, 1), height):
            stop = min(top + height, m)
            terms = joined([A.part(top, stop).terms for A in summands])
            parts.append(assembled((stop - top, self.shape[1]), terms, self.program))
        return self.stacked(parts)

    def part(self, start: int, stop: int) -> Symbolic:
        """The rows from start to stop."""
        first, last = self.indptr[start], self.indptr[stop]
        held = self.terms[first:last]
        terms = Terms(held.rows - start, held.columns, held.variable, held.coefficient)
        indptr = self.indptr[start : stop + 1] - first
        return Symbolic((stop - start, self.shape[1]), indptr, terms, self.program)

    def stacked(self, parts: list[Symbolic | int]) -> Symbolic:
        """Matrices of these columns, one below the other; a number stands for rows of zeros."""
        blocks = [self._zeros(part) if isinstance(part, int) else part for part in parts]
        if len(blocks) == 1:
            return blocks[0]
        counts = np.concatenate([np.diff(A.indptr) for A in blocks])
        terms = joined([A.terms for A in blocks])
        return in_rows((len(counts), self.shape[1]), counts, terms, self.program)

    def _zeros(self, rows: int) -> Symbolic:
        """No entries in so many rows."""
        none = np.zeros(rows, np.int64)
        return in_rows((rows, self.shape[1]), none, self.terms[:0], self.program)

    @property
    def T(self) -> Symbolic:
        """The transpose, by the same program."""
        A = self.terms
        terms = Terms(A.columns, A.rows, A.variable, A.coefficient)
        return assembled(self.shape[::-1], terms, self.program)


def unit(n: int, program: Program) -> Symbolic:
    """I."""
    at = np.arange(n)
    terms = Terms(at, at, np.zeros(n, np.int64), np.ones(n, program.dtype))
    return assembled((n, n), terms, program)


def assembled(shape: tuple[int, int], terms: Terms, program: Program) -> Symbolic:
    """The matrix with these terms: sorted, those at one place added, known zeros left out."""
    place = terms.rows * np.int64(shape[1]) + terms.columns
    if not np.all(place[1:] > place[:-1]):
        order = np.argsort(place, kind="stable")
        place, terms = place[order], terms[order]
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        if len(starts) < len(place):
            numbers = program.total(terms.variable, terms.coefficient, starts)
            terms = Terms(terms.rows[starts], terms.columns[starts], *numbers)
    kept = np.flatnonzero((terms.variable != 0) | (terms.coefficient != 0))
    terms = terms[kept] if len(kept) < len(terms) else terms
    return in_rows(shape, np.bincount(terms.rows, minlength=shape[0]), terms, program)


def in_rows(
    shape: tuple[int, int], counts: np.ndarray, terms: Terms, program: Program
) -> Symbolic:
    """The matrix with sorted terms, so many in each row."""
    narrow = np.int32 if max(*shape, program.length) < 2**31 else np.int64
    rows = np.repeat(np.arange(shape[0], dtype=narrow), counts)
    columns, variable = (a.astype(narrow, copy=False) for a in (terms.columns, terms.variable))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return Symbolic(shape, indptr, Terms(rows, columns, variable, terms.coefficient), program)
