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

    def __add__(self, other: Symbolic) -> Symbolic:
        pairs = (
            (self.rows, other.rows), (self.columns, other.columns),
            (self.variable, other.variable), (self.coefficient, other.coefficient),
        )  # fmt: skip
        return assembled(self.shape, *map(np.concatenate, pairs), self.program)

    def part(self, start: int, stop: int) -> Symbolic:
        """The rows from start to stop."""
        first, last = self.indptr[start], self.indptr[stop]
        indptr = self.indptr[start : stop + 1] - first
        held = (a[first:last] for a in (self.columns, self.variable, self.coefficient))
        return Symbolic((stop - start, self.shape[1]), indptr, *held, self.program)

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


def stacked(parts: list[Symbolic]) -> Symbolic:
    """Matrices of the same columns, one below the other."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(p.indptr[-1] for p in parts)])
    indptr = [[0], *(p.indptr[1:] + s for p, s in zip(parts, starts, strict=False))]
    held = ((p.columns, p.variable, p.coefficient) for p in parts)
    shape = sum(p.shape[0] for p in parts), parts[0].shape[1]
    return Symbolic(
        shape, np.concatenate(indptr), *map(np.concatenate, zip(*held, strict=True)),
        parts[0].program,
    )  # fmt: skip


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
