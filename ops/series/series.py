"""Series: Σ aₖ tᵏ, as an operand of the vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...jacobians import Array, Shape, reading
from .coefficients import Coefficients, Term


class PowerSeries:
    """Σ aₖ tᵏ with coefficients made when they are asked for; None is zero.

    A derivative of a series has a `degree` above 0: its coefficient k moves as t^(k + degree).
    """

    const_value = None

    def __init__(
        self, op: Coefficients, shape: Shape, dtype: np.dtype, degree: int,
        make: Callable[[int], Term | None],
    ) -> None:  # fmt: skip
        self.op, self.shape, self.dtype, self.degree, self.make = op, shape, dtype, degree, make
        self.known: dict[int, Term | None] = {}
        self.meta: dict[str, Any] = {}
        self._derivative: PowerSeries | None = None

    def term(self, k: int) -> Term | None:
        """The coefficient of tᵏ."""
        if k not in self.known:
            self.known[k] = self.make(k)
        return self.known[k]

    def __getitem__(self, k: int) -> Array | None:
        """The coefficient of tᵏ, multiplied out."""
        term = self.term(k)
        return None if term is None else self.op.whole(term)

    def derivative(self) -> PowerSeries:
        """a′(t) = Σ k aₖ tᵏ⁻¹."""

        def make(k: int) -> Term | None:
            term = self.term(k + 1)
            return term and term.times(k + 1.0)

        if self._derivative is None:
            self._derivative = PowerSeries(self.op, self.shape, self.dtype, self.degree + 1, make)
        return self._derivative


@reading.register(PowerSeries)
def _reading(value: PowerSeries) -> Any:
    return value.op
