"""Cumulative and Fourier: running sums and discrete Fourier transforms along an axis."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

from .arrays import Array, Op, Shape, axis_of, is_complex, prod_text, size
from .base import Jacobian
from .elementwise import Scalar
from .errors import InputError


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


class Fourier(Jacobian):
    """y[k] = Σ x[j] exp(∓2πi jk/n) along an axis, / n if inverse; the last axis is (re, im)."""

    def __init__(self, axis: int, shape: Shape, dtype: Any, *, inverse: bool = False) -> None:
        super().__init__(shape, shape, dtype)
        self.axis, self.inverted = axis_of(axis, self.in_shape, "Fourier"), inverse
        if self.axis == -1 or self.in_shape[-1] != 2:
            raise InputError(f"Fourier: the last axis of {list(self.in_shape)} is no pair of real "
                             f"and imaginary part, or it is axis {axis} itself")  # fmt: skip

    def _apply(self, op: Op, v: Array) -> Array:
        if is_complex(v):  # the (re, im) axis holds real numbers only
            real, imaginary = (self._apply(op, part) for part in (v.real, v.imag))
            return real + 1j * imaginary
        return op.DFT(v, None, self.axis, inverse=int(self.inverted), onesided=0)

    def _transpose(self) -> Jacobian:
        n = self.in_shape[self.axis]
        other = Fourier(self.axis, self.in_shape, self.dtype, inverse=not self.inverted)
        return Scalar(1 / n if self.inverted else n, self.in_shape, self.dtype) @ other

    @property
    def flops(self) -> int:
        n = self.in_shape[self.axis]
        return 5 * size(self.in_shape) // 2 * ceil(log2(max(n, 2)))

    def __repr__(self) -> str:
        name = "dft⁻¹" if self.inverted else "dft"
        return f"{name}({prod_text(self.out_shape)}, axis {self.axis})"
