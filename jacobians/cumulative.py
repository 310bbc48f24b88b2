"""Cumulative: running sums along an axis."""

from __future__ import annotations

from typing import Any

from .arrays import Array, Op, Shape, axis_of, prod_text, size
from .base import Jacobian


class Cumulative(Jacobian):
    """y[i] = Σ x[j] over j ≤ i (j < i where exclusive; from the end where reversed)."""

    def __init__(
        self, axis: int, shape: Shape, dtype: Any, *, exclusive: bool, reverse: bool
    ) -> None:
        super().__init__(shape, shape, dtype)
        self.axis = axis_of(axis, self.in_shape, "Cumulative")
        self.exclusive, self.reverse = exclusive, reverse

    def _apply(self, op: Op, v: Array) -> Array:
        return op.CumSum(v, self.axis, exclusive=int(self.exclusive), reverse=int(self.reverse))

    def _transpose(self) -> Jacobian:
        return Cumulative(self.axis, self.in_shape, self.dtype,
                          exclusive=self.exclusive, reverse=not self.reverse)  # fmt: skip

    @property
    def flops(self) -> int:
        return size(self.out_shape)

    def __repr__(self) -> str:
        return f"cumsum({prod_text(self.out_shape)}, axis {self.axis})"
