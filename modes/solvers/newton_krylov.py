"""Newton-Krylov: a root of a model, by Jacobian products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import gmres

from ...jacobians.errors import InputError
from ..model import Model
from ..naming.names import Names
from .iteration import (
    GOING,
    GRADIENT,
    STUCK,
    Callback,
    Counted,
    OptimizeResult,
    Preconditioner,
    backtrack,
    preconditioner_for,
    run,
    state,
)
from .problem import Problem, as_scipy

Solver = Callable[..., tuple[np.ndarray, int]]
"""(A, b, rtol=, M=) ↦ x with A x ≈ b, and a code: one of `scipy.sparse.linalg`."""

DESCENT = 1e-4
"""The fraction of the reduction of the linear model that a step must achieve."""


def newton_krylov(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    solver: Solver = gmres,
    preconditioner: Preconditioner | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    maxiter: int = 50,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
) -> OptimizeResult:
    """F(x) = 0 by steps J δ = −F, solved by a Krylov method to ‖F + J δ‖ ≤ η ‖F‖.

    F are the tensors of `of` and x the tensors of `wrt`, equal in size. J is exact, one operator
    that is relinearised from step to step. A `preconditioner` is an M ≈ J⁻¹, or a function that
    builds it from J, for the `solver`: `gmres` or any function of (A, b, rtol=, M=). η follows the
    reduction of ‖F‖, so that early steps are cheap and late ones converge superlinearly;
    backtracking ensures that ‖F‖ decreases.

    It ends when ‖F‖ ≤ atol + rtol ‖F(x₀)‖, by default with rtol = √ε and atol = ε^(2/3) √n. The
    result has `fun` = F, `tensors`, and `products`, the number of products with J.

    Shapes: x, F and δ are (n,), n the size of the tensors of `wrt`; J and M are (n, n). Raises
    `InputError` where F holds more or fewer numbers than x, and where a name, a shape or a dtype
    does not fit; `UnsupportedOp` for an operator without a rule. An iteration that ends early
    raises nothing: see `success` and `message` of the result.

    Source: Eisenstat and Walker, "Choosing the forcing terms in an inexact Newton method", 1996,
    choice 2.
    """
    problem = as_scipy(model, inputs, of=of, wrt=wrt, engine=engine)
    F, x = problem.values(problem.x0), problem.x0
    if F.size != x.size:
        raise InputError(f"{F.size} equations for {x.size} unknowns: a root needs as many of each")
    eps = float(np.finfo(x.dtype).eps)
    relative = np.sqrt(eps) if rtol is None else rtol
    absolute = eps ** (2 / 3) * np.sqrt(x.size) if atol is None else atol
    goal = absolute + relative * float(np.linalg.norm(F))
    found = Iterations(problem, solver, preconditioner, goal)
    return run(found.states(), "Newton-Krylov", maxiter, callback, progress)


def forcing(before: float, after: float, last: float) -> float:
    """η = 0.9 (‖F₊‖ / ‖F‖)², at least 0.9 η₋² if that exceeds 0.1, and at most 0.9.

    >>> forcing(1.0, 0.5, 0.1), forcing(1.0, 0.1, 0.5)
    (0.225, 0.225)
    """
    eta, safe = 0.9 * (after / before) ** 2, 0.9 * last**2
    return min(0.9, max(eta, safe) if safe > 0.1 else eta)


@dataclass
class Iterations:
    """The settings, and counts of iterations and products."""

    problem: Problem
    solver: Solver
    preconditioner: Preconditioner | None
    goal: float
    nit: int = 0
    products: int = 0

    def states(self) -> Iterator[OptimizeResult]:
        """The state at the start, and after every iteration."""
        x, eta, status, before = self.problem.x0, 0.5, GOING, 0.0
        while True:
            F = self.problem.values(x)
            norm = float(np.linalg.norm(F))
            eta = forcing(before, norm, eta) if before else eta
            status = GRADIENT if norm <= self.goal else status
            yield state(self.problem, status, x=x, fun=F, nit=self.nit, products=self.products)
            self.nit += 1
            direction = self.direction(x, F, max(eta, 0.5 * self.goal / norm))
            t = backtrack(self.falls(x, direction, norm, eta))
            x, status = (x, STUCK) if t is None else (x + x.dtype.type(t) * direction, GOING)
            before = norm

    def direction(self, x: np.ndarray, F: np.ndarray, eta: float) -> np.ndarray:
        """δ ≈ −J⁻¹ F, to a residual of η ‖F‖."""
        J = self.problem.jacobian(x)
        A = Counted(J)
        M = preconditioner_for(J, self.preconditioner)
        delta, _ = self.solver(A, -F, rtol=min(eta, 0.9), M=M)
        self.products += A.products
        return np.asarray(delta, x.dtype)

    def falls(
        self, x: np.ndarray, direction: np.ndarray, norm: float, eta: float
    ) -> Callable[[float], bool]:
        """A test of sufficient decrease of ‖F‖ at x + t δ."""

        def enough(t: float) -> bool:
            F = self.problem.values(x + x.dtype.type(t) * direction)
            return bool(np.linalg.norm(F) <= (1 - DESCENT * t * (1 - eta)) * norm)

        return enough
