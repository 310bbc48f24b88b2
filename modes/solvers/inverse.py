"""Inverse: an operator whose product solves a linear system, in closed form or by iteration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from functools import partial, singledispatch
from itertools import count
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
from ..resume import ResumeFile, Work, begin_work
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
    resume: ResumeFile | None = None,
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
    - `resume`: a `ResumeFile`, from which a product that was interrupted goes on, by `"cg"` or
      `"minres"`. It is of one product: another right-hand side needs a file of its own.

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
    if resume is not None and solver not in OWN:
        raise InputError(f"{solver} keeps no state from which it would go on: "
                         f"{' and '.join(OWN)} do")  # fmt: skip
    M = preconditioner_for(operator, preconditioner)
    return Inverse(operator, solver, M, rtol, maxiter, why, resume)


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
        why: str = "", resume: ResumeFile | None = None,
    ) -> None:  # fmt: skip
        super().__init__(operator.in_shape, operator.out_shape, operator.dtype)
        self.operator, self.solver, self.preconditioner = operator, solver, preconditioner
        self.rtol, self.maxiter, self.why, self.resume = rtol, maxiter, why, resume

    def _apply(self, op: Op, v: Array) -> Array:
        if is_kept(v):
            M = self.preconditioner
            if self.solver not in OWN or not (M is None or isinstance(M, Jacobian)):
                return library_of(v).by_numbers(self.solver, partial(self._apply, numbers), v)
            rows = list(self.rows(OWN, v.reshape(-1, self.shape[1])))
            return op.CastLike(module_of(v).stack(rows).reshape(v.shape), v)
        if op is not numbers:
            raise InputError("an inverse is an iteration, which no graph records: apply it to "
                             "numbers, or use toarray()")  # fmt: skip
        columns = v.reshape(-1, self.shape[1])
        found = np.empty((len(columns), self.shape[0]), v.dtype)
        for k, x in enumerate(self.rows(SOLVERS if self.resume is None else OWN, columns)):
            found[k] = x
        return found.reshape(*lead(v, self.in_shape), *self.out_shape)

    def rows(self, solvers: Mapping[str, Solve], columns: Array) -> Iterator[Array]:
        """A⁻¹ b for every b; all of them are one work."""
        work, A = begin_work(self.resume, "solve", self.operator, {"solver": self.solver})
        M = self.preconditioner
        if M is not None:
            work.same("preconditioner", lambda: M @ np.ones(A.shape[0]))
        work.same("right-hand side", lambda: cast_to(columns, np.float64))
        inv = self if A is self.operator else Inverse(A, self.solver, M, self.rtol, self.maxiter)
        with work.going_on():
            for b in columns:
                loop = work.loop("solution", False, cast_to(0 * b, np.float64))
                done, x = loop.state
                if not done:
                    x = inv.solved(solvers[self.solver], b, work)
                    loop.step(True, x)
                yield x

    def solved(self, solve: Solve, b: Array, work: Work) -> Array:
        """A⁻¹ b, by a b with entries up to 1: no ‖b‖² under- or overflows."""
        largest = float(abs(b).max())
        return largest * solve(self, b / largest, work) if largest else 0 * b

    def _transpose(self) -> Jacobian:
        """A⁻ᵀ, with the preconditioner transposed; a right factor does not fit and is dropped."""
        if self.operator.T is self.operator:
            return self
        M = self.preconditioner
        M = None if M is None or self.solver == "lsmr" else M.T
        A = self.operator.T
        return Inverse(A, self.solver, M, self.rtol, self.maxiter, self.why, self.resume)

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


def krylov(solve: Iterations, inv: Inverse, b: Array, work: Work) -> Array:
    """A solver for square systems, restarted while the true residual is too large."""
    A, M, most = inv.operator, inv.preconditioner, min(inv.maxiter, sys.maxsize)
    A = A if is_kept(b) else double(A)
    b = cast_to(b, np.float64)
    goal = inv.rtol * length(b)
    loop = work.loop("restarts", 0, 0, 0 * b, b)
    starts, taken, x, residual = loop.state
    norm = length(residual)
    while starts < RESTARTS and norm > goal and np.isfinite(norm) and taken < most:
        with np.errstate(all="ignore"):  # zero division if A is not as required
            step, more = solve(A, residual, rtol=inv.rtol / 2, maxiter=most - taken, M=M, work=work)
        x = x + step
        residual = b - A @ x
        norm = length(residual)
        starts, taken = starts + 1, taken + more
        loop.step(starts, taken, x, residual, products=1)
    inv.check(norm <= goal, norm / (length(b) or 1))
    return x


def by_scipy(
    solve: Callable[..., Any], A: Any, b: np.ndarray, *, work: Work, **options: Any
) -> tuple[np.ndarray, int]:
    """A solver of SciPy, and the iterations that it took."""
    taken = count()
    x, _ = solve(A, b, callback=lambda _: next(taken), **options)
    return x, next(taken)


def conjugate_gradients(
    A: Any, b: Array, *, rtol: float, maxiter: int, M: Any, work: Work
) -> tuple[Array, int]:
    """A x = b for a positive definite A, to ‖b − A x‖ ≤ rtol ‖b‖, with one number read a step.

    Source: Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems", 1952.
    """
    loop = work.loop("cg", 0, 0 * b, b, 0 * b, 0 * (b @ b))
    k, x, r, p, before = loop.state
    while k < maxiter and (r @ r) ** 0.5 > rtol * (b @ b) ** 0.5:
        z = r if M is None else M @ r
        slope = r @ z
        p = z + slope / before * p if k else z
        image = A @ p
        reach, before = slope / (p @ image), slope
        x, r, k = x + reach * p, r - reach * image, k + 1
        loop.step(k, x, r, p, before, products=1)
    return x, k


def minimal_residuals(
    A: Any, b: Array, *, rtol: float, maxiter: int, M: Any, work: Work
) -> tuple[Array, int]:
    """A x = b for a symmetric A, to ‖b − A x‖ ≤ rtol ‖b‖ in the norm √(rᵀM r).

    A V = V T by Lanczos steps, and T = Q R by rotations (c, s). Source: Paige and Saunders,
    "Solution of sparse indefinite systems of linear equations", 1975.
    """
    z = b if M is None else M @ b
    whole, zero = (b @ z) ** 0.5, 0 * b
    numbers = whole, whole, 1.0, -1.0, 0.0, 0.0, 0.0  # βₖ₋₁, c, s, and R's last column without Q
    loop = work.loop("minres", 0, zero, b, z, zero, zero, zero, *numbers)
    k, x, r, z, older, w, w_older, beta, left, before, c, s, above, top = loop.state
    while k < maxiter and left > rtol * whole and beta > TINY * whole:
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
        x, left, k = x + c * left * w, s * left, k + 1
        vectors, numbers = (x, r, z, older, w, w_older), (beta, left, before, c, s, above, top)
        loop.step(k, *vectors, *numbers, products=1)
    return x, k


def restarted(A: Any, b: np.ndarray, *, maxiter: int, **options: Any) -> tuple[np.ndarray, int]:
    """GMRES, which holds up to 100 vectors and counts restarts."""
    restart = min(100, maxiter)
    return gmres(A, b, restart=restart, maxiter=-(-maxiter // restart), callback_type="pr_norm",
                 **options)  # fmt: skip


def by_lsmr(inv: Inverse, b: np.ndarray, work: Work) -> np.ndarray:
    """min ‖A R y - b‖, x = R y."""
    R = inv.preconditioner
    A = inv.operator if R is None else double(inv.operator) @ double(R)
    y, stopped, _, residual, slope, *_ = lsmr(
        A, b, atol=inv.rtol, btol=inv.rtol, conlim=0, maxiter=inv.maxiter
    )
    solved = stopped in (1, 2, 4, 5) or slope == 0  # ‖Aᵀ(A y - b)‖, which is 0 for y = 0 as well
    inv.check(solved, float(residual) / float(np.linalg.norm(b)))
    return np.asarray(y if R is None else R @ y)


def neumann(inv: Inverse, b: np.ndarray, work: Work) -> np.ndarray:
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

Solve = Callable[[Inverse, Array, Work], Array]
"""(A⁻¹, b) ↦ A⁻¹ b, with its loops in a work."""

Iterations = Callable[..., tuple[Array, int]]
"""(A, b) ↦ an approximation of A⁻¹ b, and the number of iterations."""

SOLVERS: dict[str, Solve] = {
    "cg": partial(krylov, partial(by_scipy, cg)),
    "minres": partial(krylov, partial(by_scipy, minres)), "lsmr": by_lsmr,
    "gmres": partial(krylov, partial(by_scipy, restarted)),
    "bicgstab": partial(krylov, partial(by_scipy, bicgstab)), "neumann": neumann,
}  # fmt: skip
OWN: dict[str, Solve] = {
    "cg": partial(krylov, conjugate_gradients), "minres": partial(krylov, minimal_residuals),
}  # fmt: skip
"""Solvers of tensors, where these are, and those that go on from a file; SciPy's take copies."""

HINTS = {
    "cg": "use solver='minres' where A is indefinite, 'gmres' where it is not symmetric, ",
    "minres": "use solver='gmres' where A is not symmetric, ", "lsmr": "",
    "gmres": "use solver='lsmr' where A is nearly singular, ", "bicgstab": "use solver='gmres', ",
    "neumann": "which must give ρ(I - M A) < 1, use solver='cg', ",
}  # fmt: skip
