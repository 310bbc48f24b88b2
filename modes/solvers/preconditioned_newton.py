"""Preconditioned Newton: the iterations of Newton-CG where each Hessian has a preconditioner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .counted import Counted
from .descent import Descent
from .line_search import armijo, backtrack
from .preconditioning import Preconditioner, preconditioner_for
from .truncated_cg import Step, truncated_cg

POOR, GOOD, ENOUGH = 0.25, 0.75, 0.15
"""Gains, real by predicted reduction: that shrink a region, that widen it, that take a step."""


@dataclass(kw_only=True)
class Iterations(Descent):
    """Newton's steps, and the trust region.

    `radius` is infinite for a line search; a trust region starts as large as the preconditioned
    gradient is long, and is measured like it: ‖δ‖² = δᵀ M⁻¹ δ.
    """

    preconditioner: Preconditioner
    radius: float | None
    called = "nhev"

    def move(self, x: np.ndarray, f: float, g: np.ndarray) -> np.ndarray | None:
        """The point that the line search or the trust region takes; None where δ is 0 beside x."""
        step = self.step(x, g)
        follow = self.searched if self.radius == np.inf else self.trusted
        moved = follow(x, f, g, step)
        return None if np.array_equal(x + step.delta.astype(x.dtype), x) else moved

    def step(self, x: np.ndarray, g: np.ndarray) -> Step:
        """δ ≈ −H⁻¹ g, the closer the smaller g is."""
        H = self.problem.hessian(x)
        M, A = preconditioner_for(H, self.preconditioner), Counted(H)
        if self.radius is None:
            self.radius = float(np.sqrt(g @ (M @ g)))
        rtol = min(0.5, float(np.sqrt(np.linalg.norm(g))))
        found = truncated_cg(A, g, M, rtol=rtol, radius=self.radius)
        self.products += A.products
        return found

    def searched(self, x: np.ndarray, f: float, g: np.ndarray, step: Step) -> np.ndarray | None:
        """x + t δ, where f falls as it should; None where it never does."""
        delta = step.delta.astype(x.dtype)
        t = backtrack(armijo(self.problem.fun, x, delta, f, float(g @ delta)))
        return None if t is None else x + x.dtype.type(t) * delta

    def trusted(self, x: np.ndarray, f: float, g: np.ndarray, step: Step) -> np.ndarray:
        """x + δ where f falls about as the model says, else x; the region follows how well."""
        moved = x + step.delta.astype(x.dtype)
        noise = 10 * float(np.finfo(x.dtype).eps) * abs(f)  # smaller changes of f say nothing
        gain = (f - self.problem.fun(moved) + noise) / (step.promise(g) + noise)
        assert self.radius is not None
        if not gain >= POOR:
            self.radius *= 0.25
        elif gain > GOOD and step.cut:
            self.radius *= 2
        return moved if gain > ENOUGH else x
