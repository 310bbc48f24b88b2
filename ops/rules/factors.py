"""CumProd and Det: products, differentiated without quotients, so that zeros do no harm."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Contraction,
    Diagonal,
    Embed,
    Identity,
    Jacobian,
    Shape,
    Slice,
    shape_of,
)
from ..node import Node
from ..registry import Blocks, jacobian


@jacobian("CumProd")
def cum_prod(op: Any, node: Node) -> Blocks:
    """y by doubling: y ← y ∘ (y moved by 1, 2, 4, … with ones moving in).

    A step has J = diag(moved y) + diag(y) M, with M the move.
    """
    (axis,) = node.ints(1) or (0,)
    axis, sign = axis % len(node.x_shape), -1 if node.reverse else 1
    y, J = node.x, Identity(node.x_shape, node.dtype)
    if node.exclusive:
        y, J = moved(op, y, axis, sign), move(node, axis, sign)
    step = 1
    while step < node.x_shape[axis]:
        shifted = moved(op, y, axis, sign * step)
        J = (Diagonal(shifted) + Diagonal(y) @ move(node, axis, sign * step)) @ J
        y, step = op.Mul(y, shifted), 2 * step
    return {(0, 0): J}


def moved(op: Any, x: Array, axis: int, step: int) -> Array:
    """The entries moved along an axis; ones move in."""
    n = shape_of(x)[axis]
    step = max(-n, min(step, n))
    return op.Pad(x, (step, -step), 1.0, (axis,))


def move(node: Node, axis: int, step: int) -> Jacobian:
    """The entries moved along an axis; zeros move in."""
    n = node.x_shape[axis]
    step = max(-n, min(step, n))
    whole = [(0, 1, m) for m in node.x_shape]
    source, target = list(whole), list(whole)
    source[axis] = (max(-step, 0), 1, n - abs(step))
    target[axis] = (max(step, 0), 1, n - abs(step))
    cut = Slice(tuple(source), node.x_shape, node.dtype)
    return Embed(tuple(target), node.x_shape, node.dtype) @ cut


@jacobian("Det")
def det(op: Any, node: Node) -> Blocks:
    """∂det/∂x = the cofactors: determinants of minors, right also where x is singular."""
    *batch, n, _ = node.x_shape
    cofactors = minors(op, node.x, n)
    labels = "abcdefgh"[: len(batch)]
    sizes = dict(zip(labels + "ij", node.x_shape, strict=True))
    return {(0, 0): Contraction(((cofactors, f"{labels}ij"),), f"{labels}ij", labels, sizes)}


def minors(op: Any, x: Array, n: int) -> Array:
    """(-1)^(i+j) det(x without row i and column j), at [i, j]."""
    sign = (-1.0) ** np.add.outer(np.arange(n), np.arange(n))
    if n == 1:
        return op.Add(op.Mul(x, 0.0), 1.0)
    batch: Shape = shape_of(x)[:-2]
    others = np.array([[k for k in range(n) if k != i] for i in range(n)])
    rows, columns = others[:, None, :, None], others[None, :, None, :]
    flat = op.Reshape(x, (*batch, n * n))
    picked = op.Gather(flat, rows * n + columns, axis=-1)
    return op.Mul(op.Det(picked), op.CastLike(sign, x))
