"""Iteration: the parts that all solvers share.

`run` iterates over the states of a solver, `Counted` counts products, `preconditioner_for` applies
a preconditioner of the caller, and `backtrack` is the line search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
from scipy.sparse.linalg import LinearOperator, SuperLU

from ...jacobians.arrays import Array
from ...jacobians.errors import InputError
from ...jacobians.hooks import Shown
from ...jacobians.progress import counting
from ...jacobians.readings import is_kept, module_of
from .problem import Problem


class OptimizeResult(dict[str, Any], Shown):
    """As SciPy's result, a dictionary whose items are attributes too, with a table for notebooks;
    the solvers tell which fields it has.
    """

    x: np.ndarray
    tensors: dict[str, np.ndarray]
    success: bool
    status: int | None
    message: str
    fun: Any
    jac: Any
    grad: np.ndarray
    cost: float
    optimality: float
    damping: float
    step: float
    t: float
    nit: int
    nfev: int
    njev: int
    nhev: int
    products: int

    if not TYPE_CHECKING:  # so that a misspelt attribute is found by a type checker

        def __getattr__(self, name: str) -> Any:
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __dir__(self) -> list[str]:
        return [*self]

    def __repr__(self) -> str:
        wide = max(map(len, self), default=0)
        return "\n".join(f"{name:>{wide}}: {value!r}" for name, value in self.items())


Callback = Callable[[OptimizeResult], Any]
"""A function that is called with the state after every iteration."""

TINY = float(np.finfo(np.float32).tiny)
"""A lower bound for divisors."""

GOING, GRADIENT, VALUE, STEP, STUCK, INFINITE, ENOUGH, STOPPED = None, 1, 2, 3, -1, -2, 0, 99

MESSAGES: dict[int | None, str] = {
    GRADIENT: "the gradient, or the residual, is within its tolerance",
    VALUE: "the reductions of the objective, real and predicted, are within their tolerance",
    STEP: "the step is within its tolerance",
    STUCK: "no step along the direction found makes the objective, or the residual, smaller",
    INFINITE: "the objective, or the residual, is not finite",
    ENOUGH: "the maximum number of iterations is reached",
    STOPPED: "the callback raised StopIteration",
}


def solver_state(problem: Problem, status: int | None, **more: Any) -> OptimizeResult:
    """The state of a solver; `status` is the reason why it ends, or None if it goes on."""
    counts = {"nfev": problem.values.count, "njev": problem.linearized.count}
    return OptimizeResult(tensors=problem.unflatten(more["x"]), status=status, **counts, **more)


def run(
    states: Iterator[OptimizeResult],
    label: str,
    maxiter: int,
    callback: Callback | None,
    progress: bool | None = None,
) -> OptimizeResult:
    """The last state: when the solver ends, the callback stops it, or `maxiter` is reached.

    The states count iterations in `nit`, from 0 at the start; a terminal shows the count.
    """
    with counting(label, "iterations", shown=progress) as tick:
        for found in states:
            if found.nit:
                tick(1)
                try:
                    if callback is not None:
                        callback(found)
                except StopIteration:
                    found.status = STOPPED
            if not module_of(found.fun).isfinite(found.fun).all():
                found.status = INFINITE
            if found.status is GOING and found.nit >= maxiter:
                found.status = ENOUGH
            if found.status is not GOING:
                break
    found.success, found.message = found.status in (GRADIENT, VALUE, STEP), MESSAGES[found.status]
    return found


Preconditioner = Callable[[Any], Any] | Any
"""A ↦ M ≈ A⁻¹ for the operator A of an iteration, or one M for all iterations."""


def preconditioner_for(A: Any, given: Preconditioner | None) -> Any:
    """M for an operator A, or None without a preconditioner.

    >>> import numpy as np
    >>> A = np.diag([2.0, 4.0])
    >>> preconditioner_for(A, lambda A: np.diag(1 / np.diag(A)))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    if given is None:
        return None
    if not (hasattr(given, "shape") or callable(given)):
        raise InputError(
            f"preconditioner={given!r} is neither an operator nor a function that makes one: "
            "oj.preconditioners has ilu, jacobi, block_jacobi ..."
        )
    M = given if hasattr(given, "shape") else given(A)  # a linear operator is callable, too
    M, n = solves(M, A.dtype) if isinstance(M, SuperLU) else M, A.shape[1]
    if getattr(M, "shape", None) != (n, n):
        raise InputError(
            f"the preconditioner has shape {getattr(M, 'shape', None)}, not {(n, n)}: give an "
            "operator of that shape, or a function of the solver's operator that makes one"
        )
    return M


def solves(factors: SuperLU, dtype: Any) -> LinearOperator:
    """b ↦ x with A x = b, by the factors that SciPy's `splu` or `spilu` made of A."""
    transposed = partial(factors.solve, trans="H")
    return LinearOperator(factors.shape, factors.solve, transposed, dtype=dtype)


Linear: Any = LinearOperator


@final
class Counted(Linear):
    """A + λI, with λ the damping; `products` counts the products with A and Aᵀ.

    >>> A = Counted(np.diag([1.0, 2.0]), 0.5)
    >>> A @ np.ones(2), A.T @ np.ones(2), A.products
    (array([1.5, 2.5]), array([1.5, 2.5]), 2)
    """

    def __init__(self, A: Any, damping: float = 0.0) -> None:
        super().__init__(A.dtype, A.shape)
        self.A, self.damping, self.products = A, damping, 0

    def __matmul__(self, x: Any) -> Any:
        return self._matvec(x) if is_kept(x) else super().__matmul__(x)

    def rmatvec(self, x: Any) -> Any:
        return self._rmatvec(x) if is_kept(x) else super().rmatvec(x)

    def _matvec(self, v: np.ndarray) -> np.ndarray:
        self.products += 1
        return self._damped(self.A @ v, v)

    def _rmatvec(self, u: np.ndarray) -> np.ndarray:
        self.products += 1
        return self._damped(self.A.T @ u, u)

    def _damped(self, product: np.ndarray, v: np.ndarray) -> np.ndarray:
        return product + self.damping * v if self.damping else product


def length(x: Array) -> float:
    """‖x‖."""
    return float(module_of(x).linalg.norm(x))


HALVINGS = 40

DESCENT = 1e-4
"""The fraction of the predicted reduction that a step must achieve."""


def backtrack(x: Array, delta: Array, enough: Callable[[float, Array], bool]) -> Array | None:
    """x + t δ for the first t = 1, ½, ¼, … of which `enough(t, x + t δ)` is true, or None.

    >>> backtrack(1.0, -3.0, lambda t, moved: moved**2 < 1)
    -0.5
    """
    moves = ((t, x + t * delta) for t in (0.5**k for k in range(HALVINGS)))
    return next((moved for t, moved in moves if enough(t, moved)), None)
