"""CumProd and Det: products, differentiated without division, so that zeros are handled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...jacobians import Array, Contraction, Diagonal, Identity, Jacobian, Shape, shape_of, slab
from ...jacobians.symint import Number, is_symbolic, smallest
from ..conventions import convention
from ..node import Node
from ..registry import Blocks, jacobian
from .indexing import counted


@jacobian("CumProd")
def cum_prod(op: Any, node: Node) -> Blocks:
    """y by doubling: y ← y ∘ (y shifted by 1, 2, 4, … with ones shifted in).

    One step has J = diag(shifted y) + diag(y) M, with M the shift, zeros shifted in.
    """
    (axis,) = node.ints(1) or (0,)
    axis, sign = axis % len(node.x_shape), -1 if node.reverse else 1
    y = node.x
    J: Jacobian = Identity(node.x_shape, node.dtype)
    if node.exclusive:
        y, J = moved(op, y, axis, sign), move(node, axis, sign)
    for step in doublings(node.x_shape[axis]):
        shifted = moved(op, y, axis, sign * step)
        J = (Diagonal(shifted) + Diagonal(y) @ move(node, axis, sign * step)) @ J
        y = op.Mul(y, shifted)
    return {(0, 0): J}


FAR = 4096
"""Graphs recorded for a symbolic axis length hold for all lengths up to at least this one."""


def doublings(n: Number) -> Iterator[int]:
    """1, 2, 4, … below n; for a symbolic n, at least below `FAR`."""
    step = 1
    while (is_symbolic(n) and step < FAR) or step < n:
        yield step
        step *= 2


def moved(op: Any, x: Array, axis: int, step: int) -> Array:
    """x shifted along an axis, with ones shifted in."""
    far = smallest(abs(step), shape_of(x)[axis])
    return op.Pad(x, (far, -far) if step > 0 else (-far, far), 1.0, (axis,))


def move(node: Node, axis: int, step: int) -> Jacobian:
    """The shift along an axis, with zeros shifted in."""
    n = node.x_shape[axis]
    far = smallest(abs(step), n)
    first, last = (slab(node.x_shape, axis, start, start + n - far, node.dtype)
                   for start in (0, far))  # fmt: skip
    return last.T @ first if step > 0 else first.T @ last


convention("CumProd", "cumulative Π [2, 0, 3]", ([2.0, 0.0, 3.0], 0), ([1.0, 8.0, 0.0],),
           "no kink: no division by 0", "lambda x: x.cumprod(0)",
           tensorflow=([1.0, 0.0, 0.0],), opset=26)  # fmt: skip


@jacobian("Det")
def det(op: Any, node: Node) -> Blocks:
    """∂det/∂x = the cofactors, which are signed minors: also correct for singular x."""
    *batch, n, _ = node.x_shape
    cofactors = minors(op, node.x, n)
    labels = "abcdefgh"[: len(batch)]
    sizes = dict(zip(labels + "ij", node.x_shape, strict=True))
    return {(0, 0): Contraction(((cofactors, f"{labels}ij"),), f"{labels}ij", labels, sizes)}


def minors(op: Any, x: Array, n: Number) -> Array:
    """(-1)^(i+j) det(x without row i and column j), at [i, j]."""
    if n == 1:
        return op.Add(op.Mul(x, 0.0), 1.0)
    batch: Shape = shape_of(x)[:-2]
    i, k = op.Reshape(counted(op, n), (n, 1)), counted(op, n - 1)
    others = op.Add(k, op.CastLike(op.GreaterOrEqual(k, i), k))
    rows, columns = op.Unsqueeze(others, (1, 3)), op.Unsqueeze(others, (0, 2))
    flat = op.Reshape(x, (*batch, n * n))
    picked = op.Gather(flat, op.Add(op.Mul(rows, n), columns), axis=-1)
    sign = op.Sub(1, op.Mul(op.Mod(op.Add(i, counted(op, n)), 2), 2))
    return op.Mul(op.Det(picked), op.CastLike(sign, x))
