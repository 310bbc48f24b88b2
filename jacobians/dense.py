"""Dense, BlockDiagonal and LowRank: operators that hold their numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .arrays import Array, Op, Shape, dtype_of, factor, lead, prod_text, shape_of, size
from .base import Jacobian
from .errors import InputError
from .kron import transposed
from .symint import agree, same


class Dense(Jacobian):
    """y = A x, with A of shape (size of y, size of x)."""

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

    def arrays(self) -> Iterator[Array]:
        yield self.a

    @property
    def flops(self) -> int:
        return 2 * self.shape[0] * self.shape[1]

    def diagonal(self) -> np.ndarray:
        return np.diagonal(self.a).copy()

    def __repr__(self) -> str:
        return f"dense({prod_text(self.shape)})"


class BlockDiagonal(Jacobian):
    """y[b] = A[b] x[b]: one dense block per batch entry; `blocks` is (*batch, m, n)."""

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

    def arrays(self) -> Iterator[Array]:
        yield self.blocks

    @property
    def flops(self) -> int:
        return 2 * size(shape_of(self.blocks))

    def __repr__(self) -> str:
        return f"blockdiag({prod_text(shape_of(self.blocks))})"


class LowRank(Jacobian):
    """y = U Vᵀ x, with U of shape (size of y, r) and V of shape (size of x, r)."""

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

    def arrays(self) -> Iterator[Array]:
        yield from (self.u, self.v)

    @property
    def flops(self) -> int:
        return 2 * (size(shape_of(self.u)) + size(shape_of(self.v)))

    def diagonal(self) -> np.ndarray:
        k = min(self.shape)
        return np.einsum("ir,ir->i", self.u[:k], self.v[:k])

    def __repr__(self) -> str:
        return f"lowrank({prod_text(self.shape)}, rank {shape_of(self.u)[1]})"


def matrix_of(array: Array, kind: str) -> tuple[int, int]:
    """The shape of a matrix that an operator holds."""
    shape = shape_of(array)
    if len(shape) != 2:
        raise InputError(f"{kind} holds matrices, not an array of shape {list(shape)}")
    return shape[0], shape[1]
