"""Norms: Frobenius and spectral norm, and the condition number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...jacobians import Diagonal, Identity, Scalar
from ...jacobians.arguments import Natural, NonNegative, Positive, validated
from ...jacobians.errors import InputError
from ..resume import ResumeFile
from .estimate import Estimate, mean_and_error, probing
from .exact import DENSE_ROWS, column_squares, exact_spectrum, known_squares
from .lanczos import Extremes, extremes


@validated
def frobenius_norm(
    A: Any, *, exact: bool | None = None, products: Positive = 60, seed: Natural = 0,
    progress: bool | None = None, resume: ResumeFile | None = None,
) -> Estimate:  # fmt: skip
    """‖A‖_F = √(Σᵢⱼ Aᵢⱼ²) = √(E ‖A ω‖²) for a vector ω of random signs.

    `exact=True` takes up to min(m, n) products, `exact=False` estimates; by default the norm is
    exact where structure, few sparse entries or at most `products` products determine it.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `seed`: the seed of the random numbers: NumPy's, or over tensors PyTorch's on their device.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `resume`: a `ResumeFile`, from which the work goes on after an interruption.

    Shapes: A is (m, n), the value a number, in the units of A. Raises `InputError` where A is
    complex.

    >>> from onnxjac.jacobians import Diagonal
    >>> frobenius_norm(Diagonal(np.array([3.0, 4.0])))
    5 (exact by structure, 0 products)
    """
    told = {"exact": exact, "products": products}
    with probing(A, "Frobenius norm", progress, seed, resume, **told) as P:
        known = None if exact is False else known_squares(P)
        if exact or known or (exact is None and min(P.shape) <= products):
            squares, how = known or column_squares(P)
            return Estimate(float(squares.sum()) ** 0.5, 0.0, P.products, how)
        square, error = mean_and_error(((P @ P.signs(P.shape[1], products)) ** 2).sum(0))
        norm = float(square) ** 0.5
        return Estimate(norm, float(error / (2 * norm)) if norm else 0.0, P.products, "Hutchinson")


@validated
def spectral_norm(
    A: Any, *, exact: bool | None = None, products: Positive = 200, rtol: NonNegative = 1e-6,
    seed: Natural = 0, progress: bool | None = None, resume: ResumeFile | None = None,
) -> Estimate:  # fmt: skip
    """‖A‖₂ = σ₁, the largest singular value.

    `error` is a bound, not a standard error: some singular value of A lies within it. The iteration
    ends when the error is at most rtol · σ₁; the value approaches σ₁ from below.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `exact`: True computes all singular values, False iterates; by default what is cheaper.
    - `products`: the most products with A.
    - `rtol`: the relative error at which the iteration ends.
    - `seed`: the seed of the random numbers: NumPy's, or over tensors PyTorch's on their device.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `resume`: a `ResumeFile`, from which the work goes on after an interruption.

    Shapes: A is (m, n), the value a number, in the units of A. Raises `InputError` where A is
    complex.
    """
    return _from_extremes(A, "spectral norm", _first, exact, products, rtol, seed, progress, resume)


@validated
def condition_number(
    A: Any, *, exact: bool | None = None, products: Positive = 400, rtol: NonNegative = 1e-3,
    seed: Natural = 0, progress: bool | None = None, resume: ResumeFile | None = None,
) -> Estimate:  # fmt: skip
    """κ₂(A) = σ₁ / σₙ, the ratio of the extreme singular values; infinite if σₙ is zero.

    `error` follows from error bounds of both, as for `spectral_norm`. The value approaches κ from
    below. If the iteration runs out of products, it is a lower bound, and the error is infinite; it
    is so, too, where ε κ exceeds `rtol`, because σₙ is rounding, except for a diagonal operator.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `exact`: True computes all singular values, False iterates; by default what is cheaper.
    - `products`: the most products with A.
    - `rtol`: the relative error at which the iteration ends.
    - `seed`: the seed of the random numbers: NumPy's, or over tensors PyTorch's on their device.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `resume`: a `ResumeFile`, from which the work goes on after an interruption.

    Shapes: A is (m, n) with m, n ≥ 1, the value a number without unit. Raises `InputError` where A
    is empty or complex.
    """
    found = _from_extremes(
        A, "condition number", _ratio, exact, products, rtol, seed, progress, resume
    )
    if found.error <= rtol * found.value:
        return found
    return replace(found, error=np.inf, method=found.method.removeprefix("exact "))


def _first(found: Extremes) -> tuple[float, float]:
    """σ₁ and its error; 0 for an empty operator."""
    return (found.values[0], found.errors[0]) if found.values.size else (0.0, 0.0)


def _ratio(found: Extremes) -> tuple[float, float]:
    """κ = σ₁ / σₙ, and its error from the errors of both."""
    if not found.values.size:
        raise InputError("an empty operator has no condition number")
    first, last = float(found.values[0]), float(found.values[-1])
    if not last:
        return np.inf, 0.0
    kappa = first / last
    return kappa, kappa * float(found.errors[0] / first + found.errors[-1] / last)


def _from_extremes(
    A: Any, label: str, of: Callable[[Extremes], tuple[float, float]], exact: bool | None,
    products: int, rtol: float, seed: int, progress: bool | None, resume: ResumeFile | None,
) -> Estimate:  # fmt: skip
    """A function of σ₁ and σₙ with its error, from all singular values where these are cheap."""

    def done(found: Extremes) -> bool:
        value, error = of(found)
        return bool(error <= rtol * value)

    told = {"exact": exact, "products": products, "rtol": rtol}
    with probing(A, label, progress, seed, resume, **told) as P:
        most = np.inf if exact else min(products, DENSE_ROWS)
        iterated = exact is False and min(P.shape) > 0
        known = None if iterated else exact_spectrum(P, "singular values", most)
        if known:
            values, how = np.sort(known[0])[::-1], known[1]
            found = Extremes(values, np.zeros_like(values))
        else:
            found = extremes(P, max(products // 2, 1), done)
            how = "Golub–Kahan"
        rounding = P.eps * found.values[:1]
        if not isinstance(P.A, Diagonal | Scalar | Identity) and found.values.size:
            lost = rounding > rtol * found.values
            found = found._replace(errors=found.errors + np.where(lost, rounding, 0))
        value, error = of(found)
        return Estimate(float(value), float(error), P.products, how)
