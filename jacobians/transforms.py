"""Cumulative, Fourier and Circulant: running sums, Fourier transforms, circular convolutions."""

from __future__ import annotations

from math import ceil, log2

import numpy as np
from numpy.typing import DTypeLike

from .arrays import (
    Array,
    Op,
    Shape,
    axis_of,
    dtype_of,
    factor,
    host,
    is_complex,
    lead,
    prod_text,
    reading_of,
    shape_of,
    size,
)
from .base import Jacobian
from .elementwise import Scalar
from .errors import InputError
from .symint import agree, at
from .threads import cached_property


class Cumulative(Jacobian):
    """y[i] = Σ x[j] over j ≤ i (j < i where exclusive; from the end where reversed).

    The sum is along `axis` of x, of this `shape` and `dtype`, and is `exclusive` or in `reverse`.
    """

    def __init__(
        self, axis: int, shape: Shape, dtype: DTypeLike, *, exclusive: bool, reverse: bool
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
    """y[k] = Σ x[j] exp(∓2πi jk/n) along an axis, / n if inverse; the last axis is (re, im).

    The sum is along `axis` of x, of this `shape` and `dtype`; `inverse` is the inverse transform.
    """

    def __init__(self, axis: int, shape: Shape, dtype: DTypeLike, *, inverse: bool = False) -> None:
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


class Circulant(Jacobian):
    """y[i] = Σⱼ c[i - j] x[j], indices modulo n: a circular convolution along the last axes.

    The `kernel` c has as many axes as are convolved, and the length of each; further leading axes
    of `shape` are a batch. By the convolution theorem, y = F⁻¹ diag(F c) F x.

    >>> Circulant(np.array([1.0, 2.0, 3.0])).toarray()
    array([[1., 3., 2.],
           [2., 1., 3.],
           [3., 2., 1.]])
    """

    holds = ("kernel",)

    def __init__(self, kernel: Array, shape: Shape | None = None) -> None:
        self.kernel = kernel = factor(kernel)
        own = shape_of(kernel)
        super().__init__(own if shape is None else shape, own if shape is None else shape,
                         dtype_of(kernel))  # fmt: skip
        if not own or 0 in at(own) or not agree(self.in_shape[-len(own) :], own):
            raise InputError(f"Circulant: a kernel of shape {list(own)} does not act on the last "
                             f"axes of a tensor of shape {list(self.in_shape)}")  # fmt: skip
        self.axes = tuple(range(-len(own), 0))

    def _apply(self, op: Op, v: Array) -> Array:
        if not isinstance(v, np.ndarray) or v.dtype.kind == "O":
            return self._by_pairs(op, v)
        if not v.size:
            return v
        if np.iscomplexobj(v) or self.dtype.kind == "c":
            return np.fft.ifftn(np.fft.fftn(v, axes=self.axes) * self.eigenvalues, axes=self.axes)
        product = np.fft.rfftn(v, axes=self.axes) * self.spectrum
        return np.fft.irfftn(product, shape_of(self.kernel), self.axes)

    def _by_pairs(self, op: Op, v: Array) -> Array:
        """The product by transforms of ONNX, whose complex numbers are pairs on the last axis."""
        if is_complex(v):
            real, imaginary = (self._by_pairs(op, part) for part in (v.real, v.imag))
            return real + 1j * imaginary
        if is_complex(self.kernel):
            parts = (Circulant(c, self.in_shape) for c in (self.kernel.real, self.kernel.imag))
            real, imaginary = (part._by_pairs(op, v) for part in parts)
            return real + 1j * imaginary
        (a, b), (c, d) = self._transformed(op, v), self._transformed(op, self.kernel)
        real = op.Sub(op.Mul(a, c), op.Mul(b, d))
        imaginary = op.Add(op.Mul(a, d), op.Mul(b, c))
        shape = (*lead(v, self.in_shape), *self.in_shape)
        found = op.Concat(*(op.Reshape(x, (*shape, 1)) for x in (real, imaginary)), axis=-1)
        for axis in self.axes:
            found = op.DFT(found, None, axis - 1, inverse=1, onesided=0)
        return op.Gather(found, np.array(0), axis=len(shape))

    def _transformed(self, op: Op, x: Array) -> tuple[Array, Array]:
        """The real and the imaginary part of F x."""
        shape = shape_of(x)
        x = op.Reshape(x, (*shape, 1))
        for axis in self.axes:
            x = op.DFT(x, None, axis - 1, inverse=0, onesided=0)
        return tuple(op.Gather(x, np.array(k), axis=len(shape)) for k in (0, 1))

    def _transpose(self) -> Jacobian:
        """The kernel with every axis reversed, except for its entry 0."""
        op, c = reading_of(self.kernel), self.kernel
        for axis, n in enumerate(shape_of(self.kernel)):
            c = op.Gather(c, -np.arange(n) % n, axis=axis)
        return Circulant(c, self.in_shape)

    @cached_property
    def eigenvalues(self) -> np.ndarray:
        """F c: each is an eigenvalue `count` times."""
        return np.fft.fftn(host(self.kernel))

    @cached_property
    def spectrum(self) -> np.ndarray:
        """The eigenvalues; for a real kernel the first half, which determines the other half."""
        return self.eigenvalues if self.dtype.kind == "c" else np.fft.rfftn(host(self.kernel))

    @property
    def count(self) -> int:
        """The number of signals of a batch."""
        return size(self.in_shape[: -len(self.axes)])

    def with_spectrum(self, values: np.ndarray) -> Circulant:
        """The circulant of the same dtype with the `spectrum` given by `values`."""
        shape: Shape = shape_of(self.kernel)
        back = np.fft.ifftn if self.dtype.kind == "c" else np.fft.irfftn
        found = Circulant(back(values, shape, self.axes).astype(self.dtype), self.in_shape)
        found.__dict__["spectrum"] = values
        return found

    @property
    def flops(self) -> int:
        return 10 * size(self.in_shape) * ceil(log2(max(size(shape_of(self.kernel)), 2)))

    def _diagonal(self) -> Array:
        first = host(self.kernel).flat[0] if self.shape[0] else 0
        return np.full(self.shape[0], first, self.dtype)

    def __repr__(self) -> str:
        return f"circulant({prod_text(shape_of(self.kernel))})"
