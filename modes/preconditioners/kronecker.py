"""Kronecker: the inverse of what has Kronecker structure, or is made of parts that do."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from ...jacobians import BlockDiagonal, Dense, Diagonal, Identity, Jacobian, Kron, Scalar, Sum
from ...jacobians.errors import InputError
from ...jacobians.kron import Eye, Factor
from ..curvature.damped import undamped
from ..sparse.faces import bare


@singledispatch
def kronecker(K: Any, *, damping: float = 0.0) -> Any:
    """M = (K + λI)⁻¹ for a positive semidefinite K that structure inverts, λ the damping.

    For K = A ⊗ B, with A = QₐΛₐQₐᵀ and B likewise, M = (Qₐ ⊗ Q_b)(Λₐ ⊗ Λ_b + λI)⁻¹(Qₐ ⊗ Q_b)ᵀ,
    exact for every λ. An object with a method `inverse`, such as one made by K-FAC, is asked for
    its own, with the damping where there is one. Where K is already a sum A + δI, λ is λ + δ.

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
    return Diagonal(_reciprocal(K.diagonal() + damping).reshape(K.in_shape))


@kronecker.register
def _(K: Dense, *, damping: float = 0.0) -> Jacobian:
    Q, values = _eigen(K.a)
    return Dense((Q * _reciprocal(values + damping)) @ Q.T, K.in_shape, K.out_shape)


@kronecker.register
def _(K: BlockDiagonal, *, damping: float = 0.0) -> Jacobian:
    Q, values = _eigen(K.blocks)
    return BlockDiagonal((Q * _reciprocal(values + damping)[..., None, :]) @ Q.swapaxes(-1, -2))


@kronecker.register
def _(K: Kron, *, damping: float = 0.0) -> Jacobian:
    (A, a), (B, b) = _eigen(K.left), _eigen(K.right)
    values = np.broadcast_to(a[..., :, None] * b[..., None, :], K.in_shape)
    rotation = Kron(A, B, K.batch)
    return rotation @ Diagonal(_reciprocal(values + damping)) @ rotation.T


def _eigen(factor: Factor) -> tuple[Any, np.ndarray]:
    """Q and Λ of a symmetric factor."""
    if isinstance(factor, Eye):
        return factor, np.ones(factor.n)
    values, vectors = np.linalg.eigh((factor + factor.swapaxes(-1, -2)) / 2)
    return vectors, values


def _reciprocal(values: np.ndarray) -> np.ndarray:
    """1 / λ, where every λ is positive, beyond rounding."""
    if values.min(initial=np.inf) <= np.finfo(values.dtype).eps * values.max(initial=0):
        raise InputError(f"the smallest eigenvalue is {values.min():g}: give damping=")
    return 1 / values
