"""Use: a weight as a matrix, made of the operator between it and the tensor that it makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...jacobians import (
    Broadcast,
    Contraction,
    Convolution,
    Diagonal,
    Identity,
    Jacobian,
    Outer,
    Permutation,
    Reshape,
    Take,
)
from ...jacobians.contraction import EINSUMS
from ...jacobians.errors import UnsupportedOp
from ...ops import numbers
from .contractions import after_broadcast, contraction, one_hot


@dataclass(frozen=True, repr=False, eq=False)
class Use:
    """Y = rowsᵀ(X · start(W)), with X of shape (g, rows, i), at a vertex of the DAG.

    `start` takes W to (g, i, o), and `rows` takes Y to (g, rows, o). A `bias` meets no data: its X
    is the same number everywhere.
    """

    vertex: int
    start: Jacobian
    x: np.ndarray
    rows: Jacobian
    bias: bool = False


def as_use(core: tuple[Jacobian, ...], name: str, start: Jacobian) -> Use:
    """A use by the operators in the middle of an edge."""
    match core:
        case (Convolution(source="w"),):
            return convolution(core[0], start)
        case (Outer() as y,):
            repeat = Broadcast(y.out_shape, y.in_shape, y.dtype)
            return as_use((repeat, Diagonal(y.u, y.out_shape)), name, start)
        case (Broadcast() as repeat, *others):
            (operator,) = others or [Identity(repeat.out_shape, repeat.dtype)]
            if isinstance(operator, (*EINSUMS, Identity)):
                return matrix(after_broadcast(contraction(operator), repeat), start)
        case (Take() as rows,):
            return matrix(one_hot(rows), start)
        case (operator,) if isinstance(operator, EINSUMS):
            return matrix(contraction(operator), start)
        case ():
            return matrix(contraction(Identity(start.out_shape, start.dtype)), start)
    raise unstructured(name, core[0])


def unstructured(name: str, operator: Jacobian) -> UnsupportedOp:
    """The refusal of a weight that is not used as a matrix."""
    return UnsupportedOp(
        f"{name!r} meets the model through {operator!r}, which is no Kronecker product: leave it "
        f"out of wrt=, or take gauss_newton or fisher, which need no such structure"
    )


def restricted(use: Use, name: str, operator: Jacobian) -> Use:
    """The same use without the groups, inputs and outputs of its matrix that W has no entry in."""
    shape = use.start.out_shape
    held = (use.start @ np.ones(use.start.shape[1], use.start.dtype)).reshape(shape) != 0
    if held.all():
        return use
    kept = [np.flatnonzero(held.any(axis=tuple({0, 1, 2} - {k}))) for k in range(3)]
    if not held[np.ix_(*kept)].all():
        raise unstructured(name, operator)
    groups, ins, outs = kept
    start, rows = use.start, use.rows
    for axis, index in enumerate(kept):
        start = Take(index, axis, start.out_shape, start.dtype) @ start
    for axis, index in ((0, groups), (2, outs)):
        rows = Take(index, axis, rows.out_shape, rows.dtype) @ rows
    return replace(use, start=start, x=use.x[groups][..., ins], rows=rows)


def matrix(c: Contraction, start: Jacobian) -> Use:
    """The use that a contraction is, its labels sorted into groups, rows, inputs and outputs."""
    held = {label for _, term in c.factors for label in term}
    rows = [k for k in c.out_term if k in held and k not in c.in_term]
    groups = [k for k in c.out_term if k in held and k in c.in_term]
    ins = [k for k in c.in_term if k not in c.out_term]
    outs = [k for k in c.in_term if k in c.out_term and k not in held]
    g, r, i, o = (prod(c.sizes[k] for k in part) for part in (groups, rows, ins, outs))
    terms = ",".join(term for _, term in c.factors)
    x = np.einsum(f"{terms}->{''.join(groups + rows + ins)}", *(a for a, _ in c.factors))
    inner = tuple(c.sizes[k] for k in c.in_term)
    dtype = c.dtype
    return Use(
        -1,
        reordered(inner, c.in_term, groups + ins + outs, (g, i, o), dtype)
        @ Reshape(inner, start.out_shape, dtype) @ start,
        x.reshape(g, r, i),
        reordered(c.out_shape, c.out_term, groups + rows + outs, (g, r, o), dtype),
    )  # fmt: skip


def reordered(
    shape: tuple[int, ...], term: str, wanted: list[str], final: tuple[int, ...], dtype: np.dtype
) -> Jacobian:
    """A tensor with its axes in another order, and in another shape after that."""
    moved = Permutation(tuple(term.index(k) for k in wanted), shape, dtype)
    return Reshape(final, moved.out_shape, dtype) @ moved


def convolution(c: Convolution, start: Jacobian) -> Use:
    """The use of a kernel: X holds what one output channel of each group meets, its patches.

    They are what the operator itself makes of unit kernels for a single output channel per group.
    """
    g, dtype = c.geometry, c.dtype
    forward = c.target == "u"  # else a transposed convolution: channels of x are the outputs
    group, (n, _, *positions) = g.group, (g.u if forward else g.x)
    m, channels = g.w[0] // group, g.w[1]
    i, o = (g.w[1:], m) if forward else ((m, *g.w[2:]), channels)
    w = (group, *g.w[1:]) if forward else (g.w[0], 1, *g.w[2:])
    single = replace(g, w=w, u=(n, group, *positions) if forward else g.u,
                     x=g.x if forward else (n, group, *positions))  # fmt: skip
    width, space = prod(i), prod(positions)
    unit = np.eye(width, dtype=dtype).reshape(width, 1, *((1, *i) if forward else (m, 1, *i[1:])))
    unit = np.broadcast_to(unit, (width, group, *unit.shape[2:])).reshape(width, *w)
    x = Convolution(c.held, "w", c.target, single)._apply(numbers, unit)
    x = x.reshape(width, n, group, space).transpose(2, 1, 3, 0).reshape(group, n * space, width)
    split, perm = ((group, m, width), (0, 2, 1)) if forward else (
        (group, m, channels, prod(g.w[2:])), (0, 1, 3, 2))  # fmt: skip
    swapped = Permutation(perm, split, dtype) @ Reshape(split, g.w, dtype)
    flat = Reshape((group, width, o), swapped.out_shape, dtype) @ swapped
    y = (n, group, o, space)
    rows = Permutation((1, 0, 3, 2), y, dtype) @ Reshape(y, c.out_shape, dtype)
    return Use(-1, flat @ start, x, Reshape((group, n * space, o), rows.out_shape, dtype) @ rows)
