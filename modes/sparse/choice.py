"""Choice: the cheaper of accumulating local matrices, done here, and products by a colouring."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Any

import numpy as np
from scipy.sparse import csr_array, eye_array, vstack

from ...jacobians import Dag, Jacobian, Part, Sylvester
from ...jacobians.arrays import wide
from ...jacobians.base import DENSE_LIMIT
from ...jacobians.dag import has_choices
from ...jacobians.errors import LimitError
from ...jacobians.sparse import count, factors, positions
from ..linear.derivatives.derivative import Derivative
from ..linear.derivatives.point import Point
from ..linear.elimination.cost import seconds
from .coloring import Coloring, Partition, best, coloring, cover, distinct_rows, width
from .program import (
    STRIP,
    ArraySources,
    EntryProgram,
    Terms,
    array_key,
    as_slice,
    expand_ranges,
    find_sources,
    join_terms,
    strips,
    uniform,
)
from .sweep import Matrix, Method, everything_in, point_behind, sweep_matrix, unwrap

LAID_OUT = 1e-8
"""Seconds charged for a term: a tenth of its time, since the program serves all later points."""

TERM = 1.5e-7
"""Seconds that a term takes once."""

COLORED = 1e-7
"""Seconds per entry to find the colours."""

PARTIAL = 2**24
"""Bytes that a partial product of a pattern may take where the limit is lower."""

DENSE_ENTRIES = 2**20
"""From this many entries on, a matrix without known zeros is taken from `toarray`."""

Fixed = Container[int] | None
"""The ids of the operators whose values never change; None for all operators."""


def method(
    operator: Jacobian, fixed: Fixed, limit: int, most: float = inf, *, symmetric: bool
) -> Method:
    """The cheaper of accumulation, from the better end, and products by a colouring.

    A large matrix without known zeros is multiplied out dense. Raises `LimitError` where the method
    takes more than `most` counted seconds.
    """
    forward, backward = estimate(operator)[0], estimate(operator.T)[0]
    turned = backward < forward / 2
    pattern = find_pattern(operator, fixed, backward=turned, limit=limit)
    if pattern.nnz == operator.shape[0] * operator.shape[1] >= DENSE_ENTRIES and most == inf:
        return Full(pattern)
    colors, terms = pattern.nnz / max(min(operator.shape), 1), min(forward, backward)
    products = COLORED * pattern.nnz + colors * seconds(operator)
    if LAID_OUT * terms <= products and TERM * terms <= most:
        return Accumulated(operator, fixed, limit, backward=turned)
    if products > most:
        raise LimitError(f"products by a colouring take {products:.2g} s, more than {most:.2g} s")
    return colored(pattern, symmetric=symmetric)


@dataclass(frozen=True)
class Full(Method):
    """The method for a matrix without known zeros: the dense matrix."""

    pattern: csr_array[Any]

    def values(self, operator: Jacobian) -> np.ndarray:
        return operator.toarray().astype(wide(operator.dtype), copy=False).ravel()


def estimate(operator: Jacobian) -> tuple[float, float]:
    """Estimates of the terms in a sweep for all entries, and of the number of entries."""
    terms, n = list[float](), operator.shape[1]
    found = sweep_matrix(operator, Estimated(n, n, n, terms))
    return sum(terms), found.entries


def check_entries(shape: tuple[int, int], dtype: Any, entries: int, limit: int) -> None:
    """Raises `LimitError` where the matrix alone would take more than the limit."""
    need = entries * (dtype.itemsize + np.dtype(np.int32).itemsize)
    if need > limit:
        m, n = shape
        raise LimitError(
            f"the sparse Jacobian of shape {m}×{n} ({dtype}) has up to {entries} "
            f"entries and needs {need} bytes, more than the limit of {limit}: keep it lazy, "
            f"take a block, or raise tosparse(limit=...)"
        )


def find_pattern(
    operator: Jacobian, fixed: Fixed, *, backward: bool, limit: int = DENSE_LIMIT
) -> csr_array[Any]:
    """The pattern, by a sweep from either end."""
    source = operator.T if backward else operator
    unit = csr_array(eye_array(source.shape[1], dtype=bool, format="csr"))
    each = np.arange(source.shape[1], dtype=np.int32)
    A = sweep_matrix(source, Boolean(unit, each, fixed, max(limit, PARTIAL)))
    count = int(np.diff(A.rows.indptr)[A.of].sum(dtype=np.int64))
    check_entries(operator.shape, operator.dtype, count, limit)
    found = csr_array(A.matrix.T) if backward else A.matrix
    found.sort_indices()
    return int32_indices(found)


def int32_indices(pattern: csr_array[Any]) -> csr_array[Any]:
    """The pattern with int32 indices where these fit, as SUNDIALS, PETSc and IPOPT take them."""
    if max(*pattern.shape, pattern.nnz) <= np.iinfo(np.int32).max:
        pattern.indices = pattern.indices.astype(np.int32, copy=False)
        pattern.indptr = pattern.indptr.astype(np.int32, copy=False)
    return pattern


def colored(pattern: csr_array[Any], *, symmetric: bool) -> Coloring:
    """The colouring with the partition that promises the fewest products."""
    if symmetric:
        return coloring(int32_indices(csr_array(pattern + pattern.T)), "symmetric")
    bounds: dict[Partition, int] = {"column": width(pattern), "row": width(pattern.T)}
    bounds["bidirectional"] = best(pattern, cover(pattern))[0] + 2
    return coloring(pattern, min(bounds, key=lambda name: bounds[name]))


@dataclass(frozen=True)
class Estimated(Matrix):
    """A matrix by its size and an estimated number of entries, spread evenly.

    `terms` are the numbers of products of two entries in a sweep, one for each operator.
    """

    rows: int
    columns: int
    entries: float
    terms: list[float]

    def under(self, operator: Jacobian) -> Estimated:
        self.terms.append(count(operator) * self.entries / max(self.rows, 1))
        return self._with(operator.shape[0], self.terms[-1])

    def plus(self, others: list[Estimated]) -> Estimated:
        return self._with(self.rows, self.entries + sum(B.entries for B in others))

    def part(self, start: int, stop: int) -> Estimated:
        return self._with(stop - start, self.entries * (stop - start) / max(self.rows, 1))

    def zeros(self, rows: int) -> Estimated:
        return self._with(rows, 0)

    def stacked(self, parts: list[Estimated]) -> Estimated:
        return self._with(sum(B.rows for B in parts), sum(B.entries for B in parts))

    def _with(self, rows: int, entries: float) -> Estimated:
        return Estimated(rows, self.columns, min(entries, rows * self.columns), self.terms)


class Boolean(Matrix):
    """A pattern by its distinct rows: row i is rows[of[i]]. Zeros of fixed values are left out.

    The channels of a convolution and the outputs of a dense layer have a row in common.
    """

    def __init__(self, rows: csr_array[Any], of: np.ndarray, fixed: Fixed, limit: int) -> None:
        self.rows, self.of, self.fixed, self.limit = rows, of, fixed, limit

    @property
    def matrix(self) -> csr_array[Any]:
        """All rows."""
        return csr_array(self.rows[self.of])

    def under(self, operator: Jacobian) -> Boolean:
        rows, of = self.rows, self.of
        constant = self.fixed is None or id(operator) in self.fixed
        if not factors(operator):
            check_entries(operator.shape, operator.dtype, count(operator), self.limit)
        for local in reversed(positions(operator, constant=constant)):
            shape = local.shape[0], rows.shape[0]
            local = csr_array((local.data, of[local.indices], local.indptr), shape)
            local.sum_duplicates()
            first, of = distinct_rows(local)
            local = csr_array(local[first])
            terms = int(np.diff(rows.indptr)[local.indices].sum(dtype=np.int64))
            check_entries((operator.shape[0], rows.shape[1]), operator.dtype, terms, self.limit)
            rows = csr_array(local @ rows)
            rows.sort_indices()
        return self._with(rows, of)

    def plus(self, others: list[Boolean]) -> Boolean:
        rows, of = self.rows, self.of
        for B in others:
            key = of.astype(np.int64) * B.rows.shape[0] + B.of
            pairs, of = np.unique(key, return_inverse=True)
            i, j = np.divmod(pairs, B.rows.shape[0])
            for C, k in (rows, i), (B.rows, j):
                entries = int(np.diff(C.indptr)[k].sum(dtype=np.int64))
                check_entries((len(k), C.shape[1]), C.dtype, entries, self.limit)
            rows = rows[i] + B.rows[j]
            of = of.astype(B.of.dtype)
        return self._with(rows, of)

    def part(self, start: int, stop: int) -> Boolean:
        return self._with(self.rows, self.of[start:stop])

    def zeros(self, rows: int) -> Boolean:
        none = csr_array((1, self.rows.shape[1]), dtype=bool)
        return self._with(none, np.zeros(rows, np.int32))

    def stacked(self, parts: list[Boolean]) -> Boolean:
        starts = accumulate((B.rows.shape[0] for B in parts), initial=0)
        of = np.concatenate([start + B.of for start, B in zip(starts, parts, strict=False)])
        return self._with(csr_array(vstack([B.rows for B in parts], format="csr")), of)

    def _with(self, rows: csr_array[Any], of: np.ndarray) -> Boolean:
        return Boolean(rows, of, self.fixed, self.limit)


# -- accumulation: all local matrices multiplied out once, entries by a program --------------------


class Accumulated(Method):
    """The pattern, the constant entries, and the program that computes all other entries.

    data = constants, except for coefficient ∘ x[variable] at the `moving` entries.

    `backward` sweeps from the outputs, which is less work if there are few of them.
    """

    def __init__(
        self, operator: Jacobian, fixed: Container[int] | None, limit: int, *, backward: bool
    ) -> None:
        self.backward = backward
        self.program = EntryProgram(wide(operator.dtype), fixed, limit)
        source = operator.T if backward else operator
        A = sweep_matrix(source, identity_matrix(source.shape[1], self.program))
        A = A.T if backward else A
        terms, moving = A.terms, np.flatnonzero(A.terms.variable)
        constants = np.where(terms.variable == 0, terms.coefficient, 0)
        self.constants = constants.astype(self.program.dtype)
        self.moving, self.variable = as_slice(moving), as_slice(terms.variable[moving])
        self.coefficient = uniform(terms.coefficient[moving].astype(self.program.dtype))
        ones = np.ones(len(terms), bool)
        self.pattern = int32_indices(csr_array((ones, terms.columns, A.indptr), A.shape))
        self.by_operators = find_sources(self.program.read, held_by(source))
        self.by_derivative: tuple[Derivative, ArraySources] | None = None
        self.chooses = isinstance(operator, Dag) and has_choices(operator)

    def fits(self, operator: Jacobian) -> bool:
        return self.by_operators is not None and self.by_operators.fits(self._held(operator))

    def knows(self, point: Point | None) -> bool:
        return self._reading(point) is not None

    def learn(self, operator: Jacobian, point: Point | None) -> None:
        form = None if point is None else point.derivative
        if point is None or form is None or not form.rigid or self.by_operators is None:
            return
        if point.place is not None:  # the program reads arrays of NumPy
            return
        read = [array_key(array) for array in self.by_operators.of(self._held(operator))]
        found = find_sources(read, point.residuals)
        self.by_derivative = None if found is None else (form, found)

    def values(self, operator: Jacobian) -> np.ndarray:
        data = self.constants.copy()
        self.write(operator, data)
        return data

    def write(self, operator: Jacobian, out: np.ndarray) -> None:
        if self.program.read:
            x = self.program.run(self._read(operator))
            out[self.moving] = self.coefficient * x[self.variable]

    def _read(self, operator: Jacobian) -> list[np.ndarray]:
        """The arrays of the program, from the residuals if these suffice."""
        point = point_behind(operator)
        found = self._reading(point)
        if point is not None and found is not None:
            return found.of(point)
        assert self.by_operators is not None
        return self.by_operators.of(self._held(operator))

    def _reading(self, point: Point | None) -> ArraySources | None:
        """How the residuals at a point are read; None if they do not suffice."""
        form, found = self.by_derivative or (None, None)
        if point is None or found is None or point.derivative is not form:
            return None
        if point.read_by is not found and found.fits(point):
            read = found.of(point) if self.chooses else ()
            if all(np.isfinite(array).all() for array in read):  # else some may be left out
                point.read_by = found
        return found if point.read_by is found else None

    def _held(self, operator: Jacobian) -> dict[int, np.ndarray]:
        operator = unwrap(operator)
        return held_by(operator.T if self.backward else operator)


def held_by(operator: Jacobian) -> dict[int, np.ndarray]:
    """The arrays of an operator, by number, and matrices that are computed, not held."""
    computed = (part for part in everything_in(operator) if isinstance(part, Part | Sylvester))
    matrices = [part.matrix for part in computed]
    return {**dict(enumerate(operator.arrays())), **{-1 - k: m for k, m in enumerate(matrices)}}


class Symbolic(Matrix):
    """A sparse matrix with a known pattern and with entries that a program computes.

    The terms of row i are terms[indptr[i] : indptr[i + 1]], sorted by column, one per position.
    Indices have 32 bits if that is enough. Products and sums are made in strips of rows.
    """

    def __init__(
        self, shape: tuple[int, int], indptr: np.ndarray, terms: Terms, program: EntryProgram
    ) -> None:
        self.shape, self.indptr, self.terms, self.program = shape, indptr, terms, program

    def under(self, operator: Jacobian) -> Symbolic:
        E = self.program.entries(operator).by_row()
        counts = np.diff(self.indptr)[E.columns]
        parts = [
            self._under(E[some], counts[some], top, height)
            for some, top, height in strips(E.rows, counts, operator.shape[0])
        ]
        return self.stacked(parts)

    def _under(self, E: Terms, counts: np.ndarray, top: int, height: int) -> Symbolic:
        """Rows of the product, where E holds the same rows of the left factor."""
        k, at = expand_ranges(self.indptr[E.columns], counts)
        A = self.terms
        variable = self.program.product(E.variable[k], A.variable[at])
        coefficient = E.coefficient[k] * A.coefficient[at]
        terms = Terms(E.rows[k] - top, A.columns[at], variable, coefficient)
        return assemble_terms((height, self.shape[1]), terms, self.program)

    def plus(self, others: list[Symbolic]) -> Symbolic:
        summands, m = (self, *others), self.shape[0]
        height = max(1, m * STRIP // max(sum(len(A.terms) for A in summands), 1))
        parts = []
        for top in range(0, max(m, 1), height):
            stop = min(top + height, m)
            terms = join_terms([A.part(top, stop).terms for A in summands])
            parts.append(assemble_terms((stop - top, self.shape[1]), terms, self.program))
        return self.stacked(parts)

    def part(self, start: int, stop: int) -> Symbolic:
        first, last = self.indptr[start], self.indptr[stop]
        held = self.terms[first:last]
        terms = Terms(held.rows - start, held.columns, held.variable, held.coefficient)
        indptr = self.indptr[start : stop + 1] - first
        return Symbolic((stop - start, self.shape[1]), indptr, terms, self.program)

    def stacked(self, parts: list[Symbolic]) -> Symbolic:
        if len(parts) == 1:
            return parts[0]
        counts = np.concatenate([np.diff(A.indptr) for A in parts])
        terms = join_terms([A.terms for A in parts])
        return in_rows((len(counts), self.shape[1]), counts, terms, self.program)

    def zeros(self, rows: int) -> Symbolic:
        none = np.zeros(rows, np.int64)
        return in_rows((rows, self.shape[1]), none, self.terms[:0], self.program)

    @property
    def T(self) -> Symbolic:
        """The transpose, with the same program."""
        A = self.terms
        terms = Terms(A.columns, A.rows, A.variable, A.coefficient)
        return assemble_terms(self.shape[::-1], terms, self.program)


def identity_matrix(n: int, program: EntryProgram) -> Symbolic:
    """The identity matrix."""
    at = np.arange(n)
    terms = Terms(at, at, np.zeros(n, np.int64), np.ones(n, program.dtype))
    return assemble_terms((n, n), terms, program)


def assemble_terms(shape: tuple[int, int], terms: Terms, program: EntryProgram) -> Symbolic:
    """The matrix of some terms: sorted, duplicates added up, known zeros dropped."""
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
    shape: tuple[int, int], counts: np.ndarray, terms: Terms, program: EntryProgram
) -> Symbolic:
    """The matrix of sorted terms, with `counts` terms in each row."""
    narrow = np.int32 if max(*shape, program.length) < 2**31 else np.int64
    rows = np.repeat(np.arange(shape[0], dtype=narrow), counts)
    columns, variable = (a.astype(narrow, copy=False) for a in (terms.columns, terms.variable))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return Symbolic(shape, indptr, Terms(rows, columns, variable, terms.coefficient), program)
