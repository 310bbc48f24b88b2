"""Operators of other libraries as operators of this one: dense, sparse, matrix-free, functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np
from scipy.sparse import csc_array, csr_array, issparse
from scipy.sparse.linalg import LinearOperator, splu

from ...jacobians import Array, Dense, Diagonal, Jacobian, Op, Scatter, Take, hooks, lead
from ...jacobians.arguments import validated
from ...jacobians.arrays import factor, host, is_foreign
from ...jacobians.closed import cycles, determinant, inverted
from ...jacobians.errors import InputError
from ...jacobians.lapack import SlogDet, of_entries, singular
from ...jacobians.sparse import Entries, count, entries
from ...jacobians.threads import cached_property
from ...ops import numbers


@hooks.wrapped.register(object)
@validated
def asoperator(
    A: Any, shape: tuple[int, int] | None = None, *, adjoint: Callable[..., Any] | None = None,
    dtype: Any = float,
) -> Jacobian:  # fmt: skip
    """A as an operator, which adds, multiplies and inverts with all others.

    | A | the operator |
    |---|---|
    | an operator of onnxjac | A itself |
    | an array of any library, two-dimensional, or a list | `Dense` |
    | a sparse array or matrix of SciPy | sparse: products by SciPy, A⁻¹ and det A by sparse LU |
    | a `LinearOperator` of SciPy or PyLops | matrix-free |
    | a function x ↦ A x, with its `shape`, and `adjoint` for x ↦ Aᴴ x | matrix-free |

    - `A`: what the table lists.
    - `shape`: (rows, columns), for a function.
    - `adjoint`: x ↦ Aᴴ x, for a function.
    - `dtype`: the type of the results of a function.

    Shape: (m, n), as A. Raises `InputError` where A is none of these, and for a function without
    shape.

    >>> from scipy.sparse import diags_array
    >>> J = asoperator(diags_array([2.0, 4.0])) + asoperator([[0.0, 1.0], [0.0, 0.0]])
    >>> J @ np.array([1.0, 1.0])
    array([3., 4.])
    >>> D = asoperator(np.diff, (2, 3), adjoint=lambda y: -np.diff(y, prepend=0, append=0))
    >>> (D.T @ D).diagonal()
    array([1., 2., 1.])
    """
    if isinstance(A, Jacobian):
        return A
    if issparse(A):
        matrix: Any = A
        return Sparse(matrix.tocsr(copy=True))
    if isinstance(A, LinearOperator) or (hasattr(A, "matvec") and hasattr(A, "shape")):
        return MatrixFree(A)
    if isinstance(A, np.ndarray | list | tuple) or is_foreign(A):
        return Dense(factor(np.asarray(A) if is_foreign(A) else A))
    if not callable(A):
        raise InputError(f"a {type(A).__name__} is no operator: give an array, a sparse array, a "
                         "LinearOperator or a function")  # fmt: skip
    if shape is None or len(shape) != 2:
        raise InputError(f"asoperator: a function needs its shape=(rows, columns), not {shape}")

    def backward(y: Any) -> Any:
        if adjoint is None:
            raise NotImplementedError
        return adjoint(np.ravel(y))  # SciPy gives matrices of one column

    def forward(x: Any) -> Any:
        return A(np.ravel(x))

    return MatrixFree(LinearOperator(shape, forward, backward, dtype=dtype))


@final
class MatrixFree(Jacobian):
    """y = A x by the `matmat` of another library."""

    def __init__(self, operator: Any) -> None:
        m, n = operator.shape
        super().__init__((int(m),), (int(n),), operator.dtype or float)
        self.operator = operator

    def _apply(self, op: Op, v: Array) -> Array:
        if op is not numbers:
            raise InputError(f"{self!r} is a function of numbers, which no graph records: use "
                             "toarray()")  # fmt: skip
        columns = v.reshape(-1, self.shape[1]).T
        try:
            found = np.asarray(self.operator.matmat(columns))
        except NotImplementedError as error:
            raise InputError(f"{self!r} has no adjoint: give adjoint= to asoperator") from error
        return found.T.reshape(*lead(v, self.in_shape), *self.out_shape)

    def _transpose(self) -> Jacobian:
        return MatrixFree(self.operator.T)

    def __repr__(self) -> str:
        return f"matrixfree({self.shape[0]}×{self.shape[1]})"


@final
class Sparse(Jacobian):
    """y = A x for a sparse matrix."""

    holds = ("data",)

    def __init__(self, matrix: Any) -> None:
        matrix.sum_duplicates()
        self.data, self.indices, self.starts = factor(matrix.data), matrix.indices, matrix.indptr
        super().__init__(matrix.shape[:1], matrix.shape[1:], self.data.dtype)

    @cached_property
    def matrix(self) -> Any:
        """The matrix for SciPy."""
        return csr_array((host(self.data), self.indices, self.starts), shape=self.shape)

    @cached_property
    def rows(self) -> np.ndarray:
        """The row of each entry."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.starts))

    def _apply(self, op: Op, v: Array) -> Array:
        if op is numbers:
            found = self.matrix @ v.reshape(-1, self.shape[1]).T
            return found.T.reshape(*lead(v, self.in_shape), *self.out_shape)
        for step in (
            Take(self.indices, 0, self.in_shape, self.dtype), Diagonal(self.data),
            Scatter(self.rows, 0, self.out_shape, self.dtype),
        ):  # fmt: skip
            v = step._apply(op, v)
        return v

    def _transpose(self) -> Jacobian:
        return Sparse(csr_array(self.matrix.T))

    @property
    def flops(self) -> int:
        return 2 * len(self.data)

    def _diagonal(self) -> np.ndarray:
        return np.asarray(self.matrix.diagonal())

    def __repr__(self) -> str:
        return f"sparse({self.shape[0]}×{self.shape[1]}, {len(self.data)} entries)"

    @cached_property
    def lu(self) -> Any:
        """The sparse LU decomposition; None where the matrix is singular."""
        try:
            return splu(csc_array(self.matrix))
        except RuntimeError:
            return None


@entries.register
def _(operator: Sparse) -> Entries:
    held = operator.data, np.arange(len(operator.data))
    return Entries(operator.rows, operator.matrix.indices, 1.0, (held,))


@count.register
def _(operator: Sparse) -> int:
    return len(operator.data)


@inverted.register
def _(operator: Sparse) -> Jacobian:
    lu = operator.lu
    if lu is None:
        raise singular(operator, "its LU decomposition has a pivot of 0")
    solve = {trans: lambda b, trans=trans: lu.solve(np.asarray(b, operator.dtype), trans)
             for trans in "NH"}  # fmt: skip
    return MatrixFree(LinearOperator(
        operator.shape, solve["N"], solve["H"], solve["N"], operator.dtype, solve["H"]
    ))  # fmt: skip


@determinant.register
def _(operator: Sparse) -> SlogDet:
    lu = operator.lu
    if lu is None:
        return 0.0, -np.inf
    sign, log = of_entries(lu.U.diagonal())
    swaps = sum(len(order) - cycles(order) for order in (lu.perm_r, lu.perm_c))
    return sign * (-1.0) ** swaps, log
