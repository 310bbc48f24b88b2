"""Step control: what methods that choose their steps share.

They are solvers for SciPy's `solve_ivp`, which finds events and joins the dense output of steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import OdeSolver

from ...jacobians.errors import NotConverged
from .implicit_system import ImplicitSystem

RESTART_FAILURES, MOST_FAILURES = 5, 50
"""The failures in a row after which a step begins anew, and the solver gives up: at t = 0 no length
is too small for the numbers.
"""


def least_step(t: float) -> float:
    """The least length of a step that changes t enough, ten times the distance of two numbers."""
    return float(10 * np.spacing(abs(t)))


class Stepper(OdeSolver):
    """Steps of length |h| ≤ `max_step`, each with an error of at most its tolerance.

    A method gives `attempt`, a step with its error, `accepted`, which chooses the next length, and
    `rescale`.
    """

    order: int

    def __init__(
        self, fun: Any, t0: float, y0: np.ndarray, t_bound: float, vectorized: bool, *,
        system: ImplicitSystem, slope: np.ndarray, first_step: float, max_step: float,
        tolerance: Callable[[np.ndarray], np.ndarray], max_order: int,
    ) -> None:  # fmt: skip
        super().__init__(fun, t0, y0, t_bound, vectorized)
        self.system, self.slope, self.max_step, self.tolerance = system, slope, max_step, tolerance
        self.max_order = max_order
        self.h = float(self.direction) * max(first_step, least_step(t0))

    @abstractmethod
    def rescale(self, h: float) -> None:
        """A step of another length."""

    def restart(self) -> None:
        """After failures in a row: f may jump here, or u may not satisfy a DAE."""
        self.rescale(0.25 * self.h)

    @abstractmethod
    def attempt(self, t: float) -> tuple[np.ndarray, float]:
        """u after a step to t, and its error over the tolerance; raises `NotConverged`."""

    @abstractmethod
    def accepted(self, error: float) -> None:
        """What the next step needs: the step to t is taken."""

    def factor(self, error: float, order: int) -> float:
        """How much longer a step of this order may be, that had this error: from 1/5 to 10."""
        return min(10.0, max(0.2, 0.8 * max(error, 1e-30) ** (-1 / (order + 1))))

    def _step_impl(self) -> tuple[bool, str | None]:
        left, reason = abs(self.t_bound - self.t), ""
        for failures in range(1, MOST_FAILURES + 1):
            longest = min(left, self.max_step)
            if abs(self.h) > longest:
                self.rescale(float(self.direction) * longest)
            last = abs(self.h) >= left * (1 - 1e-12)
            if not last and abs(self.h) < least_step(self.t):
                break
            t = self.t_bound if last else self.t + self.h
            try:
                y, error = self.attempt(t)
                reason = "its error is above the tolerance" if error < np.inf else "f is not finite"
            except NotConverged as failed:
                y, error, reason = self.y, np.nan, str(failed)
            if error <= 1:
                self.t, self.y = t, y
                self.accepted(error)
                return True, None
            if failures == RESTART_FAILURES:
                self.restart()
            else:
                shorter = min(0.8, self.factor(error, self.order)) if np.isfinite(error) else 0.25
                self.rescale(self.h * shorter)
        return False, (
            f"the step became too small at t={self.t:g}: {reason}. The solution may be singular "
            "there, or jump, or a DAE be of an index above 1: take other tolerances, or end before"
        )
