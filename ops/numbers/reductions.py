"""Reductions: y = after(reduce(before(x))) along axes, and running reductions along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...jacobians.arrays import Array, space
from .table import Kernel, as_type, highest, ints, kernel, lowest

Axes = tuple[int, ...]


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
        return as_type(add(x, axes, keepdims) / math.prod(x.shape[k] for k in axes), x.dtype)

    steps = {
        "ReduceSum": (plain, add, plain),
        "ReduceMean": (plain, mean, plain),
        "ReduceProd": (plain, multiply, plain),
        "ReduceMax": (plain, greatest, plain),
        "ReduceMin": (plain, least, plain),
        "ReduceL1": (abs, add, plain),
        "ReduceL2": (xp.square, add, xp.sqrt),
        "ReduceSumSquare": (xp.square, add, plain),
        "ReduceLogSum": (plain, add, xp.log),
        "ReduceLogSumExp": (plain, log_sum_exp, plain),
    }
    return {name: reduction(*step) for name, step in steps.items()}


def reduction(before: Kernel, reduce: Kernel, after: Kernel) -> Kernel:
    """after ∘ reduce ∘ before: over all axes if none are given, or over none with `noop`."""

    def reduced(
        x: Array, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Array:
        given = () if axes is None else ints(axes)
        found = given if given or noop_with_empty_axes else tuple(range(x.ndim))
        y = before(x)  # torch takes no axes for all of them
        return as_type(after(reduce(y, found, bool(keepdims)) if found else y), x.dtype)

    return reduced


for name, function in reductions(np, add, multiply, greatest, least, log_sum_exp).items():
    kernel(name, wide=True)(function)


def extremum(search: str) -> Kernel:
    """The index of an extremum; of ties, the first or the last one."""

    def position(
        x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Array:
        searched = space(x).flip(x, (axis,)) if select_last_index else x
        places = getattr(searched, search)(axis, keepdims=bool(keepdims))
        return x.shape[axis] - 1 - places if select_last_index else places

    return position


kernel("ArgMax", tensors=True)(extremum("argmax"))
kernel("ArgMin", tensors=True)(extremum("argmin"))


def scan(running: str, first: int) -> Kernel:
    """A running reduction along one axis, from a `first` value on if it is exclusive."""

    def scanned(x: Array, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Array:
        (axis,), xp = ints(axis), space(x)
        y = getattr(xp.flip(x, (axis,)) if reverse else x, running)(axis, dtype=x.dtype)
        if exclusive:
            ahead = (slice(None),) * (axis % x.ndim)
            start = xp.full_like(y[(*ahead, slice(1))], first)
            y = xp.concatenate([start, y[(*ahead, slice(-1))]], axis)
        return xp.flip(y, (axis,)) if reverse else y

    return scanned


kernel("CumSum", wide=True, tensors=True, hosted=True)(scan("cumsum", 0))
kernel("CumProd", wide=True, tensors=True, hosted=True)(scan("cumprod", 1))
