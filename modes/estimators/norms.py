"""Norms: Frobenius and spectral norm, and the condition number."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.errors import InputError
from .estimate import Estimate, Probed, mean, probing, signs
from .exact import (
    DENSE,
    PRODUCTS,
    STRUCTURE,
    by_products,
    column_squares,
    known_squares,
    singular_values,
    spectrum,
)
from .lanczos import Extremes, extremes


def frobenius_norm(
    A: Any, *, exact: bool | None = None, products: int = 60, seed: int = 0,
    progress: bool | None = None,
) -> Estimate:  # fmt: skip
    """‖A‖_F = √(Σᵢⱼ Aᵢⱼ²) = √(E ‖A ω‖²) for a vector ω of random signs.

    `exact=True` takes up to min(m, n) products, `exact=False` estimates; by default the norm is
    exact where structure, few sparse entries or at most `products` products determine it.

    Shapes: A is (m, n), the value a number, in the units of A. Raises `InputError` where A is
    complex.

    >>> from onnxjac.jacobians import Diagonal
    >>> frobenius_norm(Diagonal(np.array([3.0, 4.0])))
    5 (exact by structure, 0 products)
    """
    with probing(A, "Frobenius norm", progress) as P:
        known = None if exact is False else known_squares(P.A)
        if exact or known or (exact is None and min(P.shape) <= products):
            squares, how = known or column_squares(P)
            return Estimate(float(np.sqrt(squares.sum())), 0.0, P.products, how)
        images = P @ signs(np.random.default_rng(seed), P.shape[1], products)
        square, error = mean(np.sum(images**2, axis=0))
        norm = float(np.sqrt(square))
        return Estimate(norm, float(error / (2 * norm)) if norm else 0.0, P.products, "Hutchinson")


def spectral_norm(
    A: Any, *, exact: bool | None = None, products: int = 200, rtol: float = 1e-6, seed: int = 0,
    progress: bool | None = None,
) -> Estimate:  # fmt: skip
    """‖A‖₂ = σ₁, the largest singular value.

    `error` is a bound, not a standard error: some singular value of A lies within it. The iteration
    ends when the error is at most rtol · σ₁; the value approaches σ₁ from below.

    Shapes: A is (m, n), the value a number, in the units of A. Raises `InputError` where A is
    complex.
    """

    def done(found: Extremes) -> bool:
        return bool(found.errors[0] <= rtol * found.values[0])

    with probing(A, "spectral norm", progress) as P:
        values, how = _all_values(P, exact, products)
        if values is not None:
            return Estimate(float(values.max(initial=0)), 0.0, P.products, how)
        found = extremes(P, products // 2, done, np.random.default_rng(seed))
        first, error = float(found.values[0]), float(found.errors[0])
        return Estimate(first, error, P.products, "Golub–Kahan")


def condition_number(
    A: Any, *, exact: bool | None = None, products: int = 400, rtol: float = 1e-3, seed: int = 0,
    progress: bool | None = None,
) -> Estimate:  # fmt: skip
    """κ₂(A) = σ₁ / σₙ, the ratio of the extreme singular values; infinite if σₙ is zero.

    `error` follows from error bounds of both, as for `spectral_norm`. The value approaches κ from
    below. If the iteration runs out of products, it is a lower bound, and the error is infinite.

    Shapes: A is (m, n) with m, n ≥ 1, the value a number without unit. Raises `InputError` where A
    is empty or complex.
    """

    def done(found: Extremes) -> bool:
        return _ratio(found)[1] <= rtol * _ratio(found)[0]

    with probing(A, "condition number", progress) as P:
        values, how = _all_values(P, exact, products)
        if values is not None:
            if not values.size:
                raise InputError(f"an operator of shape {P.shape} has no condition number")
            first, last = float(values.max()), float(values.min())
            return Estimate(first / last if last else np.inf, 0.0, P.products, how)
        found = extremes(P, products // 2, done, np.random.default_rng(seed))
        value, error = _ratio(found)
        ended = done(found)
        return Estimate(value, error if ended else np.inf, P.products, "Golub–Kahan")


def _all_values(P: Probed, exact: bool | None, products: int) -> tuple[np.ndarray | None, str]:
    """All singular values, if they are wanted and cheap enough."""
    if exact is False:
        return None, ""
    known = spectrum(P.A, singular_values)
    if known is not None:
        return known, STRUCTURE
    few = exact or min(P.shape) <= min(products, DENSE)
    return (by_products(P, singular_values), PRODUCTS) if few else (None, "")


def _ratio(found: Extremes) -> tuple[float, float]:
    """κ, and its error from the errors of σ₁ and σₙ."""
    first, last = float(found.values[0]), float(found.values[-1])
    if not last:
        return np.inf, 0.0
    kappa = first / last
    return kappa, kappa * float(found.errors[0] / first + found.errors[-1] / last)
