"""Implicit system: M u̇ = f(t, u) with its exact Jacobian, and solves with M − c J.

Every implicit method needs the same four things of an equation: f, J = ∂f/∂u, ∂f/∂t, and the
solution of linear systems with M − c J. A singular M makes the equation differential-algebraic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, final

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs
from scipy.sparse.linalg import LinearOperator, splu

from ...jacobians import Diagonal, Identity, Jacobian, Reshape
from ...jacobians.arrays import as_array, host, like
from ...jacobians.errors import InputError, LimitError, NotConverged
from ..interop.operators import asoperator
from ..linear.linearization import Linearization
from ..linearize import linearize
from ..sparse import sparse
from .iteration import Counted, Preconditioner
from .problem import Problem
from .roots import Reused, gmres

LinearSolver = Literal["auto", "dense", "sparse", "krylov"]

Solve = Callable[[np.ndarray], np.ndarray]
"""b ↦ x with (M − c J) x = b; raises `NotConverged` where none is found."""

DENSE_STATES = 100
"""Up to so many states, dense LU needs less time than sparse LU."""


def scaled_norm(x: np.ndarray, scale: np.ndarray) -> float:
    """√(Σᵢ (xᵢ / sᵢ)² / n): an error within its tolerances, as the scale has them, is at most 1."""
    return float(np.linalg.norm(x / scale)) / max(x.size, 1) ** 0.5


@final
class ImplicitSystem:
    """M u̇ = f(t, u): f and J at a point, products with M, and solves with M − c J.

    J and M are dense arrays, sparse arrays or operators, by the solver of linear systems. `nfev`,
    `njev`, `nlu` and `products` count.
    """

    def __init__(
        self, problem: Problem, mass: Any, solver: LinearSolver,
        preconditioner: Preconditioner | None,
    ) -> None:  # fmt: skip
        self.problem, self.size = problem, len(problem.x0)
        self.nfev = self.njev = self.nlu = self.products = 0
        self.by_time: Linearization | None = None
        first = partial(problem.linearized, problem.x0)
        self.solver = solver = chosen_solver(solver, preconditioner, self.size, first)
        self.kept = None if preconditioner is None else Reused(preconditioner)
        self.identity = mass is None
        rng = np.random.default_rng(0)
        self.probe = rng.choice([-1.0, 1.0], self.size) * rng.uniform(0.5, 1.5, self.size)
        self.mass = self._in_form(mass_operator(mass, self.size))

    def _in_form(self, A: Jacobian) -> Any:
        """A matrix or an operator, as the solver of linear systems takes it."""
        if self.solver == "dense":
            return host(A.toarray()).astype(float)
        return sparse(A, "csc").astype(float) if self.solver == "sparse" else A

    def rates(self, t: float, y: np.ndarray) -> np.ndarray:
        """f(t, u)."""
        self.nfev += 1
        return host(self.problem.ode(t, like(y, self.problem.x0))).astype(float)

    def jacobian(self, t: float, y: np.ndarray) -> Any:
        """J = ∂f/∂u."""
        self.njev += 1
        J = self.problem.linearized(like(y, self.problem.x0), *([t] if self.problem.t else []))
        flat: Any = Reshape(J.out_shape, (self.size,), J.dtype)  # one tensor has axes of its own
        return self._in_form(flat @ J @ Reshape((self.size,), J.in_shape, J.dtype))

    def drift(self, t: float, y: np.ndarray) -> np.ndarray:
        """∂f/∂t."""
        if self.problem.t is None:
            return np.zeros(self.size)
        p, point = self.problem, self.problem.point(like(y, self.problem.x0), t)
        if self.by_time is None:
            self.by_time = linearize(p.model, point, of=p.of, wrt=p.t, engine=p.engine)
        else:
            self.by_time = self.by_time.relinearize(point)
        return host(self.by_time @ like(np.ones(1), p.x0)).astype(float)

    def momentum(self, v: np.ndarray) -> np.ndarray:
        """M v."""
        return v if self.identity else np.asarray(self.mass @ v)

    def solves(self, c: float, J: Any, scale: np.ndarray, rtol: float = 0.0) -> Solve:
        """b ↦ (M − c J)⁻¹ b; by GMRES to 1 % of the scale, or to `rtol` of the scale or of b."""
        self.nlu += 1
        A = self.mass - c * J
        by = {"dense": dense_lu, "sparse": sparse_lu}.get(self.solver)
        return self._by_gmres(A, c, J, scale, rtol) if by is None else by(A)

    def _by_gmres(self, A: Any, c: float, J: Any, scale: np.ndarray, rtol: float) -> Solve:
        """GMRES on R⁻¹ (M − c J) S, S the scale; R is S, and |c J s| where M has a row of zeros."""
        rows = scale.copy()
        if not self.identity:
            algebraic = self.momentum(self.probe * scale) == 0
            rows[algebraic] = np.abs(c * (J @ (self.probe * scale)))[algebraic]
            rows[rows == 0] = 1.0
        counted, M = Counted(A), None if self.kept is None else self.kept(A)

        def scaled(left: np.ndarray, B: Any, right: np.ndarray) -> LinearOperator:
            return LinearOperator(A.shape, lambda v: left * (B @ (right * v)), dtype=float)

        inverse = None if M is None else scaled(1 / scale, M, rows)

        def solve(b: np.ndarray) -> np.ndarray:
            before = counted.products
            x, failed = gmres(scaled(1 / rows, counted, scale), b / rows, rtol=rtol,
                              atol=(rtol or 0.01) * self.size**0.5, M=inverse)  # fmt: skip
            self.products += counted.products - before
            if self.kept is not None:
                self.kept.took(counted.products - before)
            if failed:
                raise NotConverged("GMRES does not solve a linear system: give a preconditioner=")
            return scale * x

        return solve


def chosen_solver(
    asked: LinearSolver, preconditioner: Preconditioner | None, size: int,
    jacobian: Callable[[], Jacobian],
) -> LinearSolver:  # fmt: skip
    """The solver asked for; for "auto" dense for a small or full Jacobian, sparse for others, and
    Krylov where no matrix fits, or with a preconditioner.
    """
    if preconditioner is not None and asked not in ("auto", "krylov"):
        raise InputError(f"linear_solver={asked!r} factorises: a preconditioner is for "
                         "linear_solver='krylov'")  # fmt: skip
    if asked != "auto" or preconditioner is not None:
        return "krylov" if asked == "auto" else asked
    if size <= DENSE_STATES:
        return "dense"
    try:
        entries = sparse(jacobian()).nnz
    except LimitError:
        return "krylov"
    return "sparse" if 8 * entries <= size**2 else "dense"


def mass_operator(mass: Any, n: int) -> Jacobian:
    """M as an operator: None is the identity, a vector a diagonal; raises `InputError`."""
    if mass is None:
        return Identity((n,), np.dtype(float))
    try:
        given = np.asarray(mass) if isinstance(mass, list | tuple) else mass
        M = Diagonal(as_array(given)) if getattr(given, "ndim", 2) == 1 else asoperator(given)
    except (TypeError, ValueError) as error:
        raise InputError(f"mass is no array of numbers: {error}") from None
    if M.shape != (n, n):
        shape = tuple(getattr(given, "shape", M.shape))
        raise InputError(f"mass has shape {shape}, but there are {n} states: give their {n} "
                         f"masses, or a matrix or operator of shape {(n, n)}")  # fmt: skip
    if M.dtype.kind not in "fiub" or not np.isfinite(M @ np.ones(n)).all():
        raise InputError("mass holds numbers that are not real and finite")
    return M


def dense_lu(A: np.ndarray) -> Solve:
    """b ↦ A⁻¹ b by LU."""
    lu, pivots, singular = dgetrf(A)
    if singular or not np.isfinite(lu).all():
        raise NotConverged("M − c J is singular, or not finite")
    return lambda b: np.asarray(dgetrs(lu, pivots, b)[0])


def sparse_lu(A: Any) -> Solve:
    """b ↦ A⁻¹ b by sparse LU."""
    try:
        if not np.isfinite(A.data).all():
            raise RuntimeError
        solve: Solve = splu(A).solve
    except RuntimeError:
        raise NotConverged("M − c J is singular, or not finite") from None
    return solve


def first_length(second: np.ndarray, scale: np.ndarray) -> float:
    """The length of a first step, h² ‖ü‖ = 1, at a point with this ü."""
    return float(max(scaled_norm(second, scale), 1e-300) ** -0.5)


def started(
    system: ImplicitSystem, t: float, y: np.ndarray, tolerance: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A consistent u near the one given, u̇ and ü.

    With a mass, u solves M (u − u₀) = ε f(u), with an ε > 0 for which M u changes by a thousandth
    of its tolerance: rows of M that vanish, or combinations of them, become f = 0. This takes
    equations of index 1. A u₀ within a hundredth of the tolerance stays as it is.
    """
    scale, f = tolerance(y), system.rates(t, y)
    J, drift = system.jacobian(t, y), system.drift(t, y)
    if system.identity:
        return y, f, np.asarray(J @ f) + drift
    weight, u = np.abs(system.momentum(system.probe * scale)), y
    for _ in range(20):
        pace = float((np.abs(f[weight > 0]) / weight[weight > 0]).max(initial=1e-3))
        epsilon = 1e-3 / pace
        solve = system.solves(epsilon, J, scale, rtol=1e-8)
        step = solve(epsilon * f - system.momentum(u - y))
        u = u + step
        f, J = system.rates(t, u), system.jacobian(t, u)
        rounding = 10 * np.finfo(float).eps * np.abs(u).max(initial=0)
        if (small := scaled_norm(step, scale + rounding)) <= 1e-5:
            slope = solve(f + epsilon * drift)
            near = scaled_norm(u - y, scale) <= 0.01
            return y if near else u, slope, solve(J @ slope + drift)
        if not np.isfinite(small):
            break
    raise NotConverged("no solution of the algebraic equations is found")
