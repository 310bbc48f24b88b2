"""Newton-Krylov: a root of a model, by Jacobian products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
from scipy.sparse.linalg import gmres

from ...jacobians.errors import InputError
from ..model.primal.model import Model
from ..model.primal.names import Names
from .iteration import (
    DESCENT,
    GOING,
    GRADIENT,
    STUCK,
    Callback,
    Counted,
    OptimizeResult,
    Preconditioner,
    Reused,
    backtrack,
    preconditioner_for,
    run,
    state,
)
from .problem import Problem, as_scipy

Solver = Callable[..., tuple[np.ndarray, int]]
"""(A, b, rtol=, M=) ↦ x with A x ≈ b, and a code: one of `scipy.sparse.linalg`."""


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
    states = iterations(problem, solver, preconditioner, goal)
    return run(states, "Newton-Krylov", maxiter, callback, progress)


def forcing(before: float, after: float, last: float) -> float:
    """η = 0.9 (‖F₊‖ / ‖F‖)², at least 0.9 η₋² if that exceeds 0.1, and at most 0.9.

    >>> forcing(1.0, 0.5, 0.1), forcing(1.0, 0.1, 0.5)
    (0.225, 0.225)
    """
    eta, safe = 0.9 * (after / before) ** 2, 0.9 * last**2
    return min(0.9, max(eta, safe) if safe > 0.1 else eta)


def iterations(
    problem: Problem, solver: Solver, preconditioner: Preconditioner | None, goal: float
) -> Iterator[OptimizeResult]:
    """The state at the start, and after every iteration."""
    x, eta, status, before, products = problem.x0, 0.5, GOING, 0.0, 0
    for nit in count():
        F = problem.values(x)
        norm = float(np.linalg.norm(F))
        eta = forcing(before, norm, eta) if before else eta
        status = GRADIENT if norm <= goal else status
        yield state(problem, status, x=x, fun=F, nit=nit, products=products)
        J = problem.jacobian(x)
        A, M = Counted(J), preconditioner_for(J, preconditioner)
        delta, _ = solver(A, -F, rtol=min(max(eta, 0.5 * goal / norm), 0.9), M=M)
        products += A.products
        if isinstance(preconditioner, Reused):
            preconditioner.took(A.products)
        moved = searched(problem, x, np.asarray(delta, x.dtype), norm, eta)
        x, status = (x, STUCK) if moved is None else (moved, GOING)
        before = norm


def searched(
    problem: Problem, x: np.ndarray, delta: np.ndarray, norm: float, eta: float
) -> np.ndarray | None:
    """x + t δ with a sufficient decrease of ‖F‖, at x its `norm`; None if there is none."""

    def enough(t: float) -> bool:
        F = problem.values(x + x.dtype.type(t) * delta)
        return bool(np.linalg.norm(F) <= (1 - DESCENT * t * (1 - eta)) * norm)

    t = backtrack(enough)
    return None if t is None else x + x.dtype.type(t) * delta
