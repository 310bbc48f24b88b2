"""Check: what anybody can verify of a Jacobian without knowing how it was made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ...jacobians import Jacobian
from ...jacobians.hooks import Shown

Primal = Callable[[np.ndarray], np.ndarray]
"""δ ↦ f(x + δ), both flat."""

Neighbour = Callable[[], tuple[Jacobian, Primal]]
"""The Jacobian and the primal at a point close to x."""

DIFFERENCES = "J v against central differences"

STEPS = (1, 1e-1, 1e-2, 1e-3, 1e-4, 10)
"""Steps to try, over the one that is best for smooth f; smaller ones cross fewer kinks."""

KINK = 1e-2
"""One-sided differences that are farther apart than this at every step say nothing of J."""


@dataclass(frozen=True)
class Outcome:
    """One test: the relative error that was met and the greatest that passes."""

    name: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance

    def __str__(self) -> str:
        sign = "ok  " if self.passed else "FAIL"
        return f"{sign} {self.name:<46} error {self.error:.1e}, allowed {self.tolerance:.0e}"


@dataclass(frozen=True)
class Check(Shown):
    """The outcomes of `J.check()`; true where all passed."""

    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        return all(outcome.passed for outcome in self.outcomes)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return "\n".join(map(str, self.outcomes))

    __repr__ = __str__


def check(
    J: Jacobian,
    plain: Jacobian,
    primal: Primal,
    scale: float,
    neighbour: Neighbour,
    *,
    seed: int = 0,
) -> Check:
    """Six tests with random vectors drawn from `seed`; an exception inside counts as a failure.

    - dot test: ⟨u, J v⟩ = ⟨Jᵀ u, v⟩;
    - J v against (f(x + h v) - f(x - h v)) / 2h, which no more is asked to agree with than the two
      one-sided differences agree with each other: f may have many kinks close to x;
    - J V against the J v of its columns;
    - (Jᵀ)ᵀ v against J v;
    - the dot test of `plain`, which is J as the rules gave it, and its products against those of J,
      from which something may have been eliminated.

    `scale` is the size of x, to which h is relative. Where x lies on a kink of f, the second test
    is made at a `neighbour` of x instead. In float32 a difference sees the rounding of f: its
    tolerance is wide there, sharp in float64.
    """
    rng = np.random.default_rng(seed)
    v, u = (rng.standard_normal(n).astype(J.dtype) for n in J.shape[::-1])
    V = rng.standard_normal((J.shape[1], 3)).astype(J.dtype)
    fine, coarse = tolerances(J.dtype)
    tests: tuple[tuple[str, Callable[[], float]], ...] = (
        ("dot test ⟨u, Jv⟩ = ⟨Jᵀu, v⟩", lambda: dot_error(J, u, v)),
        ("J V against its columns J v", lambda: relative(J @ V, np.stack([J @ c for c in V.T], 1))),
        ("(Jᵀ)ᵀ v against J v", lambda: relative(J.T.T @ v, J @ v)),
        ("dot test before elimination", lambda: dot_error(plain, u, v)),
        ("J v against J v before elimination", lambda: relative(J @ v, plain @ v)),
    )
    products = [Outcome(name, guarded(error), fine) for name, error in tests]
    return Check((*products, against_differences(J, primal, v, scale, coarse, neighbour)))


def against_differences(
    J: Jacobian, primal: Primal, v: np.ndarray, scale: float, allowed: float, neighbour: Neighbour
) -> Outcome:
    """The test with differences, here or, on a kink, beside it."""
    name = DIFFERENCES
    try:
        with np.errstate(all="ignore"):
            spread, error = difference(J, primal, v, scale, allowed)
            if error > allowed and spread > KINK:
                name = f"{DIFFERENCES}, beside a kink"
                spread, error = difference(*neighbour(), v, scale, allowed)
    except Exception:
        return Outcome(name, float("inf"), allowed)
    return Outcome(name, error, max(allowed, min(spread, KINK)))


def tolerances(dtype: np.dtype) -> tuple[float, float]:
    """What rounding may cost: in a product, and in a difference of primals."""
    eps = epsilon(dtype)
    return min(1e4 * eps, 0.1), 1e-6 if eps < 1e-10 else min(20 * eps ** (1 / 3), 0.5)


def epsilon(dtype: np.dtype) -> float:
    """The relative rounding error, of NumPy's floats and of the narrow ones of ml_dtypes."""
    return float(ml_dtypes.finfo(dtype).eps)


def guarded(error: Callable[[], float]) -> float:
    """The error, infinite where it is not a number or could not be computed."""
    try:
        with np.errstate(all="ignore"):
            found = error()
    except Exception:
        return float("inf")
    return found if found == found else float("inf")


def relative(a: np.ndarray, b: np.ndarray) -> float:
    """‖a - b‖ over the larger norm; 0 for two zeros."""
    a, b = a.astype(np.float64), b.astype(np.float64)  # where no square overflows
    scale = max(float(np.linalg.norm(a)), float(np.linalg.norm(b)))
    return float(np.linalg.norm(a - b)) / scale if scale else 0.0


def dot_error(J: Jacobian, u: np.ndarray, v: np.ndarray) -> float:
    """|⟨u, Jv⟩ - ⟨Jᵀu, v⟩| over ‖u‖ ‖Jv‖, to which rounding is relative."""
    forward, reverse = ((J @ v).astype(np.float64), (J.T @ u).astype(np.float64))
    scale = float(np.linalg.norm(u.astype(np.float64)) * np.linalg.norm(forward))
    difference = abs(float(u @ forward) - float(reverse @ v))
    return difference / scale if scale else difference


def difference(
    J: Jacobian, primal: Primal, v: np.ndarray, scale: float, enough: float
) -> tuple[float, float]:
    """How far one-sided differences along v are apart, and J v from their mean, at the best step.

    The best step is the first with an error that is small `enough`, else that at which the two
    sides agree best.
    """
    product, here = J @ v, primal(np.zeros_like(v))
    best = float("inf"), float("inf")
    for factor in STEPS:
        ahead, behind = one_sided(primal, here, v, factor * step_size(v, scale))
        found = relative(ahead, behind), relative(product, (ahead + behind) / 2)
        if found[1] <= enough:
            return found
        best = min(best, found)
    return best


def step_size(v: np.ndarray, scale: float) -> float:
    """The step at which a central difference of a smooth f is most accurate."""
    return max(scale, 1e-3) * epsilon(v.dtype) ** (1 / 3)


def one_sided(
    primal: Primal, here: np.ndarray, v: np.ndarray, h: float
) -> tuple[np.ndarray, np.ndarray]:
    """(f(x + h v) - f(x)) / h and (f(x) - f(x - h v)) / h."""
    step = (h * v).astype(v.dtype)
    ahead, behind = (primal(s).astype(np.float64) for s in (step, -step))
    return (ahead - here) / h, (here - behind) / h
