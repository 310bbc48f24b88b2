"""Pseudo-transient continuation: a steady state, by growing time steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
from scipy.sparse.linalg import gmres

from ..linear.linearization import Linearization
from ..linearize import linearize
from ..model.primal.model import Model
from ..model.primal.names import Names
from .euler import at_step, euler_residual
from .iteration import (
    GOING,
    GRADIENT,
    STUCK,
    TINY,
    Callback,
    Counted,
    OptimizeResult,
    Preconditioner,
    preconditioner_for,
    run,
    state,
)
from .newton_krylov import Solver
from .problem import as_scipy


def pseudo_transient(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    step: float,
    solver: Solver = gmres,
    preconditioner: Preconditioner | None = None,
    inner_rtol: float = 1e-2,
    rtol: float | None = None,
    maxiter: int = 200,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
) -> OptimizeResult:
    """F(u) = 0 by (I − h J) δ = h F(u), u₊ = u + δ, h₊ = max(h₀, h ‖F(u)‖ / ‖F(u₊)‖).

    Small steps at first, h₀ = `step`, follow the flow u̇ = F(u) to its steady state, and not to any
    other root; large steps at the end are Newton steps. The linear systems are solved to a relative
    residual of `inner_rtol`; a `preconditioner` is an M ≈ (I − h J)⁻¹, or a function that builds it
    from I − h J. The iteration ends when ‖F‖ ≤ rtol ‖F(u₀)‖, with rtol = √ε by default. The result
    has `fun` = F, `tensors`, `step` = h and `products`.

    Shapes: u, F and δ are (n,), n the size of the tensors of `wrt`; J and M are (n, n). Raises
    `InputError` where the tensors of `of` do not have the shapes of the tensors of `wrt`, and where
    a name, a shape or a dtype does not fit; `UnsupportedOp` for an operator without a rule. An
    iteration that ends early raises nothing: see `success` and `message` of the result.

    Source: Kelley and Keyes, "Convergence analysis of pseudo-transient continuation", 1998.
    """
    problem = as_scipy(model, inputs, of=of, wrt=wrt, engine=engine)
    euler = euler_residual(model, inputs, of=of, wrt=wrt, engine=engine)
    relative = np.sqrt(np.finfo(problem.x0.dtype).eps) if rtol is None else rtol
    goal = float(relative * np.linalg.norm(problem.values(problem.x0)))

    def states() -> Iterator[OptimizeResult]:
        """The state at the start, and after every iteration."""
        J: Linearization | None = None
        x, F, h, products = problem.x0, problem.values(problem.x0), step, 0
        for nit in count():
            norm = float(np.linalg.norm(F))
            status = GRADIENT if norm <= goal else GOING if np.isfinite(norm) else STUCK
            yield state(problem, status, x=x, fun=F, step=h, nit=nit, products=products)
            point = at_step(problem.point(x), problem.unflatten(x), h)
            if J is None:
                J = linearize(euler, point, wrt=problem.wrt, engine=engine)
            else:
                J = J.relinearize(point)
            A, M = Counted(J), preconditioner_for(J, preconditioner)
            delta, _ = solver(A, h * F, rtol=inner_rtol, M=M)
            products += A.products
            x = x + np.asarray(delta, x.dtype)
            F = problem.values(x)
            h = max(step, h * norm / max(float(np.linalg.norm(F)), TINY))

    return run(states(), "pseudo-transient", maxiter, callback, progress)
