"""Pad: entries around a tensor, and negative numbers of them, which take some away."""

from __future__ import annotations

from typing import Any

from ....ops.symbols.placing import ints
from .table import tabulate, transcription


@transcription("Pad")
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Any:
    """y[i] = x[i - begin], continued outside x as the mode has it."""
    given, chosen = ints(pads), range(x.ndim) if axes is None else ints(axes)
    around = {a % x.ndim: (given[k], given[k + len(chosen)]) for k, a in enumerate(chosen)}
    ends = [around.get(axis, (0, 0)) for axis in range(x.ndim)]
    filling = 0 if value is None else value[()] if value.ndim == 0 else value[0]

    def entry(index: tuple[int, ...]) -> Any:
        places = [source(i, n, *e, mode) for i, n, e in zip(index, x.shape, ends, strict=True)]
        return filling if None in places else x[tuple(places)]

    return tabulate([n + sum(e) for n, e in zip(x.shape, ends, strict=True)], entry)


def source(i: int, n: int, begin: int, end: int, mode: str) -> int | None:
    """The place on an axis of length n from which entry i is taken, if any.

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
