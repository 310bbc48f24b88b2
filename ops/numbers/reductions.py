"""Reductions, after(reduce(before(x))), and what is made of them: normalisations and losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...jacobians import dtype_of
from ...jacobians.arrays import Array
from ...jacobians.readings import module_of
from .layout import numpy_dtype
from .table import Kernel, as_ints, as_type, highest, kernel, lowest, single_precision

Axes = tuple[int, ...]


def unchanged(x: Array) -> Array:
    """The identity."""
    return x


def reduce_by(ufunc: Any, neutral: Kernel | None = None) -> Kernel:
    """The reduction by a ufunc, in x's own dtype; over no elements, the neutral one."""

    def folded(x: Array, axes: Axes, keepdims: bool) -> Array:
        start = {} if neutral is None or x.size else {"initial": neutral(x.dtype)}
        return ufunc.reduce(x, axis=axes, dtype=x.dtype, keepdims=keepdims, **start)

    return folded


add, multiply = reduce_by(np.add), reduce_by(np.multiply)
greatest, least = reduce_by(np.maximum, lowest), reduce_by(np.minimum, highest)


def log_sum_exp(x: Array, axes: Axes, keepdims: bool) -> Array:
    """log Σ exp(x), with the maximum subtracted so that exp cannot overflow."""
    shift = greatest(x, axes, True)
    shift = np.where(np.isfinite(shift), shift, x.dtype.type(0))
    logs = np.log(add(np.exp(x - shift), axes, True)) + shift
    return logs if keepdims else np.squeeze(logs, axes)


def reductions(
    xp: Any, add: Kernel, multiply: Kernel, greatest: Kernel, least: Kernel, log_sum_exp: Kernel
) -> dict[str, Kernel]:
    """The kernels of ONNX's reductions, of the reductions and the functions of one library."""

    def mean(x: Array, axes: Axes, keepdims: bool) -> Array:
        """Σ x / n; 0 / 0 for no elements."""
        return as_type(add(x, axes, keepdims) / math.prod(x.shape[k] for k in axes), dtype_of(x))

    def norm(x: Array, axes: Axes, keepdims: bool) -> Array:
        """√Σ x², with a power of 2 near the greatest |x| divided out: its square may overflow."""
        scale: Any = 1
        if (dtype := dtype_of(x)).kind == "f":
            info = np.finfo(dtype)
            exponents = xp.floor(xp.log2(abs(greatest(abs(x), axes, True))))  # ∞ of no entries
            scale = xp.exp2(xp.clip(exponents, int(info.minexp), int(info.maxexp) - 2))
        norms = xp.sqrt(add(xp.square(x / scale), axes, True)) * scale
        return norms if keepdims else xp.squeeze(norms, axes)

    steps = {
        "ReduceSum": (unchanged, add, unchanged),
        "ReduceMean": (unchanged, mean, unchanged),
        "ReduceProd": (unchanged, multiply, unchanged),
        "ReduceMax": (unchanged, greatest, unchanged),
        "ReduceMin": (unchanged, least, unchanged),
        "ReduceL1": (abs, add, unchanged),
        "ReduceL2": (unchanged, norm, unchanged),
        "ReduceSumSquare": (xp.square, add, unchanged),
        "ReduceLogSum": (unchanged, add, xp.log),
        "ReduceLogSumExp": (unchanged, log_sum_exp, unchanged),
    }
    return {name: make_reduction(*step) for name, step in steps.items()}


def make_reduction(before: Kernel, reduce: Kernel, after: Kernel) -> Kernel:
    """after ∘ reduce ∘ before over all axes if none are given; over none, of each entry alone."""

    def reduced(
        x: Array, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Array:
        given = () if axes is None else as_ints(axes)
        found = given if given or noop_with_empty_axes else tuple(range(x.ndim))
        y = before(x if found else x[..., None])  # torch takes no axes for all of them
        return as_type(after(reduce(y, found or (-1,), bool(found and keepdims))), dtype_of(x))

    return reduced


for name, function in reductions(np, add, multiply, greatest, least, log_sum_exp).items():
    kernel(name, wide=True, hosted=True)(function)


def arg_extremum(search: str) -> Kernel:
    """The index of an extremum; of ties, the first or the last one."""

    def position(
        x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Array:
        searched = module_of(x).flip(x, (axis,)) if select_last_index else x
        places = getattr(searched, search)(axis, keepdims=bool(keepdims))
        return x.shape[axis] - 1 - places if select_last_index else places

    return position


kernel("ArgMax", tensors=True)(arg_extremum("argmax"))
kernel("ArgMin", tensors=True)(arg_extremum("argmin"))


@kernel("Hardmax", tensors=True)
def hardmax(x: Array, *, axis: int = -1) -> Array:
    """1 at the first greatest entry along an axis, else 0."""
    xp = module_of(x)
    places = xp.cumsum(xp.ones_like(x, dtype=int), axis) - 1
    return as_type(places == x.argmax(axis, keepdims=True), dtype_of(x))


def running_reduction(running: str, first: int) -> Kernel:
    """A running reduction along one axis, from a `first` value on if it is exclusive."""

    def scanned(x: Array, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Array:
        (axis,), xp = as_ints(axis), module_of(x)
        y = getattr(xp.flip(x, (axis,)) if reverse else x, running)(axis, dtype=x.dtype)
        if exclusive:
            ahead = (slice(None),) * (axis % x.ndim)
            start = xp.full_like(y[(*ahead, slice(1))], first)
            y = xp.concatenate([start, y[(*ahead, slice(-1))]], axis)
        return xp.flip(y, (axis,)) if reverse else y

    return scanned


kernel("CumSum", wide=True, tensors=True, hosted=True)(running_reduction("cumsum", 0))
kernel("CumProd", wide=True, tensors=True, hosted=True)(running_reduction("cumprod", 1))


# -- normalisations to sum 1, to mean 0 and variance 1 or to norm 1, and losses over labels --------

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
    x: Array, scale: Array, b: Array, mean: Array, var: Array, *, epsilon: float = EPSILON,
    momentum: float = single_precision(0.9), training_mode: int = 0, outputs: int = 1,
) -> Any:  # fmt: skip
    """(x − μ) / √(σ² + ε) · scale + b per channel; μ and σ² are given, or moments of x."""
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
    y = x * as_type(per_channel(slope, x), dtype_of(x))
    y += as_type(per_channel(b - mean * slope, x), dtype_of(x))
    return y


def standard(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """((x − μ) / √(σ² + ε), μ, 1 / √(σ² + ε)) over the axes."""
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    inverse = 1 / ((centred * centred).mean(axes, keepdims=True) + epsilon) ** 0.5
    centred *= inverse
    return centred, mean, inverse


@kernel("LayerNormalization", counted=True, wide=True, tensors=True)
def layer_normalization(
    x: Array, scale: Array, b: Array | None = None, *, axis: int = -1, epsilon: float = EPSILON,
    stash_type: int = 1, outputs: int = 1,
) -> Any:  # fmt: skip
    """(x − μ) / √(σ² + ε) · scale + b over the axes from `axis` on; then μ and 1 / √(σ² + ε)."""
    y, *moments = standard(x, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    y = y * scale if b is None else y * scale + b
    kept = numpy_dtype(stash_type)  # whatever the type of x
    moments = [as_type(z, kept) for z in moments]
    return y if outputs == 1 else (y, *moments)[:outputs]


@kernel("RMSNormalization", wide=True, tensors=True)
def rms_normalization(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = EPSILON, stash_type: int = 1
) -> Array:
    """x / √(mean x² + ε) · scale over the axes from `axis` on."""
    square = (x * x).mean(tuple(range(axis % x.ndim, x.ndim)), keepdims=True)
    return x / (square + epsilon) ** 0.5 * scale


@kernel("InstanceNormalization", wide=True, tensors=True)
def instance_normalization(x: Array, scale: Array, b: Array, *, epsilon: float = EPSILON) -> Array:
    """(x − μ) / √(σ² + ε) · scale + b, with μ and σ² over the space of each channel."""
    y, _, _ = standard(x, tuple(range(2, x.ndim)), epsilon)
    return y * per_channel(scale, x) + per_channel(b, x)


@kernel("GroupNormalization", wide=True, tensors=True)
def group_normalization(
    x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float = EPSILON,
    stash_type: int = 1,
) -> Array:  # fmt: skip
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
    x: Array, ratio: Any = None, training_mode: Any = None, *, seed: int | None = None,
    outputs: int = 1,
) -> Any:  # fmt: skip
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
    greatest = np.max(abs(x), axis=axis, keepdims=True, initial=0)
    x = x / np.where(greatest == 0, 1, greatest)  # its squares do not overflow
    norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
    return x / np.where(norm == 0, 1, norm)


@kernel("NegativeLogLikelihoodLoss", wide=True)
def negative_log_likelihood(
    log_prob: Array, labels: Array, weights: Array | None = None, *,
    ignore_index: int | None = None, reduction: str = "mean",
) -> Array:  # fmt: skip
    """−w[label] · log_prob[label]; the mean divides by the sum of the weights."""
    check_labels(log_prob, labels, weights)
    counted = np.ones(labels.shape, bool) if ignore_index is None else labels != ignore_index
    at = np.where(counted, labels, 0)
    share = counted.astype(log_prob.dtype) if weights is None else np.where(counted, weights[at], 0)
    loss = -share * np.take_along_axis(log_prob, np.expand_dims(at, 1), 1).squeeze(1)
    if reduction == "none":
        return loss
    return np.sum(loss) / np.sum(share) if reduction == "mean" else np.sum(loss)


def check_labels(log_prob: Array, labels: Array, weights: Array | None) -> None:
    """Raises `ValueError` where labels, or weights of the classes, have other shapes than these."""
    batch, classes, *rest = log_prob.shape
    if labels.shape != (batch, *rest):
        raise ValueError(f"labels have shape {labels.shape}, not {(batch, *rest)}")
    if weights is not None and weights.shape != (classes,):
        raise ValueError(f"weights have shape {weights.shape}, not {(classes,)}")


@kernel("SoftmaxCrossEntropyLoss", counted=True, wide=True)
def softmax_cross_entropy(
    scores: Array, labels: Array, weights: Array | None = None, *,
    ignore_index: int | None = None, reduction: str = "mean", outputs: int = 1,
) -> Any:  # fmt: skip
    """The negative log likelihood of log softmax(scores); then log softmax(scores)."""
    log_prob = log_softmax(scores, axis=1)
    loss = negative_log_likelihood(
        log_prob, labels, weights, ignore_index=ignore_index, reduction=reduction
    )
    return loss if outputs == 1 else (loss, log_prob)
