"""Kronecker: the inverse of what has Kronecker structure, or is made of parts that do."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from ...jacobians import BlockDiagonal, Dense, Diagonal, Identity, Jacobian, Kron, Scalar, Sum
from ...jacobians.errors import InputError
from ...jacobians.matrices import Eye, Factor
from ..curvature.damped import undamped
from ..estimators.probes import is_symmetric
from ..sparse.faces import bare
from .matrices import check_square, eigen, inverted, reciprocal


@singledispatch
def kronecker(K: Any, *, damping: float = 0.0) -> Any:
    """M = (K + λI)⁻¹ for a K that structure inverts, λ the damping.

    For K = A ⊗ B, with A = QₐΛₐQₐᵀ and B likewise, M = (Qₐ ⊗ Q_b)(Λₐ ⊗ Λ_b + λI)⁻¹(Qₐ ⊗ Q_b)ᵀ,
    exact for every λ. An object with a method `inverse`, such as one made by K-FAC, is asked for
    its own, with the damping where there is one. Where K is already a sum A + δI, λ is λ + δ.
    Symmetric matrices must be positive definite together with the damping. Where A or B is not
    symmetric, M = A⁻¹ ⊗ B⁻¹, for λ = 0 alone.

    Shapes: K and M are (n, n). Raises `InputError` for any other K, and where a matrix is singular.

    >>> kronecker(Kron(np.diag([1.0, 2.0]), np.diag([1.0, 4.0]), ())).diagonal()
    array([1.   , 0.25 , 0.5  , 0.125])
    """
    if getattr(type(K), "inverse", Jacobian.inverse) is not Jacobian.inverse:
        return K.inverse(damping=damping) if damping else K.inverse()
    behind = bare(K) if isinstance(K, Jacobian) else K
    if behind is K:
        raise InputError(
            f"{type(K).__name__} has no Kronecker structure: jacobi, block_jacobi and ilu take any"
        )
    return kronecker(behind, damping=damping)


@kronecker.register
def _(K: Sum, *, damping: float = 0.0) -> Any:
    found = undamped(K)
    if found is None:
        raise InputError(f"a sum of {len(K.terms)} operators has no Kronecker structure: {K!r}")
    return kronecker(found[0], damping=damping + found[1])


@kronecker.register(Identity)
@kronecker.register(Scalar)
@kronecker.register(Diagonal)
def _(K: Jacobian, *, damping: float = 0.0) -> Jacobian:
    return Diagonal(reciprocal(K.diagonal() + damping).reshape(K.in_shape))


@kronecker.register
def _(K: Dense, *, damping: float = 0.0) -> Jacobian:
    return Dense(inverted(K.a, damping), K.in_shape, K.out_shape)


@kronecker.register
def _(K: BlockDiagonal, *, damping: float = 0.0) -> Jacobian:
    return BlockDiagonal(inverted(K.blocks, damping))


@kronecker.register
def _(K: Kron, *, damping: float = 0.0) -> Jacobian:
    factors = K.left, K.right
    if all(map(_is_symmetric, factors)):
        (A, a), (B, b) = map(_eigen, factors)
        values = np.broadcast_to(a[..., :, None] * b[..., None, :], K.in_shape)
        rotation = Kron(A, B, K.batch)
        return rotation @ Diagonal(reciprocal(values + damping)) @ rotation.T
    if damping:
        raise InputError(
            f"{K!r} has a factor that is not symmetric, so that the inverse with damping has no "
            "Kronecker structure: leave out damping=, or take block_jacobi or ilu"
        )
    left, right = (f if isinstance(f, Eye) else inverted(f) for f in factors)
    return Kron(left, right, K.batch)


def _is_symmetric(factor: Factor) -> bool:
    if isinstance(factor, Eye):
        return True
    check_square(factor)
    return is_symmetric(factor, float(np.finfo(factor.dtype).eps))


def _eigen(factor: Factor) -> tuple[Any, np.ndarray]:
    """Q and Λ of a symmetric factor."""
    return (factor, np.ones(factor.n)) if isinstance(factor, Eye) else eigen(factor)
