"""Star: colours from which a symmetric matrix is read directly, fewer than its rows share.

A colouring of a graph is a star colouring if neighbours differ and no path of four vertices has
only two colours. Then entry (i, j) stands alone in row i of the product of colour j, or in row j
of the product of colour i (Gebremedhin, Manne and Pothen, What color is your Jacobian?, 2005).
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import numpy as np
from scipy.sparse import csr_array

PATHS = 2 * 10**6
"""Paths of three vertices that are looked at, one by one: about a second."""


def star(pattern: csr_array[Any]) -> np.ndarray | None:
    """A greedy star colouring of a symmetric pattern, vertices with many neighbours first.

    None where that would take long.
    """
    near = neighbours(pattern)
    if near is None:
        return None
    color = [-1] * len(near)
    around: list[Counter[int]] = [Counter() for _ in near]
    for v in np.argsort(-np.diff(pattern.indptr), kind="stable").tolist():
        barred = forbidden(v, near, color, around)
        color[v] = next(c for c in count() if c not in barred)
        for w in near[v]:
            around[w][color[v]] += 1
    return np.array(color)


def neighbours(pattern: csr_array[Any]) -> list[list[int]] | None:
    """The other vertices that each one has an entry with; None where there are too many paths."""
    if np.square(np.diff(pattern.indptr).astype(float)).sum() > PATHS:
        return None
    rows = np.split(pattern.indices, pattern.indptr[1:-1])
    return [[w for w in row.tolist() if w != v] for v, row in enumerate(rows)]


def forbidden(
    v: int, near: list[list[int]], color: list[int], around: list[Counter[int]]
) -> set[int]:
    """The colours that v cannot have; `around` counts those of the neighbours of each vertex.

    Those of the neighbours w, and that of a neighbour x of w if the path of two colours would go
    on: beyond x by a vertex coloured as w, or beyond v by another neighbour coloured as w.
    """
    barred = set[int]()
    for w in near[v]:
        c = color[w]
        if c >= 0:
            barred.add(c)
            goes_on = around[v][c] > 1
            barred.update(color[x] for x in near[w] if goes_on or around[x][c] > 1)
    return barred


def places(pattern: csr_array[Any], color: np.ndarray) -> np.ndarray:
    """Where to read each entry (i, j): in row i of the product of colour j, if it is alone there.

    Else in row j of the product of colour i.
    """
    n, width = len(color), int(color.max(initial=-1)) + 1
    i, j = coordinates(pattern)
    meeting = np.bincount(i * width + color[j], minlength=n * width)
    alone = meeting[i * width + color[j]] == 1
    return np.where(alone, color[j] * n + i, color[i] * n + j)


def coordinates(pattern: csr_array[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every entry, in order, as wide integers."""
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    return rows, pattern.indices.astype(np.int64)
