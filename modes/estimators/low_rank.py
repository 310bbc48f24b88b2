"""Low rank: A ≈ U Σ Vᵀ from products with a few random vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from ...jacobians import Jacobian, LowRank
from ...jacobians.errors import InputError
from .estimate import Estimate, Probed, probing, symmetric

TESTS = 10
"""The number of random vectors that test an approximation."""


def low_rank(
    A: Any,
    rank: int,
    *,
    method: str = "svd",
    oversampling: int = 10,
    iterations: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Estimate:
    """A ≈ U Σ Vᵀ of the given `rank`, as an operator whose `u` and `v` hold U Σ and V.

    `method` is `"svd"`, for any A, or `"nystrom"`, for a symmetric positive semidefinite one,
    where V = U and Σ approximates the leading eigenvalues. `error` is not a standard error but an
    estimate of ‖A - U Σ Vᵀ‖_F = √(E ‖(A - U Σ Vᵀ) ω‖²) from ten further Gaussian ω.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `oversampling`: the random vectors in addition to `rank`.
    - `iterations`: power iterations of `"svd"`, for singular values that decay slowly.
    - `seed`: the seed of the random numbers.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.

    Shapes: A is (m, n), U Σ (m, rank) and V (n, rank), with a rank of at most min(m, n). Raises
    `InputError` for an unknown `method` and where A is complex; with `"nystrom"` also where A is
    not square, symmetric and positive semidefinite. Sources: Halko, Martinsson, Tropp, "Finding
    structure with randomness", 2011; Tropp et al., "Fixed-rank approximation of a
    positive-semidefinite matrix from streaming data", 2017.
    """
    with probing(A, "low rank", progress) as P:
        rng = np.random.default_rng(seed)
        sketch = min(rank + oversampling, *P.shape)
        if method == "nystrom":
            symmetric(P, rng)
            U, sigma = nystrom(P, sketch, rng)
            V, name = U, "Nyström"
        elif method == "svd":
            U, sigma, V = svd(P, sketch, iterations, rng)
            name = "randomised SVD"
        else:
            raise InputError(f"there is no method {method!r}: 'svd' and 'nystrom' are known")
        shapes = (A.out_shape, A.in_shape) if isinstance(A, Jacobian) else (None, None)
        found = LowRank(U[:, :rank] * sigma[:rank], V[:, :rank], *shapes)
        tests = rng.standard_normal((P.shape[1], TESTS))
        off = P @ tests - found @ tests
        return Estimate(found, float(np.sqrt(np.sum(off**2) / TESTS)), P.products, name)


def svd(
    P: Probed, sketch: int, iterations: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, σ, V of Q QᵀA, with Q a basis of the range of (A Aᵀ)^q A Ω."""
    Q, _ = np.linalg.qr(P @ rng.standard_normal((P.shape[1], sketch)))
    for _ in range(iterations):
        W, _ = np.linalg.qr(P.adjoint(Q))
        Q, _ = np.linalg.qr(P @ W)
    V, sigma, Ut = np.linalg.svd(P.adjoint(Q), full_matrices=False)
    return Q @ Ut.T, sigma, V


def nystrom(P: Probed, sketch: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """U, λ of (AΩ)(ΩᵀAΩ)⁻¹(AΩ)ᵀ, for A positive semidefinite, via A + νI with a tiny ν."""
    probes, _ = np.linalg.qr(rng.standard_normal((P.shape[1], sketch)))
    Y = P @ probes
    shift = np.sqrt(P.shape[1]) * P.eps * max(float(np.linalg.norm(Y, 2)), 1e-300)
    Y += shift * probes
    small = probes.T @ Y
    try:
        C = cholesky((small + small.T) / 2)
    except np.linalg.LinAlgError:
        raise InputError(
            "Nyström needs a positive semidefinite operator: use method='svd'"
        ) from None
    U, root, _ = np.linalg.svd(solve_triangular(C, Y.T, trans="T").T, full_matrices=False)
    return U, np.maximum(root**2 - shift, 0)
