"""Symbolic: a sparse matrix whose pattern is known and whose numbers are to be computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Jacobian
from ...jacobians.errors import LimitError
from .program import Program

TERM = 64
"""Bytes that one product of two entries takes while a matrix product is laid out, about."""


class Symbolic:
    """A[i, columns[k]] = coefficient[k] · x[variable[k]], for k in indptr[i] … indptr[i + 1]."""

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
        """operator · A."""
        rows, inner, variable, coefficient = self.program.entries(operator)
        counts = np.diff(self.indptr)[inner]
        check_terms(int(counts.sum()), self.program.limit)
        k, at = expanded(self.indptr[inner], counts)
        return assembled(
            (operator.shape[0], self.shape[1]), rows[k], self.columns[at],
            self.program.product(variable[k], self.variable[at]),
            coefficient[k] * self.coefficient[at], self.program,
        )  # fmt: skip

    def plus(self, others: list[Symbolic]) -> Symbolic:
        """A + B + …"""
        terms = (self, *others)
        held = ((A.rows, A.columns, A.variable, A.coefficient) for A in terms)
        return assembled(self.shape, *map(np.concatenate, zip(*held, strict=True)), self.program)

    def part(self, start: int, stop: int) -> Symbolic:
        """The rows from start to stop."""
        first, last = self.indptr[start], self.indptr[stop]
        indptr = self.indptr[start : stop + 1] - first
        held = (a[first:last] for a in (self.columns, self.variable, self.coefficient))
        return Symbolic((stop - start, self.shape[1]), indptr, *held, self.program)

    def stacked(self, parts: list[Symbolic | int]) -> Symbolic:
        """Matrices of these columns, one below the other; a number stands for rows of zeros."""
        blocks = [self.zeros(part) if isinstance(part, int) else part for part in parts]
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


def identity(n: int, program: Program) -> Symbolic:
    """I."""
    at = np.arange(n + 1)
    return Symbolic((n, n), at, at[:n], np.zeros(n, np.int64), np.ones(n, program.dtype), program)


def assembled(
    shape: tuple[int, int],
    rows: np.ndarray,
    columns: np.ndarray,
    variable: np.ndarray,
    coefficient: np.ndarray,
    program: Program,
) -> Symbolic:
    """The matrix with these entries: sorted, those at one place added, known zeros left out."""
    place = rows * shape[1] + columns
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


def check_terms(terms: int, limit: int) -> None:
    """Raises `LimitError` where a product has too many terms to be laid out."""
    if terms * TERM > limit:
        raise LimitError(
            f"the sparse Jacobian has a product of {terms} terms, which needs "
            f"{terms * TERM / 2**30:.2f} GiB, more than the limit of {limit / 2**30:.2f} GiB: "
            f"keep it lazy, take a block, or raise tosparse(limit=...)"
        )
