"""Levenberg-Marquardt: nonlinear least squares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model import Model
from ..naming.names import Names
from .counted import Counted
from .damping import Damping
from .least_squares import TINY, Place, Step, half_square
from .preconditioning import Preconditioner, preconditioner_for
from .problem import Problem, as_scipy
from .result import OptimizeResult
from .run import GOING, GRADIENT, STEP, VALUE, Callback, run, state
from .scaling import Scale, column_norms


def levenberg_marquardt(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    damping: float = 1e-3,
    acceleration: float = 0.75,
    scale: Scale = column_norms,
    preconditioner: Preconditioner | None = None,
    tol: float | None = None,
    maxiter: int = 200,
    options: Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
) -> OptimizeResult:
    """min ½ ‖r(x)‖² by steps δ that minimise ‖J δ + r‖² + λ ‖D δ‖², r the tensors of `of`, flat.

    No mean is taken: `cost` is half the sum of the squares of all elements of `of`.

    D is `scale(J)`, by default the norms of the columns of J, and at least half of the D before,
    so that steps do not depend on the units of the variables. λ starts at `damping` and follows
    the gain ratio: a trust region. Each step is bent by the second derivative of r along it, unless
    that bends it by more than `acceleration` allows, which counts as a failure; 0 takes it
    straight. A step costs one or two calls of `scipy.sparse.linalg.lsmr`, with these `options`:
    products with J and Jᵀ. A `preconditioner` is a right factor, an R or a function that makes it
    of J: LSMR solves for y with δ = R y, in the fewer products the nearer the columns of J R are to
    orthonormal ones. The steps stay the same.

    It ends where no column of J makes an angle with r whose cosine is over `tol`, where the
    reductions, real and predicted, are within `tol` times the cost, or a step within `tol` times x;
    by default √ε. The result is that of `scipy.optimize.least_squares` (`cost`, `fun`, `jac`,
    `grad`, `optimality`, the largest cosine) with `tensors`, `damping` and `products`.

    Shapes: x and δ are (n,), n the size of the tensors of `wrt`; r is (m,), m the size of the
    tensors of `of`; J is (m, n), D is (n,), R is (n, n). Raises `InputError` where the
    `preconditioner` is no operator of shape (n, n), and where a name, a shape or a dtype does not
    fit; `UnsupportedOp` for an operator without a rule. An iteration that ends early raises
    nothing: see `success` and `message` of the result.

    Sources: Moré, "The Levenberg-Marquardt algorithm", 1978, for D; Nielsen, "Damping parameter in
    Marquardt's method", 1999, for λ; Transtrum and Sethna, "Improvements to the
    Levenberg-Marquardt algorithm for nonlinear least-squares minimization", 2012, for the bend.
    """
    problem = as_scipy(model, inputs, of=of, wrt=wrt, engine=engine)
    eps = float(np.finfo(problem.x0.dtype).eps)
    exact = {"atol": eps, "btol": eps, "conlim": 0, "maxiter": 10 * problem.x0.size}
    tolerance = np.sqrt(eps) if tol is None else tol
    found = Iterations(problem, scale, preconditioner, Damping(damping), acceleration, tolerance,
                       {**exact, **(options or {})})  # fmt: skip
    return run(found.states(), "Levenberg-Marquardt", maxiter, callback, progress)


@dataclass
class Iterations:
    """What stays the same from step to step, λ, and how much was done."""

    problem: Problem
    scale: Scale
    preconditioner: Preconditioner | None
    damping: Damping
    acceleration: float
    tol: float
    options: Mapping[str, Any]
    nit: int = 0
    products: int = 0

    def states(self) -> Iterator[OptimizeResult]:
        """The state at the start, and after every iteration, whether it moved or not."""
        place, status = self.place(self.problem.x0, np.zeros_like(self.problem.x0)), GOING
        while True:
            yield self.state(place, GRADIENT if place.cosine <= self.tol else status)
            self.nit += 1
            step = place.straight(self.damping.value)
            moved = self.bent(place, step)
            gain = self.reduction(place, moved) / max(step.promise, TINY)
            self.damping.follow(gain)
            status = self.ended(place, step, gain)
            if gain > 0 and moved is not None:
                self.products += place.J.products
                place = self.place(moved.x, place.D)

    def place(self, x: np.ndarray, D: np.ndarray) -> Place:
        """r, J and the units of the variables at x; these shrink by half at most."""
        r, J = self.problem.values(x), self.problem.jacobian(x)
        norms, R = self.scale(J), preconditioner_for(J, self.preconditioner)
        return Place(x, r, Counted(J), norms, np.maximum(norms, D / 2), R, self.options)

    def bent(self, place: Place, step: Step) -> Step | None:
        """The step with its bend, if it is not too much."""
        if not self.acceleration:
            return step
        return place.bent(step, self.problem.values, self.acceleration, self.damping.value)

    def reduction(self, place: Place, step: Step | None) -> float:
        """By how much ½ ‖r‖² falls; −∞ where there is no step, or r is not finite."""
        if step is None:
            return -np.inf
        after = half_square(self.problem.values(step.x))
        return place.cost - after if np.isfinite(after) else -np.inf

    def ended(self, place: Place, step: Step, gain: float) -> int | None:
        """Why to end after a step, if at all."""
        if max(1, abs(gain)) * step.promise <= self.tol * place.cost:
            return VALUE
        short = step.length <= self.tol * np.linalg.norm(place.D * place.x)
        return STEP if short else GOING

    def state(self, place: Place, status: int | None) -> OptimizeResult:
        """Where it stands."""
        return state(
            self.problem, status, x=place.x, cost=place.cost, fun=place.r, jac=place.J.A,
            grad=place.gradient, optimality=place.cosine, nit=self.nit,
            damping=self.damping.value, products=self.products + place.J.products,
        )  # fmt: skip
