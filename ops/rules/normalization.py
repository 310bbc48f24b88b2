"""Softmax, norms ‖x‖ₚ, normalisations and losses: compositions of diagonals and means."""

from __future__ import annotations

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Identity,
    Jacobian,
    Op,
    Reshape,
    Shape,
    SumTo,
    Take,
    broadcast,
    dtype_of,
    shape_of,
    take_flat,
)
from ...jacobians.symint import agree
from ..conventions import BALL, SECOND, ZERO_NORM, are_zero, kinks, marked
from ..node import Node, has_nan
from ..numbers.windows import AUTO_PADS
from ..registry import Blocks, Count, jacobian, says
from .convolution import window_sums, windows_of
from .indexing import flat_positions
from .reductions import kept_shape, mean_over, spatial, sum_over


def spread_total(shape: Shape, axes: tuple[int, ...], dtype: np.dtype) -> Jacobian:
    """Each entry becomes the sum over the axes: 1 1ᵀ per row."""
    repeat = broadcast(kept_shape(shape, axes), shape, dtype)
    return repeat @ repeat.T


@jacobian("Softmax")
def softmax(op: Op, node: Node) -> Blocks:
    """J = diag(y) (I - 1 yᵀ) along the axis."""
    rows = find_counting_rows(op, node)
    y = node.y if rows is None else op.Where(rows, node.y, op.CastLike(0.0, node.y))
    shape, d = node.y_shape, Diagonal(y)
    total_ = spread_total(shape, (node.axis % len(shape),), node.dtype)
    return {(0, 0): d @ (Identity(shape, node.dtype) - total_ @ d)}


@jacobian("LogSoftmax")
def log_softmax(op: Op, node: Node) -> Blocks:
    """J = I - 1 exp(y)ᵀ along the axis."""
    shape, rows, y = node.y_shape, find_counting_rows(op, node), op.Exp(node.y)
    total_ = spread_total(shape, (node.axis % len(shape),), node.dtype)
    if rows is None:
        return {(0, 0): Identity(shape, node.dtype) - total_ @ Diagonal(y)}
    numbers = throughout(op, node, op.Not(op.IsNaN(node.x)))  # ONNX Runtime skips a NaN of x
    one, nan = (op.CastLike(x, y) for x in (1.0, np.nan))
    y = op.Mul(y, op.Where(numbers, one, nan))  # so that derivatives of the row are NaN, too
    y = op.Where(rows, y, op.CastLike(0.0, y))
    J = Identity(shape, node.dtype) - total_ @ Diagonal(y)
    return {(0, 0): Diagonal(op.CastLike(rows, y), shape, chooses=True) @ J}


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


class Standardized:
    """x̂ = (x - μ) / σ with σ² = mean((x - μ)²) + ε; μ = 0 for a root mean square.

    Without ε, σ = 1 where it would be 0.

    J = diag(1/σ) (C - diag(x̂) M diag(x̂)), with M the mean spread over the axes and C = I - M,
    or I for a root mean square.
    """

    def __init__(
        self, op: Op, x: Array, axes: tuple[int, ...], epsilon: float | None, centred: bool = True
    ):
        self.shape, self.dtype, self.axes = shape_of(x), dtype_of(x), axes
        self.mean = op.ReduceMean(x, axes, keepdims=1)
        deviation = op.Sub(x, self.mean) if centred else x
        self.variance = op.ReduceMean(op.Mul(deviation, deviation), axes, keepdims=1)
        offset = epsilon if epsilon is not None else op.CastLike(op.Equal(self.variance, 0.0), x)
        self.inverse = op.Reciprocal(op.Sqrt(op.Add(self.variance, offset)))
        self.value = op.Mul(deviation, self.inverse)
        self.centred = centred

    def jacobian(self, share: Array | None = None) -> Jacobian:
        """∂x̂/∂x; with s = σ / (σ + δ), ∂/∂x of (x - μ) / (σ + δ): diag(s/σ) (C - s x̂ M x̂)."""
        repeat = broadcast(kept_shape(self.shape, self.axes), self.shape, self.dtype)
        spread = repeat @ mean_over(self.shape, self.axes, self.dtype)
        x_hat, centre = Diagonal(self.value), Identity(self.shape, self.dtype)
        outer: Jacobian = Diagonal(self.inverse, self.shape)
        inner = x_hat @ spread @ x_hat
        if share is not None:
            outer, inner = Diagonal(share, self.shape) @ outer, Diagonal(share, self.shape) @ inner
        return outer @ ((centre - spread if self.centred else centre) - inner)

    def inverse_jacobian(self, op: Op) -> Jacobian:
        """∂(1/σ)/∂x = -1/σ² mean(x̂ ∂x)."""
        mean = mean_over(self.shape, self.axes, self.dtype)
        factor = op.Neg(op.Mul(self.inverse, self.inverse))
        return Diagonal(factor) @ mean @ Diagonal(self.value)


def scale_and_shift(
    op: Op, node: Node, norm: Standardized, gain: Shape | None = None
) -> dict[tuple[int, int], Jacobian]:
    """y = x̂ · scale + bias, with x̂ in the shape of x."""
    scale = op.CastLike(op.Reshape(node.inputs[1], gain) if gain else node.inputs[1], node.y)
    split = Reshape(norm.shape, node.x_shape, node.dtype)
    blocks = {
        (0, 0): Diagonal(scale, node.x_shape) @ split.T @ norm.jacobian() @ split,
        (0, 1): Diagonal(op.Reshape(norm.value, node.x_shape)) @ lift(node, 1, gain),
    }
    if node.input(2) is not None:
        blocks[0, 2] = lift(node, 2, gain)
    return blocks


def lift(node: Node, i: int, gain: Shape | None = None) -> Jacobian:
    """The broadcast of a parameter to the shape of x, first reshaped to `gain` if given."""
    shape = shape_of(node.inputs[i])
    gain = gain or shape
    return broadcast(gain, node.x_shape, node.dtype) @ Reshape(gain, shape, node.dtype)


def last_axes(node: Node) -> tuple[int, ...]:
    """The axes from `axis` on."""
    rank = len(node.x_shape)
    return tuple(range(node.axis % rank, rank))


@jacobian("LayerNormalization")
def layer_normalization(op: Op, node: Node) -> Blocks:
    """Standardised over the last axes, then scaled; mean and 1/σ are further outputs."""
    axes = last_axes(node)
    norm = Standardized(op, node.x, axes, node.epsilon)
    mean = mean_over(node.x_shape, axes, node.dtype)
    extra = {(1, 0): mean, (2, 0): norm.inverse_jacobian(op)}
    return {**scale_and_shift(op, node, norm), **extra}


@jacobian("RMSNormalization")
def rms_normalization(op: Op, node: Node) -> Blocks:
    """x divided by its root mean square over the last axes, then scaled."""
    x = op.CastLike(node.x, node.y)
    norm = Standardized(op, x, last_axes(node), node.epsilon, centred=False)
    return scale_and_shift(op, node, norm)


@jacobian("InstanceNormalization")
def instance_normalization(op: Op, node: Node) -> Blocks:
    """Standardised over the spatial axes, then scaled per channel."""
    norm = Standardized(op, node.x, spatial(node.x_shape), node.epsilon)
    return scale_and_shift(op, node, norm, channel_shape(node.x_shape))


@jacobian("GroupNormalization")
def group_normalization(op: Op, node: Node) -> Blocks:
    """Standardised over each group of channels and the spatial axes, then scaled per channel."""
    n, c, *rest = node.x_shape
    grouped = (n, node.num_groups, c // node.num_groups, *rest)
    axes = tuple(range(2, len(grouped)))
    norm = Standardized(op, op.Reshape(node.x, grouped), axes, node.epsilon)
    return scale_and_shift(op, node, norm, channel_shape(node.x_shape))


@jacobian("MeanVarianceNormalization")
def mean_variance_normalization(op: Op, node: Node) -> Blocks:
    """(x - μ) / (σ + 1e-9) over the given axes."""
    rank = len(node.x_shape)
    axes = tuple(a % rank for a in node.axes or (0, 2, 3))
    norm = Standardized(op, node.x, axes, None)
    share = op.Reciprocal(op.Add(op.Mul(norm.inverse, MVN_EPSILON), 1.0))
    share = op.Where(op.Equal(norm.variance, 0.0), 1 / MVN_EPSILON, share)  # y = (x - μ) / ε there
    return {(0, 0): norm.jacobian(share)}


MVN_EPSILON = 1e-9
"""The constant that ONNX adds to σ in MeanVarianceNormalization."""


kinks("MeanVarianceNormalization", where=f"where the variance is 0{SECOND}", given="")
says("BatchNormalization", near=lambda i, x: np.abs(x) + 0.1 if i == 4 else x)


@jacobian("BatchNormalization")
def batch_normalization(op: Op, node: Node) -> Blocks:
    """Standardised by the given statistics, or by the batch's own, then scaled per channel."""
    gain = channel_shape(node.x_shape) if len(node.x_shape) > 1 else (1,)  # x of one axis: C = 1
    if node.training_mode:
        return batch_statistics(op, node, gain)
    scale, mean, variance = (op.Reshape(node.inputs[i], gain) for i in (1, 3, 4))
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, node.epsilon)))
    scale, mean, inverse = (op.CastLike(a, node.x) for a in (scale, mean, inverse))
    slope = op.Mul(scale, inverse)
    blocks = {(0, 0): Diagonal(slope, node.x_shape), (0, 2): lift(node, 2, gain)}
    if node.wants(3):
        blocks[0, 3] = Diagonal(op.Neg(slope), node.x_shape) @ lift(node, 3, gain)
    if node.wants(1) or node.wants(4):
        x_hat = op.Mul(op.Sub(node.x, mean), inverse)
        d = op.Mul(op.Mul(x_hat, slope), op.Mul(inverse, -0.5))
        blocks[0, 1] = Diagonal(x_hat) @ lift(node, 1, gain)
        blocks[0, 4] = Diagonal(d, node.x_shape) @ lift(node, 4, gain)
    return blocks


def batch_statistics(op: Op, node: Node, gain: Shape) -> dict[tuple[int, int], Jacobian]:
    """Training mode: the running outputs are momentum · old + (1 - momentum) · batch statistic."""
    axes = (0, *spatial(node.x_shape))
    norm = Standardized(op, node.x, axes, node.epsilon)
    blocks = scale_and_shift(op, node, norm, gain)
    channels, dtype = shape_of(node.inputs[3]), node.dtype
    flat = Reshape(channels, gain, dtype)
    mean = mean_over(node.x_shape, axes, dtype)
    deviation = op.Sub(node.x, norm.mean)
    statistics = {1: mean, 2: 2.0 * (mean @ Diagonal(deviation))}
    for o, statistic in statistics.items():
        blocks[o, 0] = (1 - node.momentum) * (flat @ statistic)
        blocks[o, 2 + o] = node.momentum * Identity(channels, dtype_of(node.inputs[3]))
    return blocks


def channel_shape(shape: Shape) -> Shape:
    """(1, C, 1, ...): the shape in which a vector over the channels broadcasts."""
    return (1, shape[1], *(1,) * (len(shape) - 2))


@jacobian("LpPool", auto_pad=AUTO_PADS, grows=True)
def lp_pool(op: Op, node: Node) -> Blocks:
    """The norm of each window."""
    return {(0, 0): norm_block(op, node, window_sums(node, windows_of(node, node.kernel_shape)))}


@jacobian("GlobalLpPool")
def global_lp_pool(op: Op, node: Node) -> Blocks:
    """The norm over all spatial axes."""
    return {(0, 0): norm_block(op, node, sum_over(node.x_shape, spatial(node.x_shape), node.dtype))}


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
