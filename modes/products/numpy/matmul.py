"""Matrix products and sums: BLAS on views, in as few and as large calls as the layout allows.

An Einsum is a sequence of pairwise matrix products on views.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from string import ascii_uppercase

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape
from ....ops.numbers.matmul import THIN, contraction_order, unrepeated
from .assemble import Assembler, arguments, assembles, attributes, by_kernel
from .destinations import operand
from .places import Place, constant, new
from .program import copy

FEW, LONG = 128, 2**10
"""The most rows, and the least length of sums, for which transposing the result is cheap."""


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
    """A stack times one matrix: one product with all rows, if that needs no copy."""
    if b.view.ndim > 2 or a.view.ndim == 2 or not y.view.size:
        return a, b, y
    rows, made = (x.reshaped((-1, x.shape[-1])) for x in (a, y))
    return (rows, b, made) if rows and made else (a, b, y)


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
    """Whether one matrix multiplies a stack of matrices with few columns, but more than one."""
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
    """y ← A B by `np.matmul`, which needs a contiguous axis to use BLAS: others are copied."""
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
    """Whether BLAS is faster with (A B)ᵀ = Bᵀ Aᵀ, by more than transposing the result takes.

    This holds in single precision, for few rows, long sums and a B with contiguous columns, as in
    correlations: by a third or more with 16 to 128 rows, in memory or in cache.
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    along_sums = b.strides[-2] == b.itemsize and k > 1
    return a.dtype == np.float32 and along_sums and m <= FEW and m < n and k >= LONG and m > 1


def is_matrix(view: np.ndarray) -> bool:
    """Whether the last two axes are a matrix to BLAS: one contiguous, the other not overlapping."""
    (m, n), (outer, inner), item = view.shape[-2:], view.strides[-2:], view.itemsize
    return lies(m, outer, n, inner, item) or lies(n, inner, m, outer, item)


def lies(rows: int, outer: int, columns: int, inner: int, item: int) -> bool:
    """Whether rows are contiguous and do not overlap."""
    contiguous = inner == item or columns == 1
    return contiguous and (rows == 1 or (outer % item == 0 and outer >= columns * item))


@dataclass(frozen=True)
class Term:
    """An operand and the labels of its axes."""

    place: Place
    labels: str

    def size(self, labels: str) -> int:
        """The number of entries over the axes with these labels."""
        return math.prod(self.place.shape[self.labels.index(label)] for label in labels)

    def ordered(self, labels: str) -> Place:
        """The operand with its axes in the order of the labels."""
        return self.place.moved(np.transpose, [self.labels.index(label) for label in labels])


@assembles("Einsum")
def einsum(asm: Assembler, node: ir.Node) -> None:
    """y = Σ ∏ operands."""
    places = asm.operands(node)
    spelt = spelled_out(attributes(node)["equation"], [len(p.shape) for p in places])
    if spelt is None or not is_plain(spelt[0], places):
        by_kernel(asm, node)
        return
    labels, result = spelt
    terms = [Term(place, text) for place, text in zip(places, labels, strict=True)]
    equation = f"{','.join(labels)}->{result}"
    for pair in steps(equation, [p.shape for p in places]):
        chosen = [terms[k] for k in pair]
        terms = [term for k, term in enumerate(terms) if k not in pair]
        needed = {*result}.union(*(term.labels for term in terms))
        terms.append(contracted(asm, [reduced(asm, t, chosen, needed) for t in chosen], needed))
    asm.put(node.outputs[0], terms[0].ordered(result))


def spelled_out(equation: str, ranks: list[int]) -> tuple[list[str], str] | None:
    """The labels of every operand and of the result, with ellipses as capital letters.

    >>> spelled_out("ij,...jk->...ik", [2, 4])
    (['ij', 'ABjk'], 'ABik')
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or any(c.isupper() for c in equation) or left.count("...") > 1:
        return None
    hidden = max(rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True))
    dots = ascii_uppercase[:hidden]
    return [t.replace("...", dots) for t in terms], result.replace("...", dots)


def is_plain(labels: list[str], places: list[Place]) -> bool:
    """Whether no operand repeats a label, every label has one length, and BLAS has the dtype."""
    lengths: dict[str, int] = {}
    for text, place in zip(labels, places, strict=True):
        for label, n in zip(text, place.shape, strict=True):
            if lengths.setdefault(label, n) != n:
                return False
    floats = all(place.dtype in (np.float32, np.float64) for place in places)
    return floats and len(places) > 1 and all(len({*text}) == len(text) for text in labels)


def steps(equation: str, shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The pairs of operands in contraction order; each result is appended to the operands."""
    order = contraction_order(equation, *shapes)
    if order and all(len(pair) == 2 for pair in order[1:]):
        return [tuple(pair) for pair in order[1:]]
    return [(0, 1)] * (len(shapes) - 1)


def reduced(asm: Assembler, term: Term, pair: list[Term], needed: set[str]) -> Term:
    """A term summed over the labels that occur nowhere else."""
    others = needed.union(*(t.labels for t in pair if t is not term))
    axes = tuple(k for k, label in enumerate(term.labels) if label not in others)
    if not axes:
        return term
    labels = "".join(label for label in term.labels if label in others)
    room = new(tuple(term.size(label) for label in labels), term.place.dtype)
    return Term(asm.emit(partial(summed, axes, False), term.place, room), labels)


def contracted(asm: Assembler, pair: list[Term], needed: set[str]) -> Term:
    """Two terms as one product of matrices, (batch, left, sum) times (batch, sum, right)."""
    a, b = pair
    both = [label for label in a.labels if label in b.labels]
    batch = "".join(label for label in both if label in needed)
    over = "".join(label for label in both if label not in needed)
    left = "".join(label for label in a.labels if label not in b.labels)
    right = "".join(label for label in b.labels if label not in a.labels)
    shape = [term.size(label) for term, text in ((a, batch + left), (b, right)) for label in text]
    y = new(tuple(shape), a.place.dtype)
    if over:
        matrices = grouped(asm, a, batch, left, over), grouped(asm, b, batch, over, right)
        made = y.moved(np.reshape, (*shape[: len(batch)], a.size(left), b.size(right)))
        product(asm, *matrices, made)
    else:
        room = (slice(None),) * len(batch) + (None,) * len(left)
        asm.emit(np.multiply, a.ordered(batch + left)[(..., *(None,) * len(right))],
                 b.ordered(batch + right)[room], y)  # fmt: skip
    return Term(y, batch + left + right)


def grouped(asm: Assembler, term: Term, batch: str, rows: str, columns: str) -> Place:
    """A term as a stack of matrices: a view if possible."""
    turned = term.ordered(batch + rows + columns)
    shape = (*turned.shape[: len(batch)], term.size(rows), term.size(columns))
    return asm.reshaped(turned, shape)


@assembles("ReduceSum")
def reduce_sum(asm: Assembler, node: ir.Node) -> None:
    """y = Σ x over some axes."""
    x, attrs = asm.place(operand(node)), attributes(node)
    (given,) = arguments(asm, node) or [None]
    axes = () if given is None else tuple(int(axis) % x.view.ndim for axis in given)
    if not axes and attrs.get("noop_with_empty_axes", 0):
        asm.put(node.outputs[0], x)
        return
    axes = axes or tuple(range(x.view.ndim))
    y, keepdims = asm.target(node), bool(attrs.get("keepdims", 1))
    matrix = as_matrix(x, axes)
    rows = y.reshaped((-1, 1)) if y.view.size else None
    if matrix and rows:
        asm.emit(np.matmul, matrix, constant(np.ones((matrix.shape[1], 1), x.dtype)), rows)
    else:
        asm.emit(partial(summed, axes, keepdims), x, y)


def as_matrix(x: Place, axes: Shape) -> Place | None:
    """x with kept axes as rows and summed axes as columns, if BLAS can sum it; else None."""
    if not x.view.size or x.dtype.kind != "f" or x.dtype.itemsize < 4:
        return None
    kept = [k for k in range(x.view.ndim) if k not in axes]
    rows = int(np.prod([x.shape[k] for k in kept]))
    matrix = x.moved(np.transpose, (*kept, *axes)).reshaped((rows, -1))
    return matrix if matrix and is_matrix(matrix.view) else None


def summed(axes: Shape, keepdims: bool, x: np.ndarray, y: np.ndarray) -> None:
    """y ← Σ x."""
    np.add.reduce(x, axis=axes, out=y, keepdims=keepdims)
