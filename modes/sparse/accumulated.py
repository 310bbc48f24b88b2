"""Accumulated: a sparse Jacobian multiplied out once, whose numbers a program computes."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Jacobian
from .faces import bare
from .program import Program, identity
from .scatter import Scatter
from .stages import scaled, stretch, uniform
from .sweep import swept
from .symbolic import Symbolic, unit


class Accumulated:
    """The pattern, the numbers that never change, and the program of those that do.

    `backward` sweeps from the outputs, which is less work where they are few.
    """

    def __init__(
        self, operator: Jacobian, fixed: Container[int] | None, limit: int, *, backward: bool
    ) -> None:
        self.backward = backward
        self.program = Program(operator.dtype, fixed, limit)
        source = operator.T if backward else operator
        A = swept(source, unit(source.shape[1], self.program))
        self._lay_out(A.T if backward else A)
        keys = [identity(a) for a in source.arrays()]
        self.aliases = aliases(keys)
        self.read = [keys.index(key) if key in keys else -1 for key in self.program.starts]

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
        keys = map(identity, self._arrays(operator))
        return -1 not in self.read and aliases(keys) == self.aliases

    def values(self, operator: Jacobian, out: np.ndarray | None = None) -> np.ndarray:
        """The entries, in the order of the pattern; into `out`, only those that may change."""
        data = self.constants.copy() if out is None else out
        if self.read:
            arrays = self._arrays(operator)
            x = self.program.run([arrays[k] for k in self.read])
            self.moving.write(scaled(self.coefficient, x[self.variable]), data)
            self.program.done(x)
        return data

    def _arrays(self, operator: Jacobian) -> list[np.ndarray]:
        operator = bare(operator)
        return list((operator.T if self.backward else operator).arrays())


def aliases(keys: Iterable[Any]) -> tuple[int, ...]:
    """For every array the first one that is the same.

    >>> aliases("abca")
    (0, 1, 2, 0)
    """
    first: dict[Any, int] = {}
    return tuple(first.setdefault(key, k) for k, key in enumerate(keys))
