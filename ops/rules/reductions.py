"""Reductions: a sum of scaled entries, one line each; CumProd and Det, right at zeros too."""

from __future__ import annotations

import numpy as np

from ...jacobians import (
    Array,
    Contraction,
    Cumulative,
    Diagonal,
    Identity,
    Jacobian,
    Op,
    Permutation,
    Reshape,
    Shape,
    broadcast,
    shape_of,
    size,
    slab,
)
from ...jacobians.symint import Number, largest, smallest
from ..conventions import (
    BALL,
    FIRST,
    ORDER,
    SHARED,
    ZERO_NORM,
    are_zero,
    convention,
    kinks,
    marked,
    tied,
)
from ..indexed import declare_indexed
from ..indices import count_up
from ..node import Node
from ..registry import Blocks, Count, jacobian, says
from .indexing import doublings, picked, product_of_others, shift_along


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes that a Reduce* operator reduces: its second input names them, by default all."""
    axes = node.ints(1)
    if not axes:
        return () if node.noop_with_empty_axes else tuple(range(len(node.x_shape)))
    return tuple(a % len(node.x_shape) for a in axes)


def kept_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """The shape after a reduction that keeps its axes with length 1."""
    return tuple(1 if k in axes else n for k, n in enumerate(shape))


def sum_over(shape: Shape, axes: tuple[int, ...], dtype: np.dtype) -> Jacobian:
    """Σ over some axes, kept with length 1."""
    return broadcast(kept_shape(shape, axes), shape, dtype).T


def mean_over(shape: Shape, axes: tuple[int, ...], dtype: np.dtype) -> Jacobian:
    """The mean over some axes, kept with length 1."""
    n = size(tuple(shape[a] for a in axes))
    return sum_over(shape, axes, dtype) / largest(n, 1)


def declare_reduction(op_type: str, formula: str) -> None:
    """Declare a reduction over the axes s that a node names."""
    declare_indexed(op_type, f"y[*r] = {formula}", axes=lambda node: {"s": reduced_axes(node)})


declare_reduction("ReduceSum", "sum(x[*r, *s], *s)")
declare_reduction("ReduceMean", "mean(x[*r, *s], *s)")
declare_reduction("ReduceL1", "sum(abs(x[*r, *s]), *s)")
declare_reduction("ReduceL2", "sqrt(sum(x[*r, *s]**2, *s))")
declare_reduction("ReduceSumSquare", "sum(x[*r, *s]**2, *s)")
declare_reduction("ReduceLogSum", "log(sum(x[*r, *s], *s))")
says("ReduceLogSum", near=lambda i, x: np.abs(x) + 0.1)
declare_reduction("ReduceLogSumExp", "log(sum(exp(x[*r, *s]), *s))")
declare_indexed("GlobalAveragePool", "y[n, c] = mean(x[n, c, *s], *s)")


def rows(node: Node) -> Jacobian:
    """x with the entries that are reduced together along its last axis."""
    axes = reduced_axes(node)
    others = tuple(k for k in range(len(node.x_shape)) if k not in axes)
    last = Permutation((*others, *axes), node.x_shape, node.dtype)
    flat = (*last.out_shape[: len(others)], size(last.out_shape[len(others) :]))
    return Reshape(flat, last.out_shape, node.dtype) @ last


kinks("ReduceL1", where="where an entry is 0", given="0, as for |0|")(are_zero)
kinks("ReduceL2", where=ZERO_NORM, given=BALL)(lambda node: marked(node.y == 0))
convention("ReduceL1", "Σ |[0, 2]|", ([0.0, 2.0],), ([0.0, 1.0],), "as |0|",
           "lambda x: torch.norm(x, 1)", jax=([1.0, 1.0],))  # fmt: skip
convention("ReduceL2", "‖[0, 0]‖", ([0.0, 0.0],), ([0.0, 0.0],), "the middle of the unit ball",
           "torch.norm", jax=([np.nan, np.nan],), tensorflow=([np.nan, np.nan],))  # fmt: skip


@jacobian("ReduceMax", "ReduceMin")
def reduce_extremum(op: Op, node: Node) -> Blocks:
    """y = max x; entries that tie share the derivative equally."""
    axes = reduced_axes(node)
    kept = kept_shape(node.x_shape, axes)
    hits = op.CastLike(op.Equal(node.x, op.Reshape(node.y, kept)), node.y)
    shares = op.Div(hits, op.ReduceSum(hits, axes, keepdims=1)) if axes else hits
    chosen = Diagonal(shares, node.x_shape, chooses=True)
    J = sum_over(node.x_shape, axes, node.dtype) @ chosen
    return {(0, 0): Reshape(node.y_shape, kept, node.dtype) @ J}


def ties_over(node: Node, axes: tuple[int, ...]) -> Count:
    """Results that more than one entry along the axes attains."""
    y = np.reshape(node.y, kept_shape(node.x_shape, axes))
    return tied((node.x == y).sum(axis=axes))


kinks("ReduceMax", "ReduceMin", where=ORDER, given=SHARED)(
    lambda node: ties_over(node, reduced_axes(node))
)
kinks("GlobalMaxPool", where=ORDER, given=FIRST)(
    lambda node: ties_over(node, spatial(node.x_shape))
)
convention("ReduceMax", "max [1, 3, 3]", ([1.0, 3.0, 3.0],), ([0.0, 0.5, 0.5],), SHARED,
           "torch.amax")  # fmt: skip
convention("ReduceMin", "min [1, 1, 3]", ([1.0, 1.0, 3.0],), ([0.5, 0.5, 0.0],), SHARED,
           "torch.amin")  # fmt: skip


@jacobian("GlobalMaxPool")
def global_max_pool(op: Op, node: Node) -> Blocks:
    """y = the maximum over all spatial axes, taken at its first occurrence."""
    n, c = node.x_shape[:2]
    flat = (n, c, size(node.x_shape[2:]))
    at = op.ArgMax(op.Reshape(node.x, flat), axis=-1, keepdims=1)
    J = picked(op, at, 2, flat, node.dtype)
    return {(0, 0): Reshape(node.y_shape, J.out_shape, node.dtype) @ J
            @ Reshape(flat, node.x_shape, node.dtype)}  # fmt: skip


@jacobian("ReduceProd")
def reduce_prod(op: Op, node: Node) -> Blocks:
    """∂y/∂xᵢ = ∏ of the other entries, also correct where some entries are 0."""
    axes, split = reduced_axes(node), rows(node)
    if not axes:
        return {(0, 0): Identity(node.y_shape, node.dtype)}
    d = split.T._apply(op, product_of_others(op, split._apply(op, node.x)))
    J = sum_over(node.x_shape, axes, node.dtype) @ Diagonal(d, node.x_shape)
    return {(0, 0): Reshape(node.y_shape, J.out_shape, node.dtype) @ J}


convention("ReduceProd", "Π [2, 0, 3]", ([2.0, 0.0, 3.0],), ([0.0, 6.0, 0.0],),
           "no kink: no division by 0", "torch.prod")  # fmt: skip


@jacobian("CumSum")
def cum_sum(op: Op, node: Node) -> Blocks:
    """y = running sums along an axis."""
    (axis,) = node.ints(1) or (0,)
    exclusive, reverse = bool(node.exclusive), bool(node.reverse)
    return {
        (0, 0): Cumulative(axis, node.x_shape, node.dtype, exclusive=exclusive, reverse=reverse)
    }


def spatial(shape: Shape) -> tuple[int, ...]:
    """The axes after batch and channels."""
    return tuple(range(2, len(shape)))


@jacobian("CumProd")
def cum_prod(op: Op, node: Node) -> Blocks:
    """y by doubling: y ← y ∘ (y shifted by 1, 2, 4, … with ones shifted in).

    One step has J = diag(shifted y) + diag(y) M, with M the shift, zeros shifted in.
    """
    (axis,) = node.ints(1) or (0,)
    axis, sign = axis % len(node.x_shape), -1 if node.reverse else 1
    y = node.x
    J: Jacobian = Identity(node.x_shape, node.dtype)
    if node.exclusive:
        y, J = shift_along(op, y, axis, sign), move(node, axis, sign)
    for step in doublings(node.x_shape[axis]):
        shifted = shift_along(op, y, axis, sign * step)
        J = (Diagonal(shifted) + Diagonal(y) @ move(node, axis, sign * step)) @ J
        y = op.Mul(y, shifted)
    return {(0, 0): J}


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
def det(op: Op, node: Node) -> Blocks:
    """∂det/∂x = the cofactors, which are signed minors: also correct for singular x."""
    *batch, n, _ = node.x_shape
    cofactors = minors(op, node.x, n)
    labels = "abcdefgh"[: len(batch)]
    sizes = dict(zip(labels + "ij", node.x_shape, strict=True))
    return {(0, 0): Contraction(((cofactors, f"{labels}ij"),), f"{labels}ij", labels, sizes)}


def minors(op: Op, x: Array, n: Number) -> Array:
    """(-1)^(i+j) det(x without row i and column j), at [i, j]."""
    if n == 1:
        return op.Add(op.Mul(x, 0.0), 1.0)
    batch: Shape = shape_of(x)[:-2]
    i, k = op.Reshape(count_up(op, n), (n, 1)), count_up(op, n - 1)
    others = op.Add(k, op.CastLike(op.GreaterOrEqual(k, i), k))
    rows, columns = op.Unsqueeze(others, (1, 3)), op.Unsqueeze(others, (0, 2))
    flat = op.Reshape(x, (*batch, n * n))
    picked = op.Gather(flat, op.Add(op.Mul(rows, n), columns), axis=-1)
    sign = op.Sub(1, op.Mul(op.Mod(op.Add(i, count_up(op, n)), 2), 2))
    return op.Mul(op.Det(picked), op.CastLike(sign, x))
