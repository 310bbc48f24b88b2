"""Fourier: the discrete Fourier transform of complex numbers, as a real operator."""

from __future__ import annotations

from math import ceil, log2
from typing import Any

from .arrays import Array, Op, Shape, prod_text, size
from .base import Jacobian
from .identity import Scalar


class Fourier(Jacobian):
    """y[k] = Σ x[j] exp(∓2πi jk/n) on an axis, over n where inverse; the last axis is (re, im)."""

    def __init__(self, axis: int, shape: Shape, dtype: Any, *, inverse: bool = False) -> None:
        super().__init__(shape, shape, dtype)
        self.axis, self.inverted = axis % len(shape) - len(shape), inverse

    def _apply(self, op: Op, v: Array) -> Array:
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
