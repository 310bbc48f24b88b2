"""Reductions along axes, running reductions, pooling, softmax and normalisations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...jacobians.arrays import dtype_of
from ..numbers.reductions import Axes, reductions
from ..numbers.table import Kernel, highest, lowest
from .table import Tensor, kernel


def add(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """Σ x; booleans are counted."""
    return torch.sum(x, axes, keepdim=keepdims)


def multiply(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """∏ x, one axis at a time."""
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keepdims)
    return x


def extreme(reduce: Kernel, neutral: Kernel) -> Kernel:
    """The extremum; over no elements, the neutral element."""

    def extremum(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        if any(x.shape[axis] == 0 for axis in axes):
            shape = [1 if k in {a % x.ndim for a in axes} else n for k, n in enumerate(x.shape)]
            made = x.new_full(shape, neutral(dtype_of(x)))
            return made if keepdims else made.squeeze(axes)
        return reduce(x, axes, keepdim=keepdims)

    return extremum


greatest, least = extreme(torch.amax, lowest), extreme(torch.amin, highest)

for name, function in reductions(torch, add, multiply, greatest, least, torch.logsumexp).items():
    kernel(name, hosted=True, wide=True)(function)


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


