"""Mixed products: Kronecker products merge with one another, also through layouts between them.

(A ⊗ B)(C ⊗ D) = AC ⊗ BD, and L (C ⊗ D) = (C' ⊗ D') L' for a reshape or a permutation of axes L
after which C and D still act on the last two axes, each on one of them.
"""

from __future__ import annotations

from typing import Any

from .arrays import reading_of, shape_of, size
from .base import Jacobian
from .layout import Permutation, Reshape
from .matrices import Eye, Factor, Kron, matrix_shape
from .symint import same

Commuted = tuple[Kron, Jacobian]


def mixed(k: Kron, h: Kron) -> Kron:
    """(A ⊗ B)(C ⊗ D) = AC ⊗ BD."""
    return Kron(factor_product(k.left, h.left), factor_product(k.right, h.right), k.batch)


def factor_product(a: Factor, b: Factor) -> Factor:
    """A B, where each may be an identity."""
    if isinstance(a, Eye):
        return b
    return a if isinstance(b, Eye) else reading_of(a, b).MatMul(a, b)


def adjacent(k: Kron, layout: Jacobian, h: Kron) -> tuple[Kron, Kron, Jacobian, bool] | None:
    """k · L · h as K, H and a layout: K H L, or L K H where the last one is False; None if neither.

    >>> import numpy as np
    >>> k, h = Kron(np.ones((2, 3)), Eye(4), ()), Kron(np.ones((4, 5)), Eye(3), ())
    >>> adjacent(k, Permutation((1, 0), (4, 3), float), h)[:3]
    ((A[2×3] ⊗ I(4)), (I(3) ⊗ A[4×5]), perm(1, 0))
    """
    if found := commuted(layout, h):
        return k, found[0], found[1], True
    turned: Any = k.T
    if found := commuted(layout.T, turned):
        left: Any = found[0].T
        return left, h, found[1].T, False
    return None


def commuted(layout: Jacobian, K: Kron) -> Commuted | None:
    """K' and L' with L K = K' L'; None if L does not commute with K."""
    if isinstance(layout, Permutation):
        return through_permutation(layout, K)
    return through_reshape(layout, K) if isinstance(layout, Reshape) else None


def through_permutation(P: Permutation, K: Kron) -> Commuted | None:
    """Each matrix follows the axis that it acts on, if that is one of the last two afterwards."""
    rank, factors = len(P.perm), list[Factor](map(Eye, P.out_shape[-2:]))
    for factor, axis in ((K.left, rank - 2), (K.right, rank - 1)):
        if isinstance(factor, Eye):
            continue
        side = P.perm.index(axis) - (rank - 2)
        moved = moved_batch(factor, P.perm) if side >= 0 else None
        if moved is None:
            return None
        factors[side] = moved
    left, right = factors
    return Kron(left, right, P.out_shape[:-2]), Permutation(P.perm, K.in_shape, P.dtype)


def moved_batch(factor: Factor, perm: tuple[int, ...]) -> Factor | None:
    """The stack of matrices over permuted batch axes; None if one becomes an axis of matrices."""
    shape, rank = shape_of(factor), len(perm)
    if len(shape) == 2:
        return factor
    full = (1,) * (rank - len(shape)) + tuple(shape[:-2])
    if any(not same(full[axis], 1) for axis in perm[-2:] if axis < rank - 2):
        return None
    op, order = reading_of(factor), tuple(axis for axis in perm[:-2] if axis < rank - 2)
    left_out = tuple(axis for axis in range(rank - 2) if axis not in order)
    whole = op.Reshape(factor, (*full, *shape[-2:]))
    whole = op.Transpose(whole, perm=(*left_out, *order, rank - 2, rank - 1))
    batch = tuple(full[axis] if axis < rank - 2 else 1 for axis in perm[:-2])
    return op.Reshape(whole, (*batch, *shape[-2:]))


def through_reshape(R: Reshape, K: Kron) -> Commuted | None:
    """A matrix shared by the batch, where the reshape keeps the axes that it acts on."""
    held = [f for f in (K.left, K.right) if not isinstance(f, Eye)]
    kept = 1 if isinstance(K.left, Eye) else 2
    shape = R.out_shape
    if len(shape) < 2 or not same(shape[-kept:], K.out_shape[-kept:]):
        return None
    if any(not same(size(shape_of(f)[:-2]), 1) for f in held):
        return None
    left = Eye(shape[-2]) if isinstance(K.left, Eye) else flat(K.left)
    right = K.right if isinstance(K.right, Eye) else flat(K.right)
    before = (*shape[:-2], matrix_shape(left)[1], matrix_shape(right)[1])
    return Kron(left, right, shape[:-2]), Reshape(before, K.in_shape, R.dtype)


def flat(factor: Factor) -> Factor:
    """The one matrix of a stack of one."""
    shape = shape_of(factor)
    return factor if len(shape) == 2 else reading_of(factor).Reshape(factor, shape[-2:])
