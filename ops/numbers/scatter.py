"""Writing at places that tensors hold: ScatterElements, ScatterND."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from ...jacobians.arrays import Array
from .indexing import mesh
from .table import kernel, wide

REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
MANY = 64
"""From so many slices on, adding them by a sparse matrix is quicker than by `np.add.at`."""


@kernel("ScatterElements")
def scatter_elements(
    x: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none"
) -> Array:
    """X with the updates written at, or combined into, their places along an axis."""
    places = mesh(from_start(indices, x.shape[axis]), axis)
    flat = np.ravel_multi_index(places, x.shape).ravel()
    return scattered(x.reshape(-1), flat, updates.ravel(), reduction).reshape(x.shape)


@kernel("ScatterND")
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """X with slices written at, or combined into, the places in the indices' last axis."""
    lengths = x.shape[: indices.shape[-1]]
    width = math.prod(x.shape[len(lengths) :])
    rows = x.reshape(math.prod(lengths), width)
    places = rows_at(indices, lengths)
    slices = scattered(rows, places, updates.reshape(len(places), width), reduction)
    return slices.reshape(x.shape)


def rows_at(indices: Array, lengths: tuple[int, ...]) -> Array:
    """The flat places of the index tuples in the last axis, over axes of those lengths."""
    if not lengths:
        return np.zeros(math.prod(indices.shape[:-1]), np.int64)
    places = np.moveaxis(from_start(indices, np.array(lengths)), -1, 0)
    return np.ravel_multi_index(tuple(places), lengths).ravel()


def from_start(indices: Array, length: Any) -> Array:
    """Indices counted from the start of an axis, where negative ones count from its end."""
    return np.where(indices < 0, indices + length, indices)


@wide
def scattered(x: Array, places: Array, updates: Array, reduction: str) -> Array:
    """A copy of x, its rows at the places replaced by, or combined with, the updates."""
    if reduction == "add" and x.ndim == 2 and len(places) >= MANY and x.dtype.kind == "f":
        return x + selection(places, len(x), x.dtype) @ updates
    y = x.copy()
    if reduction == "none":
        y[places] = updates
    else:
        REDUCTIONS[reduction].at(y, places, updates)
    return y


def selection(places: Array, rows: int, dtype: np.dtype) -> sparse.csc_array:
    """The matrix whose column j has its 1 in row places[j]: it adds row j of a matrix there."""
    ones, starts = np.ones(len(places), dtype), np.arange(len(places) + 1)
    return sparse.csc_array((ones, places, starts), shape=(rows, len(places)))
