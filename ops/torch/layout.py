"""Operators that move elements: shapes, axes, blocks, reads and writes at given positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ..numbers.layout import (
    cuts,
    depth_to_space,
    flatten,
    inner,
    pad_widths,
    reshape,
    space_to_depth,
    transpose,
)
from ..numbers.table import ints
from .table import Tensor, common, host, is_tensor, kernel, static, widened

Shape = tuple[int, ...]

kernel("Reshape", hosted=True)(reshape)
kernel("Transpose")(transpose)
kernel("Flatten")(flatten)
kernel("DepthToSpace")(depth_to_space)
kernel("SpaceToDepth")(space_to_depth)


@kernel("Shape")
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """The lengths of the axes from start to end, on the host, where they are read."""
    return np.array(tuple(x.shape)[start:end], np.int64)


@kernel("Size")
def size(x: Tensor) -> np.ndarray:
    """The number of elements."""
    return np.array(x.numel(), np.int64)


@kernel("Squeeze", hosted=True)
def squeeze(x: Tensor, axes: Any = None) -> Tensor:
    """x without the given axes of length 1, or without all axes of length 1."""
    axes = [k for k, n in enumerate(x.shape) if n == 1] if axes is None else ints(axes)
    if any(x.shape[k] != 1 for k in axes):
        raise ValueError(f"the axes {tuple(axes)} of {tuple(x.shape)} are not all of length 1")
    return x.squeeze(tuple(axes)) if axes else x


@kernel("Unsqueeze", hosted=True)
def unsqueeze(x: Tensor, axes: Any) -> Tensor:
    """x with new axes of length 1, at these positions of the result."""
    axes = ints(axes)
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


@kernel("Expand", hosted=True)
def expand(x: Tensor, shape: Any) -> Tensor:
    """x repeated along new axes and axes of length 1: a view with stride 0."""
    return x.expand(np.broadcast_shapes(tuple(x.shape), ints(shape)))


@kernel("Concat")
def concat(*inputs: Tensor, axis: int) -> Tensor:
    """The inputs joined along an axis."""
    return torch.cat(common(*inputs), axis)


@kernel("Split", counted=True, hosted=True)
def split(
    x: Tensor, parts: Any = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> tuple[Tensor, ...]:
    """Slabs along an axis, of the given lengths, or equal with a shorter last one if necessary."""
    n, count = x.shape[axis], num_outputs or outputs
    if parts is not None and sum(ints(parts)) != n:
        raise ValueError(f"parts of {ints(parts)} do not make up an axis of {n}")
    if parts is None:
        ends = (*(min(k * -(-n // count), n) for k in range(count)), n)
        parts = tuple(b - a for a, b in pairwise(ends))
    return tuple(torch.split(x, ints(parts), axis))


@kernel("Slice", hosted=True)
def slice_(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    """x[start:end:step] along the given axes; a backward slice is a forward one, turned around."""
    return sliced(tuple(x.shape), starts, ends, axes, steps)(x)


@static("Slice")
def sliced(shape: Shape, *told: Any) -> Callable[[Tensor], Tensor]:
    """The slice of tensors of one shape."""
    found, turned = cuts(shape, *told), list[int]()
    for axis, cut in enumerate(found):
        if (cut.step or 1) < 0:
            reach = range(*cut.indices(shape[axis]))
            found[axis] = slice(reach[-1], reach[0] + 1, -cut.step) if reach else slice(0)
            turned.append(axis)
    index = tuple(found)
    return (lambda x: x[index].flip(turned)) if turned else lambda x: x[index]


@kernel("Tile", hosted=True)
def tile(x: Tensor, repeats: Any) -> Tensor:
    """x repeated as a whole along each axis."""
    return x.repeat(ints(repeats))


@kernel("Pad", hosted=True)
def pad(
    x: Tensor, pads: Any, constant_value: Any = None, axes: Any = None, *, mode: str = "constant"
) -> Tensor:
    """x with elements added at both ends of the axes; negative widths remove elements."""
    widths = pad_widths(x, ints(pads), range(x.ndim) if axes is None else ints(axes))
    x = x[tuple(map(inner, tuple(x.shape), widths))]
    added = [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        return framed(x, added, 0 if constant_value is None else number(constant_value))
    for axis, (a, b) in enumerate(added):
        if a or b:  # NumPy knows which element each margin repeats
            places = np.pad(np.arange(x.shape[axis]), (a, b), mode=mode)  # type: ignore[call-overload]
            x = x.index_select(axis, torch.from_numpy(places).to(x.device))
    return x


def number(x: Any) -> Any:
    """The one number of a tensor or array."""
    return x.reshape(()).item() if hasattr(x, "reshape") else x


def framed(x: Tensor, widths: list[tuple[int, int]], value: Any) -> Tensor:
    """x inside a frame of a constant value; x itself if the frame is empty."""
    if not any(a or b for a, b in widths):
        return x
    shape = tuple(a + n + b for n, (a, b) in zip(x.shape, widths, strict=True))
    y = x.new_full(shape, value)
    y[tuple(slice(a, a + n) for n, (a, _) in zip(x.shape, widths, strict=True))] = x
    return y


@kernel("Trilu", hosted=True)
def trilu(x: Tensor, k: Any = 0, *, upper: int = 1) -> Tensor:
    """The triangle above, or below, the k-th diagonal of each matrix; zeros elsewhere."""
    k = 0 if k is None else ints(k)[0]
    return torch.triu(x, k) if upper else torch.tril(x, k)


@kernel("Gather")
def gather(x: Tensor, indices: Any, *, axis: int = 0) -> Tensor:
    """The slices of x at the indices along an axis."""
    axis, n = axis % x.ndim, x.shape[axis]
    if not is_tensor(indices):
        places = np.asarray(indices)
        if places.ndim == 0:
            return x.select(axis, int(places))
        indices = torch.from_numpy(np.array(places, np.int64)).to(x.device)
    flat = from_start(indices.reshape(-1).long(), n)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return x.index_select(axis, flat).reshape(shape)


def from_start(indices: Tensor, length: Any) -> Tensor:
    """Nonnegative indices: negative ones count from the end of the axis."""
    return torch.where(indices < 0, indices + length, indices)


@kernel("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """y[i, j, ...] = x[i, ..., indices[i, j, ...], ...], with the index at the axis."""
    return torch.gather(x, axis, from_start(indices.long(), x.shape[axis]))


@kernel("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """The slices of x at the positions in the last axis of the indices, after the batch axes."""
    rank = indices.ndim - 1
    batch = (torch.arange(x.shape[k], device=x.device).reshape(-1, *(1,) * (rank - 1 - k))
             for k in range(batch_dims))  # fmt: skip
    return x[(*batch, *indices.long().unbind(-1))]


@kernel("TopK", hosted=True)
def top_k(
    x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1, outputs: int = 2
) -> tuple[Tensor, Tensor]:
    """The k largest, or smallest, elements along an axis and their indices; ties in index order."""
    (count,), most = ints(k), x.shape[axis]
    if count > most:
        raise ValueError(f"k={count} of {most} elements along axis {axis}")
    values, places = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, count), places.narrow(axis, 0, count)


@kernel("Compress", hosted=True)
def compress(x: Tensor, condition: Any, *, axis: int | None = None) -> Tensor:
    """The slices along an axis where the condition holds."""
    x = x.reshape(-1) if axis is None else x
    (places,) = np.nonzero(host(condition))
    return x.index_select(axis or 0, torch.from_numpy(places).to(x.device))


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@kernel("ScatterElements")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """x with the updates written to, or combined with, positions along an axis."""
    (x, updates), places = common(x, updates), from_start(indices.long(), x.shape[axis])
    return scattered(x, updates, places, axis, reduction)


@kernel("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """x with slices written to, or combined with, the positions in the indices' last axis."""
    x, updates = common(x, updates)
    lengths = tuple(x.shape[: indices.shape[-1]])
    width = math.prod(x.shape[len(lengths) :])
    flat = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
    for n, places in zip(lengths, indices.long().unbind(-1), strict=True):
        places = from_start(places, n)
        if len(lengths) > 1 and bool(((places < 0) | (places >= n)).any()):
            raise ValueError(f"an invalid entry: an index reaches outside an axis of length {n}")
        flat = flat * n + places
    rows, slices = x.reshape(math.prod(lengths), width), updates.reshape(flat.numel(), width)
    return scattered(rows, slices, flat.reshape(-1, 1), 0, reduction).reshape(x.shape)


@widened
def scattered(x: Tensor, updates: Tensor, places: Tensor, axis: int, reduction: str) -> Tensor:
    """A copy of x with updates written to, or combined with, the places along an axis."""
    if reduction == "add" and places.shape[1:] == (1,) and axis == 0:
        return x.index_add(0, places[:, 0], updates)
    places = places.expand(updates.shape)
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, REDUCTIONS[reduction], include_self=True)
