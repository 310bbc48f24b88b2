"""Method: a way to find the entries of a sparse Jacobian, which serves many points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Jacobian
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
