"""Softmax, norms ‖x‖ₚ, normalisations and losses: compositions of diagonals and means."""

from __future__ import annotations

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Identity,
    Jacobian,
    Op,
    Shape,
    SumTo,
    Take,
    broadcast,
    shape_of,
    take_flat,
)
from ...jacobians.symint import agree
from ..conventions import BALL, SECOND, ZERO_NORM, are_zero, kinks, marked
from ..indexed import COUNTS, declare_indexed
from ..node import Node, has_nan
from ..numbers.windows import AUTO_PADS
from ..registry import Blocks, Count, jacobian, says
from .convolution import window_sums, windows_of
from .indexing import flat_positions
from .reductions import kept_shape


def spread_total(shape: Shape, axes: tuple[int, ...], dtype: np.dtype) -> Jacobian:
    """Each entry becomes the sum over the axes: 1 1ᵀ per row."""
    repeat = broadcast(kept_shape(shape, axes), shape, dtype)
    return repeat @ repeat.T


declare_indexed(
    "Softmax",
    "y[*r, k] = exp(x[*r, k])/sum(exp(x[*r, j]), j)",
    axes=lambda node: {"k": one_axis(node)},
    numbers=lambda op, node: without_empty_rows(op, node),
)
declare_indexed(
    "LogSoftmax",
    "y[*r, k] = x[*r, k] - log(sum(exp(x[*r, j]), j))",
    axes=lambda node: {"k": one_axis(node)},
    numbers=lambda op, node: with_rows_of_nan(op, node),
)


def one_axis(node: Node) -> tuple[int, ...]:
    """The axis that a node names."""
    return (node.axis % len(node.x_shape),)


def without_empty_rows(op: Op, node: Node) -> dict[str, Array]:
    """0 in place of Y in rows that are -∞ throughout."""
    rows = find_counting_rows(op, node)
    return {} if rows is None else {"Y": op.Where(rows, node.y, op.CastLike(0.0, node.y))}


def with_rows_of_nan(op: Op, node: Node) -> dict[str, Array]:
    """Other numbers in rows that are -∞ throughout, which do not count, and NaN throughout in rows
    with a NaN, which ONNX Runtime skips, so that derivatives of the row are NaN too.
    """
    rows = find_counting_rows(op, node)
    if rows is None:
        return {}
    zero, one, nan = (op.CastLike(x, node.x) for x in (0.0, 1.0, np.nan))
    numbers = throughout(op, node, op.Not(op.IsNaN(node.x)))
    x = op.Mul(node.x, op.Where(numbers, one, nan))  # a factor: a choice would have slope 0
    return {"x": op.Where(rows, x, zero), COUNTS: op.CastLike(rows, node.y)}


def find_counting_rows(op: Op, node: Node) -> Array | None:
    """False for rows that are -∞ throughout, which have no softmax; None if no entry of y is NaN.

    Models that mask out whole rows replace their softmax, and 0 · NaN would hide the derivative of
    the replacement. A NaN that comes from x is kept.
    """
    if not has_nan(node.y):
        return None
    most = op.ReduceMax(node.x, (node.axis,), keepdims=1)  # an engine may skip a NaN
    total = op.ReduceSum(node.x, (node.axis,), keepdims=1)
    nothing = op.CastLike(-np.inf, node.x)
    return op.Not(op.And(op.Equal(most, nothing), op.Equal(total, nothing)))


def throughout(op: Op, node: Node, truth: Array) -> Array:
    """Whether a condition holds for all entries of a row."""
    least = op.ReduceMin(op.CastLike(truth, node.y), (node.axis,), keepdims=1)
    return op.Greater(least, op.CastLike(0.0, least))


def last_axes(node: Node) -> tuple[int, ...]:
    """The axes from `axis` on."""
    rank = len(node.x_shape)
    return tuple(range(node.axis % rank, rank))


MOMENTS = """
    m[{of}] = mean(x[{all}], {over})
    i[{of}] = 1/sqrt(mean((x[{all}] - m[{of}])**2, {over}) + epsilon)
    h[{all}] = (x[{all}] - m[{of}])*i[{of}]
    y[{all}] = h[{all}]*{scale} + {bias}
"""
"""Standardised over some indices, then scaled and shifted."""

declare_indexed(
    "LayerNormalization",
    MOMENTS.format(of="*r", all="*r, *s", over="*s", scale="w[...]", bias="b[...]"),
    inputs="xwb",
    outputs="ymi",
    axes=lambda node: {"s": last_axes(node)},
)
declare_indexed(
    "InstanceNormalization",
    MOMENTS.format(of="n, c", all="n, c, *s", over="*s", scale="w[c]", bias="b[c]"),
    inputs="xwb",
)
declare_indexed(
    "GroupNormalization",
    MOMENTS.format(
        of="n, g", all="n, (g, c), *s", over="c, *s", scale="w[(g, c),]", bias="b[(g, c),]"
    ),
    inputs="xwb",
    sizes=lambda node: {"g": node.num_groups},
)
ROOT_MEAN_SQUARE = """
    i[*r] = 1/sqrt(mean(x[*r, *s]**2, *s) + epsilon)
    h[*r, *s] = x[*r, *s]*i[*r]
    y[*r, *s] = h[*r, *s]*w[...]
"""
declare_indexed("RMSNormalization", ROOT_MEAN_SQUARE, axes=lambda node: {"s": last_axes(node)})
declare_indexed(
    "MeanVarianceNormalization",
    """
    m[*r] = mean(x[*r, *s], *s)
    d[*r] = sqrt(mean((x[*r, *s] - m[*r])**2, *s))
    y[*r, *s] = (x[*r, *s] - m[*r])/(d[*r] + 1e-9)
""",
    axes=lambda node: {"s": tuple(a % len(node.x_shape) for a in node.axes or (0, 2, 3))},
)
kinks("MeanVarianceNormalization", where=f"where the variance is 0{SECOND}", given="")

GIVEN = """
    a[c] = scale[c]/sqrt(variance[c] + epsilon)
    y[n, c, *s] = (x[n, c, *s] - mean[c])*a[c] + b[c]
"""
OF_BATCH = """
    m[c] = mean(x[n, c, *s], n, *s)
    v[c] = mean((x[n, c, *s] - m[c])**2, n, *s)
    a[c] = scale[c]/sqrt(v[c] + epsilon)
    y[n, c, *s] = (x[n, c, *s] - m[c])*a[c] + b[c]
    running_mean[c] = momentum*mean[c] + (1 - momentum)*m[c]
    running_variance[c] = momentum*variance[c] + (1 - momentum)*v[c]
"""
STATISTICS = {(training, rank > 1): text if rank > 1 else text.replace(
    "[n, c, *s]", "[(n, c),]").replace(", *s", "") for rank in (2, 1)
    for training, text in ((0, GIVEN), (1, OF_BATCH))}  # fmt: skip
"""By training mode and whether x has more than one axis; if not, there is one channel."""

declare_indexed(
    "BatchNormalization",
    STATISTICS,
    inputs=("x", "scale", "b", "mean", "variance"),
    outputs=("y", "running_mean", "running_variance"),
    by=lambda node: (int(node.training_mode or 0), len(node.x_shape) > 1),
    sizes=lambda node: {} if len(node.x_shape) > 1 else {"c": 1},
)
says("BatchNormalization", near=lambda i, x: np.abs(x) + 0.1 if i == 4 else x)


@jacobian("LpPool", auto_pad=AUTO_PADS, grows=True)
def lp_pool(op: Op, node: Node) -> Blocks:
    """The norm of each window."""
    return {(0, 0): norm_block(op, node, window_sums(node, windows_of(node, node.kernel_shape)))}


declare_indexed(
    "GlobalLpPool",
    lambda p: f"y[n, c] = sum(abs(x[n, c, *s])**{p}, *s)**(1/{p})",
    shown=2,
    by=lambda node: node.p,
)


def norm_block(op: Op, node: Node, sums: Jacobian) -> Jacobian:
    """J = diag(y^(1-p)) S diag(sign(x) |x|^(p-1)), with y = (S |x|ᵖ)^(1/p)."""
    none = op.Equal(node.y, 0.0)
    outer = op.Where(none, 0.0, integer_power(op, op.Where(none, 1.0, node.y), 1 - node.p))
    return Diagonal(outer) @ sums @ Diagonal(slope(op, node.x, node.p))


@jacobian("LpNormalization", p=(1, 2))
def lp_normalization(op: Op, node: Node) -> Blocks:
    """y = x / ‖x‖ along the axis, with g = ∂‖x‖/∂x = sign(y) |y|^(p-1) and ‖x‖ = gᵀ x."""
    axis, g = node.axis % len(node.x_shape), slope(op, node.y, node.p)
    norm = op.ReduceSum(op.Mul(g, node.x), (axis,), keepdims=1)  # x² would overflow
    none = op.Equal(norm, 0.0)
    inverse = op.Where(none, 0.0, op.Reciprocal(op.Where(none, 1.0, norm)))
    return {(0, 0): normalised(node, inverse, node.y, g, axis)}


def normalised(node: Node, inverse: Array, y: Array, g: Array, axis: int) -> Jacobian:
    """(I - y gᵀ) / m of y = x / m(x) along an axis, where g = ∂m/∂x and m = gᵀ x."""
    shape = node.y_shape
    rest = Diagonal(y) @ spread_total(shape, (axis,), node.dtype) @ Diagonal(g)
    return Diagonal(inverse, shape) @ (Identity(shape, node.dtype) - rest)


def slope(op: Op, x: Array, p: int) -> Array:
    """sign(x) |x|^(p-1)."""
    if p == 1:
        return op.Sign(x)
    return x if p == 2 else op.Mul(op.Sign(x), integer_power(op, op.Abs(x), p - 1))


def integer_power(op: Op, x: Array, exponent: int) -> Array:
    return op.Pow(x, op.CastLike(float(exponent), x))


NORMS = f"{ZERO_NORM}; for p = 1, where an entry is 0"


@kinks("LpPool", "GlobalLpPool", where=NORMS, given=BALL)
def zero_norms(node: Node) -> Count:
    """For p = 1 entries that are 0, else norms that are 0."""
    return are_zero(node) if node.p == 1 else marked(node.y == 0)


@kinks("LpNormalization", where=NORMS, given="0")
def zero_rows(node: Node) -> Count:
    """For p = 1 entries that are 0, else rows of zeros."""
    return are_zero(node) if node.p == 1 else marked(np.all(node.x == 0, axis=node.axis))


REDUCTIONS = ("none", "sum", "mean")


@jacobian("NegativeLogLikelihoodLoss", reduction=REDUCTIONS)
def negative_log_likelihood(op: Op, node: Node) -> Blocks:
    """lₙ = -w[tₙ] x[n, tₙ]: ∂l/∂x = reduction · diag(-share) · selection."""
    return likelihood(op, node, node.x)


@jacobian("SoftmaxCrossEntropyLoss", reduction=REDUCTIONS)
def softmax_cross_entropy(op: Op, node: Node) -> Blocks:
    """The negative log likelihood of p = log softmax(x), with ∂p/∂x = I - 1 exp(p)ᵀ."""
    given = node.output(1)
    log_prob = op.LogSoftmax(node.x, axis=1) if given is None else given
    spread = spread_total(node.x_shape, (1,), node.dtype)
    J = Identity(node.x_shape, node.dtype) - spread @ Diagonal(op.Exp(log_prob))
    blocks = likelihood(op, node, log_prob)
    return {**blocks, (0, 0): blocks[0, 0] @ J, (1, 0): J}


def likelihood(op: Op, node: Node, log_prob: Array) -> dict[tuple[int, int], Jacobian]:
    """∂loss/∂x for log probabilities x, and ∂loss/∂w.

    A weighted mean also depends on w through its denominator. Ignored labels have the share 0.
    """
    labels = op.CastLike(node.inputs[1], np.zeros((), np.int64))
    shape, weights, ignored = shape_of(labels), node.input(2), node.ignore_index
    if not agree(shape, fitting := (node.x_shape[0], *node.x_shape[2:])):
        raise ValueError(f"labels of shape {shape} do not fit scores for {fitting}")
    kept = np.ones((), bool) if ignored is None else op.Not(op.Equal(labels, ignored))
    at = labels if ignored is None else op.Where(kept, labels, 0)
    counted = op.Expand(op.CastLike(kept, node.x), shape)
    share = counted if weights is None else op.Mul(counted, op.Gather(weights, at, axis=0))
    places = op.Reshape(flat_positions(op, op.Unsqueeze(at, (1,)), 1, node.x_shape), shape)
    selection = take_flat(places, node.x_shape, node.dtype, node.x_shape[:1])
    reduction: Jacobian = Identity(shape, node.dtype)
    if node.reduction != "none":
        reduction = SumTo((), shape, node.dtype)
    if node.reduction == "mean":
        count = reduction._apply(op, share)
        if ignored is not None:  # perhaps all of them, and then nothing is multiplied
            count = op.Where(op.Equal(count, 0.0), 1.0, count)
        reduction = Diagonal(op.Reciprocal(count)) @ reduction
    blocks = {(0, 0): reduction @ Diagonal(op.Neg(share), chooses=True) @ selection}
    if weights is not None and node.wants(2):
        slope = op.Neg(selection._apply(op, log_prob))
        slope = op.Sub(slope, node.y) if node.reduction == "mean" else slope
        slope = slope if ignored is None else op.Where(kept, slope, 0.0)
        chosen = Take(at, 0, shape_of(weights), node.dtype)
        blocks[0, 2] = reduction @ Diagonal(slope) @ chosen
    return blocks
