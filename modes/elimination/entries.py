"""Entries: diagonals on the few entries that are taken or put, not on all that these come from."""

from __future__ import annotations

from ...jacobians import Array, Diagonal, Reshape, Scatter, Take, reading_of, shape_of, size
from .chain import Factors, swaps
from .smaller import padded


@swaps(Take, Diagonal)
def _(T: Take, d: Diagonal) -> Factors | None:
    if size(T.out_shape) >= size(T.in_shape):
        return None
    return Diagonal(taken(d.d, T), T.out_shape), T


@swaps(Diagonal, Scatter)
def _(d: Diagonal, S: Scatter) -> Factors | None:
    if size(S.in_shape) >= size(S.out_shape):
        return None
    T = S.T
    assert isinstance(T, Take)
    return S, Diagonal(taken(d.d, T), S.in_shape)


@swaps(Take, Reshape, Diagonal)
def _(T: Take, R: Reshape, d: Diagonal) -> Factors | None:
    if size(T.out_shape) >= size(T.in_shape):
        return None
    op = reading_of(d.d)
    whole = op.Reshape(op.Expand(d.d, R.in_shape), R.out_shape)
    return Diagonal(taken(whole, T), T.out_shape), T, R


def taken(d: Array, T: Take) -> Array:
    """d at the entries that are taken."""
    op, shape = reading_of(d), padded(d, len(T.in_shape))
    axis = T.axis % len(shape)
    if shape[axis] == 1:
        ones = (1,) * len(shape_of(T.index))
        return op.Reshape(d, (*shape[:axis], *ones, *shape[axis + 1 :]))
    return op.Gather(op.Reshape(d, shape), T.index, axis=axis)
