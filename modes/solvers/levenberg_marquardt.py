"""Levenberg-Marquardt: nonlinear least squares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, aslinearoperator, lsmr

from ...jacobians import Diagonal, dtype_of
from ...jacobians.arguments import Count, NonNegative, Positive, validated
from ...jacobians.arrays import Array, cast_to, host, like
from ...jacobians.errors import warn
from ...jacobians.readings import module_of
from ...jacobians.threads import cached_property
from ..data.adapter import NOTHING, Data
from ..data.batches import Batch, as_batch
from ..estimators.estimate import Probed
from ..estimators.exact import squares_by_products
from ..model.primal.inputs import Names
from ..model.primal.model import ModelLike
from ..resume import ResumeFile, Work
from .iteration import (
    GOING,
    GRADIENT,
    STEP,
    TINY,
    VALUE,
    Callback,
    Counted,
    OptimizeResult,
    Preconditioner,
    length,
    preconditioner_for,
    run,
    solver_state,
)
from .problem import Problem

EXACT_VARIABLES = 100
"""The most variables for which every step is solved up to rounding."""

FORCING, CORRECTING = 0.1, 0.3
"""How far the gradient of the linear problem falls in a step of more variables, and in its
correction, which is small.
"""

Scale = Callable[[Any], np.ndarray]
"""J ↦ one positive number for each column."""


def column_norms(J: Any, *, probes: int = 32, seed: int = 0) -> np.ndarray:
    """√diag(JᵀJ): exact for up to `probes` rows or columns, else √E (Jᵀ z)² over random signs z.

    The estimate has a relative standard error of at most 1/√(2 probes), enough for scaling. A
    column of zeros counts as 1. For exact norms by structure, see `column_scaling`.

    >>> from onnxjac.jacobians import Dense
    >>> column_norms(Dense(np.array([[3.0, 0.0], [4.0, 0.0]])))
    array([5., 1.])
    """
    P = Probed(J, seed=seed)
    if min(J.shape) <= probes:
        squares = squares_by_products(P)
    else:
        squares = (P.adjoint(P.signs(J.shape[0], probes)) ** 2).mean(1)
    return cast_to(P.xp.where(squares > 0, squares**0.5, 1.0), J.dtype)


@validated
def levenberg_marquardt(
    model: ModelLike,
    inputs: Data,
    *,
    of: Names = None,
    wrt: Names = None,
    damping: NonNegative = 1e-3,
    acceleration: float = 0.75,
    scale: Scale = column_norms,
    preconditioner: Preconditioner | None = None,
    tol: NonNegative | None = None,
    maxiter: Count = 200,
    options: Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    engine: str | None = None,
    batch_size: Positive | None = None,
    shared: Batch = NOTHING,
    comm: Any = None,
    resume: ResumeFile | None = None,
) -> OptimizeResult:
    """min ½ ‖r(x)‖² by steps δ that minimise ‖J δ + r‖² + λ ‖D δ‖², r the tensors of `of`, flat.

    `cost` is half the sum of the squares of all elements of `of`, not a mean. So `of` is the
    residual, not a loss made of it: of the square of one number, JᵀJ has rank 1, and a warning says
    so. `with_residual` appends one.

    D is `scale(J)`, by default the norms of the columns of J, and at least half of the previous D,
    so that steps do not depend on the units of the variables. Where a column almost vanishes, as of
    a saturated neuron, steps are long in its variable; a `scale` with a least value prevents that.
    λ starts at `damping` and follows the gain ratio: a trust region. Each step is corrected by the
    second derivative of r along it, the geodesic acceleration; a correction beyond `acceleration`,
    relative to the step, counts as a failure, and 0 turns it off. A step costs one or two calls of
    `scipy.sparse.linalg.lsmr`, with these `options`: products with J and Jᵀ. Without `atol`, it
    solves for up to 100 variables to rounding, and for more until the gradient of the linear
    problem has fallen to 10 %, or to 30 % for the correction. A `preconditioner` is a right factor
    R, or a function that builds it from J: LSMR solves for y with δ = R y, in fewer products the
    closer the columns of J R are to orthonormal. The steps stay the same, up to that tolerance.

    The iteration ends when the cosine between r and every column of J is at most `tol` in
    magnitude, when the actual and predicted reductions are within `tol` times the cost, or when a
    step is within `tol` times x; `tol` is √ε by default. The result has the fields of
    `scipy.optimize.least_squares` (`cost`, `fun`, `jac`, `grad`, `optimality`, the largest cosine)
    and `tensors`, `damping` and `products`.

    - `wrt`: the tensors x, by name; by default all floating inputs.
    - `inputs`: the point, or data: a list of points, a function that returns an iterator over them,
      a data loader, or arrays or an npz file with `batch_size`; every evaluation is a pass.
    - `batch_size`: the rows of a batch, where `inputs` are arrays or the path of an npz file.
    - `shared`: inputs that all batches have in common, by name.
    - `comm`: a communicator of ranks that all call this with batches of their own: see `ranked`.
    - `resume`: a `ResumeFile`, from which the iteration goes on after an interruption, at the
      beginning of a step, as LSMR keeps its state; `maxiter` may change.
    - `model`, `maxiter`, `callback`, `progress`, `engine`: as for `newton_krylov`.

    Shapes: x and δ are (n,), n the size of the tensors of `wrt`; r is (m,), m the size of the
    tensors of `of`; J is (m, n), D is (n,), R is (n, n). Raises `InputError` where the
    `preconditioner` is not an operator of shape (n, n), and where a name, a shape or a dtype does
    not fit; `UnsupportedOp` for an operator without a rule. An iteration that ends early raises
    nothing: see `success` and `message` of the result.

    Sources: Moré, "The Levenberg-Marquardt algorithm", 1978, for D; Nielsen, "Damping parameter in
    Marquardt's method", 1999, for λ; Transtrum and Sethna, "Improvements to the
    Levenberg-Marquardt algorithm for nonlinear least-squares minimization", 2012, for acceleration.
    """
    over = {"batch_size": batch_size, "shared": as_batch(shared), "comm": comm}
    problem = Problem[Any](model, inputs, of, wrt, engine, over=over)
    if len(problem.values(problem.x0)) == 1 < len(problem.x0):
        warn(f"{', '.join(problem.of)} is one number, whose square is minimised: of= should name "
             "the tensor of residuals, not the loss that sums their squares")  # fmt: skip
    eps = float(np.finfo(dtype_of(problem.x0)).eps)
    exact = {"atol": eps, "btol": eps} if len(problem.x0) <= EXACT_VARIABLES else {}
    asked = {"conlim": 0, "maxiter": 10 * len(problem.x0), **exact, **(options or {})}

    def place(x: Array, D: Array) -> Iterate:
        """r, J and the scales D of the variables at x, which shrink by half at most."""
        r, J = problem.values(x), problem.linearized(x)
        norms, R = scale(J), preconditioner_for(J, preconditioner)
        return Iterate(x, r, Counted(J), norms, module_of(x).maximum(norms, D / 2), R, asked)

    told = {"of": problem.of, "wrt": problem.wrt, "engine": engine, "damping": damping,
            "acceleration": acceleration, "tol": tol, "options": asked}  # fmt: skip
    work = Work(resume, "Levenberg-Marquardt", told, problem.comm)
    work.same("start", lambda: problem.x0)
    work.same("residual at the start", lambda: problem.values(problem.x0))
    tolerance = np.sqrt(eps) if tol is None else tol
    states = iterations(problem, place, damping, acceleration, tolerance, work)
    with work.going_on():
        return run(states, "Levenberg-Marquardt", maxiter, callback, progress)


def iterations(
    problem: Problem, place: Callable[[Array, Array], Iterate], damping: float,
    acceleration: float, tol: float, work: Work,
) -> Iterator[OptimizeResult]:  # fmt: skip
    """The state at the start, and after every iteration, whether it moved or not.

    The damping λ shrinks after a step as predicted, and grows, ever faster, after failed steps. For
    a gain ϱ = actual / predicted reduction: λ ← λ max(⅓, 1 − (2ϱ − 1)³) and ν ← 2 if ϱ > 0;
    otherwise λ ← λν and ν ← 2ν.
    """
    start = 0, 0, 0, damping, 2.0, problem.x0, 0 * problem.x0, 0, 0
    loop = work.loop("iterations", *start)
    nit, ended, products, damping, growth, x, D, *counts = loop.state
    here = place(x, D)
    if nit:
        problem.values.count, problem.linearized.count = counts
    while True:
        status = GRADIENT if here.cosine <= tol else ended or GOING
        taken = products + here.J.products
        yield solver_state(
            problem, status, x=here.x, cost=here.cost, fun=here.r, jac=here.J.A,
            grad=here.gradient, optimality=here.cosine, nit=nit, damping=damping, products=taken,
        )  # fmt: skip
        step = here.straight(damping)
        moved = here.bent(step, problem.values, acceleration, damping) if acceleration else step
        after = np.inf if moved is None else half_square(problem.values(moved.x))
        reduction = here.cost - after if np.isfinite(after) else -np.inf
        gain = reduction / max(step.promise, TINY)
        if gain > 0:
            damping, growth = damping * max(1 / 3, 1 - (2 * gain - 1) ** 3), 2.0
        else:
            damping, growth = damping * growth, 2 * growth
        small = max(1, abs(gain)) * step.promise <= tol * here.cost
        short = step.length <= tol * length(here.D * here.x)
        ended = VALUE if small else STEP if short else 0
        nit, now = nit + 1, products + here.J.products
        if moved is not None and gain > 0:
            products, D = now, here.D
            here = place(moved.x, D)
        kept = products + max(here.J.products - 1, 0)  # the gradient is taken again
        loop.step(nit, ended, kept, damping, growth, here.x, D, problem.values.count,
                  problem.linearized.count, products=now - taken)  # fmt: skip


Residual = Callable[[Array], Array]

REACH = 0.1
"""The fraction of a step at which the residual is evaluated for its curvature."""


class TrustStep(NamedTuple):
    """The end of a step, its length ‖D δ‖, and its predicted reduction of ½ ‖r‖²."""

    x: Array
    length: float
    promise: float


@dataclass(frozen=True)
class Iterate:
    """r and J at x, with the column norms of J and the scales D of the variables.

    `R` is a right preconditioner or None; `options` are passed to LSMR.
    """

    x: Array
    r: Array
    J: Counted
    norms: Array
    D: Array
    R: Any
    options: Mapping[str, Any]

    @property
    def cost(self) -> float:
        """½ ‖r‖²."""
        return half_square(self.r)

    @cached_property
    def gradient(self) -> Array:
        """Jᵀ r."""
        return self.J.rmatvec(self.r)

    @property
    def cosine(self) -> float:
        """The largest cosine of an angle between r and a column of J."""
        cosines = abs(self.gradient) / self.norms
        return float(cosines.max()) / max(length(self.r), TINY) if len(cosines) else 0.0

    def solve(self, b: Array, damping: float, forcing: float = FORCING) -> Array:
        """D δ, for the δ that minimises ‖J δ + b‖² + λ ‖D δ‖²; LSMR takes NumPy arrays."""
        b, D = host(b).astype(np.float64), host(self.D)  # LSMR overflows in single precision
        J, R, d, (m, n) = self.J, self.R, np.sqrt(damping) * D, self.J.shape
        if R is None:
            scaling: Any = Diagonal(1 / D)
            A: Any = J @ aslinearoperator(scaling)
            return like(self.solved(A, -b, forcing, damp=np.sqrt(damping)), self.x)

        def forward(y: Array) -> Array:
            x = R @ y
            return np.concatenate([J @ x, d * x])

        def backward(u: Array) -> Array:
            found: Array = R.T @ (J.T @ u[:m] + d * u[m:])
            return found

        A = LinearOperator((m + n, n), forward, backward, dtype=J.dtype)  # [J; diag(d)] R
        found = self.solved(A, np.concatenate([-b, np.zeros(n)]), forcing)
        return like(D * (R @ found), self.x)

    def solved(self, A: Any, b: np.ndarray, forcing: float, damp: float = 0.0) -> np.ndarray:
        """min ‖A y - b‖, until ‖Aᵀ(A y - b)‖ falls to `forcing` of its start; ‖A‖ is at most √n."""
        options: dict[str, Any] = dict(self.options)
        if "atol" not in options:
            start = length(A.rmatvec(b)) / max(length(b) * A.shape[1] ** 0.5, TINY)
            options = {"atol": forcing * start, "btol": forcing, **options}
        found: np.ndarray = lsmr(A, b, damp=damp, **options)[0]
        return found

    def straight(self, damping: float) -> TrustStep:
        """δ, by the linear model."""
        scaled = self.solve(self.r, damping)
        linear = self.J @ (scaled / self.D)
        promise = -float(self.r @ linear) - float(linear @ linear) / 2
        return TrustStep(self.x + scaled / self.D, length(scaled), promise)

    def bent(
        self, step: TrustStep, residual: Residual, bound: float, damping: float
    ) -> TrustStep | None:
        """δ + a, where a solves for ½ r″(δ, δ) as δ does for r; None if 2 ‖D a‖ > bound ‖D δ‖.

        r″ is estimated from the difference of r and its linear model a short way along δ.
        """
        delta = step.x - self.x
        moved = residual(self.x + REACH * delta) - self.r
        second = (moved / REACH - self.J @ delta) * (2 / REACH)
        if not module_of(second).isfinite(second).all():
            return None
        scaled = self.solve(second / 2, damping, CORRECTING)
        fits = 2 * length(scaled) <= bound * step.length
        return step._replace(x=step.x + scaled / self.D) if fits else None


def half_square(r: Array) -> float:
    """½ ‖r‖², which may be infinite."""
    with np.errstate(over="ignore"):
        return float(r @ r) / 2
