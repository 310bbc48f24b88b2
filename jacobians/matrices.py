"""Dense, BlockDiagonal, LowRank and Kron: operators that hold matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import (
    Array,
    Op,
    Shape,
    array_name,
    cast_to,
    dtype_of,
    factor,
    fits,
    host,
    lead,
    prod_text,
    reading_of,
    shape_of,
    size,
)
from .base import Jacobian
from .errors import InputError
from .readings import module_of
from .symint import agree, at, broadcast_sizes, same
from .threads import cached_property


class Dense(Jacobian):
    """y = A x, with A = `a` of shape (size of y, size of x).

    x is of `in_shape` and y of `out_shape`, by default vectors.
    """

    holds = ("a",)

    def __init__(
        self, a: Array, out_shape: Shape | None = None, in_shape: Shape | None = None
    ) -> None:
        self.a = a = factor(a)
        m, n = matrix_of(a, "Dense")
        super().__init__((m,) if out_shape is None else out_shape,
                         (n,) if in_shape is None else in_shape, dtype_of(a))  # fmt: skip
        if not agree(self.shape, (m, n)):
            raise InputError(f"Dense: a matrix of shape {[m, n]} does not map a tensor of shape "
                             f"{list(self.in_shape)} to one of {list(self.out_shape)}")  # fmt: skip

    def _apply(self, op: Op, v: Array) -> Array:
        k = lead(v, self.in_shape)
        flat = op.Reshape(v, (size(k), self.shape[1]))
        return op.Reshape(op.MatMul(flat, transposed(self.a)), (*k, *self.out_shape))

    def _transpose(self) -> Jacobian:
        return Dense(transposed(self.a), self.in_shape, self.out_shape)

    @property
    def flops(self) -> int:
        return 2 * self.shape[0] * self.shape[1]

    def _dense(self, limit: int) -> np.ndarray:
        return np.array(host(self.a))

    def _diagonal(self) -> Array:
        return diagonals(self.a)

    def __repr__(self) -> str:
        return f"dense({array_name(self.a) or prod_text(self.shape)})"


class BlockDiagonal(Jacobian):
    """y[b] = A[b] x[b]: one dense block per batch entry; `blocks` is (*batch, m, n)."""

    holds = ("blocks",)

    def __init__(self, blocks: Array) -> None:
        self.blocks = blocks = factor(blocks)
        if len(shape_of(blocks)) < 2:
            raise InputError(f"BlockDiagonal: blocks are of shape [*batch, m, n], not "
                             f"{list(shape_of(blocks))}")  # fmt: skip
        *batch, m, n = shape_of(blocks)
        super().__init__((*batch, m), (*batch, n), dtype_of(blocks))

    def _apply(self, op: Op, v: Array) -> Array:
        k, rank = lead(v, self.in_shape), len(self.in_shape)
        if same(k, ()) or same(size(k), 1):
            column = op.Reshape(v, (*k, *self.in_shape, 1))
            return op.Reshape(op.MatMul(self.blocks, column), (*k, *self.out_shape))
        columns = op.Reshape(v, (size(k), *self.in_shape))  # last, so that each block is a GEMM
        columns = op.Transpose(columns, perm=(*range(1, rank + 1), 0))
        product = op.Transpose(op.MatMul(self.blocks, columns), perm=(rank, *range(rank)))
        return op.Reshape(product, (*k, *self.out_shape))

    def _transpose(self) -> Jacobian:
        return BlockDiagonal(transposed(self.blocks))

    @property
    def flops(self) -> int:
        return 2 * size(shape_of(self.blocks))

    def _diagonal(self) -> Array:
        if self.out_shape != self.in_shape:
            return super()._diagonal()
        return diagonals(self.blocks).flatten()

    def __repr__(self) -> str:
        return f"blockdiag({prod_text(shape_of(self.blocks))})"


class LowRank(Jacobian):
    """y = U Vᵀ x, with U = `u` of shape (size of y, r) and V = `v` of shape (size of x, r).

    x is of `in_shape` and y of `out_shape`, by default vectors.
    """

    holds = ("u", "v")

    def __init__(
        self, u: Array, v: Array, out_shape: Shape | None = None, in_shape: Shape | None = None
    ) -> None:
        self.u, self.v = u, v = factor(u), factor(v)
        (m, rank), (n, other) = matrix_of(u, "LowRank"), matrix_of(v, "LowRank")
        super().__init__((m,) if out_shape is None else out_shape,
                         (n,) if in_shape is None else in_shape,
                         np.result_type(dtype_of(u), dtype_of(v)))  # fmt: skip
        if rank != other or self.shape != (m, n):
            raise InputError(f"LowRank: U of shape {[m, rank]} and V of shape {[n, other]} do not "
                             f"map a tensor of shape {list(self.in_shape)} to one of "
                             f"{list(self.out_shape)}")  # fmt: skip

    def _apply(self, op: Op, v: Array) -> Array:
        k = lead(v, self.in_shape)
        inner = op.MatMul(op.Reshape(v, (size(k), self.shape[1])), self.v)
        return op.Reshape(op.MatMul(inner, transposed(self.u)), (*k, *self.out_shape))

    def _transpose(self) -> Jacobian:
        return LowRank(self.v, self.u, self.in_shape, self.out_shape)

    @property
    def flops(self) -> int:
        return 2 * (size(shape_of(self.u)) + size(shape_of(self.v)))

    def _diagonal(self) -> Array:
        k, op = min(self.shape), reading_of(self.u, self.v)
        return op.Einsum(self.u[:k], self.v[:k], equation="ir,ir->i")

    def __repr__(self) -> str:
        return f"lowrank({prod_text(self.shape)}, rank {shape_of(self.u)[1]})"


def matrix_of(array: Array, kind: str) -> tuple[int, int]:
    """The shape of a matrix that an operator holds."""
    shape = shape_of(array)
    if len(shape) != 2:
        raise InputError(f"{kind} holds matrices, not an array of shape {list(shape)}")
    return shape[0], shape[1]


@dataclass(frozen=True)
class Eye:
    """A symbolic identity factor of `n` rows."""

    n: int

    def __post_init__(self) -> None:
        if not at(self.n) >= 0 == at(self.n) % 1:
            raise InputError(f"Eye({self.n!r}): an identity has a number of rows")


Factor = Array | Eye


class Kron(Jacobian):
    """X ↦ A X Bᵀ, that is (A ⊗ B) vec(X) for row-major vec; leading axes are a batch.

    `left` is A, (*batch, m, n); `right` is B, (*batch, l, k); either may be an `Eye`.
    `batch` are the leading axes, so that in_shape = (*batch, n, k) and out_shape = (*batch, m, l).
    """

    holds = ("left", "right")

    def __init__(self, left: Factor, right: Factor, batch: Shape) -> None:
        left, right = (f if isinstance(f, Eye) else factor(f) for f in (left, right))
        (m, n), (rows, columns) = matrix_shape(left), matrix_shape(right)
        held = [f for f in (left, right) if not isinstance(f, Eye)]
        if not held:
            raise InputError("implicit_kron of two identities is an Identity")
        if not all(fits(shape_of(f)[:-2], tuple(batch)) for f in held):
            raise InputError(f"Kron: the batch {list(batch)} does not fit factors of shape "
                             f"{' and '.join(str(list(shape_of(f))) for f in held)}")  # fmt: skip
        dtype = np.result_type(*map(dtype_of, held))
        super().__init__((*batch, m, rows), (*batch, n, columns), dtype)
        # In one precision, so that products of factors have it.
        self.left, self.right = (
            f if isinstance(f, Eye) or dtype_of(f) == dtype else cast_to(f, dtype)
            for f in (left, right)
        )
        self.batch = tuple(batch)

    def _apply(self, op: Op, v: Array) -> Array:
        """In the order that takes fewer flops."""
        first, last = at(self._costs)
        if first <= last:
            return self._on_columns(op, self._on_rows(op, v))
        return self._on_rows(op, self._on_columns(op, v))

    def _on_rows(self, op: Op, v: Array) -> Array:
        """A X."""
        return v if isinstance(self.left, Eye) else op.MatMul(self.left, v)

    def _on_columns(self, op: Op, v: Array) -> Array:
        """X Bᵀ."""
        return v if isinstance(self.right, Eye) else op.MatMul(v, transposed(self.right))

    @cached_property
    def _costs(self) -> tuple[int, int]:
        """The flops of (A X) Bᵀ and of A (X Bᵀ) for one entry of the batch."""
        (m, n), (rows, columns) = matrix_shape(self.left), matrix_shape(self.right)
        a = 0 if isinstance(self.left, Eye) else 2 * m * n
        b = 0 if isinstance(self.right, Eye) else 2 * rows * columns
        return a * columns + b * m, b * n + a * rows

    def _transpose(self) -> Jacobian:
        return Kron(transposed(self.left), transposed(self.right), self.batch)

    @property
    def flops(self) -> int:
        return size(self.batch) * min(self._costs, key=at)

    def _diagonal(self) -> Array:
        m, n = matrix_shape(self.left)
        if m != n or self.shape[0] != self.shape[1]:
            return super()._diagonal()
        a, b = (np.ones(f.n) if isinstance(f, Eye) else diagonals(f)
                for f in (self.left, self.right))  # fmt: skip
        entries = cast_to(reading_of(a, b).Mul(a[..., :, None], b[..., None, :]), self.dtype)
        return module_of(entries).broadcast_to(entries, self.out_shape).flatten()

    def __repr__(self) -> str:
        return f"({factor_text(self.left)} ⊗ {factor_text(self.right)})"


def implicit_kron(left: Factor, right: Factor, batch: Shape | None = None) -> Kron:
    """A ⊗ B as an operator: X ↦ A X Bᵀ.

    A is `left` and B is `right`; leading axes of X are a `batch`. For Z = X Y: ∂Z/∂X =
    implicit_kron(Eye(m), Yᵀ) and ∂Z/∂Y = implicit_kron(X, Eye(n)).

    >>> K = implicit_kron(np.array([[1.0, 2.0]]), Eye(2))
    >>> K.toarray()
    array([[1., 0., 2., 0.],
           [0., 1., 0., 2.]])
    """
    left, right = (f if isinstance(f, Eye) else factor(f) for f in (left, right))
    if batch is None:
        leading = [shape_of(f)[:-2] for f in (left, right) if not isinstance(f, Eye)]
        try:
            batch = broadcast_sizes(leading)
        except ValueError:
            shapes = " and ".join(str(list(shape)) for shape in leading)
            raise InputError(f"Kron: batches of shape {shapes} do not broadcast") from None
    return Kron(left, right, batch)


def transposed(factor: Factor) -> Factor:
    """The `factor` with its last two axes exchanged: a view, no copy."""
    if isinstance(factor, Eye):
        return factor
    if isinstance(factor, np.ndarray):
        return factor.swapaxes(-1, -2)
    r = len(shape_of(factor))
    return reading_of(factor).Transpose(factor, perm=(*range(r - 2), r - 1, r - 2))


def matrix_shape(factor: Factor) -> tuple[int, int]:
    """(rows, columns) of a factor."""
    if isinstance(factor, Eye):
        return factor.n, factor.n
    shape = shape_of(factor)
    if len(shape) < 2:
        raise InputError(f"Kron: a factor is a matrix, or a batch of them, not {list(shape)}")
    return shape[-2], shape[-1]


def diagonals(matrices: Array) -> Array:
    """The diagonal of each matrix."""
    return matrices.diagonal(0, -2, -1)


def factor_text(factor: Factor) -> str:
    """How a factor prints."""
    if isinstance(factor, Eye):
        return f"I({factor.n})"
    return array_name(factor) or f"A[{prod_text(shape_of(factor))}]"
