"""Diagonal: what an elementwise operator does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .arrays import Array, Op, Shape, dtype_of, factor, fits, prod_text, shape_of, size
from .base import Jacobian
from .errors import InputError


class Diagonal(Jacobian):
    """y = d ∘ x. `d` may be smaller than x and is then broadcast, never stored expanded.

    It `chooses` where the operator does not look at the entries of x with d = 0: see `chosen`.
    """

    def __init__(self, d: Array, shape: Shape | None = None, *, chooses: bool = False) -> None:
        self.d, self.chooses = factor(d), chooses
        shape = shape_of(d) if shape is None else shape
        super().__init__(shape, shape, dtype_of(self.d))
        if not fits(shape_of(d), self.in_shape):
            raise InputError(f"Diagonal: entries of shape {list(shape_of(d))} do not broadcast to "
                             f"a tensor of shape {list(self.in_shape)}")  # fmt: skip

    def _apply(self, op: Op, v: Array) -> Array:
        return op.Mul(v, self.d)

    def _transpose(self) -> Jacobian:
        return self

    def arrays(self) -> Iterator[Array]:
        yield self.d

    @property
    def flops(self) -> int:
        return size(self.out_shape)

    def diagonal(self) -> np.ndarray:
        return np.broadcast_to(self.d, self.out_shape).flatten()

    def __repr__(self) -> str:
        return f"diag({prod_text(shape_of(self.d))})"
