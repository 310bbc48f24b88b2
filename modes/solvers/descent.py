"""Descent: a minimum of one element of a model, by Newton steps or by natural gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from ...jacobians import Identity, dtype_of
from ...jacobians.arguments import Count, NonNegative, Positive, validated
from ...jacobians.arrays import like
from ...jacobians.errors import InputError
from ...jacobians.progress import counting
from ...jacobians.readings import is_kept, module_of
from ..curvature.over_data import gauss_newton
from ..data.adapter import NOTHING, Data
from ..data.batches import Batch, as_batch, is_data
from ..model.primal.inputs import HEAD, Names
from ..model.primal.model import ModelLike
from ..resume import ResumeFile, Work
from .inverse import conjugate_gradients
from .iteration import (
    DESCENT,
    GOING,
    GRADIENT,
    MESSAGES,
    STUCK,
    VALUE,
    Callback,
    Counted,
    OptimizeResult,
    Preconditioner,
    backtrack,
    preconditioner_for,
    run,
    solver_state,
)
from .problem import Problem

METHODS = {"line search": "Newton-CG", "trust region": "trust-ncg"}
"""globalization -> SciPy's method."""

NO_PROGRESS = 2
"""SciPy's status where a line search fails, or a predicted reduction is not positive."""


@validated
def newton_cg(
    model: ModelLike,
    inputs: Data,
    *,
    of: str | None = None,
    wrt: Names = None,
    globalization: Literal["line search", "trust region"] = "trust region",
    preconditioner: Preconditioner | None = None,
    tol: NonNegative | None = None,
    maxiter: Count | None = None,
    options: Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
    reduction: Literal["sum", "mean"] | None = None,
    batch_size: Positive | None = None,
    shared: Batch = NOTHING,
    comm: Any = None,
    resume: ResumeFile | None = None,
) -> OptimizeResult:
    """min f(x) by steps H δ = −∇f, solved by conjugate gradients, with f the one element of `of`.

    f is used as the model computes it, as a sum or a mean, without scaling. CG is truncated, by a
    tolerance that follows the gradient and at negative curvature. The iteration is SciPy's
    `minimize`: method `Newton-CG` with a line search, where `tol` bounds the step, or `trust-ncg`
    with a trust region, where `tol` bounds ‖∇f‖; `options` are passed to the method. The result is
    SciPy's, with `tensors`; `nhev` counts the products H v. Where SciPy makes no progress, and a
    Newton step would change f by rounding only, the result is a success.

    A `preconditioner` is a positive definite M ≈ H⁻¹, or a function that builds it from H, such as
    `oj.preconditioners.jacobi`. SciPy's methods take none, so a preconditioned iteration is our
    own, of the same kind: a trust region in the norm √(δᵀM⁻¹δ), or backtracking along the step.
    Then `tol`, by default 1e-4, bounds ‖∇f‖ in both, `maxiter` is 200 n, and there are no
    `options`. So does an iteration over tensors, with `engine="torch"`, which stay on their device,
    and one with `resume`.

    - `wrt`: the tensors x, by name; by default all floating inputs.
    - `globalization`: `"line search"` or `"trust region"`.
    - `maxiter`: the most iterations; by default the method's own number.
    - `inputs`: the point, or data: a list of points, a function that returns an iterator over them,
      a data loader, or arrays or an npz file with `batch_size`; every evaluation is a pass.
    - `reduction`: over data `"sum"` or `"mean"`, as the model's loss reduces over samples.
    - `batch_size`: the rows of a batch, where `inputs` are arrays or the path of an npz file.
    - `shared`: inputs that all batches have in common, by name.
    - `comm`: a communicator of ranks that all call this with batches of their own: see `ranked`.
    - `resume`: a `ResumeFile`, from which the iteration goes on after an interruption, also within
      a step; `tol` and `maxiter` may change.
    - `model`, `callback`, `progress`, `engine`: as for `newton_krylov`.

    Shapes: x, ∇f and δ are (n,), n the size of the tensors of `wrt`; H and M are (n, n). Raises
    `InputError` where `of` is not one element or not finite at the start, for an unknown
    `globalization`, for `options` with a `preconditioner` or tensors, and where a name, a shape or
    a dtype does not fit; `UnsupportedOp` for an operator without a rule. An iteration that ends
    early raises nothing: see `success` and `message` of the result.
    """
    over = checked_over(inputs, reduction, batch_size, shared, comm)
    problem = scalar("newton_cg", Problem[Any](model, inputs, of, wrt, engine, over=over))
    if preconditioner is None and (resume is not None or is_kept(problem.x0)):
        preconditioner = Identity(tuple(problem.x0.shape), dtype_of(problem.x0))
    if preconditioner is not None:
        if options:
            raise InputError("options= are for SciPy, which has no preconditioner and no state to "
                             "go on from: use tol=")  # fmt: skip
        work = begin_descent(problem, resume, "Newton-CG", {"globalization": globalization})
        moves = Moves(problem, preconditioner, work)
        region = Region(np.inf if globalization == "line search" else np.nan)
        states = descent(problem, moves, 1e-4 if tol is None else tol, work, "nhev", region)
        most = 200 * len(problem.x0) if maxiter is None else maxiter
        with work.going_on():
            return run(states, "Newton-CG", most, callback, progress)
    from scipy.optimize import minimize  # which imports much

    start, _ = problem.value_and_grad(problem.x0)  # warns of tensors without a part in f
    if not np.isfinite(start):
        raise InputError(f"{problem.of[0]!r} is not finite at the start, where newton_cg begins")
    asked = {**({} if maxiter is None else {"maxiter": maxiter}), **(options or {})}
    with counting("Newton-CG", "iterations", shown=progress) as tick:

        def watch(intermediate_result: OptimizeResult) -> None:
            tick(1)
            if callback is not None:
                callback(with_tensors(problem, intermediate_result))

        def slopes(x: np.ndarray) -> np.ndarray:
            """∇f, where SciPy multiplies by H afterwards: one run prepares both."""
            return problem.flatten(problem.curvature(x).gradient)

        def finite(x: np.ndarray) -> float:
            """f, or ∞ for NaN, at which SciPy's trust region stays as it is."""
            return np.inf if np.isnan(f := problem.fun(x)) else f

        found = minimize(
            finite, problem.x0, jac=slopes, hessp=problem.hessp, tol=tol, options=asked,
            method=METHODS[globalization], callback=watch,
        )  # type: ignore[call-overload]  # fmt: skip
    if found.status == NO_PROGRESS and has_converged(problem, found, 0.0):
        found.update(success=True, message=MESSAGES[VALUE])
    if found.success and globalization == "line search":  # which takes no step at curvature 0
        found.jac, most = slopes(found.x), asked.get("xtol", 1e-5 if tol is None else tol)
        if not has_converged(problem, found, 10 * len(found.x) * most):
            found.update(success=False, status=STUCK, message="f falls on: its curvature is ~ 0")
    return with_tensors(problem, found)


def has_converged(problem: Problem, found: OptimizeResult, short: float) -> bool:
    """Whether a Newton step would reduce f by rounding only, or is `short` where f is convex."""
    H, g = problem.curvature(found.x), np.asarray(found.jac)
    step = truncated_cg(H, g, Identity(g.shape, g.dtype), rtol=1e-3)
    if step.promise(g) <= rounding_change(problem.x0, found.fun):
        return True
    return bool(np.abs(step.delta).sum() <= short and g @ (H @ g) > 0)


def rounding_change(x: np.ndarray, f: float) -> float:
    """The changes of f that are rounding, in the precision of x."""
    return 10 * float(np.finfo(dtype_of(x)).eps) * abs(f)


def with_tensors(problem: Problem, found: OptimizeResult) -> OptimizeResult:
    """The result, with the tensors in x by name."""
    return OptimizeResult(found, tensors=problem.unflatten(found.x))


Curvature = Callable[[dict[str, Any]], Any]
"""The inputs of the model at a point ↦ a symmetric positive semidefinite operator there."""


@validated
def natural_gradient(
    model: ModelLike,
    inputs: Data,
    *,
    of: str | None = None,
    at: str | None = None,
    wrt: Names = None,
    curvature: Curvature | None = None,
    damping: NonNegative = 1e-3,
    preconditioner: Preconditioner | None = None,
    gtol: NonNegative | None = None,
    maxiter: Count = 100,
    inner_rtol: NonNegative = 1e-3,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
    reduction: Literal["sum", "mean"] | None = None,
    batch_size: Positive | None = None,
    shared: Batch = NOTHING,
    comm: Any = None,
    resume: ResumeFile | None = None,
) -> OptimizeResult:
    """min f(x) by steps (C + λI) δ = −∇f, with f the one element of `of`, λ the `damping`.

    C is `curvature(point)`, any operator with `@`, at the inputs `point`, over data at the tensors
    x by name. C must be scaled like f: if f is a mean over samples, so is C. By default it is the
    Gauss-Newton matrix of f at the tensor `at`, which is the Fisher matrix if the loss is the
    negative log-likelihood of an
    exponential family with natural parameter `at`. CG solves to a residual of `inner_rtol` ‖∇f‖; a
    `preconditioner` is an M ≈ (C + λI)⁻¹, or a function that builds it from C. Backtracking ensures
    that f decreases. The iteration ends when ‖∇f‖ ≤ `gtol`, by default √ε.

    The result has `fun`, `jac` = ∇f, `tensors`, and `products`, the number of products with C.

    - `wrt`: the tensors x, by name; by default all floating inputs.
    - `gtol`: the norm of ∇f at which the iteration ends.
    - `inputs`: the point, or data: a list of points, a function that returns an iterator over them,
      a data loader, or arrays or an npz file with `batch_size`; every evaluation is a pass.
    - `reduction`: over data `"sum"` or `"mean"`, as the model's loss reduces over samples.
    - `batch_size`: the rows of a batch, where `inputs` are arrays or the path of an npz file.
    - `shared`: inputs that all batches have in common, by name.
    - `comm`: a communicator of ranks that all call this with batches of their own: see `ranked`.
    - `resume`: a `ResumeFile`, from which the iteration goes on after an interruption, also within
      a step; `gtol` and `maxiter` may change.
    - `model`, `maxiter`, `callback`, `progress`, `engine`: as for `newton_krylov`.

    Shapes: x, ∇f and δ are (n,), n the size of the tensors of `wrt`; C and M are (n, n). Raises
    `InputError` where `of` is not one element, where neither `at` nor `curvature` is given, and
    where a name, a shape or a dtype does not fit; `UnsupportedOp` for an operator without a rule.
    An iteration that ends early raises nothing: see `success` and `message` of the result.

    Sources: Amari, "Natural gradient works efficiently in learning", 1998; Martens, "New insights
    and perspectives on the natural gradient method", 2020.
    """
    over = checked_over(inputs, reduction, batch_size, shared, comm)
    problem = scalar("natural_gradient", Problem[Any](model, inputs, of, wrt, engine, over=over))
    if curvature is None:
        if at is None and HEAD not in problem.model.ir.metadata_props:
            raise InputError("say at= which tensor the loss begins, or give curvature=")
        (f,) = problem.of
        options: Any = {"of": f, "at": at, "wrt": problem.wrt, "engine": engine}
        make = partial(gauss_newton, problem.model, **options)
        curvature = partial(over_data, problem, options) if problem.several else move_by(make)
    metric = curvature

    told = {"at": at, "damping": damping, "inner_rtol": inner_rtol}
    work = begin_descent(problem, resume, "natural gradient", told)

    def move(x: np.ndarray, f: float, g: np.ndarray, none: Region) -> Moved:
        C = metric(problem.unflatten(x) if problem.several else problem.point(x))
        M, A = preconditioner_for(C, preconditioner), Counted(C, damping)
        if is_kept(g):
            M = Identity(tuple(g.shape), dtype_of(g)) if M is None else M
            step = truncated_cg(A, g, M, rtol=inner_rtol, work=work)
            delta, taken = step.delta, step.products
        else:
            delta, taken = conjugate_gradients(
                A, -g, rtol=inner_rtol, maxiter=10 * len(g), M=M, work=work
            )
        return searched(problem, x, f, g, like(delta, x)), taken, none

    tolerance = float(np.sqrt(np.finfo(dtype_of(problem.x0)).eps)) if gtol is None else gtol
    states = descent(problem, move, tolerance, work)
    with work.going_on():
        return run(states, "natural gradient", maxiter, callback, progress)


def checked_over(
    inputs: Any, reduction: str | None, batch_size: int | None, shared: Batch, comm: Any
) -> dict[str, Any]:
    """How data is taken; raises `InputError` where the reduction of the loss is not said."""
    if reduction is None and (comm is not None or is_data(inputs, batch_size)):
        raise InputError("a loss over several batches needs reduction='mean' or 'sum': whether it "
                         "is the mean or the sum over the samples of a batch")  # fmt: skip
    where = {"batch_size": batch_size, "shared": as_batch(shared), "comm": comm}
    return {"reduction": reduction, **where}


def over_data(problem: Problem, options: Mapping[str, Any], tensors: Mapping[str, Any]) -> Any:
    """The Gauss-Newton matrix over the data of a problem, at these tensors."""
    over = {**problem.over, "shared": {**problem.over["shared"], **tensors}}
    return gauss_newton(problem.model, problem.data, **options, **over)


def move_by(make: Curvature) -> Curvature:
    """The function, which makes an operator once and then moves it from point to point."""
    last: Any = None

    def there(point: dict[str, Any]) -> Any:
        nonlocal last
        last = last.relinearize(point) if last else make(point)
        return last

    return there


def scalar(solver: str, problem: Problem) -> Problem:
    """The problem; raises `InputError` where `of` is not one element."""
    if not problem.scalar:
        raise InputError(f"{solver} needs one scalar, not {list(problem.of)}: name it with of=")
    return problem


class Region(NamedTuple):
    """What a minimiser remembers: the `radius` of a trust region, infinite for a line search and
    NaN where it is not known yet, and the least f and ‖∇f‖ so far.
    """

    radius: float
    least: float = np.inf
    flattest: float = np.inf


UNKNOWN = Region(np.nan)

Moved = tuple[np.ndarray | None, int, Region]
"""The next point, None if no step reduces f, the number of products it took, and the region."""

Move = Callable[[np.ndarray, float, np.ndarray, Region], Moved]
"""(x, f, ∇f, region) ↦ the next point."""


def begin_descent(
    problem: Problem, resume: ResumeFile | None, kind: str, options: Mapping[str, Any]
) -> Work:
    """The work of a minimiser, which the file knows by f and ∇f at the start."""
    told = {"of": problem.of, "wrt": problem.wrt, "dtype": dtype_of(problem.x0), **options}
    work = Work(resume, kind, {**told, "engine": problem.engine}, problem.comm)
    with work.going_on():
        work.same("start", lambda: problem.x0)
        work.same("value at the start", lambda: problem.value_and_grad(problem.x0)[0])
        work.same("gradient at the start", lambda: problem.value_and_grad(problem.x0)[1])
    return work


def descent(
    problem: Problem, move: Move, gtol: float, work: Work, called: str = "products",
    region: Region = UNKNOWN,
) -> Iterator[OptimizeResult]:  # fmt: skip
    """The states of a minimiser of a scalar f, at the start and after every move, to ‖∇f‖ ≤ gtol.

    The field `called` of a state holds the number of products.
    """
    counted = problem.values, problem.linearized
    start = 0, False, 0, problem.x0, *(f.count for f in counted)
    loop = work.loop("descent", *start, *region)
    nit, stuck, products, x, *counts, radius, least, flattest = loop.state
    region = Region(radius, least, flattest)
    problem.values.count, problem.linearized.count = counts
    while True:
        f, g = problem.value_and_grad(x)
        flat = module_of(g).linalg.norm(g) <= gtol
        status = GRADIENT if flat else STUCK if stuck else GOING
        yield solver_state(problem, status, x=x, fun=f, jac=g, nit=nit, **{called: products})
        moved, taken, region = move(x, f, g, region)
        stuck, products, nit = moved is None, products + taken, nit + 1
        x = x if moved is None else moved
        loop.step(nit, stuck, products, x, *(f.count for f in counted), *region)


def searched(
    problem: Problem, x: np.ndarray, f: float, g: np.ndarray, delta: np.ndarray
) -> np.ndarray | None:
    """x + t δ with f(x + t δ) ≤ f(x) + 10⁻⁴ t ∇fᵀδ for the first t = 1, ½, ¼, …; None without."""
    slope = float(g @ delta)
    return backtrack(x, delta, lambda t, moved: problem.fun(moved) <= f + DESCENT * t * slope)


POOR, GOOD, ENOUGH = 0.25, 0.75, 0.15
"""Ratios of actual to predicted reduction: to shrink the region, widen it, accept a step."""


@dataclass(frozen=True)
class Moves:
    """Newton steps with a preconditioner, by a line search or in a trust region.

    A trust region starts with the length of the preconditioned gradient. Lengths are ‖δ‖² = δᵀM⁻¹δ.
    """

    problem: Problem
    preconditioner: Preconditioner
    work: Work

    def __call__(self, x: np.ndarray, f: float, g: np.ndarray, region: Region) -> Moved:
        """The point after a step δ ≈ −H⁻¹ g, more accurate for smaller g; None if it is x.

        None, too, if the last step along a line reduced neither f nor g: such steps may go on and
        on in the rounding of f.
        """
        radius, least, flattest = region
        slope, line = float(module_of(g).linalg.norm(g)), radius == np.inf
        if line and not (f < least or slope < flattest):
            return None, 0, region
        H = self.problem.curvature(x)
        M = preconditioner_for(H, self.preconditioner)
        if np.isnan(radius):
            radius = float(g @ (M @ g)) ** 0.5
        tol = min(0.5, slope**0.5)
        step = truncated_cg(H, g, M, rtol=tol, radius=radius, work=self.work)
        delta = like(step.delta, x)
        if line:
            moved = searched(self.problem, x, f, g, delta)
        else:
            moved, radius = self.trusted(x, f, g, step, radius)
        moved = None if bool((x + delta == x).all()) else moved
        return moved, step.products, Region(radius, min(f, least), min(slope, flattest))

    def trusted(
        self, x: np.ndarray, f: float, g: np.ndarray, step: NewtonStep, radius: float
    ) -> tuple[np.ndarray, float]:
        """x + δ if f decreases about as predicted, else x; and the radius for the next step."""
        moved = x + like(step.delta, x)
        noise = rounding_change(x, f)
        gain = (f - self.problem.fun(moved) + noise) / (step.promise(g) + noise)
        if not gain >= POOR:
            radius *= 0.25
        elif gain > GOOD and step.cut:
            radius *= 2
        return moved if gain > ENOUGH else x, radius


class NewtonStep(NamedTuple):
    """δ, the gradient g + H δ of the quadratic model there, the number of products that these took,
    and whether δ is on the boundary.
    """

    delta: np.ndarray
    slope: np.ndarray
    products: int
    cut: bool = False

    def promise(self, g: np.ndarray) -> float:
        """The reduction of the model: −gᵀδ − ½ δᵀHδ."""
        return -float(self.delta @ (g + self.slope)) / 2


def truncated_cg(
    H: Any, g: np.ndarray, M: Any, *, rtol: float, radius: float = np.inf, work: Work | None = None
) -> NewtonStep:
    """min gᵀδ + ½ δᵀHδ for δᵀM⁻¹δ ≤ radius², until ‖g + H δ‖_M ≤ rtol ‖g‖_M or it is truncated.

    The iteration ends on the boundary if an iterate leaves the region or finds negative curvature.
    In an infinite region it ends at the iterate before negative curvature, or at −M g in the first
    step. Norms: ‖v‖²_M = vᵀ M v. Source: Conn, Gould, Toint, "Trust-region methods", 2000, 7.5.1.

    >>> truncated_cg(np.diag([1.0, 4.0]), np.array([-1.0, -4.0]), np.eye(2), rtol=1e-9).delta
    array([1., 1.])
    >>> truncated_cg(np.eye(2), np.array([0.0, -4.0]), np.eye(2), rtol=1e-9, radius=1.0).delta
    array([0., 1.])
    """
    z = M @ g
    rz = float(g @ z)
    goal = rtol**2 * rz
    # δᵀM⁻¹δ, δᵀM⁻¹p, pᵀM⁻¹p: M⁻¹ itself is never needed
    start = 0, module_of(g).zeros_like(g), g, -z, rz, 0.0, 0.0, rz
    loop = (work or Work()).loop("truncated cg", *start)
    k, delta, r, p, rz, length, along, reach = loop.state
    while k < 2 * len(g) and rz > goal:
        Hp = H @ p
        curvature = float(p @ Hp)
        if curvature <= 0 and radius == np.inf:
            return NewtonStep(delta, r, k + 1) if k else NewtonStep(p, r + Hp, 1)
        alpha = rz / curvature if curvature > 0 else np.inf
        edge = boundary(length, along, reach, radius)
        if alpha >= edge:
            return NewtonStep(delta + edge * p, r + edge * Hp, k + 1, cut=True)
        delta, r = delta + alpha * p, r + alpha * Hp
        z = M @ r
        before, rz = rz, float(r @ z)
        beta = rz / before
        length += 2 * alpha * along + alpha**2 * reach
        along, reach = beta * (along + alpha * reach), rz + beta**2 * reach
        p, k = beta * p - z, k + 1
        loop.step(k, delta, r, p, rz, length, along, reach, products=1)
    return NewtonStep(delta, r, k)


def boundary(length: float, along: float, reach: float, radius: float) -> float:
    """τ > 0 with length + 2 τ along + τ² reach = radius².

    >>> boundary(1.0, 0.0, 3.0, 2.0)
    1.0
    """
    return float((np.sqrt(along**2 + reach * (radius**2 - length)) - along) / reach)
