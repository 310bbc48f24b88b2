"""Nyström: the leading eigenvectors inverted, the rest left as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Identity, Jacobian, LowRank
from ...jacobians.errors import InputError
from ..estimators.low_rank import nystrom
from ..estimators.probes import probing, symmetric
from .jacobi import in_shape


def low_rank_plus_damping(A: Any, rank: int, *, damping: float, seed: int = 0) -> Jacobian:
    """M = (λᵣ + μ) U (Λ + μI)⁻¹ Uᵀ + (I - U Uᵀ) for solving with A + μI, μ the damping.

    A is symmetric positive semidefinite and U Λ Uᵀ its Nyström approximation of some rank r, which
    takes r products. The condition number of M (A + μI) is a constant on average once r is twice
    the effective dimension tr A(A + μI)⁻¹.

    Shapes: A and M are (n, n), U is (n, r). Raises `InputError` where the damping is not positive,
    and where A is not square, real, symmetric and positive semidefinite.

    Source: Frangella, Tropp and Udell, "Randomized Nyström preconditioning", SIAM J. Matrix Anal.
    Appl. 44, 2023.
    """
    if damping <= 0:
        raise InputError(f"the damping must be positive, not {damping:g}")
    with probing(A, "Nyström") as P:
        rng = np.random.default_rng(seed)
        n = symmetric(P, rng)
        U, values = nystrom(P, min(rank, n), rng)
    weights = (values[-1] + damping) / (values + damping) - 1
    shape = in_shape(A)
    return Identity(shape, U.dtype) + LowRank(U * weights, U, shape, shape)
