"""Preconditioners: cheap approximations of an inverse, from the structure of an operator."""

from __future__ import annotations

from functools import reduce, singledispatch
from itertools import accumulate, pairwise
from typing import Any

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
    Shape,
    Sum,
    inverse_of,
    shape_of,
    size,
)
from ...jacobians.base import DENSE_LIMIT
from ...jacobians.errors import InputError, LimitError
from ..estimators.estimate import is_symmetric, probing, square, symmetric
from ..estimators.exact import column_squares, exact_diagonal
from ..estimators.low_rank import nystrom
from ..linear.elimination.samples import Batch, layouts, within
from ..linear.symmetric import block_diagonal
from ..sparse import sparse
from ..sparse.unwrap import unwrap

__all__ = [
    "block_jacobi", "column_scaling", "ilu", "jacobi", "kronecker", "low_rank_plus_damping",
]  # fmt: skip


def jacobi(A: Any, *, damping: float = 0.0) -> Diagonal:
    """M = diag(A + λI)⁻¹ for a symmetric A with a positive diagonal, λ the damping.

    The diagonal is exact: by structure, where A = JᵀDJ with a diagonal D squares J factor by
    factor; by sparse entries; or by n products. For `M=` of `cg` and `minres`.

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
    return Diagonal((1 / positive(entries + damping)).reshape(in_shape(A)))


def column_scaling(J: Any, *, damping: float = 0.0) -> Diagonal:
    """R = diag(JᵀJ + λI)^(-1/2), with which J R has columns of norm one, up to the damping λ.

    For least squares: solve min ‖J R y - b‖, then x = R y. `R @ R` is the `M=` of `cg` on the
    normal equations. The column norms are exact, as for `jacobi`, or by min(m, n) products.

    Shapes: J is (m, n), R is (n, n). Raises `InputError` where J is complex, and where a column is
    zero without damping.
    """
    with probing(J, "column norms") as P:
        squares, _ = column_squares(P)
    return Diagonal((positive(squares + damping) ** -0.5).reshape(in_shape(J)))


def in_shape(A: Any) -> tuple[int, ...]:
    """The shape of the input of an operator."""
    return A.in_shape if isinstance(A, Jacobian) else (A.shape[1],)


def positive(entries: np.ndarray) -> np.ndarray:
    """The entries; raises `InputError` where one is not positive."""
    if not np.all(entries > 0):
        k = int(np.argmin(np.where(np.isnan(entries), -np.inf, entries)))
        raise InputError(f"entry {k} of the diagonal is {entries[k]:g}, not > 0: give damping=")
    return entries


def block_jacobi(A: Any, blocks: int | None = None, *, damping: float = 0.0) -> Jacobian:
    """M = blockdiag(A₁₁ + λI, A₂₂ + λI, …)⁻¹ for a symmetric positive definite A, or any square A.

    One block per tensor of `A.domain`, or a number of equal `blocks`, such as one per sample of a
    batch. A block of n columns takes n products; if A is known to act within samples, n products
    give all blocks at once. M holds Σ n² numbers. For `M=` of `cg` and `minres`, or, if a block is
    not symmetric, of `gmres` and `bicgstab`.

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
            found = [(P @ np.eye(n, stop - start, -start))[start:stop] for start, stop in bounds]
    return _assembled([inverted(block, damping, P.eps) for block in found], in_shape(A))


def _sizes(A: Any, n: int, blocks: int | None) -> list[int]:
    """The lengths of the blocks."""
    if blocks is None:
        if not hasattr(A, "domain"):
            raise InputError("this operator does not name its tensors: say how many blocks=")
        return [size(shape_of(spec)) for spec in A.domain]
    if blocks < 1 or n % blocks:
        raise InputError(f"{n} columns are not {blocks} equal blocks")
    return [n // blocks] * blocks


def _assembled(inverses: list[np.ndarray], shape: Shape) -> Jacobian:
    """The block-diagonal operator over a tensor of this shape."""
    if len({len(B) for B in inverses}) == 1:
        M: Jacobian = BlockDiagonal(np.stack(inverses))
    else:
        M = block_diagonal(list(map(Dense, inverses)))
    return Reshape(shape, M.out_shape, M.dtype) @ M @ Reshape(M.in_shape, shape, M.dtype)


def within_samples(operator: Any, batch: Batch) -> bool:
    """Whether y = A x keeps the samples separate and in place."""
    return isinstance(operator, Jacobian) and after(operator, batch) == batch


@singledispatch
def after(operator: Jacobian, batch: Batch) -> Batch | None:
    """The samples of y from the samples of x; None if they may mix."""
    behind = unwrap(operator)
    return within(operator, batch) if behind is operator else after(behind, batch)


@after.register
def _(operator: Product, batch: Batch) -> Batch | None:
    """Propagated from factor to factor."""
    steps = reversed(operator.factors)
    return reduce(lambda known, factor: known and after(factor, known), steps, batch)  # type: ignore[arg-type,return-value]


@after.register
def _(operator: Sum, batch: Batch) -> Batch | None:
    """The samples that all terms agree on."""
    first, *others = (after(term, batch) for term in operator.terms)
    return first if all(other == first for other in others) else None


@after.register
def _(operator: Dag, batch: Batch) -> Batch | None:
    """Between one source and one sink; the samples of the sink are found backwards."""
    if len(operator.sources) != 1 or len(operator.sinks) != 1:
        return None
    (source,), (sink,) = operator.sources, operator.sinks
    for inner in range(1, operator.shape[0] // batch.count + 1):
        candidate = Batch(batch.count, inner)
        fits = operator.shape[0] % (batch.count * inner) == 0
        if fits and layouts(operator, sink, candidate).get(source) == batch:
            return candidate
    return None


def ilu(
    A: Jacobian, *, drop_tol: float = 1e-4, fill_factor: float = 10, drop_rule: str | None = None,
    permc_spec: Any = None, diag_pivot_thresh: float | None = None,
) -> LinearOperator:  # fmt: skip
    """M = (LU)⁻¹ with LU ≈ A, for a square A that has few entries in every row.

    The entries of A are found from its structure, with as few products as a colouring needs.
    `scipy.sparse.linalg.spilu` explains the options. M is for `M=` of `gmres` and `bicgstab`.

    Shapes: A and M are (n, n). Raises `LimitError` where the entries of A take more than 2 GiB.
    Errors of `spilu` are passed on: `RuntimeError` for a pivot that is zero, `ValueError` where A
    is not square. Source: Li and Shao, "A supernodal approach to incomplete LU factorization with
    partial pivoting", 2011.

    >>> import numpy as np
    >>> from onnxjac.jacobians import Diagonal
    >>> ilu(Diagonal(np.array([2.0, 4.0]))) @ np.ones(2)
    array([0.5 , 0.25])
    """
    factors = spilu(sparse(A, "csc"), drop_tol, fill_factor, drop_rule, permc_spec,
                    diag_pivot_thresh)  # fmt: skip
    return LinearOperator(A.shape, factors.solve, dtype=A.dtype)


def low_rank_plus_damping(A: Any, rank: int, *, damping: float, seed: int = 0) -> Jacobian:
    """M = (λᵣ + μ) U (Λ + μI)⁻¹ Uᵀ + (I - U Uᵀ) for solving with A + μI, μ the damping.

    A is symmetric positive semidefinite and U Λ Uᵀ its Nyström approximation of the given rank r,
    by r products. The condition number of M (A + μI) is a constant on average once r is twice
    the effective dimension tr A(A + μI)⁻¹.

    Shapes: A and M are (n, n), U is (n, r). Raises `InputError` where the damping is not positive,
    and where A is not square, real, symmetric and positive semidefinite.

    Source: Frangella, Tropp and Udell, "Randomized Nyström preconditioning", SIAM J. Matrix Anal.
    Appl. 44, 2023.
    """
    if damping <= 0:
        raise InputError(f"the damping must be positive, not {damping:g}")
    with probing(A, "Nyström") as P:
        rng = np.random.default_rng(seed)
        n = symmetric(P, rng)
        U, values = nystrom(P, min(rank, n), rng)
    weights = (values[-1] + damping) / (values + damping) - 1
    shape = in_shape(A)
    return Identity(shape, U.dtype) + LowRank(U * weights, U, shape, shape)


def kronecker(K: Any, *, damping: float = 0.0) -> Any:
    """M = (K + λI)⁻¹ for a K that can be inverted by its structure, λ the damping.

    For K = A ⊗ B, with A = QₐΛₐQₐᵀ and B likewise, M = (Qₐ ⊗ Q_b)(Λₐ ⊗ Λ_b + λI)⁻¹(Qₐ ⊗ Q_b)ᵀ,
    exact for every λ; without damping, M = A⁻¹ ⊗ B⁻¹. An object with a method `inverse` of its own,
    such as the result of `kfac`, is inverted by this method, with the damping if there is any.
    For other structures see `onnxjac.inverse`. M is positive definite where K + λI is.

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
        found = inverse_of(unwrap(damped))
    if found is None:
        raise InputError(f"{K!r} has no structure that gives its inverse: jacobi, block_jacobi and "
                         "ilu take any")  # fmt: skip
    return found


def inverted(matrices: np.ndarray, damping: float = 0.0, eps: float | None = None) -> np.ndarray:
    """(A + λI)⁻¹ for each matrix in (*batch, n, n), with entries accurate to eps.

    Raises `InputError` where a symmetric matrix has an eigenvalue that is not positive, and where
    another matrix is singular.
    """
    check_square(matrices)
    eps = float(np.finfo(matrices.dtype).eps) if eps is None else eps
    damped = matrices + damping * np.eye(matrices.shape[-1], dtype=matrices.dtype)
    if is_symmetric(matrices, eps):
        Q, values = eigen(damped)
        return np.asarray((Q * reciprocal(values)[..., None, :]) @ Q.swapaxes(-1, -2))
    try:
        found = np.linalg.inv(damped)
    except np.linalg.LinAlgError:
        raise InputError("a matrix is singular: give damping=") from None
    sizes = np.linalg.norm(damped, 1, (-2, -1)) * np.linalg.norm(found, 1, (-2, -1))
    if not np.all(sizes * np.finfo(damped.dtype).eps < 1):
        raise InputError(f"a matrix has the condition number {sizes.max():g}: give damping=")
    return np.asarray(found)


def check_square(matrices: np.ndarray) -> None:
    """Raises `InputError` where matrices are not square."""
    m, n = matrices.shape[-2:]
    if m != n:
        raise InputError(f"an inverse needs square matrices, not {m}×{n}")


def eigen(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Q and Λ of symmetric matrices."""
    values, vectors = np.linalg.eigh((matrices + matrices.swapaxes(-1, -2)) / 2)
    return vectors, values


def reciprocal(values: np.ndarray) -> np.ndarray:
    """1 / λ; raises `InputError` where some λ is not positive, beyond rounding."""
    if np.iscomplexobj(values):
        raise InputError("the entries of a diagonal are complex: they have no sign")
    if values.min(initial=np.inf) <= np.finfo(values.dtype).eps * values.max(initial=0):
        raise InputError(f"the smallest eigenvalue is {values.min():g}: give damping=")
    return 1 / values
