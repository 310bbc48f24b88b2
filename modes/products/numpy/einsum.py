"""Einsum: pairs of operands, one after the other, each pair a product of matrices on views."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from string import ascii_uppercase

import numpy as np
import onnx_ir as ir

from ....ops.numbers.matmul import contraction_order
from .assemble import Assembler, assembles, attributes, by_kernel
from .matmul import product
from .places import Place, new, reshaped
from .sums import summed


@dataclass(frozen=True)
class Term:
    """An operand and the labels of its axes."""

    place: Place
    labels: str

    def size(self, labels: str) -> int:
        """How many entries these axes have together."""
        return math.prod(self.place.shape[self.labels.index(label)] for label in labels)

    def ordered(self, labels: str) -> Place:
        """The operand with its axes in that order."""
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
    """The labels of every operand and of the result, dots as capital letters.

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
    """The pairs of operands in the order of their contraction, each result put last."""
    order = contraction_order(equation, *shapes)
    if order and all(len(pair) == 2 for pair in order[1:]):
        return [tuple(pair) for pair in order[1:]]
    return [(0, 1)] * (len(shapes) - 1)


def reduced(asm: Assembler, term: Term, pair: list[Term], needed: set[str]) -> Term:
    """A term summed over the labels that nothing else has."""
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
    """A term as a stack of matrices: a view where it can be one."""
    turned = term.ordered(batch + rows + columns)
    shape = (*turned.shape[: len(batch)], term.size(rows), term.size(columns))
    view = reshaped(turned.view, shape)
    return asm.contiguous(turned, shape) if view is None else Place(turned.buffer, view)
