"""Step control: what methods that choose their steps share.

They are solvers for SciPy's `solve_ivp`, which finds events and joins the dense output of steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from scipy.integrate import OdeSolver

from ...jacobians.errors import NotConverged
from .implicit_system import ImplicitSystem

RESTART_FAILURES = 5


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
        self.h = float(self.direction) * first_step

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
        longest = min(10.0, self.max_step / abs(self.h))
        return min(longest, max(0.2, 0.8 * max(error, 1e-30) ** (-1 / (order + 1))))

    def _step_impl(self) -> tuple[bool, str | None]:
        reason = "the error of a step"
        for failures in count(1):
            left = self.t_bound - self.t
            longest = min(abs(left), self.max_step)
            if abs(self.h) > longest:
                self.rescale(float(self.direction) * longest)
            if abs(self.h) < 10 * np.spacing(abs(self.t)) and abs(self.h) < abs(left):
                return False, (
                    f"the step became too small at t={self.t:g}, by {reason}: the solution may "
                    "be singular there, or jump; take other tolerances, or end before"
                )
            last = abs(self.h) >= abs(left) * (1 - 1e-12)
            t = self.t_bound if last else self.t + self.h
            try:
                y, error = self.attempt(t)
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
        raise AssertionError
