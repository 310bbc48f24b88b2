"""Parallel: diag(d) + outer(u) W where u = d ∘ r is diag(d) (I + bcast · diag(r) · W).

That is how a softmax and its kin look when they are written out: u need not be read, nor kept.
"""

from __future__ import annotations

import numpy as np

from ...jacobians import (
    Broadcast,
    Diagonal,
    Identity,
    Jacobian,
    Outer,
    Product,
    Shape,
    Sum,
    shape_of,
    size,
)
from ...jacobians.layout import summed_axes
from ...jacobians.products import factors_of
from .cancellation import ROUNDINGS
from .chain import product
from .deferred import Deferred, numbers_of
from .terms import plus


def factored(operator: Jacobian) -> Jacobian:
    """The operator with each sum's common diagonal in front."""
    if isinstance(operator, Product):
        parts = tuple(map(factored, operator.factors))
        return operator if parts == operator.factors else Product(flat(parts))
    if not isinstance(operator, Sum):
        return operator
    whole = next((t for t in operator.terms if isinstance(t, Diagonal)), None)
    if whole is None or size(shape_of(whole.d)) < whole.shape[0]:
        return operator
    shares = [share(whole, term) for term in operator.terms]
    if any(term is None for term in shares):
        return operator
    return Product((whole, plus(*(term for term in shares if term is not None))))


def flat(parts: tuple[Jacobian, ...]) -> tuple[Jacobian, ...]:
    """Factors of factors."""
    return tuple(factor for part in parts for factor in factors_of(part))


def share(d: Diagonal, term: Jacobian) -> Jacobian | None:
    """T with term = d · T, or None where there is no cheap one."""
    if term is d:
        return Identity(d.out_shape, d.dtype)
    first, *rest = factors_of(term)
    if not isinstance(first, Outer) or size(shape_of(first.u)) < first.shape[0]:
        return None
    r = ratio(numbers_of(first.u), numbers_of(d.d), first.in_shape, first.out_shape)
    if r is None:
        return None
    repeat = Broadcast(first.out_shape, first.in_shape, first.dtype)
    small: Jacobian = product(repeat, Diagonal(Deferred(r.shape, r.dtype, lambda: r)))
    for factor in rest:
        small = product(small, factor)
    return small


def ratio(u: np.ndarray, d: np.ndarray, small: Shape, large: Shape) -> np.ndarray | None:
    """r over the small tensor with u = d ∘ bcast(r), up to rounding, or None.

    >>> ratio(np.array([[2.0, 4.0]]), np.array([[1.0, 2.0]]), (1, 1), (1, 2))
    array([[2.]])
    """
    if d.dtype.kind != "f" or d.dtype.itemsize < 4:
        return None
    u, d, axes = u.reshape(large), d.reshape(large), summed_axes(small, large)
    with np.errstate(all="ignore"):
        r = np.sum(u * d, axis=axes, keepdims=True) / np.sum(d * d, axis=axes, keepdims=True)
        near = np.abs(u - d * r) <= ROUNDINGS * np.finfo(d.dtype).eps * np.abs(u)
    return r.reshape(small) if np.all(near) and np.all(np.isfinite(r)) else None
