"""Accumulated: a sparse Jacobian, multiplied out once, with entries computed by a program."""

from __future__ import annotations

from collections.abc import Container, Iterable

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Dag, Jacobian, Part, Sylvester
from ...jacobians.arrays import wide
from ...jacobians.chosen import has_choices
from ..linear.tape.tape import Tape
from ..linear.tape.template import Template
from .program import (
    STRIP,
    Product,
    Program,
    Reading,
    Scatter,
    Terms,
    as_slice,
    expanded,
    identity,
    joined,
    reading,
    scaled,
    strips,
    uniform,
)
from .sweep import Matrix, Method, everything_in, swept, tape_of, unwrap


class Accumulated(Method):
    """The pattern, the constant entries, and the program that computes all other entries.

    data = constants, except for coefficient ∘ x[variable] at the `moving` entries.

    `backward` sweeps from the outputs, which is less work if there are few of them. A product among
    `products` is used if the operators hold its two factors as well, so that all three are known at
    the next point.
    """

    def __init__(
        self, operator: Jacobian, fixed: Container[int] | None, limit: int, *, backward: bool,
        products: Iterable[Product] = (),
    ) -> None:  # fmt: skip
        self.backward = backward
        held = set(map(identity, operator.arrays()))
        known = [product for product in products if held.issuperset(product)]
        self.program = Program(wide(operator.dtype), fixed, limit, known)
        source = operator.T if backward else operator
        A = swept(source, unit(source.shape[1], self.program))
        A = A.T if backward else A
        terms, moving = A.terms, np.flatnonzero(A.terms.variable)
        constants = np.where(terms.variable == 0, terms.coefficient, 0)
        self.constants = constants.astype(self.program.dtype)
        self.moving, self.variable = Scatter(moving), as_slice(terms.variable[moving])
        self.coefficient = uniform(terms.coefficient[moving].astype(self.program.dtype))
        self.pattern = csr_array((np.ones(len(terms), bool), terms.columns, A.indptr), A.shape)
        self.program.close([self.variable])
        self.by_operators = reading(self.program.read, held_by(source))
        self.by_template: tuple[Template, Reading] | None = None
        self.chooses = isinstance(operator, Dag) and has_choices(operator)

    def fits(self, operator: Jacobian) -> bool:
        return self.by_operators is not None and self.by_operators.fits(self._held(operator))

    def knows(self, tape: Tape | None) -> bool:
        return self._reading(tape) is not None

    def learn(self, operator: Jacobian, tape: Tape | None) -> None:
        form = None if tape is None else tape.template
        if tape is None or form is None or not form.rigid or self.by_operators is None:
            return
        if tape.place is not None:  # the program reads arrays of NumPy
            return
        read = [identity(array) for array in self.by_operators.of(self._held(operator))]
        found = reading(read, tape.residuals)
        self.by_template = None if found is None else (form, found)

    def values(self, operator: Jacobian) -> np.ndarray:
        data = self.constants.copy()
        self.write(operator, data)
        return data

    def write(self, operator: Jacobian, out: np.ndarray) -> None:
        if self.program.read:
            x = self.program.run(self._read(operator))
            self.moving.write(scaled(self.coefficient, x[self.variable]), out)
            self.program.done(x.x)

    def _read(self, operator: Jacobian) -> list[np.ndarray]:
        """The arrays of the program, from the residuals if these suffice."""
        tape = tape_of(operator)
        found = self._reading(tape)
        if tape is not None and found is not None:
            return found.of(tape)
        assert self.by_operators is not None
        return self.by_operators.of(self._held(operator))

    def _reading(self, tape: Tape | None) -> Reading | None:
        """How the residuals at a point are read; None if they do not suffice."""
        form, found = self.by_template or (None, None)
        if tape is None or found is None or tape.template is not form:
            return None
        if tape.read_by is not found and found.fits(tape):
            read = found.of(tape) if self.chooses else ()
            if all(np.isfinite(array).all() for array in read):  # else some may be left out
                tape.read_by = found
        return found if tape.read_by is found else None

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
        self, shape: tuple[int, int], indptr: np.ndarray, terms: Terms, program: Program
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
        k, at = expanded(self.indptr[E.columns], counts)
        A = self.terms
        variable = self.program.product(E.variable[k], A.variable[at])
        coefficient = E.coefficient[k] * A.coefficient[at]
        terms = Terms(E.rows[k] - top, A.columns[at], variable, coefficient)
        return assembled((height, self.shape[1]), terms, self.program)

    def plus(self, others: list[Symbolic]) -> Symbolic:
        summands, m = (self, *others), self.shape[0]
        height = max(1, m * STRIP // max(sum(len(A.terms) for A in summands), 1))
        parts = []
        for top in range(0, max(m, 1), height):
            stop = min(top + height, m)
            terms = joined([A.part(top, stop).terms for A in summands])
            parts.append(assembled((stop - top, self.shape[1]), terms, self.program))
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
        terms = joined([A.terms for A in parts])
        return in_rows((len(counts), self.shape[1]), counts, terms, self.program)

    def zeros(self, rows: int) -> Symbolic:
        none = np.zeros(rows, np.int64)
        return in_rows((rows, self.shape[1]), none, self.terms[:0], self.program)

    @property
    def T(self) -> Symbolic:
        """The transpose, with the same program."""
        A = self.terms
        terms = Terms(A.columns, A.rows, A.variable, A.coefficient)
        return assembled(self.shape[::-1], terms, self.program)


def unit(n: int, program: Program) -> Symbolic:
    """The identity matrix."""
    at = np.arange(n)
    terms = Terms(at, at, np.zeros(n, np.int64), np.ones(n, program.dtype))
    return assembled((n, n), terms, program)


def assembled(shape: tuple[int, int], terms: Terms, program: Program) -> Symbolic:
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
    shape: tuple[int, int], counts: np.ndarray, terms: Terms, program: Program
) -> Symbolic:
    """The matrix of sorted terms, with `counts` terms in each row."""
    narrow = np.int32 if max(*shape, program.length) < 2**31 else np.int64
    rows = np.repeat(np.arange(shape[0], dtype=narrow), counts)
    columns, variable = (a.astype(narrow, copy=False) for a in (terms.columns, terms.variable))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return Symbolic(shape, indptr, Terms(rows, columns, variable, terms.coefficient), program)
