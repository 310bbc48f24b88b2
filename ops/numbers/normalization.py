"""Softmax, the normalisations to mean 0 and variance 1 or to norm 1, and losses over labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .table import as_type, kernel, single_precision

EPSILON = single_precision(1e-5)


@kernel("Softmax", wide=True)
def softmax(x: Array, *, axis: int = -1) -> Array:
    """exp(x) / Σ exp(x) along an axis."""
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis=axis, keepdims=True)


@kernel("LogSoftmax", wide=True)
def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """x − log Σ exp(x) along an axis."""
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def per_channel(v: Array, x: Array) -> Array:
    """A vector over axis 1 of x, shaped to broadcast against x."""
    return v.reshape(-1, *(1,) * (x.ndim - 2))


@kernel("BatchNormalization", counted=True, wide=True, tensors=True)
def batch_normalization(
    x: Array,
    scale: Array,
    b: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float = EPSILON,
    momentum: float = single_precision(0.9),
    training_mode: int = 0,
    outputs: int = 1,
) -> Any:
    """(x − μ) / √(σ² + ε) · scale + b per channel; μ and σ² are given, or those of the batch."""
    if not training_mode:
        return affine(x, scale, b, mean, var, epsilon)
    axes = (0, *range(2, x.ndim))
    seen = x.mean(axes)
    spread = ((x - per_channel(seen, x)) ** 2).mean(axes)
    running = (momentum * old + (1 - momentum) * new for old, new in ((mean, seen), (var, spread)))
    return (affine(x, scale, b, seen, spread, epsilon), *running)[:outputs]


def affine(x: Array, scale: Array, b: Array, mean: Array, var: Array, epsilon: float) -> Array:
    """The normalisation per channel as one multiplication and one addition."""
    slope = scale / (var + epsilon) ** 0.5
    y = x * as_type(per_channel(slope, x), x.dtype)
    y += as_type(per_channel(b - mean * slope, x), x.dtype)
    return y


def standard(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """((x − μ) / √(σ² + ε), μ, 1 / √(σ² + ε)) over the axes."""
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    inverse = 1 / ((centred * centred).mean(axes, keepdims=True) + epsilon) ** 0.5
    centred *= inverse
    return centred, mean, inverse


def axes_from(axis: int, x: Array) -> tuple[int, ...]:
    """The axis and all axes after it."""
    return tuple(range(axis % x.ndim, x.ndim))


@kernel("LayerNormalization", counted=True, wide=True, tensors=True)
def layer_normalization(
    x: Array,
    scale: Array,
    b: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = EPSILON,
    stash_type: int = 1,
    outputs: int = 1,
) -> Any:
    """(x − μ) / √(σ² + ε) · scale + b over the axes from `axis` on; then μ and 1 / √(σ² + ε)."""
    y, mean, inverse = standard(x, axes_from(axis, x), epsilon)
    y = y * scale if b is None else y * scale + b
    return y if outputs == 1 else (y, mean, inverse)[:outputs]


@kernel("RMSNormalization", wide=True, tensors=True)
def rms_normalization(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = EPSILON, stash_type: int = 1
) -> Array:
    """x / √(mean x² + ε) · scale over the axes from `axis` on."""
    square = (x * x).mean(axes_from(axis, x), keepdims=True)
    return x / (square + epsilon) ** 0.5 * scale


@kernel("InstanceNormalization", wide=True, tensors=True)
def instance_normalization(x: Array, scale: Array, b: Array, *, epsilon: float = EPSILON) -> Array:
    """(x − μ) / √(σ² + ε) · scale + b, with μ and σ² over the space of each channel."""
    y, _, _ = standard(x, tuple(range(2, x.ndim)), epsilon)
    return y * per_channel(scale, x) + per_channel(b, x)


@kernel("GroupNormalization", wide=True, tensors=True)
def group_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    *,
    num_groups: int,
    epsilon: float = EPSILON,
    stash_type: int = 1,
) -> Array:
    """(x − μ) / √(σ² + ε) · scale + b, with μ and σ² over each group of channels and its space."""
    groups = x.reshape(len(x), num_groups, math.prod(x.shape[1:]) // num_groups)
    y, _, _ = standard(groups, (2,), epsilon)
    return y.reshape(x.shape) * per_channel(scale, x) + per_channel(bias, x)


@kernel("MeanVarianceNormalization", wide=True)
def mean_variance_normalization(x: Array, *, axes: Any = (0, 2, 3)) -> Array:
    """(x − μ) / (σ + 10⁻⁹) over the axes."""
    centred = x - np.mean(x, axis=tuple(axes), keepdims=True)
    return centred / (np.std(x, axis=tuple(axes), keepdims=True) + 1e-9)


@kernel("Dropout", counted=True)
def dropout(
    x: Array,
    ratio: Any = None,
    training_mode: Any = None,
    *,
    seed: int | None = None,
    outputs: int = 1,
) -> Any:
    """x, in training with a fraction `ratio` set to 0 and the rest scaled up; then the mask."""
    ratio = 0.5 if ratio is None else float(ratio)
    if training_mode is None or not training_mode or ratio == 0:
        return x if outputs == 1 else (x, np.ones(x.shape, bool))
    kept = np.random.default_rng(seed).random(x.shape) >= ratio
    y = (kept * x / (1 - ratio)).astype(x.dtype, copy=False)
    return y if outputs == 1 else (y, kept)


@kernel("LpNormalization", wide=True)
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """x / ‖x‖ₚ along an axis; 0 where the norm is 0."""
    norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
    return x / np.where(norm == 0, 1, norm)


@kernel("NegativeLogLikelihoodLoss", wide=True)
def negative_log_likelihood(
    log_prob: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """−w[label] · log_prob[label]; the mean divides by the sum of the weights."""
    batch, classes, *rest = log_prob.shape
    if labels.shape != (batch, *rest):
        raise ValueError(f"labels have shape {labels.shape}, not {(batch, *rest)}")
    if weights is not None and weights.shape != (classes,):
        raise ValueError(f"weights have shape {weights.shape}, not {(classes,)}")
    counted = np.ones(labels.shape, bool) if ignore_index is None else labels != ignore_index
    at = np.where(counted, labels, 0)
    share = counted.astype(log_prob.dtype) if weights is None else np.where(counted, weights[at], 0)
    loss = -share * np.take_along_axis(log_prob, np.expand_dims(at, 1), 1).squeeze(1)
    if reduction == "none":
        return loss
    return np.sum(loss) / np.sum(share) if reduction == "mean" else np.sum(loss)


@kernel("SoftmaxCrossEntropyLoss", counted=True, wide=True)
def softmax_cross_entropy(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: int = 1,
) -> Any:
    """The negative log likelihood of log softmax(scores); then log softmax(scores)."""
    log_prob = log_softmax(scores, axis=1)
    loss = negative_log_likelihood(
        log_prob, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return loss if outputs == 1 else (loss, log_prob)
