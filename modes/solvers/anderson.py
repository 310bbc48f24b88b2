"""Anderson: fixed points x = x + F(x), by evaluations of F alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...jacobians.arguments import Count, NonNegative, Positive
from ...jacobians.arrays import Array, host, like
from ..model.primal.inputs import Names
from ..model.primal.model import ModelLike
from .iteration import GOING, GRADIENT, Callback, OptimizeResult, length, run, solver_state
from .problem import Problem
from .roots import Goal, check_as_many


def anderson(
    model: ModelLike, inputs: Mapping[str, Any], *, of: Names = None, wrt: Names = None,
    memory: Positive = 5, rtol: NonNegative | None = None, atol: NonNegative | None = None,
    maxiter: Count = 200, callback: Callback | None = None, progress: bool | None = None,
    engine: str | None = None,
) -> OptimizeResult:  # fmt: skip
    """F(x) = 0 by x₊ = x + F − (ΔX + ΔF) γ, γ the least squares solution of ΔF γ = F.

    ΔX and ΔF are the last `memory` differences of x and F. Where x + F(x) contracts, the iteration
    converges without; with them it is GMRES on an affine F. It ends as `newton_krylov` does, with x
    in place of J x̃, since F is in units of x.
    Source: Walker and Ni, "Anderson acceleration for fixed-point iterations", 2011.
    """
    problem = Problem[Any](model, inputs, of, wrt, engine)
    check_as_many(problem)
    return run(
        mixed(problem, Goal(problem, rtol, atol), memory), "Anderson", maxiter, callback, progress
    )


def mixed(problem: Problem, goal: Goal, memory: int) -> Iterator[OptimizeResult]:
    """The state at the start, and after every iteration."""
    for nit, (x, F) in enumerate(accelerated(problem.values, problem.x0, memory)):
        small = max(goal.size, goal.relative * length(x))
        status = GRADIENT if length(F) <= small else GOING
        yield solver_state(problem, status, x=x, fun=F, nit=nit)


def accelerated(
    residual: Callable[[Array], Array], x: Array, memory: int
) -> Iterator[tuple[Array, Array]]:
    """x and F at the start, and after every iteration, without end."""
    last: tuple[np.ndarray, np.ndarray] | None = None
    moves, changes = list[np.ndarray](), list[np.ndarray]()
    while True:
        F = residual(x)
        yield x, F
        here = host(x), host(F)
        if last is not None:
            moves.append(here[0] - last[0])
            changes.append(here[1] - last[1])
            del moves[:-memory], changes[:-memory]
        last, x = here, like(extrapolated(*here, moves, changes), x)


def extrapolated(
    x: np.ndarray, F: np.ndarray, moves: list[np.ndarray], changes: list[np.ndarray]
) -> Array:
    """x + F − (ΔX + ΔF) γ.

    >>> A, b = np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([5.0, 6.0])
    >>> moves = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
    >>> extrapolated(np.zeros(2), -b, moves, [A @ move for move in moves])
    array([1.5, 2. ])
    """
    if not moves:
        return x + F
    dF = np.stack([change / (np.linalg.norm(change) or 1.0) for change in changes])
    dX = np.stack([m / (np.linalg.norm(c) or 1.0) for m, c in zip(moves, changes, strict=True)])
    gamma = np.linalg.lstsq(dF @ dF.T, dF @ F, rcond=None)[0]  # few numbers, by normal equations
    return x + F - gamma @ (dX + dF)
