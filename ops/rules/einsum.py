"""Einsum: a contraction in each of its operands."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Contraction,
    Jacobian,
    Reshape,
    SumTo,
    broadcast,
    label_sizes,
    shape_of,
    size,
    take_flat,
)
from ...jacobians.errors import UnsupportedOp
from ..node import Node
from ..registry import Blocks, jacobian

LABELS = 48
"""The most labels of an equation: NumPy has 52, and the others label axes of right-hand sides."""


@jacobian("Einsum")
def einsum(op: Any, node: Node) -> Blocks:
    """∂/∂xᵢ of an einsum: the contraction of the other operands with a tangent in place of xᵢ."""
    shapes = tuple(shape_of(x) for x in node.inputs)
    terms, out = expand_equation(node.equation, tuple(map(len, shapes)))
    sizes = label_sizes(shapes, terms)
    if len(sizes) > LABELS:
        raise UnsupportedOp(
            f"the equation has {len(sizes)} labels, and derivatives may have {LABELS}: write it as "
            "several Einsums"
        )
    return {
        (0, i): einsum_block(op, node, i, terms, out, sizes)
        for i in range(len(terms))
        if node.wants(i)
    }


def einsum_block(
    op: Any, node: Node, i: int, terms: tuple[str, ...], out: str, sizes: dict[str, int]
) -> Jacobian:
    """contraction · sum over labels that only xᵢ has · diagonal of repeated labels · broadcast."""
    dtype, term = node.dtype, terms[i]
    full = tuple(sizes[label] for label in term)
    J: Jacobian = broadcast(shape_of(node.inputs[i]), full, dtype)
    if len(set(term)) < len(term):
        distinct = "".join(dict.fromkeys(term))
        J = diagonal_of(term, distinct, sizes, dtype) @ J
        term = distinct
    others = tuple(
        (x, t) for k, (x, t) in enumerate(zip(node.inputs, terms, strict=True)) if k != i
    )
    held = tuple((squeezed(op, x, t, sizes)) for x, t in others)
    seen = set(out).union(*(t for _, t in held))
    kept = "".join(label for label in term if label in seen)
    if kept != term:
        padded = tuple(sizes[label] if label in seen else 1 for label in term)
        J = SumTo(padded, J.out_shape, dtype) @ J
        J = Reshape(tuple(sizes[label] for label in kept), padded, dtype) @ J
    return Contraction(held or ((np.ones((), dtype), ""),), kept, out, sizes) @ J


def squeezed(op: Any, x: Array, term: str, sizes: dict[str, int]) -> tuple[Array, str]:
    """An operand without the axes of length 1 that einsum broadcasts."""
    stretched = [k for k, label in enumerate(term) if shape_of(x)[k] != sizes[label]]
    if not stretched:
        return x, term
    kept = [k for k in range(len(term)) if k not in stretched]
    shape = tuple(shape_of(x)[k] for k in kept)
    return op.Reshape(x, shape), "".join(term[k] for k in kept)


def diagonal_of(term: str, distinct: str, sizes: dict[str, int], dtype: Any) -> Jacobian:
    """x[i, i, j] as a tensor over the distinct labels i, j."""
    full = tuple(sizes[label] for label in term)
    positions = np.arange(size(full)).reshape(full)
    index = np.einsum(positions, [distinct.index(c) for c in term], list(range(len(distinct))))
    return take_flat(index, full, dtype)


def expand_equation(equation: str, ranks: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Terms and output of an einsum equation with ellipses spelt out and the output made explicit.

    >>> expand_equation("...ij, jk", (3, 2))
    (('Aij', 'jk'), 'Aik')
    """
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    widths = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True)]
    free = [c for c in string.ascii_uppercase + string.ascii_lowercase if c not in equation]
    dots = "".join(free[: max([0, *(w for t, w in zip(terms, widths, strict=True) if "..." in t)])])
    spelt = tuple(
        t.replace("...", dots[len(dots) - w :] if w else "")
        for t, w in zip(terms, widths, strict=True)
    )
    if not arrow:
        letters = "".join(terms).replace("...", "")
        out = dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return spelt, out.replace("...", dots)
