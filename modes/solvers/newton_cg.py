"""Newton-CG: a minimum of a model, by Hessian products."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal

from scipy.optimize import minimize

from ...jacobians.errors import InputError
from ..model import Model
from ..names import Names
from ..reporting.progress import counting
from .problem import Problem, as_scipy
from .result import OptimizeResult
from .run import Callback

METHODS = {"line search": "Newton-CG", "trust region": "trust-ncg"}
"""SciPy's names."""


def newton_cg(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str | None = None,
    wrt: Names = None,
    globalization: Literal["line search", "trust region"] = "trust region",
    tol: float | None = None,
    maxiter: int | None = None,
    options: Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    engine: str | None = None,
) -> OptimizeResult:
    """min f(x) by steps H δ = −∇f, solved by conjugate gradients, with f the one element of `of`.

    f is what the model computes, a sum or a mean, and nothing is added. CG ends early, as the
    gradient allows, and where it meets negative curvature. The iteration is `minimize` of SciPy:
    method `Newton-CG` with a line search, for which `tol` is on the step, or `trust-ncg` with a
    trust region, for which it is on ‖∇f‖; `options` are those of the method. A result of SciPy,
    with `tensors`; `nhev` counts the products H v.
    """
    if globalization not in METHODS:
        raise InputError(f"globalization={globalization!r} is none of {', '.join(METHODS)}")
    problem = as_scipy(model, inputs, of=of, wrt=wrt, engine=engine)
    if not problem.scalar:
        raise InputError(f"newton_cg needs one scalar, not {list(problem.of)}: name it with of=")
    asked = {**({} if maxiter is None else {"maxiter": maxiter}), **(options or {})}
    with counting("Newton-CG", "iterations", sys.stderr) as tick:

        def watch(intermediate_result: OptimizeResult) -> None:
            tick(1)
            if callback is not None:
                callback(with_tensors(problem, intermediate_result))

        found = minimize(
            problem.fun, problem.x0, jac=problem.jac, hessp=problem.hessp, tol=tol, options=asked,
            method=METHODS[globalization], callback=watch,
        )  # type: ignore[call-overload]  # fmt: skip
    return with_tensors(problem, found)


def with_tensors(problem: Problem, found: OptimizeResult) -> OptimizeResult:
    """The same result, with x by name as well."""
    found.tensors = problem.unflatten(found.x)
    return found
