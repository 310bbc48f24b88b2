"""Least squares: r near a point as Levenberg-Marquardt sees it, and the steps from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import aslinearoperator, lsmr

from ...jacobians import Diagonal
from ...jacobians.cached import cached_property
from .counted import Augmented, Counted

Residual = Callable[[np.ndarray], np.ndarray]

REACH = 0.1
"""How far along a step, in parts of it, the residual is asked for its curvature."""

TINY = float(np.finfo(np.float32).tiny)


class Step(NamedTuple):
    """Where a step goes, its length ‖D δ‖, and the reduction of ½ ‖r‖² that it promises."""

    x: np.ndarray
    length: float
    promise: float


@dataclass(frozen=True)
class Place:
    """r and J at x, with the norms of the columns of J and D, the units of the variables.

    `R` is a right preconditioner, if there is one; `options` are those of LSMR.
    """

    x: np.ndarray
    r: np.ndarray
    J: Counted
    norms: np.ndarray
    D: np.ndarray
    R: Any
    options: Mapping[str, Any]

    @property
    def cost(self) -> float:
        """½ ‖r‖²."""
        return half_square(self.r)

    @cached_property
    def gradient(self) -> np.ndarray:
        """Jᵀ r."""
        return self.J.T @ self.r

    @property
    def cosine(self) -> float:
        """The largest cosine of an angle between r and a column of J."""
        largest = np.max(np.abs(self.gradient) / self.norms, initial=0)
        return float(largest / max(np.linalg.norm(self.r), TINY))

    def solve(self, b: np.ndarray, damping: float) -> np.ndarray:
        """D δ, for the δ that minimises ‖J δ + b‖² + λ ‖D δ‖²."""
        b = b.astype(np.float64)  # LSMR itself overflows in single precision
        if self.R is None:
            A: Any = self.J @ aslinearoperator(Diagonal(1 / self.D))
            found = lsmr(A, -b, damp=np.sqrt(damping), **self.options)[0]
        else:
            A = Augmented(self.J, np.sqrt(damping) * self.D, self.R)
            padded = np.concatenate([-b, np.zeros(self.x.size)])
            found = self.D * (self.R @ lsmr(A, padded, **self.options)[0])
        return np.asarray(found, self.x.dtype)

    def straight(self, damping: float) -> Step:
        """δ, along the linear model."""
        scaled = self.solve(self.r, damping)
        linear = self.J @ (scaled / self.D)
        promise = -float(self.r @ linear) - float(linear @ linear) / 2
        return Step(self.x + scaled / self.D, float(np.linalg.norm(scaled)), promise)

    def bent(self, step: Step, residual: Residual, bound: float, damping: float) -> Step | None:
        """δ + a, where a is to ½ r″(δ, δ) as δ is to r; None where 2 ‖D a‖ > bound ‖D δ‖.

        r″ is a difference of r and its linear model a short way along δ.
        """
        delta = step.x - self.x
        moved = residual(self.x + REACH * delta) - self.r
        second = (moved / REACH - self.J @ delta) * (2 / REACH)
        if not np.all(np.isfinite(second)):
            return None
        scaled = self.solve(second / 2, damping)
        fits = 2 * np.linalg.norm(scaled) <= bound * step.length
        return step._replace(x=step.x + scaled / self.D) if fits else None


def half_square(r: np.ndarray) -> float:
    """½ ‖r‖², which may be infinite."""
    with np.errstate(over="ignore"):
        return float(r @ r) / 2
