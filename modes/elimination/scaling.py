"""Scaling: diagonals and scalars that the factors of matrices take in, or that pass them by.

A matrix or kernel is rescaled only where its copy is not much larger than the tensor that need not
be multiplied any more; a diagonal that acts along the identity factor goes to the smaller side.
"""

from __future__ import annotations

from ...jacobians import (
    Array,
    BlockDiagonal,
    Convolution,
    Diagonal,
    Eye,
    Kron,
    Scalar,
    Shape,
    reading_of,
    shape_of,
    size,
)
from ...jacobians.kron import Factor
from ...jacobians.simplify import COPIES
from .chain import Factors, swaps
from .smaller import padded, rescaled, times


def small_enough(factor: Factor, *tensors: Shape) -> bool:
    """Whether a copy of a matrix or kernel is worth a pass over a tensor."""
    if isinstance(factor, Eye):
        return False
    return size(shape_of(factor)) <= COPIES * max(map(size, tensors))


def scaled(K: Kron, c: Scalar) -> Factors | None:
    """c (A ⊗ B), in the smaller factor."""
    factors = [f for f in (K.left, K.right) if small_enough(f, K.in_shape, K.out_shape)]
    if not factors:
        return None
    least = min(factors, key=lambda f: size(shape_of(f)))
    left, right = (times(f, c.factor) if f is least else f for f in (K.left, K.right))
    return (Kron(left, right, K.batch),)


@swaps(Scalar, Kron)
def _(c: Scalar, K: Kron) -> Factors | None:
    return scaled(K, c)


@swaps(Kron, Scalar)
def _(K: Kron, c: Scalar) -> Factors | None:
    return scaled(K, c)


@swaps(Scalar, BlockDiagonal)
def _(c: Scalar, B: BlockDiagonal) -> Factors | None:
    return scaled_blocks(B, c)


@swaps(BlockDiagonal, Scalar)
def _(B: BlockDiagonal, c: Scalar) -> Factors | None:
    return scaled_blocks(B, c)


def scaled_blocks(B: BlockDiagonal, c: Scalar) -> Factors | None:
    """c · B, in the blocks."""
    if not small_enough(B.blocks, B.in_shape, B.out_shape):
        return None
    return (BlockDiagonal(times(B.blocks, c.factor)),)


@swaps(Diagonal, Kron)
def _(d: Diagonal, K: Kron) -> Factors | None:
    *_, rows, columns = shape = padded(d.d, len(K.out_shape))
    if isinstance(K.left, Eye) and rows == 1 and small_enough(K.right, K.out_shape):
        return with_right(K, reading_of(d.d).Reshape(d.d, (*shape[:-2], columns, 1)))
    if isinstance(K.right, Eye) and columns == 1 and small_enough(K.left, K.out_shape):
        return with_left(K, reading_of(d.d).Reshape(d.d, shape))
    if along_identity(K, rows, columns) and size(K.in_shape) < size(K.out_shape):
        return K, Diagonal(d.d, K.in_shape)
    return None


@swaps(Kron, Diagonal)
def _(K: Kron, d: Diagonal) -> Factors | None:
    *_, rows, columns = shape = padded(d.d, len(K.in_shape))
    if isinstance(K.left, Eye) and rows == 1 and small_enough(K.right, K.in_shape):
        return with_right(K, reading_of(d.d).Reshape(d.d, shape))
    if isinstance(K.right, Eye) and columns == 1 and small_enough(K.left, K.in_shape):
        return with_left(K, reading_of(d.d).Reshape(d.d, (*shape[:-2], 1, rows)))
    if along_identity(K, rows, columns) and size(K.out_shape) < size(K.in_shape):
        return Diagonal(d.d, K.out_shape), K
    return None


def along_identity(K: Kron, rows: int, columns: int) -> bool:
    """Whether a diagonal of so many different rows and columns passes the identity factor."""
    return columns == 1 if isinstance(K.left, Eye) else rows == 1 and isinstance(K.right, Eye)


def with_right(K: Kron, d: Array) -> Factors | None:
    """I ⊗ (d ∘ B), unless d differs where B is shared."""
    B = times(K.right, d)
    return (Kron(K.left, B, K.batch),) if size(shape_of(B)) == size(shape_of(K.right)) else None


def with_left(K: Kron, d: Array) -> Factors | None:
    """(d ∘ A) ⊗ I, unless d differs where A is shared."""
    A = times(K.left, d)
    return (Kron(A, K.right, K.batch),) if size(shape_of(A)) == size(shape_of(K.left)) else None


@swaps(Scalar, Convolution)
def _(c: Scalar, C: Convolution) -> Factors | None:
    return None if C.target == "w" else scaled_convolution(C, c)  # it is on the kernel already


@swaps(Convolution, Scalar)
def _(C: Convolution, c: Scalar) -> Factors | None:
    return None if C.source == "w" else scaled_convolution(C, c)


def scaled_convolution(C: Convolution, c: Scalar) -> Factors | None:
    """c · C: in the kernel, or on it."""
    if "w" not in (C.source, C.target):
        if not small_enough(C.held, C.in_shape, C.out_shape):
            return None
        return (Convolution(times(C.held, c.factor), C.source, C.target, C.geometry),)
    if C.source == "w":
        return C, rescaled(c, C.in_shape)
    return rescaled(c, C.out_shape), C


@swaps(Diagonal, Convolution)
def _(d: Diagonal, C: Convolution) -> Factors | None:
    """Per output channel: the kernel's rows."""
    kernel = rows_of_kernel(d, C)
    if C.target != "u" or kernel is None:
        return None
    if C.source == "x":
        if not small_enough(C.held, C.out_shape):
            return None
        return (Convolution(times(C.held, kernel), "x", "u", C.geometry),)
    return C, Diagonal(kernel, C.in_shape)


@swaps(Convolution, Diagonal)
def _(C: Convolution, d: Diagonal) -> Factors | None:
    kernel = rows_of_kernel(d, C)
    if C.source != "u" or kernel is None:
        return None
    if C.target == "x":
        if not small_enough(C.held, C.in_shape):
            return None
        return (Convolution(times(C.held, kernel), "u", "x", C.geometry),)
    return Diagonal(kernel, C.out_shape), C


def rows_of_kernel(d: Diagonal, C: Convolution) -> Array | None:
    """A diagonal over the output channels as one over the first axis of the kernel."""
    shape, rank = padded(d.d, len(C.geometry.u)), len(C.geometry.w)
    if size(shape) != shape[1]:
        return None
    return reading_of(d.d).Reshape(d.d, (shape[1], *(1,) * (rank - 1)))
