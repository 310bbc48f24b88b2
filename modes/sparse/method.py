"""Method: a way to find the entries of a sparse Jacobian, which serves many points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Jacobian
from ...jacobians.closed import all_numbers
from ...jacobians.placing import HOST, placed
from ..hessian import Hessian
from ..linear.elimination.adaptive import Adaptive
from ..linear.linearization import Linearization
from ..linear.products.compiled import Compiled
from ..linear.symmetric import Symmetric
from ..linear.tape.tape import Tape


class Method(ABC):
    """The entries of any operator with a `pattern`, in the order of the sorted pattern.

    By default a method works for every operator with the pattern, and needs the operator itself.
    """

    pattern: csr_array[Any]

    def fits(self, operator: Jacobian) -> bool:
        """Whether the method works for an `operator` of the same structure."""
        return True

    def knows(self, tape: Tape | None) -> bool:
        """Whether the residuals at a point, `tape`, suffice, whatever the operators are."""
        return False

    def learn(self, operator: Jacobian, tape: Tape | None) -> None:  # noqa: B027 - may do nothing
        """Take note of an `operator` that fits, and of its residuals, `tape`."""

    @abstractmethod
    def values(self, operator: Jacobian) -> np.ndarray:
        """The entries of an `operator`."""

    def write(self, operator: Jacobian, out: np.ndarray) -> None:
        """Write at least the entries of an `operator` that may vary into `out`."""
        out[:] = self.values(operator)


def unwrap(operator: Jacobian) -> Jacobian:
    """The operator without wrappers, over NumPy arrays."""
    behind = bare(operator)
    return behind if getattr(behind, "place", None) is None else placed(behind, HOST)


def alike(operator: Jacobian) -> Jacobian:
    """The operator without wrappers: where its arrays are, if that is one place, else NumPy's."""
    found = bare(operator)
    return found if all_numbers(found) else unwrap(found)


@singledispatch
def bare(operator: Jacobian) -> Jacobian:
    """The operator without wrappers, over arrays where they are."""
    return operator


@bare.register
def _(operator: Linearization) -> Jacobian:
    return operator.there


@bare.register
def _(operator: Adaptive) -> Jacobian:
    return operator.dag


@bare.register
def _(operator: Compiled | Hessian | Symmetric) -> Jacobian:
    return bare(operator.operator)


def tape_of(operator: Jacobian) -> Tape | None:
    """The tape of a model's Jacobian; None for another operator."""
    J = operator.J if isinstance(operator, Hessian) else operator
    return J.tape if isinstance(J, Linearization) else None
