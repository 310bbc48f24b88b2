"""Preconditioned Newton: the iterations of Newton-CG where each Hessian has a preconditioner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .counted import Counted
from .line_search import armijo, backtrack
from .preconditioning import Preconditioner, preconditioner_for
from .problem import Problem
from .result import OptimizeResult
from .run import GOING, GRADIENT, STUCK, state
from .truncated_cg import Step, truncated_cg

POOR, GOOD, ENOUGH = 0.25, 0.75, 0.15
"""Gains, real by predicted reduction: that shrink a region, that widen it, that take a step."""


@dataclass
class Iterations:
    """What stays the same from step to step, the trust region, and how much was done.

    `radius` is infinite for a line search; a trust region starts as large as the preconditioned
    gradient is long, and is measured like it: ‖δ‖² = δᵀ M⁻¹ δ.
    """

    problem: Problem
    preconditioner: Preconditioner
    gtol: float
    radius: float | None
    nit: int = 0
    products: int = 0

    def states(self) -> Iterator[OptimizeResult]:
        """The state at the start, and after every iteration."""
        x, status = self.problem.x0, GOING
        while True:
            f, g = self.problem.fun(x), self.problem.gradient(x)
            status = GRADIENT if np.linalg.norm(g) <= self.gtol else status
            yield state(self.problem, status, x=x, fun=f, jac=g, nit=self.nit, nhev=self.products)
            self.nit += 1
            step = self.step(x, g)
            follow = self.searched if self.radius == np.inf else self.trusted
            moved = follow(x, f, g, step)
            stuck = np.array_equal(x + step.delta.astype(x.dtype), x) or moved is None
            x, status = (x if moved is None else moved), (STUCK if stuck else GOING)

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
