"""Newton-CG: a minimum of a model, by Hessian products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize

from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ..model import Model
from ..naming.names import Names
from .preconditioned_newton import Iterations
from .preconditioning import Preconditioner
from .problem import Problem, as_scipy
from .result import OptimizeResult
from .run import Callback, run

METHODS = {"line search": "Newton-CG", "trust region": "trust-ncg"}
"""SciPy's names."""


def newton_cg(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str | None = None,
    wrt: Names = None,
    globalization: Literal["line search", "trust region"] = "trust region",
    preconditioner: Preconditioner | None = None,
    tol: float | None = None,
    maxiter: int | None = None,
    options: Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
) -> OptimizeResult:
    """min f(x) by steps H δ = −∇f, solved by conjugate gradients, with f the one element of `of`.

    f is what the model computes, a sum or a mean, and nothing is added. CG ends early, as the
    gradient allows, and where it meets negative curvature. The iteration is `minimize` of SciPy:
    method `Newton-CG` with a line search, for which `tol` is on the step, or `trust-ncg` with a
    trust region, for which it is on ‖∇f‖; `options` are those of the method. A result of SciPy,
    with `tensors`; `nhev` counts the products H v.

    SciPy's methods take no `preconditioner`: an M ≈ H⁻¹, positive definite, or a function that
    makes it of H, such as `oj.preconditioners.jacobi`. With one, the iteration is our own, of the
    same kind: a trust region in the norm √(δᵀM⁻¹δ), or backtracking along the step. Then `tol`,
    by default 1e-4, is on ‖∇f‖ in both, `maxiter` is 200 n, and there are no `options`.

    Shapes: x, ∇f and δ are (n,), n the size of the tensors of `wrt`; H and M are (n, n). Raises
    `InputError` where `of` is not one element, for an unknown `globalization`, for `options` beside
    a `preconditioner`, and where a name, a shape or a dtype does not fit; `UnsupportedOp` for an
    operator without a rule. An iteration that ends early raises nothing: see `success` and
    `message` of the result.
    """
    if globalization not in METHODS:
        raise InputError(f"globalization={globalization!r} is none of {', '.join(METHODS)}")
    problem = as_scipy(model, inputs, of=of, wrt=wrt, engine=engine)
    if not problem.scalar:
        raise InputError(f"newton_cg needs one scalar, not {list(problem.of)}: name it with of=")
    if preconditioner is not None:
        if options:
            raise InputError("options= are for SciPy, which has no preconditioner: use tol=")
        radius = np.inf if globalization == "line search" else None
        own = Iterations(
            problem=problem,
            preconditioner=preconditioner,
            gtol=1e-4 if tol is None else tol,
            radius=radius,
        )
        return run(own.states(), "Newton-CG", maxiter or 200 * problem.x0.size, callback, progress)
    asked = {**({} if maxiter is None else {"maxiter": maxiter}), **(options or {})}
    return by_scipy(problem, METHODS[globalization], tol, asked, callback, progress)


def by_scipy(
    problem: Problem, method: str, tol: float | None, options: Mapping[str, Any],
    callback: Callback | None, progress: bool | None,
) -> OptimizeResult:  # fmt: skip
    """`minimize`, watched."""
    with counting("Newton-CG", "iterations", shown=progress) as tick:

        def watch(intermediate_result: OptimizeResult) -> None:
            tick(1)
            if callback is not None:
                callback(with_tensors(problem, intermediate_result))

        found = minimize(
            problem.fun, problem.x0, jac=problem.jac, hessp=problem.hessp, tol=tol, options=options,
            method=method, callback=watch,
        )  # type: ignore[call-overload]  # fmt: skip
    return with_tensors(problem, found)


def with_tensors(problem: Problem, found: OptimizeResult) -> OptimizeResult:
    """The same result, with x by name as well."""
    return OptimizeResult(found, tensors=problem.unflatten(found.x))
