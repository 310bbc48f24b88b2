"""Arithmetic: entry by entry, sums and products of matrices, reductions and normalisations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import sympy as sp

from ....ops.symbols.placing import ints
from . import Index, replaced, tabulate, transcription

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
entrywise("Max", lambda *xs: max(xs))
entrywise("Min", lambda *xs: min(xs))
entrywise("Div", lambda a, b: a / b)


@transcription("Dropout")
def dropout(x: Any, ratio: Any = None, training: Any = None, **_: Any) -> Any:
    """y = x, outside training."""
    if training is not None and np.any(training):
        raise NotImplementedError("Dropout in training draws a mask")
    return x


@transcription("Gemm")
def gemm(
    a: Any, b: Any, c: Any = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,
) -> Any:  # fmt: skip
    """y[i, j] = α Σₖ a[i, k] b[k, j] + β c[i, j], where a and b may be transposed."""
    y = product(a.T if transA else a, b.T if transB else b) * alpha
    return y if c is None else y + c * beta


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


def reduction(name: str, summary: Summary) -> None:
    """Enter y[i] = f(the entries of x at i along the axes that are kept)."""

    def apply(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        gone = [a % x.ndim for a in ints(() if axes is None else axes)]
        if not gone and noop_with_empty_axes:
            return x
        gone = gone or list(range(x.ndim))
        kept = [k for k in range(x.ndim) if k not in gone]
        rows = x.transpose(*kept, *gone).reshape(*(x.shape[k] for k in kept), -1)
        y = tabulate(rows.shape[:-1], lambda index: summary(list(rows[index])))
        return np.expand_dims(y, tuple(gone)) if keepdims else y

    transcription(name)(apply)


reduction("ReduceSum", sum)
reduction("ReduceMean", mean)
reduction("ReduceProd", math.prod)
reduction("ReduceMax", max)
reduction("ReduceMin", min)


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
