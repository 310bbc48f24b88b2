"""Accumulated: a sparse Jacobian multiplied out once, whose numbers a program computes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Dag, Jacobian, Part, Sum
from ...jacobians import Product as Composed
from ...jacobians.arrays import wide
from ...jacobians.cached import cached_property
from ...jacobians.chosen import has_choices
from ..support.optional import optional
from ..tape.template import Filled, Template
from .faces import bare, engine_of, undrawn
from .products import Product
from .program import Program
from .reading import Reading, identity, reading
from .scatter import Scatter
from .stages import scaled, stretch, uniform
from .sweep import swept
from .symbolic import Symbolic, unit

FUSED = 64
"""The most stages that are compiled as one function."""


class Accumulated:
    """The pattern, the numbers that never change, and the program of those that do.

    `backward` sweeps from the outputs, which is less work where they are few. `products` count
    where the operators hold both factors, which else would not be there at the next point.
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
        self._lay_out(A.T if backward else A)
        self.by_operators = reading(self.program.read, held_by(source))
        self.by_tape: tuple[Template, Reading] | None = None
        self.chooses = isinstance(operator, Dag) and has_choices(operator)

    def _lay_out(self, A: Symbolic) -> None:
        """data = constants, but for coefficient ∘ x[variable] at the moving entries."""
        dtype = self.program.dtype
        terms, moving = A.terms, np.flatnonzero(A.terms.variable)
        self.constants = np.where(terms.variable == 0, terms.coefficient, 0).astype(dtype)
        self.moving, self.variable = Scatter(moving), stretch(terms.variable[moving])
        self.coefficient = uniform(terms.coefficient[moving].astype(dtype))
        self.pattern = csr_array((np.ones(len(terms), bool), terms.columns, A.indptr), A.shape)
        self.program.close([self.variable])

    def fits(self, operator: Jacobian) -> bool:
        """Whether the numbers of an operator of the same structure can be computed."""
        return self.by_operators is not None and self.by_operators.fits(self._held(operator))

    def knows(self, tape: Filled | None) -> bool:
        """Whether the residuals of a point are enough, without its operators."""
        return self._reading(tape) is not None

    def learn(self, operator: Jacobian, tape: Filled | None) -> None:
        """Find what is read of the operators among the residuals that they were made of."""
        if tape is None or self.by_operators is None or not tape.template.rigid:
            return
        read = [identity(array) for array in self.by_operators.of(self._held(operator))]
        found = reading(read, tape.arrays)
        self.by_tape = None if found is None else (tape.template, found)

    def values(self, operator: Jacobian, out: np.ndarray | None = None) -> np.ndarray:
        """The entries, in the order of the pattern; into `out`, only those that may change."""
        data = self.constants.copy() if out is None else out
        if self.program.read:
            run = self.fused if engine_of(operator) == "numba" else self._in_turn
            run(self._read(operator), data)
        return data

    def _in_turn(self, arrays: Iterable[np.ndarray], data: np.ndarray) -> None:
        """Stage by stage, by NumPy."""
        x = self.program.run(arrays)
        self.moving.write(scaled(self.coefficient, x[self.variable]), data)
        self.program.done(x.x)

    @cached_property
    def fused(self) -> Callable[[Iterable[np.ndarray], np.ndarray], None]:
        """All stages and the writing as one function; raises `InputError` without numba.

        So many stages that numba would compile for minutes are taken in turn.
        """
        optional("numba", "numba")
        if len(self.program.stages) > FUSED:
            return self._in_turn
        from .fused import Fused

        at = stretch(self.moving.everywhere)
        return Fused(self.program, self.variable, self.coefficient, at)

    def _read(self, operator: Jacobian) -> list[np.ndarray]:
        """The arrays of the program, from the residuals if these are enough."""
        tape = undrawn(operator)
        found = self._reading(tape)
        if tape is not None and found is not None:
            return found.of(tape.arrays)
        assert self.by_operators is not None
        return self.by_operators.of(self._held(operator))

    def _reading(self, tape: Filled | None) -> Reading | None:
        """How the residuals of a point are read; None where they are not enough."""
        form, found = self.by_tape or (None, None)
        if tape is None or found is None or tape.template is not form:
            return None
        if tape.read_by is not found and found.fits(tape.arrays):
            read = found.of(tape.arrays) if self.chooses else ()
            if all(np.isfinite(array).all() for array in read):  # else some may be left out
                tape.read_by = found
        return found if tape.read_by is found else None

    def _held(self, operator: Jacobian) -> dict[int, np.ndarray]:
        operator = bare(operator)
        return held_by(operator.T if self.backward else operator)


def held_by(operator: Jacobian) -> dict[int, np.ndarray]:
    """The arrays of an operator, by numbers; a program holds none, and has its matrix instead."""
    matrices = [part.matrix for part in parts_in(operator)]
    return {**dict(enumerate(operator.arrays())), **{-1 - k: m for k, m in enumerate(matrices)}}


def parts_in(operator: Jacobian) -> Iterator[Part]:
    """The parts of programs among the factors and terms of an operator."""
    if isinstance(operator, Part):
        yield operator
    inner: Iterable[Jacobian] = ()
    if isinstance(operator, Dag):
        inner = (edge.operator for edge in operator.edges)
    elif isinstance(operator, Composed):
        inner = operator.factors
    elif isinstance(operator, Sum):
        inner = operator.terms
    for part in inner:
        yield from parts_in(part)
