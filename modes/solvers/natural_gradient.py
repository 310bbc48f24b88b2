"""Natural gradient: descent in the metric of a curvature operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import cg

from ...jacobians import Identity, dtype_of
from ...jacobians.arrays import like
from ...jacobians.errors import InputError
from ...jacobians.foreign import is_tensor
from ..curvature.gauss_newton import gauss_newton
from ..model.primal.model import Model
from ..model.primal.names import Names
from .iteration import (
    Callback,
    Counted,
    OptimizeResult,
    Preconditioner,
    descent,
    preconditioner_for,
    run,
    searched,
)
from .newton_cg import truncated_cg
from .problem import as_scipy

Curvature = Callable[[dict[str, Any]], Any]
"""The inputs of the model at a point ↦ a symmetric positive semidefinite operator there."""


def natural_gradient(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: str | None = None,
    at: str | None = None,
    wrt: Names = None,
    curvature: Curvature | None = None,
    damping: float = 1e-3,
    preconditioner: Preconditioner | None = None,
    gtol: float | None = None,
    maxiter: int = 100,
    inner_rtol: float = 1e-3,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
) -> OptimizeResult:
    """min f(x) by steps (C + λI) δ = −∇f, with f the one element of `of`, λ the `damping`.

    C is `curvature(point)`, any operator with `@`, at the inputs `point`. It must be scaled like f:
    if f is a mean over samples, so is C. By default it is the Gauss-Newton matrix of f at the
    tensor `at`, which is the Fisher matrix if the loss is the negative log-likelihood of an
    exponential family with natural parameter `at`. CG solves to a residual of `inner_rtol` ‖∇f‖; a
    `preconditioner` is an M ≈ (C + λI)⁻¹, or a function that builds it from C. Backtracking ensures
    that f decreases. The iteration ends when ‖∇f‖ ≤ gtol, by default √ε.

    The result has `fun`, `jac` = ∇f, `tensors`, and `products`, the number of products with C.

    Shapes: x, ∇f and δ are (n,), n the size of the tensors of `wrt`; C and M are (n, n). Raises
    `InputError` where `of` is not one element, where neither `at` nor `curvature` is given, and
    where a name, a shape or a dtype does not fit; `UnsupportedOp` for an operator without a rule.
    An iteration that ends early raises nothing: see `success` and `message` of the result.

    Sources: Amari, "Natural gradient works efficiently in learning", 1998; Martens, "New insights
    and perspectives on the natural gradient method", 2020.
    """
    problem = as_scipy(model, inputs, of=of, wrt=wrt, engine=engine)
    if not problem.scalar:
        raise InputError(f"natural_gradient needs one scalar, not {list(problem.of)}: use of=")
    if curvature is None:
        if at is None:
            raise InputError("say at= which tensor the loss begins, or give curvature=")
        (f,) = problem.of
        curvature = partial(gauss_newton, model, of=f, at=at, wrt=problem.wrt, engine=engine)
    metric = curvature

    def move(x: np.ndarray, f: float, g: np.ndarray) -> tuple[np.ndarray | None, int]:
        C = metric(problem.point(x))
        M, A = preconditioner_for(C, preconditioner), Counted(C, damping)
        if is_tensor(g):
            M = Identity(tuple(g.shape), dtype_of(g)) if M is None else M
            delta = truncated_cg(A, g, M, rtol=inner_rtol).delta
        else:
            delta, _ = cg(A, -g, rtol=inner_rtol, M=M)
        return searched(problem, x, f, g, like(delta, x)), A.products

    tolerance = float(np.sqrt(np.finfo(dtype_of(problem.x0)).eps)) if gtol is None else gtol
    states = descent(problem, move, tolerance)
    return run(states, "natural gradient", maxiter, callback, progress)
