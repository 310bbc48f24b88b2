"""Operators that pick entries: by an index, a condition, a region or their order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ops.symbols.placing import ints
from .table import Index, replaced, tabulate, transcription, wrapped


@transcription("Slice")
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """y[i] = x[start + i · step]."""
    chosen = range(len(ints(starts))) if axes is None else ints(axes)
    pace = (1,) * len(chosen) if steps is None else ints(steps)
    kept = [range(n) for n in x.shape]
    for start, end, axis, step in zip(ints(starts), ints(ends), chosen, pace, strict=True):
        n, least = x.shape[axis], -1 if step < 0 else 0
        first, last = (wrapped(e, n) for e in (start, end))
        first, last = max(first, 0), max(last, least)
        kept[axis] = range(min(first, n + least), min(last, n + least), step)
    return tabulate(
        map(len, kept), lambda index: x[tuple(r[i] for r, i in zip(kept, index, strict=True))]
    )


@transcription("Gather")
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """y[i, j, k] = x[i, indices[j], k]."""
    indices, axis = np.asarray(indices), axis % x.ndim
    rank, n = indices.ndim, x.shape[axis]

    def entry(index: Index) -> Any:
        j = wrapped(indices[index[axis : axis + rank]], n)
        return x[(*index[:axis], j, *index[axis + rank :])]

    return tabulate(replaced(x.shape, axis, *indices.shape), entry)


@transcription("GatherElements")
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """y[i, j, k] = x[i, indices[i, j, k], k]."""
    n = x.shape[axis]
    return tabulate(
        indices.shape, lambda index: x[replaced(index, axis, wrapped(indices[index], n))]
    )


@transcription("GatherND")
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    """y[b, i, k] = x[b, *indices[b, i], k]."""
    b, rank, depth = batch_dims, indices.ndim - 1, indices.shape[-1]

    def entry(index: Index) -> Any:
        lengths = x.shape[b : b + depth]
        inner = (wrapped(i, n) for i, n in zip(indices[index[:rank]], lengths, strict=True))
        return x[(*index[:b], *inner, *index[rank:])]

    return tabulate((*indices.shape[:-1], *x.shape[b + depth :]), entry)


@transcription("Compress")
def compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    """The slices of an axis, or the entries, for which the condition is true."""
    kept = [k for k, true in enumerate(condition) if true]
    if axis is None:
        entries = list(x.flat)
        return tabulate((len(kept),), lambda index: entries[kept[index[0]]])
    return tabulate(
        replaced(x.shape, axis, len(kept)),
        lambda index: x[replaced(index, axis, kept[index[axis]])],
    )


@transcription("TopK")
def top_k(x: Any, k: Any, *, axis: int = -1, largest: int = 1, **_: Any) -> Any:
    """The k greatest or least entries of each row in order, the earlier first; their places."""
    shape = replaced(x.shape, axis, *ints(k))
    order = {
        row: ranked([x[replaced(row, axis, j)] for j in range(x.shape[axis])], largest)
        for row in np.ndindex(*replaced(x.shape, axis, 1))
    }
    places = tabulate(shape, lambda index: order[replaced(index, axis, 0)][index[axis]])
    values = tabulate(shape, lambda index: x[replaced(index, axis, places[index])])
    return values, places.astype(np.int64)


def ranked(row: list[Any], largest: int) -> list[int]:
    """The places of the entries in order, of equal ones the first before the others.

    >>> ranked([2, 3, 2], 1), ranked([2, 3, 2], 0)
    ([1, 0, 2], [0, 2, 1])
    """
    return sorted(range(len(row)), key=row.__getitem__, reverse=bool(largest))


@transcription("Trilu")
def trilu(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    """x[i, j] on the side of the diagonal j - i = k that is kept, else 0."""
    (diagonal,) = (0,) if k is None else ints(k)

    def entry(index: Index) -> Any:
        beyond = index[-1] - index[-2] - diagonal
        return x[index] if (beyond >= 0 if upper else beyond <= 0) else 0

    return tabulate(x.shape, entry)


@transcription("OneHot")
def one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    """y[i, d] = on where d is indices[i], else off; (off, on) are the values."""
    (n,), rank = ints(depth), indices.ndim + 1
    shape = list(indices.shape)
    shape.insert(axis % rank, n)
    return tabulate(
        shape,
        lambda index: values[int(index[axis] == wrapped(indices[replaced(index, axis)], n))],
    )
