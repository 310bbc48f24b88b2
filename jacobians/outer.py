"""Outer and Inner: a broadcast or a sum together with its weights, per row.

They are diag(u) · bcast and sum · diag(w) as one operator that can take in more factors.
"""

from __future__ import annotations

from collections.abc import Iterator

from .arrays import Array, Op, Shape, dtype_of, factor, lead, prod_text, shape_of, size
from .base import Jacobian
from .layout import check_repeats, summed_axes


class Outer(Jacobian):
    """y = u ∘ bcast(x): an outer product per row, without the repeated tensor.

    >>> import numpy as np
    >>> Outer(np.array([[1.0, 2.0], [3.0, 4.0]]), (2, 2), (2, 1)).toarray()
    array([[1., 0.],
           [2., 0.],
           [0., 3.],
           [0., 4.]])
    """

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

    def arrays(self) -> Iterator[Array]:
        yield self.u

    @property
    def flops(self) -> int:
        return size(self.out_shape)

    def __repr__(self) -> str:
        return f"outer({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"


class Inner(Jacobian):
    """y = Σ w ∘ x: an inner product per row.

    >>> import numpy as np
    >>> Inner(np.array([[1.0, 2.0], [3.0, 4.0]]), (2, 1), (2, 2)).toarray()
    array([[1., 2., 0., 0.],
           [0., 0., 3., 4.]])
    """

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

    def arrays(self) -> Iterator[Array]:
        yield self.w

    @property
    def flops(self) -> int:
        return 2 * size(self.in_shape)

    def __repr__(self) -> str:
        return f"inner({prod_text(self.in_shape)} → {prod_text(self.out_shape)})"
