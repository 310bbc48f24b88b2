"""Roots: F(x) = 0, steady states and implicit steps of u̇ = F(u), by Jacobian products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any, final

import numpy as np
from scipy.sparse import linalg

from ...jacobians import dtype_of, shape_of
from ...jacobians.arguments import Count, Natural, NonNegative, validated
from ...jacobians.arrays import Array, host, like
from ...jacobians.errors import InputError, NotConverged
from ...jacobians.readings import module_of
from ..linear.derivatives.trace import trace_model
from ..linear.linearization import Linearization
from ..linearize import linearize
from ..model.primal.evaluate import evaluate
from ..model.primal.inputs import Names, check_inputs, names_of
from ..model.primal.model import Model, ModelLike, as_model
from ..recording.derive import likes, start_graph
from .iteration import (
    DESCENT,
    GOING,
    GRADIENT,
    STUCK,
    TINY,
    Callback,
    Counted,
    OptimizeResult,
    Preconditioner,
    backtrack,
    length,
    preconditioner_for,
    run,
    solver_state,
)
from .problem import Problem, states_of, time_of

Solver = Callable[..., tuple[np.ndarray, int]]
"""(A, b, rtol=, M=) ↦ x with A x ≈ b, and a code: one of `scipy.sparse.linalg`."""


def gmres(A: Any, b: np.ndarray, **options: Any) -> tuple[np.ndarray, int]:
    """SciPy's GMRES, ended after 1000 products, solved or not: what it has is a descent of ‖F‖."""
    return linalg.gmres(A, b, maxiter=50, **options)  # restarts, after 20 products each


def solve_by(solver: Solver, A: Any, b: Array, **options: Any) -> Array:
    """x with A x ≈ b, by the solver of the caller, which takes NumPy arrays."""
    if not callable(solver):
        raise InputError(f"solver={solver!r} is no function of (A, b, rtol=, M=): "
                         "scipy.sparse.linalg has gmres, bicgstab, lgmres ...")  # fmt: skip
    return like(np.asarray(solver(A, host(b), **options)[0]), b)


@validated
def newton_krylov(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    solver: Solver = gmres,
    preconditioner: Preconditioner | None = None,
    rtol: NonNegative | None = None,
    atol: NonNegative | None = None,
    maxiter: Count = 50,
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

    The iteration ends when ‖F‖ ≤ atol + rtol ‖F(x₀)‖, by default with `rtol` = 0 and `atol` =
    ε^(2/3) max(√n, ‖J x̃‖), where x̃ is x with random signs: as much as F changes where x changes by
    its own size. The result has `fun` = F, `tensors`, and `products`, the number of products with
    J δ.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `maxiter`: the most iterations.
    - `callback`: called with the state after every iteration; StopIteration ends the solver.
    - `progress`: True shows a bar at once, False none, None after two seconds; see `oj.progress`.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: x, F and δ are (n,), n the size of the tensors of `wrt`; J and M are (n, n). Raises
    `InputError` where F holds more or fewer numbers than x, and where a name, a shape or a dtype
    does not fit; `UnsupportedOp` for an operator without a rule. An iteration that ends early
    raises nothing: see `success` and `message` of the result.

    Source: Eisenstat and Walker, "Choosing the forcing terms in an inexact Newton method", 1996,
    choice 2.
    """
    problem = Problem[Any](model, inputs, of, wrt, engine)
    check_as_many(problem)
    goal = Goal(problem, rtol, atol)
    states = iterations(problem, solver, preconditioner, goal)
    return run(states, "Newton-Krylov", maxiter, callback, progress)


def check_as_many(problem: Problem) -> None:
    """Raises `InputError` where F holds more or fewer numbers than x."""
    m, n = len(problem.values(problem.x0)), len(problem.x0)
    if m != n:
        raise InputError(f"{m} equations for {n} unknowns: a root needs as many of each")


class Goal:
    """‖F‖ ≤ `size`, atol + rtol ‖F(x₀)‖, or ‖F‖ ≤ `relative` ‖J x̃‖, with x̃ = `signs` ∘ x."""

    def __init__(self, problem: Problem, rtol: float | None, atol: float | None) -> None:
        x = problem.x0
        small = float(np.finfo(dtype_of(x)).eps) ** (2 / 3)
        self.relative = small if atol is None else 0.0
        self.size = small * len(x) ** 0.5 if atol is None else atol
        self.size += (rtol or 0.0) * length(problem.values(x))
        self.signs = like(np.random.default_rng(0).choice([-1.0, 1.0], len(x)), x)
        self.problem = problem

    def reached(self, x: Array, norm: float) -> bool:
        """Whether `norm`, ‖F‖ at x, is small enough; J is needed only where `size` is too small."""
        if norm <= self.size or not (self.relative and norm < np.inf):
            return norm <= self.size
        return norm <= self.relative * length(self.problem.linearized(x) @ (self.signs * x))


def forcing(before: float, after: float, last: float) -> float:
    """η = 0.9 (‖F₊‖ / ‖F‖)², at least 0.9 η₋² if that exceeds 0.1, and at most 0.9.

    >>> forcing(1.0, 0.5, 0.1), forcing(1.0, 0.1, 0.5)
    (0.225, 0.225)
    """
    eta, safe = 0.9 * (after / before) ** 2, 0.9 * last**2
    return min(0.9, max(eta, safe) if safe > 0.1 else eta)


def iterations(
    problem: Problem, solver: Solver, preconditioner: Preconditioner | None, goal: Goal
) -> Iterator[OptimizeResult]:
    """The state at the start, and after every iteration."""
    x, eta, status, before, products = problem.x0, 0.5, GOING, 0.0, 0
    for nit in count():
        F = problem.values(x)
        norm = length(F)
        eta = forcing(before, norm, eta) if before else eta
        small = goal.reached(x, norm)
        yield solver_state(
            problem, GRADIENT if small else status, x=x, fun=F, nit=nit, products=products
        )
        J = problem.linearized(x)
        A, M = Counted(J), preconditioner_for(J, preconditioner)
        delta = solve_by(solver, A, -F, rtol=min(max(eta, 0.5 * goal.size / norm), 0.9), M=M)
        products += A.products
        if isinstance(preconditioner, Reused):
            preconditioner.took(A.products)
        falls = partial(is_descent, problem, norm, eta)
        moved, before = backtrack(x, delta, falls), norm
        x, status = (x, STUCK) if moved is None else (moved, GOING)


def is_descent(problem: Problem, norm: float, eta: float, t: float, moved: Array) -> bool:
    """Whether ‖F‖ is sufficiently smaller than `norm` after t times a step."""
    return length(problem.values(moved)) <= (1 - DESCENT * t * (1 - eta)) * norm


@final
class Reused:
    """A ↦ M for a sequence of steps: built from the first A and kept while it serves.

    The preconditioner is built again after a solve that took more than three times the products of
    the first.

    >>> M = Reused(lambda A: np.linalg.inv(A))
    >>> first = M(np.eye(2))
    >>> M.took(2), M.took(6), M(2 * np.eye(2)) is first
    (None, None, True)
    >>> M.took(7), M(2 * np.eye(2)) is first
    (None, False)
    """

    def __init__(self, given: Preconditioner) -> None:
        self.given = given
        self.M: Any = None
        self.first = 0

    def __call__(self, A: Any) -> Any:
        if self.M is None:
            self.M, self.first = preconditioner_for(A, self.given), 0
        return self.M

    def took(self, products: int) -> None:
        """Note the products of a solve with M."""
        self.first = self.first or products
        if products > 3 * self.first:
            self.M = None


@validated
def implicit_euler(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    t: str | None = None,
    step: float,
    steps: Natural,
    solver: Solver = gmres,
    preconditioner: Preconditioner | None = None,
    rtol: NonNegative | None = None,
    atol: NonNegative | None = None,
    maxiter: Count = 50,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
) -> Iterator[OptimizeResult]:
    """u₊ = u + h F(t₊, u₊) for u̇ = F(t, u), in successive steps of length h.

    F are the tensors of `of`, and u the tensors of `wrt`, in the same order. The results come from
    `newton_krylov`, and have the time `t`; the Jacobian is I − h ∂F/∂u. A function that builds a
    preconditioner is called again only after a linear system that took over three times the
    products of the first.

    - `inputs`: the point at the start.
    - `t`: the input that holds the time, if F depends on it; without `t` the start is at time 0.
    - `step`, `steps`: the length h of a step, and the number of steps.
    - `solver`: `gmres` or any function of (A, b, rtol=, M=), for the linear systems.
    - `preconditioner`: an M ≈ (I − h ∂F/∂u)⁻¹, or a function that builds it from I − h ∂F/∂u.
    - `rtol`, `atol`: the tolerances of each step, see `newton_krylov`.
    - `model`, `callback`, `progress`, `engine`: as for `newton_krylov`; `maxiter` is the most
      iterations of a step.

    Shapes: F has the shapes of u, tensor by tensor; the x of a result is u, flat, of shape (n,).
    Units: h is in units of time, F in units of u per time. Raises `NotConverged` where a step
    does not converge, `InputError` where shapes, names or dtypes do not fit, `UnsupportedOp` for an
    operator without a rule.
    """
    model = as_model(model, wrt=wrt)
    names, inputs = states_of(model, wrt, t), check_inputs(model, inputs, engine=engine)
    start, u = time_of(model, inputs, t), evaluate(model, inputs, names, engine=engine)
    euler = euler_residual(model, inputs, of=of, wrt=names, engine=engine)
    kept = None if preconditioner is None else Reused(preconditioner)
    for k in range(steps):
        now = start + step * (k + 1)
        time = {} if t is None else {t: module_of(inputs[t]).full_like(inputs[t], now)}
        point = at_step({**inputs, **time, **u}, u, step)
        found = newton_krylov(
            euler, point, wrt=names, solver=solver, preconditioner=kept, rtol=rtol, atol=atol,
            maxiter=maxiter, callback=callback, progress=progress, engine=engine,
        )  # fmt: skip
        if not found.success:
            raise NotConverged(f"implicit Euler, step {k + 1} of {steps}: {found.message}; take a "
                               f"smaller step than {step:g}, or more iterations")  # fmt: skip
        found.t, u = now, found.tensors
        yield found


@validated
def pseudo_transient(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    step: float,
    solver: Solver = gmres,
    preconditioner: Preconditioner | None = None,
    inner_rtol: NonNegative = 1e-2,
    rtol: NonNegative | None = None,
    maxiter: Count = 200,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
) -> OptimizeResult:
    """F(u) = 0 by (I − h J) δ = h F(u), u₊ = u + δ, h₊ = max(h₀, h ‖F(u)‖ / ‖F(u₊)‖).

    Small steps at first, h₀ = `step`, follow the flow u̇ = F(u) to its steady state, and not to any
    other root; large steps at the end are Newton steps. The linear systems are solved to a relative
    residual of `inner_rtol`; a `preconditioner` is an M ≈ (I − h J)⁻¹, or a function that builds it
    from I − h J. The iteration ends as in `newton_krylov`. The result has `fun` = F, `tensors`,
    `step` = h and `products`.

    - `inputs`: the point at the start.
    - `of`, `wrt`: the tensors F and u, by name; by default all floating outputs and inputs.
    - `solver`: `gmres` or any function of (A, b, rtol=, M=), for the linear systems.
    - `model`, `rtol`, `maxiter`, `callback`, `progress`, `engine`: as for `newton_krylov`.

    Shapes: u, F and δ are (n,), n the size of the tensors of `wrt`; J and M are (n, n). Raises
    `InputError` where the tensors of `of` do not have the shapes of the tensors of `wrt`, and where
    a name, a shape or a dtype does not fit; `UnsupportedOp` for an operator without a rule. An
    iteration that ends early raises nothing: see `success` and `message` of the result.

    Source: Kelley and Keyes, "Convergence analysis of pseudo-transient continuation", 1998.
    """
    problem = Problem[Any](model, inputs, of, wrt, engine)
    euler = euler_residual(model, inputs, of=of, wrt=wrt, engine=engine)
    goal = Goal(problem, rtol, None)

    def states() -> Iterator[OptimizeResult]:
        """The state at the start, and after every iteration."""
        J: Linearization | None = None
        x, F, h, products = problem.x0, problem.values(problem.x0), step, 0
        for nit in count():
            point, norm = at_step(problem.point(x), problem.unflatten(x), h), length(F)
            if J is None:
                J = linearize(euler, point, wrt=problem.wrt, engine=engine)
            else:
                J = J.relinearize(point)
            v = goal.signs * x  # J v is (v - G v) / h, with G = I - h J
            small = norm <= max(goal.size, goal.relative / h * length(v - J @ v)) < np.inf
            status = GRADIENT if small else GOING
            yield solver_state(problem, status, x=x, fun=F, step=h, nit=nit, products=products)
            A, M = Counted(J), preconditioner_for(J, preconditioner)
            x = x + solve_by(solver, A, h * F, rtol=inner_rtol, M=M)
            products += A.products
            F = problem.values(x)
            h = max(step, h * norm / max(length(F), TINY))

    return run(states(), "pseudo-transient", maxiter, callback, progress)


STEP = "step"
"""The input of an Euler residual that holds h."""


@validated
def euler_residual(
    model: ModelLike,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    engine: str | None = None,
) -> Model:
    """G(u) = u − u₋ − h F(u) as a model of its own, with ∂G/∂u = I − h ∂F/∂u.

    The new inputs are `step` (h) and, for every u, `u_before` (u₋); the outputs are `u_residual`.

    - `model`: the model, as `load` gives it.
    - `inputs`: the point, an array by name for every input; weights may be given too.
    - `of`, `wrt`: the tensors F and u, by name; by default all floating outputs and inputs.
    - `engine`: `"onnxruntime"` (default where installed), `"numpy"`, `"torch"` or `"jax"` runs
      the model.

    Shapes: `u_before` and `u_residual` have the shape of u, as F has; `step` is a scalar. Raises
    `InputError` where F and u differ in their shapes, and where a name, a shape or a dtype does not
    fit.
    """
    model = as_model(model, of, wrt=wrt)
    rates = names_of(model, of, model.outputs, "of")
    states = names_of(model, wrt, model.inputs, "wrt")
    t = trace_model(model, check_inputs(model, inputs), (*rates, *states), engine)
    shapes = [[shape_of(t.values[name]) for name in names] for names in (rates, states)]
    if shapes[0] != shapes[1]:
        raise InputError(f"the rates {list(rates)} have shapes {shapes[0]}, but the states "
                         f"{list(states)} {shapes[1]}: name the states by wrt=, and as many rates "
                         "by of=")  # fmt: skip
    op, before = t.recorder, likes(t, model, states, "before")
    h = op.new((), dtype_of(t.values[states[0]]), STEP)
    start_graph(t, (*before, h), (), states)
    for rate, name, past in zip(rates, states, before, strict=True):
        moved = op.Mul(h, t.values[rate])
        t.outputs[f"{name}_residual"] = op.Sub(op.Sub(t.values[name], past), moved)
    return t.model("implicit_euler")


def at_step(point: Mapping[str, Any], before: Mapping[str, np.ndarray], h: float) -> dict[str, Any]:
    """The inputs of an Euler residual: the inputs of the model, u before the step, and h."""
    dtype = dtype_of(next(iter(before.values())))
    past = {f"{name}_before": u for name, u in before.items()}
    return {**point, **past, STEP: np.asarray(h, dtype)}
