"""Reads and writes at positions given by tensors: Gather, Scatter, TopK, NonZero, Compress."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from ...jacobians.arrays import Array, host
from ...jacobians.readings import module_of
from .table import as_ints, kernel, widen_kernel

REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip

SPARSE_SLICES = 64
"""The least number of slices that a sparse matrix adds faster than `np.add.at`."""


@kernel("Gather")
def gather(x: Array, indices: Any, *, axis: int = 0) -> Array:
    """The slices of x at the indices along an axis."""
    return np.take(x, indices, axis)


@kernel("GatherElements")
def gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """y[i, j, ...] = x[i, ..., indices[i, j, ...], ...], with the index at the axis."""
    return x.take(indices) if x.ndim == 1 else x[mesh(indices, axis)]


def mesh(indices: Array, axis: int) -> tuple[Array, ...]:
    """The positions (i, j, ..., indices[i, j, ...], ...), with the indices at the axis."""
    places: list[Array] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    places[axis] = indices
    return tuple(places)


@kernel("GatherND", tensors=True)
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """The slices of x at the positions in the last axis of the indices, after the batch axes."""
    rows = np.indices((*x.shape[:batch_dims], *indices.shape[batch_dims:-1]), sparse=True)
    return x[(*rows[:batch_dims], *(indices[..., k] for k in range(indices.shape[-1])))]


@kernel("ReverseSequence")
def reverse_sequence(
    x: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0
) -> Array:
    """y[t, b] = x[n - 1 - t, b] for t < n, the length of sequence b, else x[t, b]."""
    lengths, most = np.asarray(sequence_lens), x.shape[time_axis]
    check_lengths(lengths, x.shape[batch_axis], most)
    t = np.arange(most)[:, None]
    at = np.where(t < lengths, lengths - 1 - t, t)
    at = at if time_axis == 0 else at.T
    return np.take_along_axis(x, at.reshape(*at.shape, *(1,) * (x.ndim - 2)), time_axis)


def check_lengths(lengths: np.ndarray, count: int, most: int) -> None:
    """Raises `ValueError` where these are no lengths of `count` sequences of `most` entries."""
    if lengths.shape != (count,) or np.any((lengths < 0) | (lengths > most)):
        raise ValueError(f"lengths {lengths.tolist()} for {count} sequences of {most} entries")


@kernel("TopK")
def top_k(
    x: Array, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1, outputs: int = 2
) -> tuple[Array, Array]:
    """The k largest, or smallest, elements along an axis and their indices; ties in index order."""
    count, most = number_of(k, x, axis), x.shape[axis]
    order = np.argsort(np.flip(x, axis) if largest else x, axis=axis, kind="stable")
    if largest:
        order = most - 1 - np.flip(order, axis)
    places = np.take(order, np.arange(count), axis)
    return np.take_along_axis(x, places, axis), places


def number_of(k: Any, x: Array, axis: int) -> int:
    """k, a number of elements along an axis; raises `ValueError` where there are fewer."""
    (count,), most = as_ints(k), x.shape[axis]
    if not 0 <= count <= most:
        raise ValueError(f"k={count} of {most} elements along axis {axis}")
    return count


@kernel("Compress", tensors=True, hosted=True)
def compress(x: Array, condition: Any, *, axis: int | None = None) -> Array:
    """The slices along an axis where the condition holds."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
    return x[(*(slice(None),) * axis, np.flatnonzero(host(condition)))]


@kernel("Unique")
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, ...]:
    """The unique entries, or slices; their first indices, the inverse, and the counts."""
    _, first, inverse, counts = np.unique(x, True, True, True, axis)
    order = np.arange(len(first)) if sorted else np.argsort(first)
    first, counts = first[order], counts[order]
    values = x.ravel()[first] if axis is None else np.take(x, first, axis)
    return values, first, np.argsort(order)[inverse.ravel()], counts


@kernel("ScatterElements")
def scatter_elements(
    x: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none"
) -> Array:
    """x with the updates written to, or combined with, positions along an axis."""
    check_indices(indices, x.shape[axis])
    places = mesh(from_start(indices, x.shape[axis]), axis)
    flat = np.ravel_multi_index(places, x.shape).ravel()
    return scattered(x.reshape(-1), flat, updates.ravel(), reduction).reshape(x.shape)


@kernel("ScatterND")
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """x with slices written to, or combined with, the positions in the indices' last axis."""
    lengths = x.shape[: indices.shape[-1]]
    width = math.prod(x.shape[len(lengths) :])
    rows = x.reshape(math.prod(lengths), width)
    places = rows_at(indices, lengths)
    slices = scattered(rows, places, updates.reshape(len(places), width), reduction)
    return slices.reshape(x.shape)


def rows_at(indices: Array, lengths: tuple[int, ...]) -> Array:
    """The row-major positions of the index tuples in the last axis, over axes of these lengths."""
    if not lengths:
        return np.zeros(math.prod(indices.shape[:-1]), np.int64)
    if len(lengths) == 1 and indices.min(initial=0) >= 0 and indices.max(initial=-1) < lengths[0]:
        return indices.ravel()
    check_indices(indices, lengths)
    places = np.moveaxis(from_start(indices, np.array(lengths)), -1, 0)
    return np.ravel_multi_index(tuple(places), lengths).ravel()


def check_indices(indices: np.ndarray, length: int | tuple[int, ...]) -> None:
    """Raises `IndexError` where an index is outside its axis: of this length, or of one for each
    entry of the last axis.
    """
    n = np.array(length)
    if not np.all((indices >= -n) & (indices < n)):
        axes = f"an axis of length {n.item()}" if n.size == 1 else f"axes of lengths {length}"
        raise IndexError(f"an index reaches outside {axes}")


def from_start(indices: Array, length: Any) -> Array:
    """Nonnegative indices: negative ones count from the end of the axis."""
    return module_of(indices).where(indices < 0, indices + length, indices)


@widen_kernel
def scattered(x: Array, places: Array, updates: Array, reduction: str) -> Array:
    """A copy of x with the rows at `places` replaced by, or combined with, the updates."""
    if reduction == "add" and x.ndim == 2 and len(places) >= SPARSE_SLICES and x.dtype.kind == "f":
        ones, starts = np.ones(len(places), x.dtype), np.arange(len(places) + 1)
        adding = sparse.csc_array((ones, places, starts), shape=(len(x), len(places)))
        return x + adding @ updates
    blank = x.size and not any(x.strides) and not x.flat[0]  # one zero, expanded
    y = np.zeros(x.shape, x.dtype) if blank else x.copy()
    if reduction == "none":
        y[places] = updates
    else:
        REDUCTIONS[reduction].at(y, places, updates)
    return y
