"""Linear solves: A ↦ A⁻¹ for the ∂F/∂x of a sequence of equations, which share what they can."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, final

import numpy as np

from ...jacobians import Array, Jacobian, Op
from ...jacobians.errors import NotConverged
from ...jacobians.lapack import Singular
from ..interop.operators import asoperator
from ..solvers.implicit_system import LinearSolver, chosen_solver
from ..solvers.inverse import GMRES_UNKNOWNS, inverse
from ..solvers.iteration import Preconditioner, preconditioner_for
from ..sparse import sparse

ADVICE = ("at a root of which others lie arbitrarily near nothing defines dx/dp: add an equation "
          "that chooses one, or start near another root")  # fmt: skip


@final
class LinearSolves:
    """A ↦ A⁻¹, dense or sparse by LU, or Krylov with a preconditioner.

    Factors are kept as long as the entries of A stay the same, and a preconditioner as long as it
    serves. `what` says what A is, in errors.
    """

    def __init__(
        self, solver: LinearSolver, preconditioner: Preconditioner | None, what: str,
        rtol: float | None = None,
    ) -> None:  # fmt: skip
        self.asked, self.given, self.rtol = solver, preconditioner, rtol
        self.what = what
        self.M: Any = None
        self.last: tuple[np.ndarray, Jacobian] | None = None
        self.solver: LinearSolver | None = None
        self.factored = 0
        """How often a matrix was factored."""

    def __call__(self, A: Jacobian) -> Jacobian:
        """A⁻¹; raises `Singular`, and its products `NotConverged`."""
        if self.solver is None:
            self.solver = chosen_solver(self.asked, self.given, A.shape[0], lambda: A)
        if self.solver == "krylov":
            again = None if self.M is None else partial(self._krylov, A)
            return Solve(self._krylov(A, self.M), self.what, again)
        try:
            return Solve(self._factored(A), self.what)
        except Singular as error:
            raise Singular(f"{self.what} is singular, {error.why or error}: {ADVICE}") from None

    def _krylov(self, A: Jacobian, M: Any = None) -> Jacobian:
        """A⁻¹ with a preconditioner, a new one unless M is given."""
        if M is None:
            M = self.M = preconditioner_for(A, self.given)
        solver = "gmres" if A.shape[0] <= GMRES_UNKNOWNS else "bicgstab"
        return inverse(A, solver=solver, preconditioner=M, rtol=self.rtol)

    def _factored(self, A: Jacobian) -> Jacobian:
        """A⁻¹ by LU."""
        matrix: Any = A.toarray() if self.solver == "dense" else sparse(A)
        entries, last = matrix if self.solver == "dense" else matrix.data, self.last
        if last is None or not np.array_equal(last[0], entries):
            last = self.last = entries, inverse(asoperator(matrix))
            self.factored += 1
        return last[1]


@final
class Solve(Jacobian):
    """A⁻¹, whose errors say what A is; `again` makes it with a preconditioner of this A, where an
    earlier one no longer serves.
    """

    def __init__(
        self, operator: Jacobian, what: str, again: Callable[[], Jacobian] | None = None
    ) -> None:
        super().__init__(operator.out_shape, operator.in_shape, operator.dtype)
        self.operator, self.what, self.again = operator, what, again

    def _apply(self, op: Op, v: Array) -> Array:
        try:
            return self.operator._apply(op, v)
        except NotConverged as error:
            if self.again is None:
                raise NotConverged(f"{self.what}: {error}") from None
        self.operator, self.again = self.again(), None
        return self._apply(op, v)

    def _transpose(self) -> Jacobian:
        again = self.again
        return Solve(self.operator.T, self.what, again and (lambda: again().T))

    def __repr__(self) -> str:
        return f"({self.what})⁻¹"
