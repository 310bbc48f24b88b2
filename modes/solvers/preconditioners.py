"""Preconditioners: cheap approximations of an inverse, from the structure of an operator."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Annotated, Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, spilu

from ...jacobians import (
    BlockDiagonal,
    Dag,
    Dense,
    Diagonal,
    Identity,
    Jacobian,
    LowRank,
    Product,
    Reshape,
    Scalar,
    Sum,
    inverse_of,
    shape_of,
    size,
)
from ...jacobians.arguments import Above0, Natural, NonNegative, Positive, Range, validated
from ...jacobians.arrays import host
from ...jacobians.base import DENSE_LIMIT
from ...jacobians.errors import InputError, LimitError
from ...jacobians.lapack import hermitian, inverses
from ..estimators.estimate import check_symmetric, probing, square
from ..estimators.exact import column_squares, exact_diagonal
from ..estimators.lanczos import nystrom
from ..interop.operators import asoperator
from ..linear.elimination.samples import Batch, layouts, within
from ..linear.symmetric import block_diagonal
from ..sparse import sparse
from ..sparse.sweep import alike, strip_wrappers
from .iteration import solves

__all__ = [
    "block_jacobi", "column_scaling", "ilu", "jacobi", "kronecker", "low_rank_plus_damping",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__  # what completion offers


@validated
def jacobi(A: Any, *, damping: NonNegative = 0.0) -> Diagonal:
    """M = diag(A + λI)⁻¹ for a symmetric A with a positive diagonal, λ the damping.

    The diagonal is exact: by structure, where A = JᵀDJ with a diagonal D squares J factor by
    factor; by sparse entries; or by n products. For `M=` of `cg` and `minres`.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `damping`: λ, 0 by default.

    Shapes: A and M are (n, n). Raises `InputError` where A is not square or not real, and where an
    entry of the damped diagonal is not positive.

    >>> from onnxjac.jacobians import Dense
    >>> J = Dense(np.array([[1.0, 2.0], [1.0, 0.0]]))
    >>> jacobi(J.T @ J).d
    array([0.5 , 0.25])
    """
    with probing(A, "Jacobi") as P:
        square(P)
        entries, _ = exact_diagonal(P)
    return Diagonal((1 / check_positive(entries + damping)).reshape(in_shape(A)))


@validated
def column_scaling(J: Any, *, damping: NonNegative = 0.0) -> Diagonal:
    """R = diag(JᵀJ + λI)^(-1/2), with which J R has columns of norm one, up to the damping λ.

    For least squares: solve min ‖J R y - b‖, then x = R y. `R @ R` is the `M=` of `cg` on the
    normal equations. The column norms are exact, as for `jacobi`, or by min(m, n) products.

    - `J`: an operator of onnxjac or SciPy, or a matrix.
    - `damping`: λ, 0 by default.

    Shapes: J is (m, n), R is (n, n). Raises `InputError` where J is complex, and where a column is
    zero without damping.
    """
    with probing(J, "column norms") as P:
        squares, _ = column_squares(P)
    return Diagonal((check_positive(squares + damping) ** -0.5).reshape(in_shape(J)))


def in_shape(A: Any) -> tuple[int, ...]:
    """The shape of the input of an operator."""
    return A.in_shape if isinstance(A, Jacobian) else (A.shape[1],)


def check_positive(entries: np.ndarray) -> np.ndarray:
    """The entries; raises `InputError` where one is not positive."""
    if not (entries > 0).all():
        entries = host(entries)
        k = int(np.argmin(np.where(np.isnan(entries), -np.inf, entries)))
        raise InputError(f"entry {k} of the diagonal is {entries[k]:g}, not > 0: give damping=")
    return entries


@validated
def block_jacobi(A: Any, blocks: Positive | None = None, *, damping: NonNegative = 0.0) -> Jacobian:
    """M = blockdiag(A₁₁ + λI, A₂₂ + λI, …)⁻¹ for a symmetric positive definite A, or any square A.

    One block per tensor of `A.domain`, or a number of equal `blocks`, such as one per sample of a
    batch. A block of n columns takes n products; if A is known to act within samples, n products
    give all blocks at once. M holds Σ n² numbers. For `M=` of `cg` and `minres`, or, if a block is
    not symmetric, of `gmres` and `bicgstab`.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `damping`: λ, 0 by default.

    Shapes: A and M are (n, n). Raises `InputError` where A is not square or not real, where a
    symmetric block is not positive definite or another one is singular, and where `blocks` does not
    divide n or is not given for an A without `domain`; `LimitError` where the blocks take more than
    2 GiB.
    """
    with probing(A, "block Jacobi") as P:
        n = square(P)
        sizes = _sizes(A, n, blocks)
        need = 8 * sum(size**2 for size in sizes)
        if need > DENSE_LIMIT:
            raise LimitError(f"the blocks take {need} bytes, more than {DENSE_LIMIT}: take smaller "
                             f"blocks=, or jacobi")  # fmt: skip
        if blocks is not None and within_samples(A, Batch(blocks, sizes[0])):
            images = P @ np.tile(np.eye(sizes[0]), (blocks, 1))  # column j of all blocks at once
            found = list(images.reshape(blocks, sizes[0], sizes[0]))
        else:
            bounds = pairwise(accumulate(sizes, initial=0))
            found = [(P @ P.units(start, stop, n))[start:stop] for start, stop in bounds]
    inverted, shape = [_inverted(host(block), damping, P.eps) for block in found], in_shape(A)
    if len(set(sizes)) == 1:
        M: Jacobian = BlockDiagonal(np.stack(inverted))
    else:
        M = block_diagonal(list(map(Dense, inverted)))
    return Reshape(shape, M.out_shape, M.dtype) @ M @ Reshape(M.in_shape, shape, M.dtype)


def _sizes(A: Any, n: int, blocks: int | None) -> list[int]:
    """The lengths of the blocks."""
    if blocks is None:
        if not hasattr(A, "domain"):
            raise InputError("this operator does not name its tensors: say how many blocks=")
        return [size(shape_of(spec)) for spec in A.domain]
    if n % blocks:
        raise InputError(f"{n} columns are not {blocks} equal blocks")
    return [n // blocks] * blocks


def _inverted(block: np.ndarray, damping: float, eps: float) -> np.ndarray:
    """(A + λI)⁻¹, with the entries of A accurate to eps; a symmetric A + λI must be positive."""
    damped = block + damping * np.eye(len(block), dtype=block.dtype)
    if hermitian(block, eps) is None:
        return inverses(damped, Dense(damped))
    values, Q = np.linalg.eigh((damped + damped.T) / 2)
    if values.min(initial=np.inf) <= np.finfo(values.dtype).eps * values.max(initial=0):
        raise InputError(f"the smallest eigenvalue is {values.min():g}: give damping=")
    return np.asarray((Q / values) @ Q.T)


def within_samples(operator: Any, batch: Batch) -> bool:
    """Whether y = A x keeps the samples separate and in place."""
    return isinstance(operator, Jacobian) and after(operator, batch) == batch


def after(operator: Jacobian, batch: Batch) -> Batch | None:
    """The samples of y from the samples of x, also through wrappers; None if they may mix."""
    match strip_wrappers(operator):
        case Product(factors=factors):
            found: Batch | None = batch
            for factor in reversed(factors):
                found = found and after(factor, found)
            return found
        case Sum(terms=terms):
            first, *others = (after(term, batch) for term in terms)
            return first if all(other == first for other in others) else None
        case Dag(sources=(source,), sinks=(sink,)) as dag:  # the samples of the sink are searched
            m, n = dag.shape[0], batch.count
            candidates = (Batch(n, k) for k in range(1, m // n + 1) if m % (n * k) == 0)
            return next((c for c in candidates if layouts(dag, sink, c).get(source) == batch), None)
        case plain:
            return within(plain, batch)


SUPERLU_ENTRIES = 2**31
"""SuperLU counts the entries of LU in 32 bits: the process may end where the number overflows."""

AtLeast1 = Annotated[float, Range(1)]  # below, SuperLU may never come to an end


@validated
def ilu(
    A: Jacobian, *, drop_tol: NonNegative = 1e-4, fill_factor: AtLeast1 = 10,
    drop_rule: str | None = None, permc_spec: Any = None, diag_pivot_thresh: float | None = None,
) -> LinearOperator:  # fmt: skip
    """M = (LU)⁻¹ with LU ≈ A, for a square A that has few entries in every row.

    The entries of A are found from its structure, with as few products as a colouring needs.
    `scipy.sparse.linalg.spilu` computes LU. M is for `M=` of `gmres` and `bicgstab`.

    - `A`: an operator or a matrix.
    - `drop_tol`: entries of LU that are smaller, relative to their column, are dropped.
    - `fill_factor`: the most entries of LU, relative to A; fewer than 2³¹ in all.
    - `drop_rule`, `permc_spec`, `diag_pivot_thresh`: rules for dropping, order and pivots; see
      `spilu`.

    Shapes: A and M are (n, n). Raises `LimitError` where the entries of A take more than 2 GiB, and
    `InputError` for a `fill_factor` below 1 or too large. Errors of `spilu` are passed on:
    `RuntimeError` for a pivot that is zero, `ValueError` where A is not square. Source: Li and
    Shao, "A supernodal approach to incomplete LU factorization with partial pivoting", 2011.

    >>> import numpy as np
    >>> from onnxjac.jacobians import Diagonal
    >>> ilu(Diagonal(np.array([2.0, 4.0]))) @ np.ones(2)
    array([0.5 , 0.25])
    """
    entries = sparse(asoperator(A), "csc")
    if not fill_factor * entries.nnz < SUPERLU_ENTRIES:  # an endless factor of no entries is NaN
        raise InputError(
            f"fill_factor={fill_factor:g} allows {fill_factor:g} · {entries.nnz:,} entries of LU, "
            "and SuperLU, which sets memory aside for all of them, counts below 2³¹: give a "
            "smaller one, 10 is the default"
        )
    factors = spilu(entries, drop_tol, fill_factor, drop_rule, permc_spec, diag_pivot_thresh)
    return solves(factors, A.dtype)


@validated
def low_rank_plus_damping(
    A: Any, rank: Positive, *, damping: Above0, seed: Natural = 0
) -> Jacobian:
    """M = (λᵣ + μ) U (Λ + μI)⁻¹ Uᵀ + (I - U Uᵀ) for solving with A + μI, μ the damping.

    A is symmetric positive semidefinite and U Λ Uᵀ its Nyström approximation of the given rank r,
    by r products. The condition number of M (A + μI) is a constant on average once r is twice
    the effective dimension tr A(A + μI)⁻¹.

    - `A`: an operator of onnxjac or SciPy, or a matrix.
    - `rank`: r, the number of products.
    - `damping`: μ, which must be positive.
    - `seed`: the seed of the random numbers: NumPy's, or over tensors PyTorch's on their device.

    Shapes: A and M are (n, n), U is (n, r). Raises `InputError` where the damping is not positive,
    and where A is not square, real, symmetric and positive semidefinite.

    Source: Frangella, Tropp and Udell, "Randomized Nyström preconditioning", SIAM J. Matrix Anal.
    Appl. 44, 2023.
    """
    with probing(A, "Nyström", seed=seed) as P:
        U, values = nystrom(P, min(rank, check_symmetric(P)))
    weights = (values[-1] + damping) / (values + damping) - 1
    shape = in_shape(A)
    return Identity(shape, np.float64) + LowRank(U * weights, U, shape, shape)


@validated
def kronecker(K: Any, *, damping: NonNegative = 0.0) -> Any:
    """M = (K + λI)⁻¹ for a K that can be inverted by its structure, λ the damping.

    For K = A ⊗ B, with A = QₐΛₐQₐᵀ and B likewise, M = (Qₐ ⊗ Q_b)(Λₐ ⊗ Λ_b + λI)⁻¹(Qₐ ⊗ Q_b)ᵀ,
    exact for every λ; without damping, M = A⁻¹ ⊗ B⁻¹. An object with a method `inverse` of its own,
    such as the result of `kfac`, is inverted by this method, with the damping if there is any.
    For other structures see `onnxjac.inverse`. M is positive definite where K + λI is.

    - `K`: an operator whose inverse its structure gives, or the result of `kfac`.
    - `damping`: λ, 0 by default.

    Shapes: K and M are (n, n). Raises `InputError` for any other K, and where a matrix is singular.

    >>> from onnxjac.jacobians import Kron
    >>> kronecker(Kron(np.diag([1.0, 2.0]), np.diag([1.0, 4.0]), ())).diagonal()
    array([1.   , 0.25 , 0.5  , 0.125])
    """
    if getattr(type(K), "inverse", Jacobian.inverse) is not Jacobian.inverse:
        return K.inverse(damping=damping) if damping else K.inverse()
    found = None
    if isinstance(K, Jacobian):
        damped = K + Scalar(damping, K.in_shape, K.dtype) if damping else K
        found = inverse_of(alike(damped))
    if found is None:
        raise InputError(f"{K!r} has no structure that gives its inverse: jacobi, block_jacobi and "
                         "ilu take any")  # fmt: skip
    return found
