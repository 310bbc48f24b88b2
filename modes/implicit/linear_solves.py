"""Linear solves: A ↦ A⁻¹ for the ∂F/∂x of a sequence of equations, which share what they can."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from ...jacobians import Array, Jacobian, Op
from ...jacobians.errors import NotConverged
from ...jacobians.lapack import Singular
from ..interop.operators import asoperator
from ..solvers.implicit_system import LinearSolver, chosen_solver
from ..solvers.inverse import choose_solver, inverse
from ..solvers.iteration import Preconditioner
from ..solvers.roots import Reused
from ..sparse import sparse

ADVICE = ("at a root of which others lie arbitrarily near nothing defines dx/dp: add an equation "
          "that chooses one, or start near another root")  # fmt: skip


@final
class LinearSolves:
    """A ↦ A⁻¹, dense or sparse by LU, or Krylov with a preconditioner.

    Factors are kept as long as the entries of A stay the same. `what` says what A is, in errors.
    """

    def __init__(
        self, solver: LinearSolver, preconditioner: Preconditioner | None, what: str,
        rtol: float | None = None,
    ) -> None:  # fmt: skip
        self.asked, self.given, self.rtol = solver, preconditioner, rtol
        self.what = what
        self.kept = None if preconditioner is None else Reused(preconditioner)
        self.last: tuple[np.ndarray, Jacobian] | None = None
        self.solver: LinearSolver | None = None
        self.factored = 0
        """How often a matrix was factored."""

    def __call__(self, A: Jacobian) -> Jacobian:
        """A⁻¹; raises `Singular`, and its products `NotConverged`."""
        if self.solver is None:
            self.solver = chosen_solver(self.asked, self.given, A.shape[0], lambda: A)
        try:
            return Solve(self._inverse(A), self.what)
        except Singular as error:
            raise Singular(f"{self.what} is singular, {error.why or error}: {ADVICE}") from None

    def _inverse(self, A: Jacobian) -> Jacobian:
        if self.solver == "krylov":
            M = self.kept and self.kept(A)
            return inverse(A, solver=choose_solver(A)[0], preconditioner=M, rtol=self.rtol)
        matrix: Any = A.toarray() if self.solver == "dense" else sparse(A)
        entries = matrix if self.solver == "dense" else matrix.data
        if self.last is None or not np.array_equal(self.last[0], entries):
            self.last, self.factored = (entries, inverse(asoperator(matrix))), self.factored + 1
        return self.last[1]


@final
class Solve(Jacobian):
    """A⁻¹, whose errors say what A is."""

    def __init__(self, operator: Jacobian, what: str) -> None:
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.what = operator, what

    def _apply(self, op: Op, v: Array) -> Array:
        try:
            return self.operator._apply(op, v)
        except NotConverged as error:
            raise NotConverged(f"{self.what}: {error}") from None

    def _transpose(self) -> Jacobian:
        return Solve(self.operator.T, self.what)

    def __repr__(self) -> str:
        return f"({self.what})⁻¹"
