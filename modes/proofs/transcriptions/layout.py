"""Operators that lay the same entries out in another shape or order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ....ops.symbols.placing import ints
from .table import replaced, stretched, tabulate, transcription


def in_order(x: Any, shape: Iterable[int]) -> Any:
    """The entries of x, row by row, in another shape."""
    entries = iter(x.flat)
    return tabulate(shape, lambda _: next(entries))


@transcription("Shape")
def shape_(x: Any, *, start: int = 0, end: int | None = None) -> Any:
    """The lengths of the axes from `start` to before `end`."""
    return np.array(x.shape[start:end], np.int64)


@transcription("Reshape")
def reshape(x: Any, shape: Any, *, allowzero: int = 0) -> Any:
    """0 takes the length from x, and -1 is what remains."""
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
    """Without the named axes, or without all of length 1."""
    ones = [k for k, n in enumerate(x.shape) if n == 1]
    gone = ones if axes is None else [a % x.ndim for a in ints(axes)]
    return in_order(x, [n for k, n in enumerate(x.shape) if k not in gone])


@transcription("Unsqueeze")
def unsqueeze(x: Any, axes: Any) -> Any:
    """With axes of length 1, which are counted in the result."""
    rank = x.ndim + len(ints(axes))
    new, old = {a % rank for a in ints(axes)}, iter(x.shape)
    return in_order(x, [1 if k in new else next(old) for k in range(rank)])


@transcription("Transpose")
def transpose(x: Any, *, perm: Any = None) -> Any:
    """Axis k of y is axis perm[k] of x, by default the reverse."""
    order = list(reversed(range(x.ndim))) if perm is None else list(perm)
    return tabulate(
        [x.shape[a] for a in order],
        lambda index: x[tuple(index[order.index(a)] for a in range(x.ndim))],
    )


@transcription("Expand")
def expand(x: Any, shape: Any) -> Any:
    """X, broadcast with a shape."""
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

    def entry(index: tuple[int, ...]) -> Any:
        x, i = owners[index[axis]]
        return x[replaced(index, axis, i)]

    return tabulate(replaced(xs[0].shape, axis, len(owners)), entry)


@transcription("Split")
def split(
    x: Any, sizes: Any = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> Any:
    """yₖ[i] = x[before + i]; without sizes the last part is the one that is smaller."""
    n, parts = x.shape[axis], num_outputs or outputs
    length = -(-n // parts)
    given = [length] * (parts - 1) + [n - length * (parts - 1)] if sizes is None else ints(sizes)
    starts = [sum(given[:k]) for k in range(len(given))]
    return tuple(part(x, axis, start, size) for start, size in zip(starts, given, strict=True))


def part(x: Any, axis: int, start: int, size: int) -> Any:
    """`size` slices of an axis, from `start` on."""
    return tabulate(
        replaced(x.shape, axis, size),
        lambda index: x[replaced(index, axis, start + index[axis])],
    )


@transcription("DepthToSpace")
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    """y[b, k, h s + i, w s + j] = x[b, (i s + j) C + k, h, w], or x[b, (k s + i) s + j, h, w]."""
    s, (batch, depth, height, width) = blocksize, x.shape
    count = depth // s**2

    def entry(index: tuple[int, ...]) -> Any:
        b, k, (h, i), (w, j) = *index[:2], divmod(index[2], s), divmod(index[3], s)
        return x[b, (i * s + j) * count + k if mode == "DCR" else (k * s + i) * s + j, h, w]

    return tabulate((batch, count, height * s, width * s), entry)


@transcription("SpaceToDepth")
def space_to_depth(x: Any, *, blocksize: int) -> Any:
    """y[b, (i s + j) C + k, h, w] = x[b, k, h s + i, w s + j]."""
    s, (batch, depth, height, width) = blocksize, x.shape

    def entry(index: tuple[int, ...]) -> Any:
        b, place, h, w = index
        tap, k = divmod(place, depth)
        return x[b, k, h * s + tap // s, w * s + tap % s]

    return tabulate((batch, depth * s**2, height // s, width // s), entry)
