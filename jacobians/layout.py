"""Operators that move, repeat or sum numbers.

`Outer` and `Inner` are diag(u) · bcast and sum · diag(w) as one operator, which can absorb more
factors.
"""

from __future__ import annotations

from typing import Any

from .arrays import Array, Op, Shape, dtype_of, factor, fits, lead, prod_text, shape_of, size
from .base import Jacobian
from .elementwise import Identity
from .errors import InputError
from .symint import agree, same


class Reshape(Jacobian):
    """y = x in another shape; as a matrix, the identity.

    x is of `in_shape`, y of `out_shape`, and both are of `dtype`.
    """

    def __init__(self, out_shape: Shape, in_shape: Shape, dtype: Any) -> None:
        if not agree(size(out_shape), size(in_shape)):
            raise InputError(f"Reshape: {list(in_shape)} cannot become {list(out_shape)}")
        super().__init__(out_shape, in_shape, dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        return op.Reshape(v, (*lead(v, self.in_shape), *self.out_shape))

    def _transpose(self) -> Jacobian:
        return Reshape(self.in_shape, self.out_shape, self.dtype)

    def __repr__(self) -> str:
        return f"reshape({prod_text(self.out_shape)})"


class Permutation(Jacobian):
    """y[i_perm(0), i_perm(1), ...] = x[i_0, i_1, ...]: axis k of y is axis perm[k] of x.

    `perm` orders the axes of x, of the shape `in_shape` and of `dtype`.
    """

    def __init__(self, perm: tuple[int, ...], in_shape: Shape, dtype: Any) -> None:
        self.perm = tuple(perm)
        if sorted(self.perm) != list(range(len(in_shape))):
            raise InputError(f"Permutation: {self.perm} does not order the axes of a tensor of "
                             f"shape {list(in_shape)}")  # fmt: skip
        super().__init__(tuple(in_shape[k] for k in self.perm), in_shape, dtype)

    def _apply(self, op: Op, v: Array) -> Array:
        k = len(lead(v, self.in_shape))
        return op.Transpose(v, perm=(*range(k), *(k + p for p in self.perm)))

    def _transpose(self) -> Jacobian:
        inverse = tuple(self.perm.index(k) for k in range(len(self.perm)))
        return Permutation(inverse, self.out_shape, self.dtype)

    def __repr__(self) -> str:
        return f"perm({', '.join(map(str, self.perm))})"


class Broadcast(Jacobian):
    """y = x repeated along axes of length 1 and along new leading axes, as ONNX broadcasts.

    x is of `in_shape`, y of `out_shape`, and both are of `dtype`.
    """

    def __init__(self, out_shape: Shape, in_shape: Shape, dtype: Any) -> None:
        super().__init__(out_shape, in_shape, dtype)
        check_repeats(self, self.in_shape, self.out_shape)

    def _apply(self, op: Op, v: Array) -> Array:
        k, new = lead(v, self.in_shape), len(self.out_shape) - len(self.in_shape)
        if k and new:
            v = op.Reshape(v, (*k, *(1,) * new, *self.in_shape))
        return op.Expand(v, (*k, *self.out_shape))

    def _transpose(self) -> Jacobian:
        return SumTo(self.in_shape, self.out_shape, self.dtype)

    def __repr__(self) -> str:
        return f"bcast({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


class SumTo(Jacobian):
    """y = x summed over the axes that `Broadcast` repeats: its transpose.

    x is of `in_shape`, y of `out_shape`, and both are of `dtype`.
    """

    def __init__(self, out_shape: Shape, in_shape: Shape, dtype: Any) -> None:
        super().__init__(out_shape, in_shape, dtype)
        check_repeats(self, self.out_shape, self.in_shape)

    def _apply(self, op: Op, v: Array) -> Array:
        k, summed = lead(v, self.in_shape), summed_axes(self.out_shape, self.in_shape)
        v = op.ReduceSum(v, summed, keepdims=1) if summed else v
        return op.Reshape(v, (*k, *self.out_shape))

    def _transpose(self) -> Jacobian:
        return Broadcast(self.in_shape, self.out_shape, self.dtype)

    @property
    def flops(self) -> int:
        return size(self.in_shape)

    def __repr__(self) -> str:
        return f"sum({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


def check_repeats(operator: Jacobian, small: Shape, large: Shape) -> None:
    """Raises `InputError` where a tensor of one shape does not broadcast to the other."""
    if not fits(small, large):
        raise InputError(f"{type(operator).__name__}: a tensor of shape {list(small)} does not "
                         f"broadcast to {list(large)}")  # fmt: skip


def summed_axes(small: Shape, large: Shape) -> tuple[int, ...]:
    """The negative axes of `large` along which `small` is repeated.

    >>> summed_axes((3, 1), (2, 3, 4))
    (-3, -1)
    """
    padded = (1,) * (len(large) - len(small)) + tuple(small)
    return tuple(
        axis - len(large)
        for axis, (s, n) in enumerate(zip(padded, large, strict=True))
        if axis < len(large) - len(small) or is_repeated(s, n)
    )


def is_repeated(small: int, large: int) -> bool:
    """Whether one entry is repeated along an axis; a decision if that cannot be proved."""
    if same(small, large) or same(small, 1):
        return not same(small, large)
    return small != large and small == 1


def broadcast(in_shape: Shape, out_shape: Shape, dtype: Any) -> Jacobian:
    """`Broadcast`, or a `Reshape` or `Identity` where nothing is repeated.

    x is of `in_shape`, y of `out_shape`, and both are of `dtype`.
    """
    if same(tuple(in_shape), tuple(out_shape)):
        return Identity(out_shape, dtype)
    kind = Reshape if same(size(in_shape), size(out_shape)) else Broadcast
    return kind(out_shape, in_shape, dtype)


class Outer(Jacobian):
    """y = u ∘ bcast(x): an outer product per row, without storing the repeated tensor.

    `u` broadcasts to y; x is of `in_shape`, y of `out_shape`.

    >>> import numpy as np
    >>> Outer(np.array([[1.0, 2.0], [3.0, 4.0]]), (2, 2), (2, 1)).toarray()
    array([[1., 0.],
           [2., 0.],
           [0., 3.],
           [0., 4.]])
    """

    holds = ("u",)

    def __init__(self, u: Array, out_shape: Shape, in_shape: Shape) -> None:
        self.u = u = factor(u)
        super().__init__(out_shape, in_shape, dtype_of(u))
        for small in (shape_of(u), self.in_shape):
            check_repeats(self, small, self.out_shape)

    def _apply(self, op: Op, v: Array) -> Array:
        k, new = lead(v, self.in_shape), len(self.out_shape) - len(self.in_shape)
        if k and new:
            v = op.Reshape(v, (*k, *(1,) * new, *self.in_shape))
        y = op.Mul(v, self.u)
        full = (*k, *self.out_shape)
        return y if shape_of(y) == full else op.Expand(y, full)

    def _transpose(self) -> Jacobian:
        return Inner(self.u, self.in_shape, self.out_shape)

    @property
    def flops(self) -> int:
        return size(self.out_shape)

    def __repr__(self) -> str:
        return f"outer({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


class Inner(Jacobian):
    """y = Σ w ∘ x: an inner product per row.

    `w` broadcasts to x; x is of `in_shape`, y of `out_shape`.

    >>> import numpy as np
    >>> Inner(np.array([[1.0, 2.0], [3.0, 4.0]]), (2, 1), (2, 2)).toarray()
    array([[1., 2., 0., 0.],
           [0., 0., 3., 4.]])
    """

    holds = ("w",)

    def __init__(self, w: Array, out_shape: Shape, in_shape: Shape) -> None:
        self.w = w = factor(w)
        super().__init__(out_shape, in_shape, dtype_of(w))
        for small in (shape_of(w), self.out_shape):
            check_repeats(self, small, self.in_shape)

    def _apply(self, op: Op, v: Array) -> Array:
        k, summed = lead(v, self.in_shape), summed_axes(self.out_shape, self.in_shape)
        y = op.Mul(v, self.w)
        y = op.ReduceSum(y, summed, keepdims=1) if summed else y
        return op.Reshape(y, (*k, *self.out_shape))

    def _transpose(self) -> Jacobian:
        return Outer(self.w, self.in_shape, self.out_shape)

    @property
    def flops(self) -> int:
        return 2 * size(self.in_shape)

    def __repr__(self) -> str:
        return f"inner({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"
