"""Bidiagonal: the extreme singular values of any operator, with bounds on their errors.

Source: Golub and Kahan, "Calculating the singular values and pseudo-inverse of a matrix", 1965;
with full reorthogonalisation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .lanczos import orthonormal
from .probes import Probed


@dataclass(frozen=True)
class Extremes:
    """Singular values of U_kᵀ A V_k, largest first, and for each a σ of A within its error."""

    values: np.ndarray
    errors: np.ndarray


def extremes(
    P: Probed, steps: int, done: Callable[[Extremes], bool], rng: np.random.Generator
) -> Extremes:
    """Steps of A V = U B until what is wanted is there; starts on the smaller side."""
    ways = P.__matmul__, P.adjoint
    forward, backward = ways if P.shape[0] >= P.shape[1] else ways[::-1]
    m, n = max(P.shape), min(P.shape)
    steps = min(steps, n)
    left, right = np.zeros((steps, m, 1)), np.zeros((steps, n, 1))
    alpha, beta = np.zeros((2, steps))
    v = rng.standard_normal((n, 1))
    v /= np.linalg.norm(v)
    for k in range(steps):
        right[k] = v
        left[k], alpha[k] = _step(forward(v), left[:k], P.eps)
        v, beta[k] = _step(backward(left[k]), right[: k + 1], P.eps)
        if not beta[k] or (k % 5 == 4 and done(_values(alpha[: k + 1], beta[: k + 1]))):
            break
    return _values(alpha[: k + 1], beta[: k + 1])


def _step(w: np.ndarray, basis: np.ndarray, eps: float) -> tuple[np.ndarray, float]:
    v, norms = orthonormal(w, basis, eps)
    return v, float(norms[0])


def _values(alpha: np.ndarray, beta: np.ndarray) -> Extremes:
    """‖Aᵀu - σv‖ = βₖ |xₖ| for the vector x of B's singular value σ."""
    X, values, _ = np.linalg.svd(np.diag(alpha) + np.diag(beta[:-1], 1))
    return Extremes(values, beta[-1] * np.abs(X[-1]))
