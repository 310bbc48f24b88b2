"""Moves: entries picked, padded around, or written into a copy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ....ops.symbols.placing import ints
from . import Index, replaced, tabulate, transcription, wrapped


@transcription("Gather")
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """y[i, j, k] = x[i, indices[j], k]."""
    axis, places = axis % x.ndim, np.asarray(indices)
    end = axis + places.ndim

    def entry(index: Index) -> Any:
        i = wrapped(places[index[axis:end]], x.shape[axis])
        return x[(*index[:axis], i, *index[end:])]

    return tabulate(replaced(x.shape, axis, *places.shape), entry)


@transcription("GatherElements")
def gather_elements(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """y[i, j, k] = x[i, indices[i, j, k], k]."""
    n = x.shape[axis]
    return tabulate(
        indices.shape, lambda index: x[replaced(index, axis, wrapped(indices[index], n))]
    )


@transcription("TopK")
def top_k(x: Any, k: Any, *, axis: int = -1, largest: int = 1, **_: Any) -> Any:
    """The k greatest or least entries of each row, in order, and their places."""
    shape = replaced(x.shape, axis, *ints(k))
    order = {
        row: ranked([x[replaced(row, axis, j)] for j in range(x.shape[axis])], largest)
        for row in np.ndindex(*replaced(x.shape, axis, 1))
    }
    places = tabulate(shape, lambda index: order[replaced(index, axis, 0)][index[axis]])
    values = tabulate(shape, lambda index: x[replaced(index, axis, places[index])])
    return values, places.astype(np.int64)


def ranked(row: list[Any], largest: int) -> list[int]:
    """The places of the entries in order; among equal entries the first comes first.

    >>> ranked([2, 3, 2], 1), ranked([2, 3, 2], 0)
    ([1, 0, 2], [0, 2, 1])
    """
    return sorted(range(len(row)), key=row.__getitem__, reverse=bool(largest))


@transcription("Pad")
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    """y[i] = x[i - begin], extended beyond x by the mode; negative pads remove entries."""
    given, chosen = ints(pads), range(x.ndim) if axes is None else ints(axes)
    around = {a % x.ndim: (given[k], given[k + len(chosen)]) for k, a in enumerate(chosen)}
    ends = [around.get(axis, (0, 0)) for axis in range(x.ndim)]
    filling = 0 if value is None else value[()] if value.ndim == 0 else value[0]

    def entry(index: Index) -> Any:
        places = [source(i, n, *e, mode) for i, n, e in zip(index, x.shape, ends, strict=True)]
        return filling if None in places else x[tuple(places)]

    return tabulate([n + sum(e) for n, e in zip(x.shape, ends, strict=True)], entry)


def source(i: int, n: int, begin: int, end: int, mode: str) -> int | None:
    """The place on an axis of length n from which entry i is taken; None where it is filled.

    >>> [source(i, 3, 2, 1, "reflect") for i in range(6)]
    [2, 1, 0, 1, 2, 1]
    >>> [source(i, 3, 2, -1, "constant") for i in range(4)]
    [None, None, 0, 1]
    """
    kept, k = range(max(-begin, 0), n - max(-end, 0)), i - max(begin, 0)
    if mode == "constant":
        return kept[k] if 0 <= k < len(kept) else None
    if mode == "edge":
        return kept[min(max(k, 0), len(kept) - 1)]
    if mode == "wrap":
        return kept[k % len(kept)]
    turn = max(len(kept) - 1, 1)
    k %= 2 * turn
    return kept[min(k, 2 * turn - k)] if len(kept) > 1 else kept[0]


REDUCTIONS: dict[str, Any] = {
    "none": lambda old, new: new,
    "add": operator.add,
    "mul": operator.mul,
    "max": max,
    "min": min,
}
"""reduction -> the entry that replaces the old one."""


@transcription("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    """y[*indices[i], k] = f(y[…], updates[i, k])."""
    y, f = x.copy(), REDUCTIONS[reduction]
    rank, depth = indices.ndim - 1, indices.shape[-1]
    for index in np.ndindex(*updates.shape):
        lengths = x.shape[:depth]
        outer = (wrapped(i, n) for i, n in zip(indices[index[:rank]], lengths, strict=True))
        place = (*outer, *index[rank:])
        y[place] = f(y[place], updates[index])
    return y
