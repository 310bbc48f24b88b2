"""Operators that move elements: shapes, axes, blocks, reads and writes at given positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
import torch

from ...jacobians import Shape
from ..numbers.indexing import from_start, number_of
from ..numbers.layout import axis_slices
from ..numbers.table import widen_kernel
from .table import STATIC, Tensor, kernel, promote


@kernel("Slice", hosted=True)
def slice_(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    """x[start:end:step] along the given axes; a backward slice is a forward one, turned around."""
    return sliced(tuple(x.shape), starts, ends, axes, steps)(x)


def sliced(shape: Shape, *told: Any) -> Callable[[Tensor], Tensor]:
    """The slice of tensors of one shape."""
    found, turned = axis_slices(shape, *told), list[int]()
    for axis, cut in enumerate(found):
        if (cut.step or 1) < 0:
            reach = range(*cut.indices(shape[axis]))
            found[axis] = slice(reach[-1], reach[0] + 1, -cut.step) if reach else slice(0)
            turned.append(axis)
    index = tuple(found) if found[1:] else found[0]
    return (lambda x: x[index].flip(turned)) if turned else itemgetter(index)


STATIC["Slice"] = sliced


@kernel("Gather", indexed=True)
def gather(x: Tensor, indices: Any, *, axis: int = 0, nonnegative: bool = False) -> Tensor:
    """The slices of x at the indices along an axis."""
    axis, n = axis % x.ndim, x.shape[axis]
    if not isinstance(indices, torch.Tensor):
        places = np.asarray(indices)
        if places.ndim == 0:
            return x.select(axis, int(places))
        indices = torch.from_numpy(np.array(places, np.int64)).to(x.device)
    if x.ndim == 1 and not nonnegative:
        return torch.take(x, indices.long())
    flat = nonnegative_indices(indices.reshape(-1), n, nonnegative)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return x.index_select(axis, flat).reshape(shape)


@kernel("GatherElements", indexed=True)
def gather_elements(
    x: Tensor, indices: Tensor, *, axis: int = 0, nonnegative: bool = False
) -> Tensor:
    """y[i, j, ...] = x[i, ..., indices[i, j, ...], ...], with the index at the axis."""
    if x.ndim == 1:
        return gather(x, indices, nonnegative=nonnegative)
    return torch.gather(x, axis, nonnegative_indices(indices, x.shape[axis], nonnegative))


def nonnegative_indices(indices: Tensor, n: int, nonnegative: bool) -> Tensor:
    """The indices of an axis of length n, from its start."""
    indices = indices.long()
    on_cpu = indices.device.type == "cpu" and indices.numel()  # a GPU would wait for the answer
    known = nonnegative or (on_cpu and int(indices.min()) >= 0)
    return indices if known else from_start(indices, n)


@kernel("TopK", hosted=True)
def top_k(
    x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1, outputs: int = 2
) -> tuple[Tensor, Tensor]:
    """The k largest, or smallest, elements along an axis and their indices; ties in index order."""
    count = number_of(k, x, axis)
    values, places = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, count), places.narrow(axis, 0, count)


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@kernel("ScatterElements", indexed=True)
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none",
    nonnegative: bool = False, blank: bool = False,
) -> Tensor:  # fmt: skip
    """x with the updates written to, or combined with, positions along an axis."""
    (x, updates), places = (
        promote(x, updates),
        nonnegative_indices(indices, x.shape[axis], nonnegative),
    )
    return scattered(x, updates, places, axis, reduction, blank)


@kernel("ScatterND", indexed=True)
def scatter_nd(
    x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none",
    nonnegative: bool = False, blank: bool = False,
) -> Tensor:  # fmt: skip
    """x with slices written to, or combined with, the positions in the indices' last axis."""
    x, updates = promote(x, updates)
    lengths = tuple(x.shape[: indices.shape[-1]])
    width = math.prod(x.shape[len(lengths) :])
    flat: Any = None if lengths else indices.new_zeros(indices.shape[:-1], dtype=torch.int64)
    for n, places in zip(lengths, indices.unbind(-1), strict=True):
        places = nonnegative_indices(places, n, nonnegative)
        if len(lengths) > 1 and bool(((places < 0) | (places >= n)).any()):
            raise ValueError(f"an invalid entry: an index reaches outside an axis of length {n}")
        flat = places if flat is None else flat * n + places
    rows, slices = x.reshape(math.prod(lengths), width), updates.reshape(flat.numel(), width)
    return scattered(rows, slices, flat.reshape(-1, 1), 0, reduction, blank).reshape(x.shape)


@widen_kernel
def scattered(
    x: Tensor, updates: Tensor, places: Tensor, axis: int, reduction: str, blank: bool
) -> Tensor:
    """A copy of x, zeros if it is blank, with updates written to, or combined with, the places."""
    y = torch.zeros_like(x) if blank else x.clone()
    if reduction == "add" and places.shape[1:] == (1,) and axis == 0:
        if x.shape[1:] == (1,):  # flat, it takes half of the time
            y[:, 0].scatter_add_(0, places[:, 0], updates[:, 0])
            return y
        return y.index_add_(0, places[:, 0], updates)
    places = places.expand(updates.shape)
    if reduction == "none":
        return y.scatter_(axis, places, updates)
    return y.scatter_reduce_(axis, places, updates, REDUCTIONS[reduction], include_self=True)
