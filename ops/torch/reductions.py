"""Reductions along axes, running reductions, pooling, softmax and normalisations."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ..numbers import normalization as shared
from ..numbers.normalization import EPSILON, per_channel
from ..numbers.pooling import members, places
from ..numbers.reductions import reduced_axes
from ..numbers.table import ints, single_precision
from ..numbers.windows import Windows, windows
from .layout import framed
from .table import Kernel, Tensor, kernel, tensor

Axes = tuple[int, ...]

kernel("LayerNormalization", counted=True, wide=True)(shared.layer_normalization)
kernel("RMSNormalization", wide=True)(shared.rms_normalization)
kernel("InstanceNormalization", wide=True)(shared.instance_normalization)
kernel("GroupNormalization", wide=True)(shared.group_normalization)


def plain(x: Tensor) -> Tensor:
    """The identity."""
    return x


def product(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """∏ x, one axis at a time."""
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keepdims)
    return x


def extreme(reduce: Kernel, limit: float) -> Kernel:
    """The extremum; over no elements, the neutral element."""

    def extremum(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        if any(x.shape[axis] == 0 for axis in axes):
            shape = [1 if k in {a % x.ndim for a in axes} else n for k, n in enumerate(x.shape)]
            made = x.new_full(shape, bound(x.dtype, limit))
            return made if keepdims else made.squeeze(axes)
        return reduce(x, axes, keepdim=keepdims)

    return extremum


def bound(dtype: torch.dtype, limit: float) -> Any:
    """An infinity, or the last number of an integer dtype in its direction."""
    if dtype.is_floating_point:
        return limit
    if dtype == torch.bool:
        return limit > 0
    return torch.iinfo(dtype).max if limit > 0 else torch.iinfo(dtype).min


greatest, least = extreme(torch.amax, -math.inf), extreme(torch.amin, math.inf)


def add(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """Σ x; booleans are counted."""
    return torch.sum(x, axes, keepdim=keepdims)


def mean(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """Σ x / n; 0 / 0 for no elements."""
    return add(x, axes, keepdims) / math.prod(x.shape[axis] for axis in axes)


def log_sum_exp(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """log Σ exp(x), with the maximum subtracted so that exp cannot overflow."""
    return torch.logsumexp(x, axes, keepdim=keepdims)


def reduction(name: str, before: Kernel, reduce: Kernel, after: Kernel) -> None:
    """Register after ∘ reduce ∘ before as a kernel."""

    @kernel(name, hosted=True, wide=True)
    def reduced(
        x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        found = reduced_axes(None if axes is None else ints(axes), noop_with_empty_axes)
        found = tuple(range(x.ndim)) if found is None else found
        y = before(x)  # torch takes no axes for all of them
        y = reduce(y, found, bool(keepdims)) if found else y
        return after(y).to(x.dtype)


reduction("ReduceSum", plain, add, plain)
reduction("ReduceMean", plain, mean, plain)
reduction("ReduceProd", plain, product, plain)
reduction("ReduceMax", plain, greatest, plain)
reduction("ReduceMin", plain, least, plain)
reduction("ReduceL1", torch.abs, add, plain)
reduction("ReduceL2", torch.square, add, torch.sqrt)
reduction("ReduceSumSquare", torch.square, add, plain)
reduction("ReduceLogSum", plain, add, torch.log)
reduction("ReduceLogSumExp", plain, log_sum_exp, plain)


def extremum(name: str, search: Kernel) -> None:
    """Register the index of an extremum as a kernel; of ties, the first or the last one."""

    @kernel(name)
    def position(
        x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Tensor:
        places = search(x.flip(axis) if select_last_index else x, axis, keepdim=bool(keepdims))
        return x.shape[axis] - 1 - places if select_last_index else places


extremum("ArgMax", torch.argmax)
extremum("ArgMin", torch.argmin)


def scan(name: str, running: Kernel, first: int) -> None:
    """Register a running reduction along one axis as a kernel."""

    @kernel(name, hosted=True, wide=True)
    def scanned(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        (axis,) = ints(axis)
        y = running(x.flip(axis) if reverse else x, axis, dtype=x.dtype)
        if exclusive:
            ahead = torch.full_like(y.narrow(axis, 0, min(1, y.shape[axis])), first)
            y = torch.cat([ahead, y.narrow(axis, 0, max(y.shape[axis] - 1, 0))], axis)
        return y.flip(axis) if reverse else y


scan("CumSum", torch.cumsum, 0)
scan("CumProd", torch.cumprod, 1)


@kernel("Softmax", wide=True)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """exp(x) / Σ exp(x) along an axis."""
    return torch.softmax(x, axis)


@kernel("LogSoftmax", wide=True)
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """x − log Σ exp(x) along an axis."""
    return torch.log_softmax(x, axis)


@kernel("NegativeLogLikelihoodLoss", wide=True)
def negative_log_likelihood(
    log_prob: Tensor, labels: Tensor, weights: Tensor | None = None, *,
    ignore_index: int | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """−w[label] · log_prob[label]; the mean divides by the sum of the weights."""
    ignored = -1 if ignore_index is None else ignore_index
    return F.nll_loss(log_prob, labels.long(), weights, None, ignored, None, reduction)


@kernel("SoftmaxCrossEntropyLoss", counted=True, wide=True)
def softmax_cross_entropy(
    scores: Tensor, labels: Tensor, weights: Tensor | None = None, *, outputs: int = 1, **how: Any
) -> Any:
    """The negative log likelihood of log softmax(scores); then log softmax(scores)."""
    log_prob = torch.log_softmax(scores, 1)
    loss = negative_log_likelihood(log_prob, labels, weights, **how)
    return loss if outputs == 1 else (loss, log_prob)


@kernel("BatchNormalization", counted=True, wide=True)
def batch_normalization(
    x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = EPSILON,
    momentum: float = single_precision(0.9), training_mode: int = 0, outputs: int = 1,
) -> Any:  # fmt: skip
    """(x − μ) / √(σ² + ε) · scale + b per channel; μ and σ² are given, or those of the batch."""
    seen, spread = mean, var
    if training_mode:
        axes = (0, *range(2, x.ndim))
        seen = torch.mean(x, axes)
        spread = torch.var(x, axes, correction=0)
    slope = scale / torch.sqrt(spread + epsilon)
    y = x * per_channel(slope, x).to(x.dtype) + per_channel(b - seen * slope, x).to(x.dtype)
    if not training_mode:
        return y
    running = (momentum * old + (1 - momentum) * new for old, new in ((mean, seen), (var, spread)))
    return (y, *running)[:outputs]


def slide(x: Tensor, grid: Windows, pair: Kernel) -> Tensor:
    """Pairs of numbers reduced over the taps of every window of a padded x, axis by axis."""
    lead = x.ndim - len(grid.space)
    for axis, taps in enumerate(grid.kernel):
        ahead = (slice(None),) * (lead + axis)
        parts = (x[(*ahead, grid.reach(axis, tap))] for tap in range(taps))
        total = next(parts)
        for part in parts:
            total = pair(total, part)
        x = total
    return x


def inside(x: Tensor, grid: Windows, value: Any = 0) -> Tensor:
    """x inside the frame that the windows need."""
    return framed(x, [(0, 0)] * (x.ndim - len(grid.space)) + grid.frame, value)


@kernel("MaxPool", counted=True)
def max_pool(
    x: Tensor, *, kernel_shape: Any, storage_order: int = 0, outputs: int = 1, **geometry: Any
) -> Any:
    """The maximum of each window; then its index in the flattened x."""
    grid = windows(tuple(x.shape[2:]), kernel_shape, **geometry)
    padded = inside(x, grid, bound(x.dtype, -math.inf))
    if outputs == 1:
        return slide(padded, grid, torch.maximum)
    parts = (padded[(..., *reach)].contiguous() for _, reach in grid.taps())
    best = next(parts)
    dtype = torch.uint8 if math.prod(grid.kernel) < 256 else torch.int64
    taps = torch.zeros_like(best, dtype=dtype)
    for number, part in enumerate(parts, 1):  # numbers grow: the maximum is the last one
        taps = torch.maximum(taps, (part > best).to(dtype) * number)
        best = torch.maximum(best, part)
    offsets, base = (tensor(part, x.device) for part in places(x.shape[:2], grid, storage_order))
    return best, offsets.take(taps.long()) + base


@kernel("AveragePool", wide=True)
def average_pool(
    x: Tensor, *, kernel_shape: Any, count_include_pad: int = 0, **geometry: Any
) -> Tensor:
    """The mean of each window over its elements in x, and in the padding if that is counted."""
    grid = windows(tuple(x.shape[2:]), kernel_shape, **geometry)
    counts = torch.from_numpy(members(grid, count_include_pad)).to(x.device).clamp(min=1)
    return slide(inside(x, grid), grid, torch.add) / counts.to(x.dtype)


@kernel("LpPool", wide=True)
def lp_pool(x: Tensor, *, kernel_shape: Any, p: int = 2, **geometry: Any) -> Tensor:
    """(Σ |x|ᵖ)^(1/p) over each window."""
    grid = windows(tuple(x.shape[2:]), kernel_shape, **geometry)
    return slide(inside(torch.abs(x) ** p, grid), grid, torch.add) ** (1 / p)


@kernel("LRN", wide=True)
def lrn(
    x: Tensor, *, size: int, alpha: float = single_precision(0.0001), beta: float = 0.75,
    bias: float = 1.0,
) -> Tensor:  # fmt: skip
    """x / (bias + α / size · Σ x²)^β, summed over the `size` channels around each one."""
    squares = torch.square(x).swapaxes(1, -1)
    grid = windows((squares.shape[-1],), (size,), pads=((size - 1) // 2, size // 2))
    sums = slide(inside(squares, grid), grid, torch.add).swapaxes(1, -1)
    return x / (bias + alpha / size * sums) ** beta


def space(x: Tensor) -> Axes:
    """The spatial axes."""
    return tuple(range(2, x.ndim))


kernel("GlobalAveragePool", wide=True)(lambda x: torch.mean(x, space(x), keepdim=True))
kernel("GlobalMaxPool")(lambda x: torch.amax(x, space(x), keepdim=True))
