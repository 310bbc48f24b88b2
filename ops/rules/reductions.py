"""Reductions: a sum of scaled entries, one line each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Cumulative,
    Diagonal,
    Identity,
    Jacobian,
    Permutation,
    Reshape,
    Shape,
    broadcast,
    shape_of,
    size,
)
from ...jacobians.symint import largest
from ..conventions import BALL, FIRST, ORDER, SHARED, ZERO_NORM, convention, kinks, marked, tied
from ..formula import derivative_of_sum
from ..node import Node
from ..registry import Blocks, Count, jacobian, says
from ..trees import evaluate
from .factors import doublings, moved
from .indexing import picked


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes that a Reduce* operator reduces: those of its second input, by default all."""
    axes = node.ints(1)
    if not axes:
        return () if node.noop_with_empty_axes else tuple(range(len(node.x_shape)))
    return tuple(a % len(node.x_shape) for a in axes)


def kept_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """The shape after a reduction that keeps its axes with length 1."""
    return tuple(1 if k in axes else n for k, n in enumerate(shape))


def total(shape: Shape, axes: tuple[int, ...], dtype: Any) -> Jacobian:
    """Σ over some axes, kept with length 1."""
    return broadcast(kept_shape(shape, axes), shape, dtype).T


def mean_over(shape: Shape, axes: tuple[int, ...], dtype: Any) -> Jacobian:
    """The mean over some axes, kept with length 1."""
    n = size(tuple(shape[a] for a in axes))
    return total(shape, axes, dtype) / largest(n, 1)


SUMS: dict[str, tuple[str, str]] = {}
"""op_type -> the formulas of a reduction: y = outer(s) with s = Σ inner(x)."""


def reduction(op_type: str, outer: str, inner: str) -> None:
    """Declare y = outer(s) with s = Σ inner(x): SymPy derives ∂y/∂x by x and the output Y."""
    SUMS[op_type] = outer, inner

    def rule(op: Any, node: Node) -> Blocks:
        axes = reduced_axes(node)
        kept = kept_shape(node.x_shape, axes)
        y = op.Reshape(node.y, kept)
        values = {"x": node.x, "Y": y}
        J = total(node.x_shape, axes, node.dtype)
        value = evaluate(op, derivative_of_sum(outer, inner), values, node.dtype)
        if not isinstance(value, float):
            J = J @ Diagonal(value, node.x_shape)
        return {(0, 0): Reshape(node.y_shape, kept, node.dtype) @ J}

    rule.__doc__ = f"y = {outer} with s = Σ {inner}; 0 where the derivative divides by y = 0."
    jacobian(op_type)(rule)


reduction("ReduceSum", "s", "x")
reduction("ReduceL1", "s", "abs(x)")
reduction("ReduceL2", "sqrt(s)", "x**2")
reduction("ReduceSumSquare", "s", "x**2")
reduction("ReduceLogSum", "log(s)", "x")
says("ReduceLogSum", domain=lambda i, x: np.abs(x) + 0.1)
reduction("ReduceLogSumExp", "log(s)", "exp(x)")


kinks("ReduceL1", where="where an entry is 0", given="0, as for |0|")(
    lambda node: marked(node.x == 0)
)
kinks("ReduceL2", where=ZERO_NORM, given=BALL)(lambda node: marked(node.y == 0))
convention("ReduceL1", "Σ |[0, 2]|", ([0.0, 2.0],), ([0.0, 1.0],), "as |0|",
           "lambda x: torch.norm(x, 1)", jax=([1.0, 1.0],))  # fmt: skip
convention("ReduceL2", "‖[0, 0]‖", ([0.0, 0.0],), ([0.0, 0.0],), "the middle of the unit ball",
           "torch.norm", jax=([np.nan, np.nan],), tensorflow=([np.nan, np.nan],))  # fmt: skip


@jacobian("ReduceMean")
def reduce_mean(op: Any, node: Node) -> Blocks:
    """y = Σ x / n."""
    J = mean_over(node.x_shape, reduced_axes(node), node.dtype)
    return {(0, 0): Reshape(node.y_shape, J.out_shape, node.dtype) @ J}


@jacobian("GlobalAveragePool")
def global_average_pool(op: Any, node: Node) -> Blocks:
    """y = the mean over all spatial axes."""
    return {(0, 0): mean_over(node.x_shape, spatial(node.x_shape), node.dtype)}


@jacobian("ReduceMax", "ReduceMin")
def reduce_extremum(op: Any, node: Node) -> Blocks:
    """y = max x; entries that tie share the derivative equally."""
    axes = reduced_axes(node)
    kept = kept_shape(node.x_shape, axes)
    hits = op.CastLike(op.Equal(node.x, op.Reshape(node.y, kept)), node.y)
    shares = op.Div(hits, op.ReduceSum(hits, axes, keepdims=1)) if axes else hits
    chosen = Diagonal(shares, node.x_shape, chooses=True)
    J = total(node.x_shape, axes, node.dtype) @ chosen
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
def global_max_pool(op: Any, node: Node) -> Blocks:
    """y = the maximum over all spatial axes, taken at its first occurrence."""
    n, c = node.x_shape[:2]
    flat = (n, c, size(node.x_shape[2:]))
    at = op.ArgMax(op.Reshape(node.x, flat), axis=-1, keepdims=1)
    J = picked(op, at, 2, flat, node.dtype)
    return {(0, 0): Reshape(node.y_shape, J.out_shape, node.dtype) @ J
            @ Reshape(flat, node.x_shape, node.dtype)}  # fmt: skip


@jacobian("ReduceProd")
def reduce_prod(op: Any, node: Node) -> Blocks:
    """∂y/∂xᵢ = ∏ of the other entries, also correct where some entries are 0."""
    axes = reduced_axes(node)
    kept = kept_shape(node.x_shape, axes)
    if not axes:
        return {(0, 0): Identity(node.y_shape, node.dtype)}
    others = tuple(k for k in range(len(kept)) if k not in axes)
    last = Permutation((*others, *axes), node.x_shape, node.dtype)
    flat = (*last.out_shape[: len(others)], size(last.out_shape[len(others) :]))
    split = Reshape(flat, last.out_shape, node.dtype) @ last
    d = split.T._apply(op, product_of_others(op, split._apply(op, node.x)))
    J = total(node.x_shape, axes, node.dtype) @ Diagonal(d, node.x_shape)
    return {(0, 0): Reshape(node.y_shape, kept, node.dtype) @ J}


convention("ReduceProd", "Π [2, 0, 3]", ([2.0, 0.0, 3.0],), ([0.0, 6.0, 0.0],),
           "no kink: no division by 0", "torch.prod")  # fmt: skip


def product_of_others(op: Any, x: Array) -> Array:
    """∏ of all other entries along the last axis: those before times those after, by doubling.

    A quotient would be cheaper, but at 0 its value and its derivatives would be wrong.
    """
    before, after = moved(op, x, -1, 1), moved(op, x, -1, -1)
    for step in doublings(shape_of(x)[-1]):
        before = op.Mul(before, moved(op, before, -1, step))
        after = op.Mul(after, moved(op, after, -1, -step))
    return op.Mul(before, after)


@jacobian("CumSum")
def cum_sum(op: Any, node: Node) -> Blocks:
    """y = running sums along an axis."""
    (axis,) = node.ints(1) or (0,)
    exclusive, reverse = bool(node.exclusive), bool(node.reverse)
    return {
        (0, 0): Cumulative(axis, node.x_shape, node.dtype, exclusive=exclusive, reverse=reverse)
    }


def spatial(shape: Shape) -> tuple[int, ...]:
    """The axes after batch and channels."""
    return tuple(range(2, len(shape)))
