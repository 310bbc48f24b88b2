"""Inverse: an operator whose product solves a linear system, in closed form or by iteration."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum
from functools import partial, singledispatch
from typing import Any, final

import numpy as np
from scipy.sparse.linalg import LinearOperator, bicgstab, cg, gmres, lsmr, minres

from ...jacobians import (
    Array,
    Diagonal,
    Identity,
    Jacobian,
    Op,
    Product,
    Scalar,
    Sum,
    hooks,
    inverse_of,
    lead,
)
from ...jacobians.arguments import Count, NonNegative, validated
from ...jacobians.arrays import cast_to
from ...jacobians.closed import inverted
from ...jacobians.errors import InputError, NotConverged, closest
from ...jacobians.readings import is_kept, library_of, module_of
from ...ops import numbers
from ..interop.operators import asoperator
from ..sparse.sweep import alike, strip_wrappers
from .iteration import TINY, length, preconditioner_for


def identity_like(G: Jacobian) -> Identity:
    """I of the shape and dtype of a square operator, for `G + damping * identity_like(G)`.

    Shape: (n, n) for an operator of this shape. Raises `InputError` where the operator is not
    square.

    >>> identity_like(Identity((2, 3), np.float32))
    I(2×3)
    """
    G = asoperator(G)
    if G.shape[0] != G.shape[1]:
        raise InputError(f"the identity is square, but this operator has shape {G.shape}")
    return Identity(G.in_shape, G.dtype)


@hooks.inverse.register(Jacobian)
@validated
def inverse(
    operator: Jacobian,
    *,
    solver: str | None = None,
    preconditioner: Any = None,
    rtol: NonNegative | None = None,
    maxiter: Count | None = None,
) -> Jacobian:
    """A⁻¹ as an operator: x = A⁻¹ b, in closed form or with ‖A x - b‖ ≤ rtol ‖b‖ for each column.

    Where structure determines A⁻¹, it is an operator of such a structure again: Kronecker products
    and many of their sums, diagonals plus low rank, block diagonals, dense matrices, circulants,
    permutations, and products of these. Otherwise, or where a solver or a preconditioner is named,
    it is a Krylov solver, by default the first of this table that fits:

    | solver | A | chosen where | preconditioner M |
    |---|---|---|---|
    | `"lsmr"` | any, m×n | m ≠ n | right factor R: x = R y with min ‖A R y - b‖ |
    | `"cg"` | symmetric positive definite | A is BᵀB, diagonal ≥ 0, or their sum | ≈ A⁻¹, as A |
    | `"minres"` | symmetric | A.T is A (Hessians), or BᵀCB | ≈ (A²)^(-½), positive definite |
    | `"gmres"` | square | n ≤ 80,000 | ≈ A⁻¹ |
    | `"bicgstab"` | square | otherwise, as it holds few vectors | ≈ A⁻¹ |
    | `"neumann"` | ρ(I - M A) < 1 | never | ≈ A⁻¹, by default I |

    Structure alone decides, and no entry of A is looked at; name the solver where you know more.
    With `"lsmr"` the inverse is the pseudo-inverse, n×m: the least-squares solution, of least norm
    if R is not given, to ‖Aᵀ(A x - b)‖ ≤ rtol ‖A‖ ‖A x - b‖. `maxiter` is 10 n by default.

    - `operator`: A, an operator or a matrix.
    - `solver`: the name of a solver; by default structure decides.
    - `preconditioner`: the M of the table, or a function that builds it from A.
    - `rtol`: the relative residual at which a solve ends; by default 1e-10, and 1e-4 for products
      in less than double precision, except for `"lsmr"`, which ends where rounding stops it.
    - `maxiter`: the most iterations of a solve.

    Shapes: A is (m, n) and A⁻¹ (n, m), with m = n except for `"lsmr"`; M is (n, n). Raises
    `InputError` for a structure of which a part is singular, for an unknown solver, a complex
    operator that a solver is to take, or a shape that does not fit. A product raises `NotConverged`
    where the iteration does not reach `rtol`.

    >>> from onnxjac.jacobians import Dense, Eye, implicit_kron
    >>> A = implicit_kron(np.array([[2.0, 1.0], [1.0, 3.0]]), Eye(3))
    >>> inverse(A), inverse(A, solver="cg")
    ((A[2×2] ⊗ I(3)), ((A[2×2] ⊗ I(3)))⁻¹, by cg)
    >>> inverse(A) @ np.array([5.0, 5, 5, 5, 5, 5])
    array([2., 2., 2., 1., 1., 1.])
    """
    operator = asoperator(operator)
    if solver is None and preconditioner is None and operator.shape[0] == operator.shape[1]:
        found = inverse_of(alike(operator))
        if found is not None:
            return found
    solver, why = (solver, "") if solver else choose_solver(operator)
    if solver not in SOLVERS:
        raise InputError(f"there is no solver {solver!r}.{closest(solver, SOLVERS)}")
    m, n = operator.shape
    if operator.dtype.kind == "c":
        raise InputError(f"the solvers are for real operators, not for {operator.dtype}")
    if solver != "lsmr" and m != n:
        raise InputError(f"{solver} needs a square operator, not {m}×{n}: use solver='lsmr'")
    if rtol is None:
        rtol = 1e-10 if operator.dtype.itemsize >= 8 or solver == "lsmr" else 1e-4
    maxiter = 10 * n if maxiter is None else maxiter
    M = preconditioner_for(operator, preconditioner)
    return Inverse(operator, solver, M, rtol, maxiter, why)


def choose_solver(A: Jacobian) -> tuple[str, str]:
    """The solver for A, and why."""
    if A.shape[0] != A.shape[1]:
        return "lsmr", ", chosen because A is not square,"
    match definiteness(A):
        case Known.DEFINITE:
            return "cg", ", chosen because A is symmetric and xᵀA x ≥ 0,"
        case Known.SYMMETRIC:
            return "minres", ", chosen because A is symmetric,"
    solver = "gmres" if A.shape[0] <= GMRES_UNKNOWNS else "bicgstab"
    return solver, ", chosen because A is not known to be symmetric,"


class Known(IntEnum):
    """What is known of A, from less to more."""

    NOTHING, SYMMETRIC, DEFINITE = range(3)


@singledispatch
def definiteness(A: Jacobian) -> Known:
    """DEFINITE for A = Aᵀ with xᵀA x ≥ 0, SYMMETRIC for A = Aᵀ, by structure; else NOTHING.

    >>> import numpy as np
    >>> from onnxjac import asoperator
    >>> B = asoperator(np.cumsum, (3, 3), adjoint=lambda y: np.cumsum(y[::-1])[::-1])
    >>> definiteness(B.T @ B + 0.1 * Identity((3,), float)).name
    'DEFINITE'
    >>> definiteness(-(B.T @ B)).name, definiteness(B).name
    ('SYMMETRIC', 'NOTHING')
    """
    own, behind = Known(A.T is A), strip_wrappers(A)
    return own if behind is A else max(own, definiteness(behind))


@definiteness.register(Identity)
@definiteness.register(Scalar)
@definiteness.register(Diagonal)
def _(A: Identity | Scalar | Diagonal) -> Known:
    return Known.DEFINITE if (A.diagonal() >= 0).all() else Known.SYMMETRIC


@definiteness.register
def _(A: Sum) -> Known:
    """A sum is what all of its terms are."""
    return min(map(definiteness, A.terms))


@definiteness.register
def _(A: Product) -> Known:
    """c BᵀC B is what C is, up to the sign of c; without C, BᵀB is definite."""
    factors = [f for f in A.factors if not isinstance(f, Scalar)]
    known = Known.DEFINITE
    while len(factors) > 1 and (factors[0].T is factors[-1] or factors[-1].T is factors[0]):
        factors = factors[1:-1]
    if factors:
        known = definiteness(factors[0]) if len(factors) == 1 else Known(A.T is A)
    signs = [definiteness(f) for f in A.factors if isinstance(f, Scalar)]
    return known if Known.SYMMETRIC not in signs else min(known, Known.SYMMETRIC)


@final
class Inverse(Jacobian):
    """x = A⁻¹ b by an iterative solver; see `inverse`."""

    def __init__(
        self, operator: Jacobian, solver: str, preconditioner: Any, rtol: float, maxiter: int,
        why: str = "",
    ) -> None:  # fmt: skip
        super().__init__(operator.in_shape, operator.out_shape, operator.dtype)
        self.operator, self.solver, self.preconditioner = operator, solver, preconditioner
        self.rtol, self.maxiter, self.why = rtol, maxiter, why

    def _apply(self, op: Op, v: Array) -> Array:
        if is_kept(v):
            M = self.preconditioner
            if self.solver not in OWN or not (M is None or isinstance(M, Jacobian)):
                return library_of(v).by_numbers(self.solver, partial(self._apply, numbers), v)
            solve = partial(krylov, OWN[self.solver])
            rows = [self.solved(solve, b) for b in v.reshape(-1, self.shape[1])]
            return op.CastLike(module_of(v).stack(rows).reshape(v.shape), v)
        if op is not numbers:
            raise InputError("an inverse is an iteration, which no graph records: apply it to "
                             "numbers, or use toarray()")  # fmt: skip
        columns = v.reshape(-1, self.shape[1])
        found = np.empty((len(columns), self.shape[0]), v.dtype)
        for b, x in zip(columns, found, strict=True):
            x[:] = self.solved(SOLVERS[self.solver], b) if b.any() else 0
        return found.reshape(*lead(v, self.in_shape), *self.out_shape)

    def solved(self, solve: Callable[[Inverse, Array], Array], b: Array) -> Array:
        """A⁻¹ b, by a b with entries up to 1: no ‖b‖² under- or overflows."""
        largest = float(abs(b).max()) or 1.0
        return largest * solve(self, b / largest)

    def _transpose(self) -> Jacobian:
        """A⁻ᵀ, with the preconditioner transposed; a right factor does not fit and is dropped."""
        if self.operator.T is self.operator:
            return self
        M = self.preconditioner
        M = None if M is None or self.solver == "lsmr" else M.T
        return Inverse(self.operator.T, self.solver, M, self.rtol, self.maxiter, self.why)

    @property
    def flops(self) -> int:
        return self.operator.flops

    def __repr__(self) -> str:
        return f"({self.operator!r})⁻¹, by {self.solver}"

    def check(self, converged: bool, residual: float) -> None:
        """Raises `NotConverged` if the iteration did not end at a solution."""
        if not converged:
            dtype = self.operator.dtype
            finer = "" if dtype.itemsize >= 8 else f"compute in float64 instead of {dtype}, "
            raise NotConverged(
                f"{self.solver}{self.why} did not solve with an operator of shape "
                f"{self.operator.shape} to rtol={self.rtol:g} in {self.maxiter} iterations: the "
                f"relative residual is {residual:.2g}. Give a preconditioner=, add damping * "
                f"identity_like(A), {HINTS[self.solver]}{finer}or raise maxiter= or rtol="
            )


def krylov(solve: Callable[..., tuple[Array, int]], inv: Inverse, b: Array) -> Array:
    """A solver for square systems, restarted while the true residual is too large."""
    A, M, left = inv.operator, inv.preconditioner, min(inv.maxiter, sys.maxsize)
    A = A if is_kept(b) else double(A)
    b = cast_to(b, np.float64)
    x, residual, norm = 0 * b, b, length(b)
    goal = inv.rtol * norm

    def count(_: Array) -> None:
        nonlocal left
        left -= 1

    for _ in range(RESTARTS):
        if norm <= goal or not (np.isfinite(norm) and left > 0):
            break
        with np.errstate(all="ignore"):  # zero division if A is not as required
            step, _ = solve(A, residual, rtol=inv.rtol / 2, maxiter=left, M=M, callback=count)
        x = x + step
        residual = b - A @ x
        norm = length(residual)
    inv.check(norm <= goal, norm / (length(b) or 1))
    return x


def conjugate_gradients(
    A: Any, b: Array, *, rtol: float, maxiter: int, M: Any, callback: Callable[[Array], None]
) -> tuple[Array, int]:
    """A x = b for a positive definite A, to ‖b − A x‖ ≤ rtol ‖b‖, with one number read a step.

    Source: Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems", 1952.
    """
    x, r, p, before = 0 * b, b, 0 * b, None
    while maxiter > 0 and (r @ r) ** 0.5 > rtol * (b @ b) ** 0.5:
        z = r if M is None else M @ r
        slope = r @ z
        p = z if before is None else z + slope / before * p
        image = A @ p
        reach, before = slope / (p @ image), slope
        x, r, maxiter = x + reach * p, r - reach * image, maxiter - 1
        callback(x)
    return x, maxiter


def minimal_residuals(
    A: Any, b: Array, *, rtol: float, maxiter: int, M: Any, callback: Callable[[Array], None]
) -> tuple[Array, int]:
    """A x = b for a symmetric A, to ‖b − A x‖ ≤ rtol ‖b‖ in the norm √(rᵀM r).

    A V = V T by Lanczos steps, and T = Q R by rotations (c, s). Source: Paige and Saunders,
    "Solution of sparse indefinite systems of linear equations", 1975.
    """
    x, r, z = 0 * b, b, b if M is None else M @ b
    older, w, w_older = 0 * b, 0 * b, 0 * b
    beta = left = whole = (r @ z) ** 0.5
    before, c, s, above, top = 1.0, -1.0, 0.0, 0.0, 0.0  # βₖ₋₁, and R's last column without Q
    while maxiter > 0 and left > rtol * whole and beta > TINY * whole:
        v = z / beta
        image = A @ v - beta / before * older
        alpha = v @ image
        older, r = r, image - alpha / beta * r
        z = r if M is None else M @ r
        before, beta = beta, abs(r @ z) ** 0.5
        second, delta, corner = above, c * top + s * alpha, s * top - c * alpha
        above, top = s * beta, -c * beta
        gamma = (corner**2 + beta**2) ** 0.5 + TINY * whole
        c, s = corner / gamma, beta / gamma
        w_older, w = w, (v - second * w_older - delta * w) / gamma
        x, left, maxiter = x + c * left * w, s * left, maxiter - 1
        callback(x)
    return x, maxiter


def restarted(A: Any, b: np.ndarray, *, maxiter: int, **options: Any) -> tuple[np.ndarray, int]:
    """GMRES, which holds up to 100 vectors and counts restarts."""
    restart = min(100, maxiter)
    return gmres(A, b, restart=restart, maxiter=-(-maxiter // restart), callback_type="pr_norm",
                 **options)  # fmt: skip


def by_lsmr(inv: Inverse, b: np.ndarray) -> np.ndarray:
    """min ‖A R y - b‖, x = R y."""
    R = inv.preconditioner
    A = inv.operator if R is None else double(inv.operator) @ double(R)
    y, stopped, _, residual, slope, *_ = lsmr(
        A, b, atol=inv.rtol, btol=inv.rtol, conlim=0, maxiter=inv.maxiter
    )
    solved = stopped in (1, 2, 4, 5) or slope == 0  # ‖Aᵀ(A y - b)‖, which is 0 for y = 0 as well
    inv.check(solved, float(residual) / float(np.linalg.norm(b)))
    return np.asarray(y if R is None else R @ y)


def neumann(inv: Inverse, b: np.ndarray) -> np.ndarray:
    """x ← x + M (b - A x), the partial sums of Σₖ (I - M A)ᵏ M b."""
    M, size = inv.preconditioner, float(np.linalg.norm(b))
    x, residual, norm = np.zeros_like(b), b, size
    for _ in range(min(inv.maxiter, sys.maxsize)):
        x = x + (residual if M is None else M @ residual)
        residual = b - inv.operator @ x
        norm = float(np.linalg.norm(residual))
        if norm <= inv.rtol * size or not norm <= 1e8 * size:
            break
    inv.check(norm <= inv.rtol * size, norm / size)
    return x


def double(operator: Any) -> Any:
    """The same products, as an operator in double precision."""
    return LinearOperator(operator.shape, operator.matvec, operator.rmatvec, dtype=np.float64)


@inverted.register
def _(operator: Inverse) -> Jacobian | None:
    return None if operator.solver == "lsmr" else operator.operator


GMRES_UNKNOWNS = 80_000
"""Up to this many unknowns the vectors of GMRES take no more than 64 MB."""

RESTARTS = 5
"""How often a solver is started at most to make the true residual small enough."""

SOLVERS: dict[str, Callable[[Inverse, np.ndarray], np.ndarray]] = {
    "cg": partial(krylov, cg), "minres": partial(krylov, minres), "lsmr": by_lsmr,
    "gmres": partial(krylov, restarted), "bicgstab": partial(krylov, bicgstab), "neumann": neumann,
}  # fmt: skip
OWN: dict[str, Callable[..., tuple[Array, int]]] = {
    "cg": conjugate_gradients, "minres": minimal_residuals,
}  # fmt: skip
"""Solvers of tensors, where these are; SciPy's take copies."""

HINTS = {
    "cg": "use solver='minres' where A is indefinite, 'gmres' where it is not symmetric, ",
    "minres": "use solver='gmres' where A is not symmetric, ", "lsmr": "",
    "gmres": "use solver='lsmr' where A is nearly singular, ", "bicgstab": "use solver='gmres', ",
    "neumann": "which must give ρ(I - M A) < 1, use solver='cg', ",
}  # fmt: skip
