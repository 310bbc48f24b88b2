"""Operators that put entries at places given by integers, one index at a time."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from .number import kernel


def ints(value: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in np.ravel(value))


@kernel("ReverseSequence")
def reverse_sequence(x: Any, lengths: Any, *, time_axis: int = 0, batch_axis: int = 1) -> Any:
    """Every sequence b with its first length_b entries reversed."""
    y = np.moveaxis(x.copy(), (time_axis, batch_axis), (0, 1))
    for b, n in enumerate(ints(lengths)):
        y[:n, b] = y[:n, b][::-1].copy()
    return np.moveaxis(y, (0, 1), (time_axis, batch_axis))


@kernel("TensorScatter")
def tensor_scatter(
    cache: Any, update: Any, starts: Any = None, *, axis: int = -2, mode: str = "linear"
) -> Any:
    """cache[b, …, start_b + t] = update[b, …, t]."""
    y, new = (np.moveaxis(a.copy(), axis, 1) for a in (cache, update))
    for b, t in product(range(new.shape[0]), range(new.shape[1])):
        at = t + (0 if starts is None else ints(starts)[b])
        y[b, at % y.shape[1] if mode == "circular" else at] = new[b, t]
    return np.moveaxis(y, 1, axis)


@kernel("MaxUnpool")
def max_unpool(
    x: Any,
    index: Any,
    shape: Any = None,
    *,
    kernel_shape: Any,
    pads: Any = None,
    strides: Any = None,
) -> Any:
    """y[index] = x in a tensor of zeros with the shape before pooling."""
    d = len(kernel_shape)
    pads, strides = pads or (0,) * 2 * d, strides or (1,) * d
    lengths = tuple(
        (n - 1) * s - pads[k] - pads[k + d] + kernel_shape[k]
        for k, (n, s) in enumerate(zip(x.shape[2:], strides, strict=True))
    )
    y = np.zeros(x.shape[:2] + lengths, object)
    y.ravel()[np.ravel(index)] = x.ravel()
    if shape is None:
        return y
    whole = np.zeros(ints(shape), object)
    whole[tuple(map(slice, y.shape))] = y
    return whole


@kernel("Col2Im")
def col2im(
    x: Any, image: Any, block: Any, *, dilations: Any = None, pads: Any = None, strides: Any = None
) -> Any:
    """Every entry of every block added at its place in the image."""
    image, block = ints(image), ints(block)
    d = len(image)
    pads, strides, dilations = pads or (0,) * 2 * d, strides or (1,) * d, dilations or (1,) * d
    n, columns, _ = x.shape
    taps = list(np.ndindex(*block))
    y = np.zeros((n, columns // len(taps), *image), object)
    counts = [
        (m + pads[k] + pads[k + d] - dilations[k] * (block[k] - 1) - 1) // strides[k] + 1
        for k, m in enumerate(image)
    ]
    for (t, tap), (p, place) in product(enumerate(taps), enumerate(np.ndindex(*counts))):
        at = tuple(place[k] * strides[k] + tap[k] * dilations[k] - pads[k] for k in range(d))
        if all(0 <= a < m for a, m in zip(at, image, strict=True)):
            y[(slice(None), slice(None), *at)] += x[:, t :: len(taps), p]
    return y


@kernel("Unique")
def unique(x: Any, *, axis: int | None = None, sorted: int = 1, outputs: int = 1) -> Any:
    """The entries, sorted if asked; all must differ at the point."""
    flat = list(x.ravel())
    if sorted:
        flat.sort()
    return np.array(flat, object)


@kernel("Scatter")
def scatter(x: Any, index: Any, updates: Any, *, axis: int = 0) -> Any:
    """ScatterElements under its old name."""
    y = x.copy()
    for place in np.ndindex(*np.shape(index)):
        at = list(place)
        at[axis] = int(index[place])
        y[tuple(at)] = updates[place]
    return y


@kernel("CenterCropPad")
def center_crop_pad(x: Any, shape: Any, *, axes: Any = None) -> Any:
    """The centre of x on axes where it is longer, x centred in zeros where it is shorter."""
    for axis, m in zip(range(x.ndim) if axes is None else axes, ints(shape), strict=True):
        n = x.shape[axis]
        rows = np.moveaxis(x, axis, 0)
        if n >= m:
            rows = rows[(n - m) // 2 : (n - m) // 2 + m]
        else:
            before = np.zeros(((m - n) // 2, *rows.shape[1:]), object)
            after = np.zeros((m - n - len(before), *rows.shape[1:]), object)
            rows = np.concatenate([before, rows, after])
        x = np.moveaxis(rows, 0, axis)
    return x


@kernel("Range")
def range_(start: Any, limit: Any, delta: Any, **_: Any) -> Any:
    """start + k delta for all k below (limit - start) / delta."""
    (first,), (step,), (last,) = np.ravel(start), np.ravel(delta), np.ravel(limit)
    count = int((float(last) - float(first)) / float(step) + 1 - 1e-9)
    return np.array([first + step * k for k in range(count)], object)


@kernel("DequantizeLinear")
def dequantize(x: Any, scale: Any, zero: Any = None, *, axis: int = 1, **_: Any) -> Any:
    """(x - zero point) · scale, for the whole tensor or per entry of an axis."""
    rest = (1,) * (x.ndim - 1 - axis % max(x.ndim, 1))
    scale, zero = (
        a if a is None or a.size == 1 else a.reshape(*a.shape, *rest) for a in (scale, zero)
    )
    whole = x.astype(int).astype(object) - (0 if zero is None else zero.astype(int).astype(object))
    return np.asarray(whole * scale, object)
