"""Lanczos and random sketches: tridiagonal and bidiagonal reductions, and A ≈ U Σ Vᵀ.

`ritz` gives Gauss quadratures of a symmetric operator, and `extremes` the extreme singular values
of any operator, with bounds on their errors. Sources: Golub and Kahan, "Calculating the singular
values and pseudo-inverse of a matrix", 1965; Golub and Meurant, "Matrices, Moments and Quadrature
with Applications", 2010; on the loss of orthogonality, Paige, 1972.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from ...jacobians import Jacobian, LowRank
from ...jacobians.arguments import Natural, Positive, validated
from ...jacobians.arrays import Array, host
from ...jacobians.errors import InputError
from ...jacobians.readings import library_of, module_of
from ..resume import ResumeFile
from .estimate import Estimate, Probed, check_symmetric, probing

BASIS_BYTES = 2**30
"""The most bytes of basis vectors that are held at a time."""


Rule = tuple[np.ndarray, np.ndarray]
"""Nodes θ and weights τ² of the quadrature Σⱼ τⱼ² f(θⱼ) ≈ vᵀ f(A) v, a row for each unit v."""


def ritz(P: Probed, starts: Array, steps: tuple[int, ...]) -> list[Rule]:
    """The quadrature rules after each number of steps; the last number is the largest."""
    n, m = starts.shape
    width = max(1, BASIS_BYTES // (8 * n * steps[-1]))
    loop = P.work.loop("starts", 0, *P.zeros(2, steps[-1], m))
    done, diagonal, beside = loop.state
    for first in range(done, m, width):
        stop = min(first + width, m)
        found = tridiagonal(P, starts[:, first:stop], steps[-1])
        diagonal[:, first:stop], beside[:, first:stop] = found[:2]
        loop.step(stop, diagonal[:, :stop], beside[:, :stop])
    T, off = host(diagonal).T, host(beside).T
    return [quadrature_rule(T[:, :k], off[:, : k - 1]) for k in steps]


def quadrature_rule(diagonal: np.ndarray, beside: np.ndarray) -> Rule:
    """The quadrature rule of every start, from its tridiagonal T."""
    nodes, vectors = eigenvectors(diagonal, beside)
    return nodes, vectors[:, 0] ** 2


def eigenvectors(diagonal: np.ndarray, beside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues and eigenvectors of tridiagonal T, whose entries are rows."""
    k = diagonal.shape[1]
    T, at = np.zeros((len(diagonal), k, k)), np.arange(k)
    T[:, at, at] = diagonal
    T[:, at[1:], at[:-1]] = T[:, at[:-1], at[1:]] = beside
    nodes, vectors = np.linalg.eigh(T)
    return nodes, vectors


def function_product(
    P: Probed, f: Callable[[np.ndarray], np.ndarray], starts: np.ndarray, steps: int
) -> np.ndarray:
    """f(A) z ≈ ‖z‖ V f(T) e₁ for every column z of `starts`, exact after n steps.

    Like a quadrature's, f is evaluated only at nodes with a nonzero weight.
    """
    n, m = starts.shape
    width, found = max(1, BASIS_BYTES // (8 * n * steps)), np.empty((n, m))
    for first in range(0, m, width):
        part = starts[:, first : first + width]
        norms = np.linalg.norm(part, axis=0)
        diagonal, beside, basis = map(host, tridiagonal(P, part / norms, steps))
        nodes, vectors = eigenvectors(diagonal.T, beside[:-1].T)
        heights, reached = np.zeros_like(nodes), vectors[:, 0] ** 2 > np.finfo(float).eps
        heights[reached] = f(nodes[reached]) * vectors[:, 0][reached]
        inside = np.einsum("mkj, mj, m -> mk", vectors, heights, norms)
        found[:, first : first + width] = np.einsum("mkn, mk -> nm", basis, inside)
    return found


def tridiagonal(P: Probed, starts: Array, steps: int) -> tuple[Array, Array, Array]:
    """T = VᵀAV for every start: its diagonal and off-diagonal, (steps, starts), and Vᵀ.

    Where the Krylov space is exhausted, T has zero rows, which get no weight.
    """
    n, m = starts.shape
    loop = P.work.loop("Lanczos", 0, starts, P.zeros(m, steps, n), *P.zeros(2, steps, m))
    done, v, basis, diagonal, beside = loop.state
    for k in range(done, steps):
        basis[:, k] = v.T
        w = P @ v
        diagonal[k] = (v * w).sum(0)
        v, beside[k] = orthonormal(w, basis[:, : k + 1], P.eps)
        loop.step(k + 1, v, basis[:, : k + 1], diagonal[: k + 1], beside[: k + 1])
    return diagonal, beside, basis


def orthonormal(w: Array, basis: Array, eps: float) -> tuple[Array, Array]:
    """The columns of w, orthonormalised against the basis (columns, k, n), and their norms.

    Twice is enough (Kahan and Parlett); a remainder at the rounding level is set to zero.
    """
    before, where = (w**2).sum(0) ** 0.5, module_of(w).where
    for _ in range(2):
        heights = basis @ w.T[:, :, None]
        w = w - (heights.swapaxes(1, 2) @ basis)[:, 0].T
    norms = (w**2).sum(0) ** 0.5
    norms = where(norms > 100 * eps * len(w) ** 0.5 * before, norms, 0.0)
    return where(norms > 0, w / where(norms > 0, norms, 1.0), 0.0), norms


class Extremes(NamedTuple):
    """Singular values of U_kᵀ A V_k, largest first; some σ of A lies within each error."""

    values: np.ndarray
    errors: np.ndarray


def extremes(P: Probed, steps: int, done: Callable[[Extremes], bool]) -> Extremes:
    """Bidiagonalisation A V = U B until `done` is satisfied, starting on the smaller side."""
    ways = P.__matmul__, P.adjoint
    forward, backward = ways if P.shape[0] >= P.shape[1] else ways[::-1]
    m, n = max(P.shape), min(P.shape)
    steps = min(steps, n)
    v = P.normal(n, 1)
    v /= P.xp.linalg.norm(v)
    bases, lengths = (P.zeros(1, steps, m), P.zeros(1, steps, n)), np.zeros((2, steps))
    loop = P.work.loop("bidiagonalisation", 0, False, v, *bases, *lengths)
    k, ends, v, left, right, alpha, beta = loop.state
    while k < steps and not ends:
        right[0, k] = v[:, 0]
        u, length = orthonormal(forward(v), left[:, :k], P.eps)
        left[0, k], alpha[k] = u[:, 0], float(length[0])
        v, length = orthonormal(backward(u), right[:, : k + 1], P.eps)
        beta[k] = float(length[0])
        k += 1
        ends = not beta[k - 1] or (k % 5 == 0 and done(_values(alpha[:k], beta[:k])))
        loop.step(k, bool(ends), v, left[:, :k], right[:, :k], alpha[:k], beta[:k])
    return _values(alpha[:k], beta[:k])


def _values(alpha: np.ndarray, beta: np.ndarray) -> Extremes:
    """‖Aᵀu - σv‖ = βₖ |xₖ| for the vector x of B's singular value σ."""
    X, values, _ = np.linalg.svd(np.diag(alpha) + np.diag(beta[:-1], 1))
    return Extremes(values, beta[-1] * np.abs(X[-1]))


TEST_VECTORS = 10
"""The number of random vectors that test an approximation."""


@validated
def low_rank(
    A: Any,
    rank: Positive,
    *,
    method: Literal["svd", "nystrom"] = "svd",
    oversampling: Natural = 10,
    iterations: Natural = 1,
    seed: Natural = 0,
    progress: bool | None = None,
    resume: ResumeFile | None = None,
) -> Estimate:
    """A ≈ U Σ Vᵀ of the given `rank`, as an operator whose `u` and `v` hold U Σ and V.

    `method` is `"svd"`, for any A, or `"nystrom"`, for a symmetric positive semidefinite one,
    where V = U and Σ approximates the leading eigenvalues. `error` is not a standard error but an
    estimate of ‖A - U Σ Vᵀ‖_F = √(E ‖(A - U Σ Vᵀ) ω‖²) from ten further Gaussian ω.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `oversampling`: the random vectors in addition to `rank`.
    - `iterations`: power iterations of `"svd"`, for singular values that decay slowly.
    - `seed`: the seed of the random numbers: NumPy's, or over tensors PyTorch's on their device.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `resume`: a `ResumeFile`, from which the work goes on after an interruption.

    Shapes: A is (m, n), U Σ (m, rank) and V (n, rank), with a rank of at most min(m, n). Raises
    `InputError` for an unknown `method` and where A is complex; with `"nystrom"` also where A is
    not square, symmetric and positive semidefinite. Sources: Halko, Martinsson, Tropp, "Finding
    structure with randomness", 2011; Tropp et al., "Fixed-rank approximation of a
    positive-semidefinite matrix from streaming data", 2017.
    """
    told = {"rank": rank, "method": method, "oversampling": oversampling, "iterations": iterations}
    with probing(A, "low rank", progress, seed, resume, **told) as P:
        sketch = min(rank + oversampling, *P.shape)
        if method == "nystrom":
            check_symmetric(P)
            U, sigma = nystrom(P, sketch)
            V, name = U, "Nyström"
        else:
            U, sigma, V = svd(P, sketch, iterations)
            name = "randomised SVD"
        shapes = (A.out_shape, A.in_shape) if isinstance(A, Jacobian) else (None, None)
        found = LowRank(U[:, :rank] * sigma[:rank], V[:, :rank], *shapes)
        tests = P.normal(P.shape[1], TEST_VECTORS)
        off = P @ tests - found @ tests
        return Estimate(found, float((off**2).sum() / TEST_VECTORS) ** 0.5, P.products, name)


def svd(P: Probed, sketch: int, iterations: int) -> tuple[Array, Array, Array]:
    """U, σ, V of Q QᵀA, with Q a basis of the range of (A Aᵀ)^q A Ω."""
    linalg = P.xp.linalg
    Q, _ = linalg.qr(P @ P.normal(P.shape[1], sketch))
    for _ in range(iterations):
        W, _ = linalg.qr(P.adjoint(Q))
        Q, _ = linalg.qr(P @ W)
    V, sigma, Ut = linalg.svd(P.adjoint(Q), full_matrices=False)
    return Q @ Ut.T, sigma, V


def nystrom(P: Probed, sketch: int) -> tuple[Array, Array]:
    """U, λ of (AΩ)(ΩᵀAΩ)⁻¹(AΩ)ᵀ, for A positive semidefinite, via A + νI with a tiny ν."""
    linalg = P.xp.linalg
    probes, _ = linalg.qr(P.normal(P.shape[1], sketch))
    Y = P @ probes
    shift = P.shape[1] ** 0.5 * P.eps * max(float(linalg.norm(Y, 2)), 1e-300)
    Y = Y + shift * probes
    small = probes.T @ Y
    try:
        L = linalg.cholesky((small + small.T) / 2)
    except linalg.LinAlgError:
        raise InputError(
            "Nyström needs a positive semidefinite operator: use method='svd'"
        ) from None
    U, root, _ = linalg.svd(library_of(L).solve_lower(L.T, Y.T).T, full_matrices=False)
    return U, (root**2 - shift).clip(0)
