"""Products and sums: matrix products, convolutions, transforms, reductions, losses."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..numbers.convolution import check_kernel, check_unpooled, flipped
from ..numbers.matmul import check_frames, dft
from ..numbers.reductions import Axes, check_labels, reductions
from ..numbers.table import Kernel, as_ints, highest, lowest
from ..numbers.windows import Windows, transposed_windows, windows, within_padding
from .layout import entries_at, from_start
from .table import Array, kernel

kernel("MatMul", wide=True)(jnp.matmul)


@kernel("Einsum", wide=True)
def einsum(*inputs: Array, equation: str) -> Array:
    """The sum of products that the equation defines, contracted in a cheap order."""
    return jnp.einsum(equation, *inputs)


@kernel("Conv", wide=True)
def conv(
    x: Array, w: Array, b: Array | None = None, *, group: int = 1, kernel_shape: Any = None,
    **geometry: Any,
) -> Array:  # fmt: skip
    """y[n, m, o] = Σ w[m, c, t] x[n, c, o · stride + t · dilation − begin] + b[m]."""
    check_kernel(w, kernel_shape)
    grid = within_padding(windows(x.shape[2:], w.shape[2:], **geometry))
    pads = [*zip(grid.begins, grid.ends, strict=True)]
    return convolved(x, w, b, grid.count, pads, strides=grid.strides, dilations=grid.dilations,
                     group=group)  # fmt: skip


@kernel("ConvTranspose", wide=True)
def conv_transpose(
    x: Array, w: Array, b: Array | None = None, *, group: int = 1, kernel_shape: Any = None,
    **geometry: Any,
) -> Array:  # fmt: skip
    """y[n, m, i · stride + t · dilation − begin] is Σ w[c, m, t] x[n, c, i], plus b[m]: x with
    zeros between its entries, convolved with the flipped kernel.
    """
    check_kernel(w, kernel_shape)
    grid = transposed_windows(x.shape[2:], w.shape[2:], **geometry)
    pads = [*map(pads_around, range(len(grid.space)), [grid] * len(grid.space))]
    return convolved(x, flipped(w, group), b, grid.space, pads, spread=grid.strides,
                     dilations=grid.dilations, group=group)  # fmt: skip


def pads_around(axis: int, grid: Windows) -> tuple[int, int]:
    """The zeros before and after the spread entries of x, whose windows are the entries of y."""
    reach = grid.covered(axis, 1) - 1
    before = reach - grid.begins[axis]
    spread = (grid.count[axis] - 1) * grid.strides[axis] + 1
    return before, grid.space[axis] + reach - spread - before


def convolved(
    x: Array, w: Array, b: Array | None, count: tuple[int, ...], pads: Any, *,
    strides: Any = None, spread: Any = None, dilations: Any = None, group: int = 1,
) -> Array:  # fmt: skip
    """The convolution, of shape `count` over space, plus a vector over the channels."""
    if 0 in count or 0 in x.shape:
        y = jnp.zeros((x.shape[0], w.shape[0], *count), jnp.result_type(x, w))
    else:
        ones = (1,) * len(count)
        y = lax.conv_general_dilated(
            x, w.astype(x.dtype), strides or ones, pads, spread or ones, dilations or ones,
            feature_group_count=group,
        )  # fmt: skip
    return y if b is None else y + b.reshape(-1, *(1,) * len(count))


@kernel("MaxUnpool", hosted=True)
def max_unpool(
    x: Array, index: Any, output_shape: Any = None, *, kernel_shape: Any, pads: Any = None,
    strides: Any = None,
) -> Array:  # fmt: skip
    """y[index] = x, zero elsewhere; indices refer to the shape that the windows imply."""
    check_unpooled(x, index, kernel_shape)
    grid = transposed_windows(x.shape[2:], kernel_shape, pads=pads, strides=strides)
    shape = *x.shape[:2], *grid.space
    y = jnp.zeros(math.prod(shape), x.dtype)
    y = y.at[from_start(index.reshape(-1), y.size)].set(x.reshape(-1)).reshape(shape)
    if output_shape is None:
        return y
    whole = jnp.zeros(as_ints(output_shape), x.dtype)
    return whole.at[tuple(map(slice, shape))].set(y)


@kernel("STFT", hosted=True)
def stft(
    x: Array, frame_step: Any, window: Any = None, frame_length: Any = None, *, onesided: int = 1
) -> Array:
    """The transforms of frames of the signal, weighted by a window."""
    x = x[..., None] if x.ndim == 2 else x
    n = as_ints(frame_length)[0] if window is None and frame_length is not None else None
    n = n or (x.shape[1] if window is None else len(window))
    step = as_ints(frame_step)[0]
    check_frames(n, step, x.shape[1])
    starts = np.arange(0, x.shape[1] - n + 1, step)
    frames = x[:, starts[:, None] + np.arange(n)]
    weighted = frames if window is None else frames * jnp.asarray(window)[:, None]
    return dft(weighted, onesided=onesided)


# -- reductions, normalisations and losses ---------------------------------------------------------


def reduce(function: Kernel, neutral: Kernel | None = None) -> Kernel:
    """The reduction in x's own dtype; over no elements, the neutral one."""

    def reduced(x: Array, axes: Axes, keepdims: bool) -> Array:
        start = {} if neutral is None or x.size else {"initial": neutral(np.dtype(x.dtype))}
        return function(x, axis=axes, keepdims=keepdims, **start).astype(x.dtype)

    return reduced


def log_sum_exp(x: Array, axes: Axes, keepdims: bool) -> Array:
    """log Σ exp(x)."""
    return jax.nn.logsumexp(x, axes, keepdims=keepdims)


for name, function in reductions(
    jnp, reduce(jnp.sum), reduce(jnp.prod), reduce(jnp.max, lowest), reduce(jnp.min, highest),
    log_sum_exp,
).items():  # fmt: skip
    kernel(name, hosted=True, wide=True)(function)


@kernel("Softmax", wide=True)
def softmax(x: Array, *, axis: int = -1) -> Array:
    """exp(x) / Σ exp(x) along an axis."""
    e = jnp.exp(x - jnp.max(x, axis, keepdims=True, initial=-np.inf))
    return e / jnp.sum(e, axis, keepdims=True)


@kernel("LogSoftmax", wide=True)
def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """x − log Σ exp(x) along an axis."""
    shifted = x - jnp.max(x, axis, keepdims=True, initial=-np.inf)
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis, keepdims=True))


@kernel("MeanVarianceNormalization", wide=True)
def mean_variance_normalization(x: Array, *, axes: Any = (0, 2, 3)) -> Array:
    """(x − μ) / (σ + 10⁻⁹) over the axes."""
    centred = x - jnp.mean(x, tuple(axes), keepdims=True)
    return centred / (jnp.std(x, tuple(axes), keepdims=True) + 1e-9)


@kernel("LpNormalization", wide=True)
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """x / ‖x‖ₚ along an axis; 0 where the norm is 0."""
    greatest = jnp.max(abs(x), axis, keepdims=True, initial=0)
    x = x / jnp.where(greatest == 0, 1, greatest)  # its squares do not overflow
    norm = jnp.linalg.norm(x, p, axis, keepdims=True)
    return x / jnp.where(norm == 0, 1, norm)


@kernel("Dropout", hosted=True)
def dropout(
    x: Array, ratio: Any = None, training_mode: Any = None, *, seed: int | None = None,
    outputs: int = 1,
) -> Any:  # fmt: skip
    """x, in training with a fraction `ratio` set to 0 and the rest scaled up; then the mask. A
    seed draws what it draws with NumPy; without one, NumPy draws, but never for a traced function.
    """
    ratio = 0.5 if ratio is None else float(ratio)
    if training_mode is None or not training_mode or ratio == 0:
        return x if outputs == 1 else (x, jnp.ones(x.shape, bool))
    if seed is None:
        raise NotImplementedError("random numbers without a seed")
    kept = np.random.default_rng(seed).random(x.shape) >= ratio
    y = (kept * x / (1 - ratio)).astype(x.dtype)
    return y if outputs == 1 else (y, jnp.asarray(kept))


@kernel("NegativeLogLikelihoodLoss", wide=True)
def negative_log_likelihood(
    log_prob: Array, labels: Array, weights: Array | None = None, *,
    ignore_index: int | None = None, reduction: str = "mean",
) -> Array:  # fmt: skip
    """−w[label] · log_prob[label]; the mean divides by the sum of the weights."""
    check_labels(log_prob, labels, weights)
    counted = jnp.ones(labels.shape, bool) if ignore_index is None else labels != ignore_index
    at = jnp.asarray(from_start(jnp.where(counted, labels, 0), log_prob.shape[1]))
    share: Array = counted.astype(log_prob.dtype)
    if weights is not None:
        share = jnp.where(counted, entries_at(weights, (at,)), 0)
    loss = -share * jnp.take_along_axis(log_prob, at[:, None], 1, mode="fill")[:, 0]
    if reduction == "none":
        return loss
    return jnp.sum(loss) / jnp.sum(share) if reduction == "mean" else jnp.sum(loss)


@kernel("SoftmaxCrossEntropyLoss", wide=True)
def softmax_cross_entropy(
    scores: Array, labels: Array, weights: Array | None = None, *, outputs: int = 1, **how: Any
) -> Any:
    """The negative log likelihood of log softmax(scores); then log softmax(scores)."""
    log_prob = log_softmax(scores, axis=1)
    loss = negative_log_likelihood(log_prob, labels, weights, **how)
    return loss if outputs == 1 else (loss, log_prob)
