"""BDF: orders 1 to 5 and steps that vary, for M u̇ = f(t, u), stiff or differential-algebraic.

Source: Shampine and Reichelt, "The MATLAB ODE suite", 1997: numerical differentiation formulas over
backward differences. Newton's iteration ends by its rate of convergence, which is kept from step to
step, as in Brown, Byrne and Hindmarsh, "VODE", 1989.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from scipy.integrate import DenseOutput

from ...jacobians.errors import NotConverged
from .implicit_system import Solve, first_length, scaled_norm, started
from .step_control import Stepper

HIGHEST_ORDER = 5

KAPPA = np.array([0, -0.1850, -1 / 9, -0.0823, -0.0415, 0, 0])
"""κ of every order, of the paper's table 1; 0 gives the BDF."""

GAMMA = np.cumsum([0, *(1 / np.arange(1, HIGHEST_ORDER + 2))])
ALPHA = (1 - KAPPA) * GAMMA
ERROR = KAPPA * GAMMA + 1 / np.arange(1, HIGHEST_ORDER + 3)
"""The error of a step, over u - predicted u."""

NEWTON_TOLERANCE, NEWTON_STEPS, LEAST_RATE = 0.1, 4, 0.2
"""Newton's error at the end, over the error of the step; the most iterations; and a convergence
that may be hoped for where the last step had a better one.
"""


def rescaling(order: int, factor: float) -> np.ndarray:
    """W with ∇ᵐ u, m = 0 … order, over steps `factor` times as long: W ∇u.

    u(t - j h) = Σₘ (-j)(1 - j) … (m - 1 - j) / m! ∇ᵐ u, for whole j and, as a polynomial, for any.

    >>> rescaling(2, 2.0)           # of t² with h = 1, at 0: 0, -1, 2 become 0, -4, 8
    array([[ 1.,  0.,  0.],
           [ 0.,  2., -1.],
           [ 0.,  0.,  4.]])
    """
    m = np.arange(1, order + 1)[:, None]

    def values(factor: float) -> np.ndarray:
        """The u at -j factor, by the ∇ᵐ u: rows m, columns j."""
        steps = (m - 1 - factor * np.arange(order + 1)) / m
        return np.vstack([np.ones(order + 1), np.cumprod(steps, axis=0)])

    return np.asarray((values(factor) @ values(1)).T)


@final
class BDF(Stepper):
    """h u̇ = Σₘ ∇ᵐ u / m, m = 1 … order, with a part of ∇ᵐ⁺¹ u; order and h vary."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.D = np.zeros((HIGHEST_ORDER + 3, self.n))
        """∇ᵐ u for m = 0, 1, …"""
        self.begin(self.slope)

    def begin(self, slope: np.ndarray) -> None:
        """Order 1, with one step of this length h in the past."""
        self.order, self.equal_steps = 1, 0
        self.D[0], self.D[1] = self.y, slope * self.h
        self.solve: Solve | None = None

    def restart(self) -> None:
        """A DAE whose algebraic equations do not hold at u has an error at any length of a step."""
        try:
            self.y, slope, bend = started(self.system, self.t, self.y, self.tolerance)
        except NotConverged:
            return self.rescale(0.25 * self.h)
        self.h *= min(1.0, first_length(bend, self.tolerance(self.y)) / abs(self.h))
        return self.begin(slope)

    def rescale(self, h: float) -> None:
        """A step of another length."""
        k = self.order
        self.D[: k + 1] = rescaling(k, h / self.h) @ self.D[: k + 1]
        self.h, self.equal_steps, self.solve = h, 0, None

    def attempt(self, t: float) -> tuple[np.ndarray, float]:
        """u at t, with its error."""
        k, fresh = self.order, self.solve is None
        predicted = self.D[: k + 1].sum(axis=0)
        scale, c = self.tolerance(predicted), self.h / ALPHA[k]
        past = GAMMA[1 : k + 1] @ self.D[1 : k + 1] / ALPHA[k]
        if self.solve is None:
            J = self.system.jacobian(t, predicted)
            self.solve, self.rate = self.system.solves(c, J, scale), 1.0
        moved = self.newton(self.solve, t, predicted, past, c, scale)
        if moved is None:
            if fresh:
                raise NotConverged("Newton's iteration does not converge")
            self.solve = None
            return self.attempt(t)  # once more, with J at this point
        self.moved, y = moved, predicted + moved
        scale = self.tolerance(np.maximum(np.abs(y), np.abs(self.y)))
        return y, ERROR[k] * scaled_norm(self.moved, scale)

    def newton(
        self, solve: Solve, t: float, predicted: np.ndarray, past: np.ndarray, c: float,
        scale: np.ndarray,
    ) -> np.ndarray | None:  # fmt: skip
        """d with M (past + d) = c f(t, predicted + d), or None."""
        d, before = np.zeros(self.n), np.inf
        for _ in range(NEWTON_STEPS):
            f = self.system.rates(t, predicted + d)
            step = solve(c * f - self.system.momentum(past + d))
            d, size = d + step, scaled_norm(step, scale)
            if not size <= 2 * before:  # nor a number
                return None
            if before < np.inf:
                self.rate = max(LEAST_RATE, size / before)
            if size * min(1, self.rate) * ERROR[self.order] <= NEWTON_TOLERANCE:
                return d
            before = size
        return None

    def accepted(self, error: float) -> None:
        """∇ᵐ at the end of the step; and another order or length, if this one has enough steps."""
        k, D, scale = self.order, self.D, self.tolerance(self.y)
        D[k + 2], D[k + 1] = self.moved - D[k + 1], self.moved
        for m in range(k, -1, -1):
            D[m] += D[m + 1]
        self.piece = (self.h, D[: k + 1].copy())
        self.equal_steps += 1
        if self.equal_steps <= k:
            return
        errors = {k: error}
        if k > 1:
            errors[k - 1] = ERROR[k - 1] * scaled_norm(D[k], scale)
        if k < self.max_order:
            errors[k + 1] = ERROR[k + 1] * scaled_norm(D[k + 2], scale)
        factors = {order: self.factor(errors[order], order) for order in errors}
        best, longest = max(factors, key=factors.__getitem__), self.max_step / abs(self.h)
        gain = min(factors[best], longest) if best == k else factors[best]
        if not 1 <= gain < 1.2:  # LU of another matrix for less is not worth it
            self.order = best
            self.rescale(self.h * min(gain, longest))

    def _dense_output_impl(self) -> DenseOutput:
        return Differences(self.t_old, self.t, *self.piece)


@final
class Differences(DenseOutput):
    """u(t + s h) = Σₘ s (s + 1) … (s + m - 1) / m! ∇ᵐ u."""

    def __init__(self, t_old: float, t: float, h: float, D: np.ndarray) -> None:
        super().__init__(t_old, t)
        self.h, self.D = h, D

    def _call_impl(self, t: np.ndarray) -> np.ndarray:
        s, m = np.expand_dims((t - self.t) / self.h, -1), np.arange(1, len(self.D))
        steps = np.cumprod((s + m - 1) / m, axis=-1)
        return np.asarray(self.D[0] + steps @ self.D[1:]).T
