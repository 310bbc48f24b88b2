"""Pools: a maximum, mean or norm over the taps of a window, or over all of space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from .table import Index, tabulate, transcription
from .windows import Axis, axes, taps

Summary = Callable[[list[Any]], Any]


def pooled(x: Any, space: list[Axis], entry: Callable[[list[Any], Index], Any]) -> Any:
    """y[n, c, o] = f(the entries of window o in x, o)."""

    def summary(index: Index) -> Any:
        n, c, *window = index
        met = [x[(n, c, *place)] for _, place in taps(space, tuple(window))]
        return entry(met, tuple(window))

    return tabulate((*x.shape[:2], *(a.count for a in space)), summary)


def norm(entries: list[Any], p: int) -> Any:
    """(Σ |x|ᵖ)^(1/p)."""
    return sum(abs(v) ** p for v in entries) ** sp.Rational(1, p)


@transcription("MaxPool")
def max_pool(
    x: Any, *, kernel_shape: Any, storage_order: int = 0, outputs: int = 1, **how: Any
) -> Any:
    """The greatest entry of each window: Y, the only output that has a derivative."""
    return pooled(x, axes(x.shape[2:], kernel_shape, **how), lambda met, _: max(met))


@transcription("AveragePool")
def average_pool(x: Any, *, kernel_shape: Any, count_include_pad: int = 0, **how: Any) -> Any:
    """The sum of each window over the number of its taps in x, or in the padding too."""
    space = axes(x.shape[2:], kernel_shape, **how)
    counted = bool(count_include_pad)
    return pooled(x, space, lambda met, o: sum(met) / len(list(taps(space, o, counted))))


@transcription("LpPool")
def lp_pool(x: Any, *, kernel_shape: Any, p: int = 2, **how: Any) -> Any:
    """The norm of each window."""
    return pooled(x, axes(x.shape[2:], kernel_shape, **how), lambda met, _: norm(met, p))


def over_space(x: Any, summary: Summary) -> Any:
    """y[n, c, 0, …] = f(x[n, c])."""
    shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
    return tabulate(shape, lambda index: summary(list(x[index[:2]].flat)))


@transcription("GlobalMaxPool")
def global_max_pool(x: Any) -> Any:
    """The greatest entry of each channel."""
    return over_space(x, max)


@transcription("GlobalAveragePool")
def global_average_pool(x: Any) -> Any:
    """The mean of each channel."""
    return over_space(x, lambda entries: sum(entries) / len(entries))


@transcription("GlobalLpPool")
def global_lp_pool(x: Any, *, p: int = 2) -> Any:
    """The norm of each channel."""
    return over_space(x, lambda entries: norm(entries, p))


@transcription("LRN")
def lrn(x: Any, *, size: int, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0) -> Any:
    """x / (bias + α / size · Σ x²)^β, over channels c - ⌊(size - 1)/2⌋ to c + ⌈(size - 1)/2⌉."""

    def entry(index: Index) -> Any:
        n, c, *place = index
        near = range(max(0, c - (size - 1) // 2), min(x.shape[1], c + size // 2 + 1))
        squares = sum(x[(n, i, *place)] * x[(n, i, *place)] for i in near)
        return x[index] / (squares * alpha / size + bias) ** beta

    return tabulate(np.shape(x), entry)
