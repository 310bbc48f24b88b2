"""Moves: the same entries in another shape or order, picked, padded, or written into a copy."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ....ops.symbols.placing import ints
from . import Index, replaced, stretched, tabulate, transcription, wrapped


def in_order(x: Any, shape: Iterable[int]) -> Any:
    """The entries of x, row by row, in another shape."""
    entries = iter(x.flat)
    return tabulate(shape, lambda _: next(entries))


def picked(x: Any, axis: int, places: Sequence[int]) -> Any:
    """y[i, j, k] = x[i, places[j], k]."""
    return tabulate(
        replaced(x.shape, axis, len(places)),
        lambda index: x[replaced(index, axis, places[index[axis]])],
    )


@transcription("Shape")
def shape_(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    """The lengths of the axes from `start` to before `end`."""
    return np.array(x.shape[start:end], np.int64)


@transcription("Reshape")
def reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    """The entries in a given shape; 0 copies a length from x, and -1 is what remains."""
    lengths = [x.shape[k] if not n and not allowzero else n for k, n in enumerate(ints(shape))]
    if -1 in lengths:
        known = math.prod(n for n in lengths if n != -1)
        lengths[lengths.index(-1)] = x.size // known
    return in_order(x, lengths)


@transcription("Flatten")
def flatten(x: Any, *, axis: int = 1) -> Any:
    """The axes before `axis` as one, and those from it on as another."""
    axis = axis + x.ndim if axis < 0 else axis
    return in_order(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@transcription("Squeeze")
def squeeze(x: Any, axes: Any = None) -> Any:
    """Remove the named axes, or all axes of length 1."""
    ones = [k for k, n in enumerate(x.shape) if n == 1]
    gone = ones if axes is None else [a % x.ndim for a in ints(axes)]
    return in_order(x, [n for k, n in enumerate(x.shape) if k not in gone])


@transcription("Unsqueeze")
def unsqueeze(x: Any, axes: Any) -> Any:
    """Insert axes of length 1, at positions in the result."""
    rank = x.ndim + len(ints(axes))
    new, old = {a % rank for a in ints(axes)}, iter(x.shape)
    return in_order(x, [1 if k in new else next(old) for k in range(rank)])


@transcription("Transpose")
def transpose(x: Any, *, perm: Any = None) -> Any:
    """Axis k of y is axis perm[k] of x; by default the axes are reversed."""
    order = list(reversed(range(x.ndim))) if perm is None else list(perm)
    return tabulate(
        [x.shape[a] for a in order],
        lambda index: x[tuple(index[order.index(a)] for a in range(x.ndim))],
    )


@transcription("Expand")
def expand(x: Any, shape: Any) -> Any:
    """x broadcast with a shape."""
    return tabulate(np.broadcast_shapes(x.shape, ints(shape)), lambda index: stretched(x, index))


@transcription("Tile")
def tile(x: Any, repeats: Any) -> Any:
    """y[i] = x[i mod n]."""
    lengths = [n * r for n, r in zip(x.shape, ints(repeats), strict=True)]
    return tabulate(
        lengths, lambda index: x[tuple(i % n for i, n in zip(index, x.shape, strict=True))]
    )


@transcription("Concat")
def concat(*xs: Any, axis: int) -> Any:
    """y[before + i] = x[i], where `before` counts the entries of the tensors ahead of x."""
    owners = [(x, i) for x in xs for i in range(x.shape[axis])]

    def entry(index: Index) -> Any:
        x, i = owners[index[axis]]
        return x[replaced(index, axis, i)]

    return tabulate(replaced(xs[0].shape, axis, len(owners)), entry)


@transcription("Split")
def split(
    x: Any, sizes: Any = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> Any:
    """yₖ[i] = x[before + i]; without sizes, the last part may be smaller than the others."""
    n, parts = x.shape[axis], num_outputs or outputs
    length = -(-n // parts)
    given = [length] * (parts - 1) + [n - length * (parts - 1)] if sizes is None else ints(sizes)
    starts = [sum(given[:k]) for k in range(len(given))]
    return tuple(picked(x, axis, range(a, a + n)) for a, n in zip(starts, given, strict=True))


@transcription("DepthToSpace")
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    """y[b, k, h s + i, w s + j] = x[b, (i s + j) C + k, h, w], or x[b, (k s + i) s + j, h, w]."""
    s, (batch, depth, height, width) = blocksize, x.shape
    count = depth // s**2

    def entry(index: Index) -> Any:
        b, k, (h, i), (w, j) = *index[:2], divmod(index[2], s), divmod(index[3], s)
        return x[b, (i * s + j) * count + k if mode == "DCR" else (k * s + i) * s + j, h, w]

    return tabulate((batch, count, height * s, width * s), entry)


@transcription("SpaceToDepth")
def space_to_depth(x: Any, *, blocksize: int) -> Any:
    """y[b, (i s + j) C + k, h, w] = x[b, k, h s + i, w s + j]."""
    s, (batch, depth, height, width) = blocksize, x.shape

    def entry(index: Index) -> Any:
        b, place, h, w = index
        tap, k = divmod(place, depth)
        return x[b, k, h * s + tap // s, w * s + tap % s]

    return tabulate((batch, depth * s**2, height // s, width // s), entry)


# Picking entries.


@transcription("Slice")
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """y[i] = x[start + i · step]."""
    chosen = range(len(ints(starts))) if axes is None else ints(axes)
    pace = (1,) * len(chosen) if steps is None else ints(steps)
    for start, end, axis, step in zip(ints(starts), ints(ends), chosen, pace, strict=True):
        n, least = x.shape[axis], -1 if step < 0 else 0
        first, last = (wrapped(e, n) for e in (start, end))
        first, last = max(first, 0), max(last, least)
        x = picked(x, axis, range(min(first, n + least), min(last, n + least), step))
    return x


@transcription("Gather")
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """y[i, j, k] = x[i, indices[j], k]."""
    places = [wrapped(i, x.shape[axis]) for i in np.ravel(indices)]
    return in_order(picked(x, axis, places), replaced(x.shape, axis, *np.shape(indices)))


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
    return picked(x.ravel(), 0, kept) if axis is None else picked(x, axis, kept)


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


@transcription("Trilu")
def trilu(x: Any, k: Any = None, *, upper: int = 1) -> Any:
    """x[i, j] on the kept side of the diagonal j - i = k, else 0."""
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


# Padding.


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


# Writing entries into a copy.

REDUCTIONS: dict[str, Any] = {
    "none": lambda old, new: new,
    "add": operator.add,
    "mul": operator.mul,
    "max": max,
    "min": min,
}
"""reduction -> the entry that replaces the old one."""


@transcription("ScatterElements")
def scatter_elements(
    x: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Any:
    """y[i, indices[i, j, k], k] = f(y[…], updates[i, j, k])."""
    y, f = x.copy(), REDUCTIONS[reduction]
    for index in np.ndindex(*indices.shape):
        place = replaced(index, axis, wrapped(indices[index], x.shape[axis]))
        y[place] = f(y[place], updates[index])
    return y


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
