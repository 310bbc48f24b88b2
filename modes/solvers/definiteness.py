"""Definiteness: what the structure of an operator tells of its symmetry and sign."""

from __future__ import annotations

from enum import IntEnum
from functools import singledispatch

from ...jacobians import Diagonal, Identity, Jacobian, Product, Scalar, Sum
from ..sparse.unwrap import unwrap


class Known(IntEnum):
    """What is known of A, from less to more."""

    NOTHING, SYMMETRIC, DEFINITE = range(3)


@singledispatch
def definiteness(A: Jacobian) -> Known:
    """DEFINITE for A = Aᵀ with xᵀA x ≥ 0, SYMMETRIC for A = Aᵀ, by structure; else NOTHING.

    >>> import numpy as np
    >>> from onnxjac import asoperator
    >>> B = asoperator(np.cumsum, (3, 3), adjoint=lambda y: np.cumsum(y[::-1])[::-1])
    >>> definiteness(B.T @ B + 0.1 * Identity((3,), float)).name
    'DEFINITE'
    >>> definiteness(-(B.T @ B)).name, definiteness(B).name
    ('SYMMETRIC', 'NOTHING')
    """
    own, behind = Known(A.T is A), unwrap(A)
    return own if behind is A else max(own, definiteness(behind))


@definiteness.register(Identity)
@definiteness.register(Scalar)
@definiteness.register(Diagonal)
def _(A: Identity | Scalar | Diagonal) -> Known:
    return Known.DEFINITE if (A.diagonal() >= 0).all() else Known.SYMMETRIC


@definiteness.register
def _(A: Sum) -> Known:
    """A sum is what all of its terms are."""
    return min(map(definiteness, A.terms))


@definiteness.register
def _(A: Product) -> Known:
    """c BᵀC B is what C is, up to the sign of c; without C, BᵀB is definite."""
    factors = [f for f in A.factors if not isinstance(f, Scalar)]
    known = Known.DEFINITE
    while len(factors) > 1 and (factors[0].T is factors[-1] or factors[-1].T is factors[0]):
        factors = factors[1:-1]
    if factors:
        known = definiteness(factors[0]) if len(factors) == 1 else Known(A.T is A)
    signs = [definiteness(f) for f in A.factors if isinstance(f, Scalar)]
    return known if Known.SYMMETRIC not in signs else min(known, Known.SYMMETRIC)
