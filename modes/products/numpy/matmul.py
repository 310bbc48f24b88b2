"""Products of matrices: BLAS on views, as few calls and as large ones as the layout allows."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from ....ops.numbers.matmul import THIN, unrepeated
from .assemble import Assembler, assembles, by_kernel
from .instruction import copy
from .places import Place, new, reshaped

FEW, LONG = 128, 2**10
"""Few rows, and sums so long that turning the result is little beside them."""


@assembles("MatMul")
def matmul(asm: Assembler, node: ir.Node) -> None:
    """y = A B over the last two axes, the axes before them broadcast."""
    a, b = asm.operands(node)
    if a.dtype.itemsize < 4 or min(a.view.ndim, b.view.ndim) < 2:
        by_kernel(asm, node)
        return
    product(asm, a.moved(unrepeated), b.moved(unrepeated), asm.target(node))


def product(asm: Assembler, a: Place, b: Place, y: Place) -> None:
    """y ← A B, rearranged so that BLAS gets large matrices, unless y has repeated matrices."""
    stacks = [x.shape[:-2] for x in (a, b, y)]
    if is_thin(a, b) and stacks[1] == stacks[2]:
        thin(asm, a, b, y)
        return
    if np.broadcast_shapes(*stacks[:2]) == stacks[2]:
        for rearranged in (tall, columns_last):
            a, b, y = rearranged(a, b, y)
    multiply(asm, a, b, y)


Operands = tuple[Place, Place, Place]


def tall(a: Place, b: Place, y: Place) -> Operands:
    """A stack times one matrix: one product with all rows, where no copy is needed for it."""
    if b.view.ndim > 2 or a.view.ndim == 2 or not y.view.size:
        return a, b, y
    rows, made = (reshaped(x.view, (-1, x.shape[-1])) for x in (a, y))
    if rows is None or made is None:
        return a, b, y
    return Place(a.buffer, rows), b, Place(y.buffer, made)


def columns_last(a: Place, b: Place, y: Place) -> Operands:
    """One stack times many stacks of single columns: the columns side by side.

    (*B, m, n) times (k, *B, n, 1) is (*B, m, n) times (*B, n, k).
    """
    if b.view.ndim != a.view.ndim + 1 or b.shape[-1] != 1 or a.shape[:-2] != b.shape[1:-2]:
        return a, b, y
    return a, b.moved(side_by_side), y.moved(side_by_side)


def side_by_side(columns: np.ndarray) -> np.ndarray:
    """(k, *B, n, 1) as (*B, n, k)."""
    return np.moveaxis(columns[..., 0], 0, -1)


def is_thin(a: Place, b: Place) -> bool:
    """Whether one matrix meets a stack of few columns, not of single ones."""
    return a.view.ndim == 2 and b.view.ndim > 2 and 1 < b.shape[-1] <= THIN and b.view.size > 0


def thin(asm: Assembler, a: Place, b: Place, y: Place) -> None:
    """A times a stack of few columns: transposed, a tall product between two small copies."""
    rows = asm.contiguous(turned(b))
    room = new((*y.shape[:-2], y.shape[-1], y.shape[-2]), y.dtype)
    multiply(asm, flat_rows(rows), turned(a), flat_rows(room))
    asm.emit(copy, turned(room), y)


def flat_rows(x: Place) -> Place:
    """All rows of a stack in one matrix."""
    return x.moved(np.reshape, (-1, x.shape[-1]))


def multiply(asm: Assembler, a: Place, b: Place, y: Place) -> None:
    """y ← A B by `np.matmul`, which leaves BLAS aside where no axis is contiguous: copied then."""
    a, b = (x if is_matrix(x.view) else asm.contiguous(x) for x in (a, b))
    if is_skinny(a.view, b.view):
        room = new((*y.shape[:-2], *y.shape[:-3:-1]), y.dtype)
        asm.emit(copy, turned(asm.emit(np.matmul, turned(b), turned(a), room)), y)
    elif is_matrix(y.view):
        asm.emit(np.matmul, a, b, y)
    else:
        asm.emit(copy, asm.emit(np.matmul, a, b, new(y.shape, y.dtype)), y)


def turned(x: Place) -> Place:
    """Every matrix of a stack transposed."""
    return x.moved(np.swapaxes, -1, -2)


def is_skinny(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether BLAS is quicker with (A B)ᵀ = Bᵀ Aᵀ, by more than turning the result takes.

    So it is in single precision with few rows, long sums and a B whose columns are contiguous, as
    in correlations: by a third and more with 16 to 128 rows, in memory or in cache.
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    along_sums = b.strides[-2] == b.itemsize and k > 1
    return a.dtype == np.float32 and along_sums and m <= FEW and m < n and k >= LONG and m > 1


def is_matrix(view: np.ndarray) -> bool:
    """Whether the last two axes are a matrix to BLAS: one contiguous, the other not overlapping."""
    (m, n), (outer, inner), item = view.shape[-2:], view.strides[-2:], view.itemsize
    return lies(m, outer, n, inner, item) or lies(n, inner, m, outer, item)


def lies(rows: int, outer: int, columns: int, inner: int, item: int) -> bool:
    """Whether rows are contiguous and follow one another."""
    contiguous = inner == item or columns == 1
    return contiguous and (rows == 1 or (outer % item == 0 and outer >= columns * item))
