"""Colours: a partition of vertices into sets without an edge inside.

The sets are found in rounds, all vertices of a round at once: those that come before all their
uncoloured neighbours take the smallest colour that is free (Jones and Plassmann), the ones with
many neighbours first. Regular grids are tried first: there i mod p often does with fewer colours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from .terms import expanded

PERIODS = 8
"""How many more colours than the least imaginable a periodic colouring may have."""

MEETINGS = 2 * 10**8
"""Pairs of columns in a common row that are looked at; beyond, every column has its own colour."""


def colors(pattern: csr_array[Any]) -> np.ndarray:
    """A colour for every column, so that columns of one colour share no row.

    >>> colors(csr_array(np.array([[1, 1, 0], [0, 1, 1]], bool)))
    array([0, 1, 0])
    """
    pattern = pattern[:, :]
    n, widest = pattern.shape[1], int(np.diff(pattern.indptr).max(initial=0))
    pairs = np.square(np.diff(pattern.indptr).astype(float)).sum()
    if widest == n or pairs > MEETINGS:
        return np.arange(n)
    start, end = conflicts(pattern)
    periodic = period(np.abs(end - start), max(widest, 1), n)
    return np.arange(n) % periodic if periodic else rounds(start, end, n)


def conflicts(pattern: csr_array[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of different columns that share a row, both ways round, sorted by the first."""
    shared = csr_array(pattern.T.tocsr() @ pattern)
    columns = np.arange(pattern.shape[1], dtype=shared.indices.dtype)
    start = np.repeat(columns, np.diff(shared.indptr))
    other = start != shared.indices
    return start[other], shared.indices[other]


def period(distances: np.ndarray, least: int, n: int) -> int | None:
    """The smallest p not far above `least` that divides no distance between conflicting columns."""
    present = np.zeros(max(n, 1), bool)
    present[distances] = True
    found = np.flatnonzero(present)
    return next((p for p in range(least, least + PERIODS) if np.all(found % p)), None)


def rounds(start: np.ndarray, end: np.ndarray, n: int) -> np.ndarray:
    """A greedy colouring of the graph with these edges, sorted by `start` and both ways round."""
    degree = np.bincount(start, minlength=n)
    indptr = np.concatenate([[0], np.cumsum(degree)])
    before = np.empty(n, np.int64)
    before[np.lexsort((np.random.default_rng(0).random(n), degree))] = np.arange(n)
    color = np.full(n, -1)
    waiting, a, b = np.arange(n), start, end
    while len(waiting):
        first = np.ones(n, bool)
        first[a[before[a] < before[b]]] = False
        chosen = waiting[first[waiting]]
        color[chosen] = smallest_free(chosen, indptr, end, color)
        waiting = waiting[color[waiting] < 0]
        open_ = (color[a] < 0) & (color[b] < 0)
        a, b = a[open_], b[open_]
    return color


def smallest_free(
    chosen: np.ndarray, indptr: np.ndarray, end: np.ndarray, color: np.ndarray
) -> np.ndarray:
    """The smallest colour that no neighbour has, for every chosen vertex."""
    row, at = expanded(indptr[chosen], np.diff(indptr)[chosen])
    taken = np.zeros((len(chosen), color.max() + 3), bool)
    taken[row, color[end[at]]] = True
    taken[:, -1] = False  # where the uncoloured neighbours, of colour -1, were noted
    return np.argmin(taken[:, :-1], axis=1)
