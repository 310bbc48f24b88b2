"""Normalisations by mean and variance, or by a norm."""

from __future__ import annotations

from typing import Any

import numpy as np

from .pooling import norm
from .table import Index, replaced, tabulate, transcription


def moments(entries: list[Any]) -> tuple[Any, Any]:
    """Mean, and variance of the whole population."""
    mean = sum(entries) / len(entries)
    return mean, sum((v - mean) * (v - mean) for v in entries) / len(entries)


@transcription("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, b: Any, *, epsilon: float = 1e-5) -> Any:
    """scale · (x - μ) / √(σ² + ε) + b, with μ and σ² of each channel of each instance."""

    def entry(index: Index) -> Any:
        mean, variance = moments(list(x[index[:2]].flat))
        return scale[index[1]] * (x[index] - mean) / (variance + epsilon).sqrt() + b[index[1]]

    return tabulate(x.shape, entry)


@transcription("BatchNormalization")
def batch_normalization(
    x: Any, scale: Any, b: Any, mean: Any, variance: Any, *, epsilon: float = 1e-5,
    momentum: float = 0.9, training_mode: int = 0, outputs: int = 1,
) -> Any:  # fmt: skip
    """(x - μ) / √(σ² + ε) · scale + b, with the given μ and σ², or those of x in training."""
    used, spread = mean, variance
    if training_mode:
        used, spread = (np.array(m, object) for m in zip(*map(moments, channels(x)), strict=True))
    y = tabulate(
        x.shape,
        lambda index: (x[index] - used[index[1]]) / (spread[index[1]] + epsilon).sqrt()
        * scale[index[1]] + b[index[1]],
    )  # fmt: skip
    if not training_mode:
        return y
    return y, kept(mean, used, momentum), kept(variance, spread, momentum)


def channels(x: Any) -> list[list[Any]]:
    """The entries of each channel, of all images."""
    return [list(x[:, c].flat) for c in range(x.shape[1])]


def kept(old: Any, new: Any, momentum: float) -> Any:
    """Old · momentum + new · (1 - momentum)."""
    return tabulate(old.shape, lambda i: old[i] * momentum + (new[i] - new[i] * momentum))


@transcription("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    """x / ‖x‖ₚ along an axis, and 0 where the norm is 0."""

    def entry(index: Index) -> Any:
        size = norm([x[replaced(index, axis, i)] for i in range(x.shape[axis])], p)
        return 0 if size == 0 else x[index] / size

    return tabulate(x.shape, entry)
