"""Diagonal: Aᵢᵢ for all i, from products with random vectors, or by structure."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.errors import InputError
from .deflation import deflated
from .exact import PRODUCTS, exact_diagonal, known_diagonal
from .probes import Probed, probing, signs, square
from .result import Estimate, mean


def diagonal(
    A: Any, *, method: str | None = None, products: int = 60, seed: int = 0,
    progress: bool | None = None,
) -> Estimate:  # fmt: skip
    """(Aᵢᵢ)ᵢ of a square operator, with at most so many products.

    `method` is `"exact"` or `"xdiag"`. By default the diagonal is exact where structure or few
    sparse entries tell it, or n products suffice; else XDiag, whose error has the same shape.

    Shapes: A is (n, n), the value and its error (n,). Raises `InputError` where A is not square or
    not real, and for an unknown `method`. Source: Epperly, Tropp, Webber, "XTrace: making the most
    of every sample in stochastic trace estimation", 2024.

    >>> from onnxjac.jacobians import Dense
    >>> J = Dense(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> diagonal(J.T @ J).value
    array([10., 20.])
    """
    if method not in (None, "exact", "xdiag"):
        raise InputError(f"there is no method {method!r}: 'exact' and 'xdiag' are known")
    with probing(A, "diagonal", progress) as P:
        n = square(P)
        known = known_diagonal(P.A) if method != "xdiag" else None
        if method == "exact" or known or (method is None and n <= products):
            entries, how = known or exact_diagonal(P)
            return Estimate(entries, np.zeros(n), P.products, how)
        value, error = xdiag(P, products, np.random.default_rng(seed))
        return Estimate(value, error, P.products, "XDiag" if error.any() else f"{PRODUCTS}, XDiag")


def xdiag(P: Probed, products: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The mean over i of diag(Qᵢ Qᵢᵀ A) + ωᵢ ∘ (I - QᵢQᵢᵀ) A ωᵢ, with Qᵢ without probe i.

    Half of the products are with Aᵀ. (I - QᵢQᵢᵀ) A ωᵢ = Q sᵢ (sᵢᵀ rᵢ), rᵢ column i of R.
    Source: see `deflation`.
    """
    D = deflated(P, signs(rng, P.shape[1], max(products // 2, 2)))
    Z = P.adjoint(D.Q)
    inside = np.sum(D.Q * Z, axis=1)
    if D.S is None:  # the basis holds all of A's range
        return inside, np.full_like(inside, D.left(inside, P.eps))
    along = D.Q @ D.S
    rest = D.probes * along * np.sum(D.S * D.R, axis=0)
    return mean(inside[:, None] - along * (Z @ D.S) + rest)
