"""Levenberg-Marquardt: nonlinear least squares, each step a damped linear one by LSMR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult
from scipy.sparse.linalg import lsmr

from ...jacobians import Diagonal, Jacobian
from ..model import Model
from ..names import Names
from .problem import Problem, as_scipy
from .run import GOING, GRADIENT, STEP, VALUE, Callback, run, state
from .scaling import Scale, column_norms


def levenberg_marquardt(
    model: Model,
    inputs: Mapping[str, Any],
    *,
    of: Names = None,
    wrt: Names = None,
    damping: float = 1e-3,
    scale: Scale = column_norms,
    tol: float | None = None,
    maxiter: int = 200,
    inner: Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    engine: str | None = None,
) -> OptimizeResult:
    """min ½ ‖r(x)‖² by steps that minimise ‖J δ + r‖² + λ ‖D δ‖², with r the tensors of `of`, flat.

    No mean is taken: `cost` is half the sum of the squares of all elements of `of`. D holds the
    largest norms of the columns of J so far, which makes the steps independent of the units of
    the variables; λ starts at `damping` and follows the gain ratio. A step is J and Jᵀ times a
    vector, as often as `scipy.sparse.linalg.lsmr`, with the options `inner`, asks for.

    It ends where no column of J makes an angle with r whose cosine is over `tol`, where the
    reductions, real and predicted, are below `tol` times the cost, or steps below `tol` times x; by
    default √ε of the dtype. The result is that of `scipy.optimize.least_squares` (`cost`, `fun`,
    `jac`, `grad`, `optimality`), with `tensors`, `damping`, and `inner`, the iterations of LSMR.

    Sources: Moré, "The Levenberg-Marquardt algorithm", 1978, for D; Nielsen, "Damping parameter in
    Marquardt's method", 1999, for λ; Fong and Saunders, "LSMR", 2011.
    """
    problem = as_scipy(model, inputs, of=of, wrt=wrt, engine=engine)
    eps = np.finfo(problem.x0.dtype).eps
    exact = {"atol": eps, "btol": eps, "conlim": 0, "maxiter": 10 * problem.x0.size}
    steps = Steps(problem, scale, np.sqrt(eps) if tol is None else tol, {**exact, **(inner or {})})
    return run(
        steps.states(Damping(damping)), label="Levenberg-Marquardt", maxiter=maxiter,
        callback=callback, progress=progress,
    )  # fmt: skip


@dataclass
class Damping:
    """λ: smaller after a step that the linear model foretold, ever faster larger after others."""

    value: float
    growth: float = 2.0

    def follow(self, gain: float) -> None:
        """Adapt to the ratio of the real to the predicted reduction."""
        if gain > 0:
            self.value, self.growth = self.value * max(1 / 3, 1 - (2 * gain - 1) ** 3), 2.0
        else:
            self.value, self.growth = self.value * self.growth, 2 * self.growth


class Step(NamedTuple):
    """δ, its length ‖D δ‖, the reduction of the cost that it promises, and what it took."""

    delta: np.ndarray
    length: float
    promise: float
    inner: int


@dataclass
class Steps:
    """The iterations of Levenberg-Marquardt."""

    problem: Problem
    scale: Scale
    tol: float
    inner: Mapping[str, Any]

    def states(self, damping: Damping) -> Iterator[OptimizeResult]:
        """The state at the start, and after every iteration."""
        x, problem = self.problem.x0, self.problem
        D, nit, inner, status = np.zeros(x.shape, x.dtype), 0, 0, GOING
        while True:
            r, J = problem.values(x), problem.jacobian(x)
            norms = self.scale(J)
            D, cost, g = np.maximum(D, norms), float(r @ r) / 2, J.T @ r
            cosine = float(np.max(np.abs(g) / norms, initial=0)) / max(np.sqrt(2 * cost), 1e-300)
            if cosine <= self.tol:
                status = GRADIENT
            while True:
                yield state(
                    problem, x, status, cost=cost, fun=r, jac=J, grad=g, optimality=cosine,
                    nit=nit, inner=inner, damping=damping.value,
                )  # fmt: skip
                step = damped(J, r, D, damping.value, self.inner)
                nit, inner = nit + 1, inner + step.inner
                trial = x + step.delta
                gain = reduction(cost, problem.values(trial)) / max(step.promise, 1e-300)
                damping.follow(gain)
                status = self.ended(x, D, step, cost, gain)
                if gain > 0:
                    x = trial
                    break

    def ended(
        self, x: np.ndarray, D: np.ndarray, step: Step, cost: float, gain: float
    ) -> int | None:
        """Why to end after a step, if at all."""
        if step.promise <= self.tol * cost and abs(gain) * step.promise <= self.tol * cost:
            return VALUE
        return STEP if step.length <= self.tol * np.linalg.norm(D * x) else GOING


def damped(
    J: Jacobian, r: np.ndarray, D: np.ndarray, damping: float, options: Mapping[str, Any]
) -> Step:
    """δ = −(JᵀJ + λ D²)⁻¹ Jᵀ r, by LSMR in the variables D δ."""
    unit = Diagonal((1 / D).reshape(J.in_shape))
    scaled, _, count, *_ = lsmr(J @ unit, -r, damp=np.sqrt(damping), **options)
    delta = (scaled / D).astype(r.dtype)
    linear = J @ delta
    promise = -float(r @ linear) - float(linear @ linear) / 2
    return Step(delta, float(np.linalg.norm(scaled)), promise, count)


def reduction(cost: float, r: np.ndarray) -> float:
    """By how much ½ ‖r‖² is below a cost; −∞ where r is not finite."""
    after = float(r @ r) / 2
    return cost - after if np.isfinite(after) else -np.inf
