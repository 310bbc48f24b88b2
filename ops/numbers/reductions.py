"""Reductions: y = after(reduce(before(x))) along axes, and running reductions along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...jacobians.arrays import Array
from .table import Kernel, highest, ints, kernel, lowest

Axes = tuple[int, ...] | None


def reduced_axes(axes: Any, noop: int) -> Axes:
    """The axes to reduce: if none are given, all of them, or none with `noop`."""
    given = () if axes is None else ints(axes)
    return given if given or noop else None


def plain(x: Array) -> Array:
    """The identity."""
    return x


def fold(ufunc: Any) -> Kernel:
    """The reduction by a ufunc, in x's own dtype."""

    def folded(x: Array, axes: Axes, keepdims: bool) -> Array:
        return ufunc.reduce(x, axis=axes, dtype=x.dtype, keepdims=keepdims, **neutral(ufunc, x))

    return folded


def neutral(ufunc: Any, x: Array) -> dict[str, Any]:
    """The initial value of extrema over no elements; NumPy has one for sums and products only."""
    extremes = {np.maximum: lowest, np.minimum: highest}
    return {} if x.size or ufunc not in extremes else {"initial": extremes[ufunc](x.dtype)}


add, multiply = fold(np.add), fold(np.multiply)
greatest, least = fold(np.maximum), fold(np.minimum)


def mean(x: Array, axes: Axes, keepdims: bool) -> Array:
    """Σ x / n; 0 / 0 for no elements."""
    total = np.sum(x, axis=axes, keepdims=keepdims)
    count = math.prod(x.shape if axes is None else (x.shape[axis] for axis in axes))
    return total / x.dtype.type(count)


def log_sum_exp(x: Array, axes: Axes, keepdims: bool) -> Array:
    """log Σ exp(x), with the maximum subtracted so that exp cannot overflow."""
    shift = greatest(x, axes, True)
    shift = np.where(np.isfinite(shift), shift, x.dtype.type(0))
    logs = np.log(add(np.exp(x - shift), axes, True)) + shift
    return logs if keepdims else np.squeeze(logs, axes)


def reduction(name: str, before: Kernel, reduce: Kernel, after: Kernel) -> None:
    """Register after ∘ reduce ∘ before as a kernel."""

    @kernel(name, wide=True)
    def reduced(
        x: Array, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Array:
        axes = reduced_axes(axes, noop_with_empty_axes)
        return after(reduce(before(x), axes, bool(keepdims))).astype(x.dtype, copy=False)


reduction("ReduceSum", plain, add, plain)
reduction("ReduceMean", plain, mean, plain)
reduction("ReduceProd", plain, multiply, plain)
reduction("ReduceMax", plain, greatest, plain)
reduction("ReduceMin", plain, least, plain)
reduction("ReduceL1", np.abs, add, plain)
reduction("ReduceL2", np.square, add, np.sqrt)
reduction("ReduceSumSquare", np.square, add, plain)
reduction("ReduceLogSum", plain, add, np.log)
reduction("ReduceLogSumExp", plain, log_sum_exp, plain)


def extremum(name: str, search: Kernel) -> None:
    """Register the index of an extremum as a kernel; of ties, the first or the last one."""

    @kernel(name)
    def position(
        x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Array:
        places = search(
            np.flip(x, axis) if select_last_index else x, axis=axis, keepdims=bool(keepdims)
        )
        return x.shape[axis] - 1 - places if select_last_index else places


extremum("ArgMax", np.argmax)
extremum("ArgMin", np.argmin)


def scan(name: str, ufunc: np.ufunc) -> None:
    """Register a running reduction along one axis as a kernel."""

    @kernel(name, wide=True)
    def running(x: Array, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Array:
        (axis,) = ints(axis)
        x = np.flip(x, axis) if reverse else x
        y = ufunc.accumulate(x, axis=axis, dtype=x.dtype)
        y = delayed(y, axis, ufunc.identity) if exclusive else y
        return np.flip(y, axis) if reverse else y


def delayed(y: Array, axis: int, first: Any) -> Array:
    """y shifted by one along an axis: `first` is shifted in, the last element out."""
    ahead = np.moveaxis(y, axis, 0)
    late = np.concatenate([np.full_like(ahead[:1], first), ahead[:-1]])
    return np.moveaxis(late, 0, axis)


scan("CumSum", np.add)
scan("CumProd", np.multiply)
