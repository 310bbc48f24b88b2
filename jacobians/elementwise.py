"""Diagonal, Identity, Scalar, Cast and Zero: operators that act on each entry alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from .arrays import (
    Array,
    Op,
    Shape,
    common,
    dtype_of,
    factor,
    fits,
    floating_dtype,
    held_text,
    is_complex,
    is_recorded,
    lead,
    prod_text,
    shape_of,
    size,
    wide,
)
from .base import Jacobian
from .errors import InputError
from .readings import module_of
from .symint import at, is_symbolic, same


class Diagonal(Jacobian):
    """y = d ∘ x. `d` may be smaller than x and is then broadcast, never stored expanded.

    `shape` is the shape of x, by default the shape of `d`.

    `chooses` says that the operator ignores the entries of x with d = 0: see `chosen`.
    """

    holds = ("d",)

    def __init__(self, d: Array, shape: Shape | None = None, *, chooses: bool = False) -> None:
        self.d, self.chooses = factor(d), chooses
        shape = shape_of(self.d) if shape is None else shape
        super().__init__(shape, shape, dtype_of(self.d))
        if not fits(shape_of(self.d), self.in_shape):
            raise InputError(f"Diagonal: entries of shape {list(shape_of(self.d))} do not "
                             f"broadcast to a tensor of shape {list(self.in_shape)}")  # fmt: skip

    def _apply(self, op: Op, v: Array) -> Array:
        return op.Mul(v, self.d)

    def _transpose(self) -> Jacobian:
        return self

    @property
    def flops(self) -> int:
        return size(self.out_shape)

    def _diagonal(self) -> Array:
        return module_of(self.d).broadcast_to(self.d, self.out_shape).flatten()

    def __repr__(self) -> str:
        return f"diag({held_text(self.d)})"


class Identity(Jacobian):
    """y = x, for x of this `shape` and `dtype`."""

    def __init__(self, shape: Shape, dtype: DTypeLike) -> None:
        super().__init__(shape, shape, dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        return v

    def _transpose(self) -> Jacobian:
        return self

    def _diagonal(self) -> Array:
        return np.ones(self.shape[0], self.dtype)

    def __repr__(self) -> str:
        return f"I({prod_text(self.out_shape)})"


class Zero(Jacobian):
    """y = 0: the input does not reach the output.

    x is of `in_shape`, y of `out_shape`, and both are of `dtype`.
    """

    def _apply(self, op: Op, v: Array) -> Array:
        zero = np.zeros((), self.dtype)
        return op.Expand(zero, (*lead(v, self.in_shape), *self.out_shape))

    def _transpose(self) -> Jacobian:
        return Zero(self.in_shape, self.out_shape, self.dtype)

    def _diagonal(self) -> Array:
        return np.zeros(min(self.shape), self.dtype)

    def __repr__(self) -> str:
        return f"0({prod_text(self.out_shape)}, {prod_text(self.in_shape)})"


class Scalar(Jacobian):
    """y = c x, with c the `factor`, for x of this `shape` and `dtype`."""

    def __init__(self, factor: float, shape: Shape, dtype: DTypeLike) -> None:
        super().__init__(shape, shape, dtype)
        if not isinstance(factor, float) and not is_symbolic(factor):
            if np.ndim(factor) or np.iscomplexobj(factor) or not np.isreal(factor):
                raise InputError(f"Scalar: the factor is a real number, not {factor!r}; a Diagonal "
                                 "takes complex ones")  # fmt: skip
            factor = float(factor)
        self.factor = factor

    def _apply(self, op: Op, v: Array) -> Array:
        return op.Neg(v) if same(self.factor, -1) else op.Mul(v, self.factor)

    def _transpose(self) -> Jacobian:
        return self

    @property
    def flops(self) -> int:
        return size(self.out_shape)

    def _diagonal(self) -> Array:
        return np.full(self.shape[0], self.factor, self.dtype)

    def __repr__(self) -> str:
        return f"{at(self.factor):g}"


class Cast(Jacobian):
    """y = x in another floating type: the identity, up to rounding.

    x is of this `shape` and of the dtype `source`, y of the dtype `target`.
    """

    def __init__(self, shape: Shape, source: DTypeLike, target: DTypeLike) -> None:
        self.source, self.target = floating_dtype(source), floating_dtype(target)
        super().__init__(shape, shape, common(self.source, self.target))

    def _apply(self, op: Op, v: Array) -> Array:
        # A graph has the model's dtypes; numbers in half precision are not rounded in between.
        target = self.target if is_recorded(v) else wide(self.target)
        target = common(target, dtype_of(v)) if is_complex(v) else target
        return op.CastLike(v, np.zeros((), target))

    def _transpose(self) -> Jacobian:
        return Cast(self.in_shape, self.target, self.source)

    def _diagonal(self) -> Array:
        return np.ones(self.shape[0], self.dtype)

    def __repr__(self) -> str:
        return f"cast({self.target})"
