"""Arithmetic and moves: entry by entry, products, norms; entries picked and padded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import sympy as sp

from ....ops.symbols.placing import ints
from . import Index, replaced, tabulate, transcription, wrapped

Summary = Callable[..., Any]


def mean(entries: Sequence[Any]) -> Any:
    """(Σ x) / n."""
    return sum(entries) / len(entries)


def norm(entries: Sequence[Any], p: int = 2) -> Any:
    """(Σ |x|ᵖ)^(1/p)."""
    return sum(abs(v) ** p for v in entries) ** sp.Rational(1, p)


def entrywise(name: str, function: Callable[..., Any]) -> None:
    """Enter y[i] = f(a[i], b[i], ...)."""

    def apply(*inputs: Any, **how: Any) -> Any:
        applied = np.frompyfunc(partial(function, **how), len(inputs), 1)
        return np.asarray(applied(*inputs), object)

    transcription(name)(apply)


entrywise("Sum", lambda *xs: sum(xs))
entrywise("Mean", lambda *xs: mean(xs))
entrywise("Div", lambda a, b: a / b)


@transcription("Dropout")
def dropout(x: Any, ratio: Any = None, training: Any = None, **_: Any) -> Any:
    """y = x, outside training."""
    if training is not None and np.any(training):
        raise NotImplementedError("Dropout in training draws a mask")
    return x


def product(a: Any, b: Any) -> Any:
    """Σₖ a[..., i, k] b[..., k, j]."""
    return (a[..., None] * b[..., None, :, :]).sum(-2)


@transcription("AffineGrid")
def affine_grid(theta: Any, size: Any, *, align_corners: int = 0) -> Any:
    """y[n, p, r] = Σₖ θ[n, r, k] pₖ + θ[n, r, d], with the last axis of space first in p."""
    n, _, *lengths = ints(size)
    d = len(lengths)

    def entry(index: Index) -> Any:
        b, *place, r = index
        point = [centre(i, m, align_corners) for i, m in zip(place, lengths, strict=True)][::-1]
        return sum((theta[b, r, k] * p for k, p in enumerate(point)), start=theta[b, r, d])

    return tabulate((n, *lengths, d), entry)


def centre(i: int, n: int, align_corners: int) -> Any:
    """Position of pixel i of n in [-1, 1]; ±1 are the centres of the corners, or their outer edges.

    >>> [centre(i, 2, 0) for i in range(2)], [centre(i, 3, 1) for i in range(3)]
    ([-1/2, 1/2], [-1, 0, 1])
    """
    if align_corners and n == 1:
        raise NotImplementedError("the centre of a single pixel cannot be both -1 and 1")
    return sp.Rational(2 * i, n - 1) - 1 if align_corners else sp.Rational(2 * i + 1, n) - 1


def running(name: str, summary: Summary) -> None:
    """Enter y[j] = f(x[i] for i ≤ j); for i < j if exclusive; from the other end if reverse."""

    def apply(x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
        (along,) = ints(axis)

        def entry(index: Index) -> Any:
            j = index[along]
            met = range(j + exclusive, x.shape[along]) if reverse else range(j + 1 - exclusive)
            return summary([x[replaced(index, along, i)] for i in met])

        return tabulate(x.shape, entry)

    transcription(name)(apply)


running("CumSum", sum)
running("CumProd", math.prod)


@transcription("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    """x / ‖x‖ₚ along an axis, and 0 where the norm is 0."""

    def entry(index: Index) -> Any:
        size = norm([x[replaced(index, axis, i)] for i in range(x.shape[axis])], p)
        return 0 if size == 0 else x[index] / size

    return tabulate(x.shape, entry)


@transcription("GatherElements")
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """y[i, j, k] = x[i, indices[i, j, k], k]."""
    n = x.shape[axis]
    return tabulate(
        indices.shape, lambda index: x[replaced(index, axis, wrapped(indices[index], n))]
    )


@transcription("Pad")
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    """y[i] = x[i - begin], extended beyond x by the mode; negative pads remove entries."""
    given, chosen = ints(pads), range(x.ndim) if axes is None else ints(axes)
    around = {a % x.ndim: (given[k], given[k + len(chosen)]) for k, a in enumerate(chosen)}
    ends = [around.get(axis, (0, 0)) for axis in range(x.ndim)]
    filling = 0 if value is None else value[()] if value.ndim == 0 else value[0]

    def entry(index: Index) -> Any:
        places = [source(i, n, *e, mode) for i, n, e in zip(index, x.shape, ends, strict=True)]
        return filling if None in places else x[tuple(places)]

    return tabulate([n + sum(e) for n, e in zip(x.shape, ends, strict=True)], entry)


def source(i: int, n: int, begin: int, end: int, mode: str) -> int | None:
    """The place on an axis of length n from which entry i is taken; None where it is filled.

    >>> [source(i, 3, 2, 1, "reflect") for i in range(6)]
    [2, 1, 0, 1, 2, 1]
    >>> [source(i, 3, 2, -1, "constant") for i in range(4)]
    [None, None, 0, 1]
    """
    kept, k = range(max(-begin, 0), n - max(-end, 0)), i - max(begin, 0)
    if mode == "constant":
        return kept[k] if 0 <= k < len(kept) else None
    if mode == "edge":
        return kept[min(max(k, 0), len(kept) - 1)]
    if mode == "wrap":
        return kept[k % len(kept)]
    turn = max(len(kept) - 1, 1)
    k %= 2 * turn
    return kept[min(k, 2 * turn - k)] if len(kept) > 1 else kept[0]
