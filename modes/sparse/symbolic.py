"""Symbolic: a sparse matrix whose pattern is known and whose numbers are to be computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...jacobians import Jacobian
from .program import Program

STRIP = 2**21
"""Terms that are laid out at a time: a hundred bytes each, whatever the size of the matrix."""


class Symbolic:
    """A[i, columns[k]] = coefficient[k] · x[variable[k]] for k in indptr[i] … indptr[i + 1]."""

    def __init__(
        self,
        shape: tuple[int, int],
        indptr: np.ndarray,
        columns: np.ndarray,
        variable: np.ndarray,
        coefficient: np.ndarray,
        program: Program,
    ) -> None:
        self.shape, self.indptr, self.columns = shape, indptr, columns
        self.variable, self.coefficient, self.program = variable, coefficient, program

    @property
    def rows(self) -> np.ndarray:
        """The row of every entry."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    def under(self, operator: Jacobian) -> Symbolic:
        """operator · A, laid out some rows at a time."""
        E = by_row(self.program.entries(operator))
        counts = np.diff(self.indptr)[E[1]]
        parts = (
            self._under(E[0][some] - top, *(e[some] for e in E[1:]), counts[some], height)
            for some, top, height in strips(E[0], counts, operator.shape[0])
        )
        return self.stacked(list(parts))

    def _under(
        self, rows: np.ndarray, inner: np.ndarray, variable: np.ndarray,
        coefficient: np.ndarray, counts: np.ndarray, height: int,
    ) -> Symbolic:  # fmt: skip
        k, at = expanded(self.indptr[inner], counts)
        return assembled(
            (height, self.shape[1]), rows[k], self.columns[at],
            self.program.product(variable[k], self.variable[at]),
            coefficient[k] * self.coefficient[at], self.program,
        )  # fmt: skip

    def plus(self, others: list[Symbolic]) -> Symbolic:
        """A + B + …, some rows at a time."""
        terms = (self, *others)
        height = max(1, self.shape[0] * STRIP // max(sum(int(A.indptr[-1]) for A in terms), 1))
        tops = range(0, max(self.shape[0], 1), height)
        cuts = ((top, min(top + height, self.shape[0])) for top in tops)
        return self.stacked([together([A.part(*cut) for A in terms]) for cut in cuts])

    def part(self, start: int, stop: int) -> Symbolic:
        """The rows from start to stop."""
        first, last = self.indptr[start], self.indptr[stop]
        indptr = self.indptr[start : stop + 1] - first
        held = (a[first:last] for a in (self.columns, self.variable, self.coefficient))
        return Symbolic((stop - start, self.shape[1]), indptr, *held, self.program)

    def stacked(self, parts: list[Symbolic | int]) -> Symbolic:
        """Matrices of these columns, one below the other; a number stands for rows of zeros."""
        blocks = [self.zeros(part) if isinstance(part, int) else part for part in parts]
        if len(blocks) == 1:
            return blocks[0]
        counts = np.concatenate([np.diff(A.indptr) for A in blocks])
        held = ((A.columns, A.variable, A.coefficient) for A in blocks)
        return Symbolic(
            (len(counts), self.shape[1]), np.concatenate([[0], np.cumsum(counts)]),
            *map(np.concatenate, zip(*held, strict=True)), self.program,
        )  # fmt: skip

    def zeros(self, rows: int) -> Symbolic:
        """No entries in so many rows."""
        none = self.columns[:0], self.variable[:0], self.coefficient[:0]
        indptr = np.zeros(rows + 1, np.int64)
        return Symbolic((rows, self.shape[1]), indptr, *none, self.program)

    @property
    def T(self) -> Symbolic:
        """The transpose, by the same program."""
        m, n = self.shape
        return assembled(
            (n, m), self.columns, self.rows, self.variable, self.coefficient, self.program
        )


def unit(n: int, program: Program) -> Symbolic:
    """I."""
    at = np.arange(n + 1)
    return Symbolic((n, n), at, at[:n], np.zeros(n, np.int64), np.ones(n, program.dtype), program)


def together(terms: list[Symbolic]) -> Symbolic:
    """The sum of matrices that are small enough to be laid out at once."""
    held = ((A.rows, A.columns, A.variable, A.coefficient) for A in terms)
    joined = map(np.concatenate, zip(*held, strict=True))
    return assembled(terms[0].shape, *joined, terms[0].program)


def by_row(E: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Entries sorted by their rows."""
    if np.all(E[0][1:] >= E[0][:-1]):
        return E
    order = np.argsort(E[0], kind="stable")
    return tuple(e[order] for e in E)


def strips(rows: np.ndarray, counts: np.ndarray, m: int) -> Iterator[tuple[slice, int, int]]:
    """Cuts entries, sorted by row, where so many terms have come together.

    Gives the entries of each strip of rows, its first row, and how many rows it has.
    """
    ends = np.cumsum(counts)
    full = np.searchsorted(ends, np.arange(STRIP, ends[-1] if len(ends) else 0, STRIP))
    tops = np.unique([0, *rows[full], m])
    cuts = np.searchsorted(rows, tops)
    for k in range(max(len(tops) - 1, 1)):
        last = min(k + 1, len(tops) - 1)
        yield slice(cuts[k], cuts[last]), int(tops[k]), int(tops[last] - tops[k])


def assembled(
    shape: tuple[int, int],
    rows: np.ndarray,
    columns: np.ndarray,
    variable: np.ndarray,
    coefficient: np.ndarray,
    program: Program,
) -> Symbolic:
    """The matrix with these entries: sorted, those at one place added, known zeros left out."""
    place = rows * np.int64(shape[1]) + columns
    if not np.all(place[1:] > place[:-1]):
        order = np.argsort(place, kind="stable")
        place, variable, coefficient = place[order], variable[order], coefficient[order]
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        place = place[starts]
        if len(starts) < len(variable):
            variable, coefficient = program.total(variable, coefficient, starts)
        rows, columns = np.divmod(place, shape[1])
    kept = np.flatnonzero((variable != 0) | (coefficient != 0))
    if len(kept) < len(variable):
        rows, columns, variable, coefficient = (
            a[kept] for a in (rows, columns, variable, coefficient)
        )
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
    narrow = np.int32 if max(shape[1], program.length) < 2**31 else np.int64
    columns, variable = (a.astype(narrow, copy=False) for a in (columns, variable))
    return Symbolic(shape, indptr, columns, variable, coefficient, program)


def expanded(starts: np.ndarray, counts: np.ndarray) -> tuple[Any, np.ndarray]:
    """For stretches of `counts` from `starts`: which stretch, and where, for every position.

    >>> expanded(np.array([5, 0]), np.array([2, 1]))
    (array([0, 0, 1]), array([5, 6, 0]))
    """
    if np.all(counts == 1):
        return np.arange(len(counts)), starts
    stretch = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    return stretch, np.arange(len(stretch)) + (starts - before)[stretch]


