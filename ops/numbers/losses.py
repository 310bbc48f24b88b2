"""Losses over class labels: the negative log likelihood, and it after a softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .normalization import log_softmax
from .table import kernel, wide


@kernel("NegativeLogLikelihoodLoss")
@wide
def negative_log_likelihood(
    log_prob: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    """−w[label] · log_prob[label]; the mean divides by the sum of the weights."""
    if weights is not None and weights.ndim != 1:
        raise ValueError(f"weights of shape {weights.shape} are no vector")
    counted = np.ones(labels.shape, bool) if ignore_index is None else labels != ignore_index
    at = np.where(counted, labels, 0)
    share = counted.astype(log_prob.dtype) if weights is None else np.where(counted, weights[at], 0)
    loss = -share * np.take_along_axis(log_prob, np.expand_dims(at, 1), 1).squeeze(1)
    if reduction == "none":
        return loss
    return np.sum(loss) / np.sum(share) if reduction == "mean" else np.sum(loss)


@kernel("SoftmaxCrossEntropyLoss", counted=True)
@wide
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
