"""Operators that move elements: shapes, axes, blocks, reads and writes at given positions.

Numbers that are known are checked as with NumPy. While JAX traces there is nothing to check: what
is read outside of an axis is NaN, of whole numbers one of the ends of their range, and what would
be written there is left out.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..numbers.indexing import check_indices, check_lengths, mesh, number_of
from ..numbers.layout import axis_slices, numpy_dtype
from ..numbers.table import as_ints, widen_kernel
from .table import Array, has_tracers, kernel, known, to_jax_array


@kernel("Slice", hosted=True)
def slice_(x: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Array:
    """x[start:end:step] along the given axes."""
    return x[tuple(axis_slices(x.shape, starts, ends, axes, steps))]


@kernel("Concat")
def concat(*parts: Array, axis: int) -> Array:
    """The parts side by side along an axis. Long ones are written into the result, one by one: for
    a concatenation XLA's loop asks at each entry which part has it.
    """
    dtype, shape = jnp.result_type(*parts), list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    if math.prod(shape) < PARTWISE_ENTRIES or not has_tracers(parts):
        return jnp.concatenate(parts, axis)
    y, start = jnp.zeros(shape, dtype), 0
    for part in parts:
        y = lax.dynamic_update_slice_in_dim(y, part.astype(dtype), start, axis)
        start += part.shape[axis]
    return y


PARTWISE_ENTRIES = 1 << 15
"""The entries from which the parts of a result are written one by one."""


@kernel("Transpose")
def transpose(x: Array, *, perm: Any = None) -> Array:
    """x with its axes permuted, by default reversed."""
    return jnp.transpose(x, perm)


@kernel("Gather", hosted=True)
def gather(x: Array, indices: Any, *, axis: int = 0) -> Array:
    """The slices of x at the indices along an axis."""
    axis = axis % x.ndim
    places = from_start(indices, x.shape[axis])
    known = int(places) if isinstance(places, np.ndarray) and places.ndim == 0 else places
    return entries_at(x, (*(slice(None),) * axis, known))


@kernel("GatherElements", hosted=True)
def gather_elements(x: Array, indices: Any, *, axis: int = 0) -> Array:
    """y[i, j, ...] = x[i, ..., indices[i, j, ...], ...], with the index at the axis."""
    return entries_at(x, mesh(from_start(indices, x.shape[axis]), axis))


@kernel("GatherND", hosted=True)
def gather_nd(x: Array, indices: Any, *, batch_dims: int = 0) -> Array:
    """The slices of x at the positions in the last axis of the indices, after the batch axes."""
    rows = np.indices((*x.shape[:batch_dims], *indices.shape[batch_dims:-1]), sparse=True)
    lengths = x.shape[batch_dims : batch_dims + indices.shape[-1]]
    places = (from_start(indices[..., k], n) for k, n in enumerate(lengths))
    return entries_at(x, (*rows[:batch_dims], *places))


def from_start(indices: Any, n: int) -> Any:
    """The indices of an axis of length n, from its start; n for a traced one outside, and for a
    known one raises `IndexError`.
    """
    if has_tracers([indices]):
        return jnp.where(indices < -n, n, jnp.where(indices < 0, indices + n, indices))
    indices = np.asarray(indices)
    check_indices(indices, n)
    return np.where(indices < 0, indices + n, indices)


def entries_at(x: Array, places: tuple[Any, ...]) -> Array:
    """x at the places; NaN, or an end of the range, at those outside."""
    return x.at[places].get(mode="fill" if has_tracers(places) else "promise_in_bounds")


@kernel("Compress", hosted=True)
def compress(x: Array, condition: Any, *, axis: int | None = None) -> Array:
    """The slices along an axis where the condition holds, which decides their number."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return gather(x, np.flatnonzero(np.asarray(condition)), axis=axis)


@kernel("ReverseSequence", hosted=True)
def reverse_sequence(
    x: Array, sequence_lens: Any, *, batch_axis: int = 1, time_axis: int = 0
) -> Array:
    """y[t, b] = x[n - 1 - t, b] for t < n, the length of sequence b, else x[t, b]."""
    n, most = sequence_lens, x.shape[time_axis]
    if not has_tracers([n]):
        check_lengths(np.asarray(n), x.shape[batch_axis], most)
    t = np.arange(most)[:, None]
    at = jnp.where((n < 0) | (n > most), most, jnp.where(t < n, n - 1 - t, t))
    at = at if time_axis == 0 else at.T
    places = at.reshape(*at.shape, *(1,) * (x.ndim - 2))
    return jnp.take_along_axis(x, places, time_axis, mode="fill")


@kernel("TopK", hosted=True)
def top_k(
    x: Array, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1, outputs: int = 2
) -> tuple[Array, Array]:
    """The k largest, or smallest, elements along an axis and their indices; ties in index order."""
    count = number_of(k, x, axis)
    order = jnp.argsort(x, axis, stable=True, descending=bool(largest))
    places = order[(slice(None),) * (axis % x.ndim) + (slice(count),)]
    return jnp.take_along_axis(x, places, axis), places.astype(known(np.int64))


METHODS = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


@kernel("ScatterElements", hosted=True)
def scatter_elements(
    x: Array, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Array:
    """x with the updates written to, or combined with, positions along an axis."""
    places = mesh(from_start(indices, x.shape[axis]), axis)
    return scattered(x, to_jax_array(updates), places, reduction)


@kernel("ScatterND", hosted=True)
def scatter_nd(x: Array, indices: Any, updates: Any, *, reduction: str = "none") -> Array:
    """x with slices written to, or combined with, the positions in the indices' last axis."""
    lengths = x.shape[: indices.shape[-1]]
    places = tuple(from_start(indices[..., k], n) for k, n in enumerate(lengths))
    if not places:  # the whole of x, once for each index
        count = math.prod(indices.shape[:-1])
        rows = to_jax_array(updates).reshape(count, *x.shape)
        return scattered(x[None], rows, (np.zeros(count, int),), reduction)[0]
    return scattered(x, to_jax_array(updates), places, reduction)


@widen_kernel
def scattered(x: Array, updates: Array, places: tuple[Any, ...], reduction: str) -> Array:
    """x with updates written to, or combined with, the places."""
    dtype = jnp.result_type(x, updates)
    return getattr(x.astype(dtype).at[places], METHODS[reduction])(updates)


@kernel("OneHot", hosted=True)
def one_hot(indices: Array, depth: Any, values: Any, *, axis: int = -1) -> Array:
    """The second value at the index on the new axis, the first one elsewhere."""
    (depth,) = as_ints(np.asarray(depth).astype(np.int64))
    places = indices.astype(known(np.int64))
    places = jnp.where((places < 0) & (places >= -depth), places + depth, places)
    axis = axis + places.ndim + 1 if axis < 0 else axis
    line = np.arange(depth).reshape(-1, *(1,) * (places.ndim - axis))
    values = to_jax_array(values)
    return jnp.where(jnp.expand_dims(places, axis) == line, values[1], values[0])


@kernel("EyeLike")
def eye_like(x: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    """Ones on the k-th diagonal of a matrix of the shape of x, zeros elsewhere."""
    rows, columns = x.shape
    return jnp.eye(rows, columns, k, x.dtype if dtype is None else known(numpy_dtype(dtype)))
