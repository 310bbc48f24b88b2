"""Symmetric colouring: star and acyclic colourings, by fewer products than column colourings.

A colouring of a graph is a star colouring if neighbours differ and no path of four vertices has
only two colours. Then entry (i, j) stands alone in row i of the product of colour j, or in row j
of the product of colour i (Gebremedhin, Manne and Pothen, What color is your Jacobian?, 2005).

A colouring is acyclic if neighbours differ and no cycle has only two colours. Row i of the product
of colour d holds the sum of the entries (i, j) with j of that colour. The unknowns that two colours
share form a forest, which is solved from its leaves (Gebremedhin, Tarafdar, Manne and Pothen, New
acyclic and star coloring algorithms, 2007).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import DisjointSet
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.sparse.linalg import splu

PATHS = 2 * 10**6
"""The most paths of three vertices that are examined one by one, in about a second."""


def star(pattern: csr_array[Any]) -> np.ndarray | None:
    """A greedy star colouring of a symmetric pattern, vertices with many neighbours first.

    None if that would take long.
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
    """The neighbours of every vertex in the pattern; None if there are too many paths."""
    if np.square(np.diff(pattern.indptr).astype(float)).sum() > PATHS:
        return None
    rows = np.split(pattern.indices, pattern.indptr[1:-1])
    return [[w for w in row.tolist() if w != v] for v, row in enumerate(rows)]


def forbidden(
    v: int, near: list[list[int]], color: list[int], around: list[Counter[int]]
) -> set[int]:
    """The colours that v cannot have; `around` counts the colours of each vertex's neighbours.

    Such colours are the colours of the neighbours w, and the colour of a neighbour x of w if the
    path v, w, x of two colours would go on with the colour of w: by another neighbour of x or of v.
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
    """Where to read each entry (i, j): in row i of the product of colour j if it is alone there.

    Otherwise in row j of the product of colour i.
    """
    n, width = len(color), int(color.max(initial=-1)) + 1
    i, j = coordinates(pattern)
    meeting = np.bincount(i * width + color[j], minlength=n * width)
    alone = meeting[i * width + color[j]] == 1
    return np.where(alone, color[j] * n + i, color[i] * n + j)


def coordinates(pattern: csr_array[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every entry, in order, as 64-bit integers."""
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    return rows, pattern.indices.astype(np.int64)


Groups = Mapping[int, list[int]]
"""colour -> the neighbours of a vertex with this colour."""


def acyclic(pattern: csr_array[Any]) -> np.ndarray | None:
    """A greedy acyclic colouring of a symmetric pattern, vertices with many neighbours first.

    None if that would take long. The entries join the slots (vertex, colour): the entry of v and
    w joins (v, colour of w) to (w, colour of v), and a cycle of slots is a cycle of two colours.
    """
    near = neighbours(pattern)
    if near is None:
        return None
    color, trees = [-1] * len(near), DisjointSet()
    for v in np.argsort([-len(row) for row in near], kind="stable").tolist():
        groups: defaultdict[int, list[int]] = defaultdict(list)
        for w in near[v]:
            if color[w] >= 0:
                groups[color[w]].append(w)
        color[v] = next(c for c in count() if is_free(c, groups, trees))
        for d, others in groups.items():
            trees.add((v, d))
            for w in others:
                trees.merge((v, d), (w, color[v]))
    return np.array(color)


def is_free(c: int, groups: Groups, trees: DisjointSet) -> bool:
    """Whether colour c closes no cycle: neighbours of equal colour are in different trees."""
    if c in groups:
        return False
    for others in groups.values():
        for w in others:
            trees.add((w, c))
        if len({trees[w, c] for w in others}) < len(others):
            return False
    return True


@dataclass(frozen=True, eq=False)
class Substitution:
    """h = (I + C)⁻¹ b: slot p of b is the sum of its own entry and the entries of the slots below.

    `order` has lower slots first, so that I + C becomes the lower `triangle`. Rounding errors of b
    accumulate along a branch, which may be as long as the matrix has rows.
    """

    order: np.ndarray
    triangle: csc_array[Any]

    def __call__(self, b: np.ndarray) -> np.ndarray:
        """h, in the order of b."""
        h = np.empty_like(b)
        factors = splu(self.triangle.astype(b.dtype), "NATURAL", diag_pivot_thresh=0.0)
        h[self.order] = factors.solve(b[self.order])
        return h


def substitution(pattern: csr_array[Any], color: np.ndarray) -> tuple[Substitution, np.ndarray]:
    """How the slots colour · n + row are solved for, and the slot of every entry.

    Each tree of slots is rooted at one slot; an entry belongs to the lower of its two slots.
    """
    n, (i, j) = len(color), coordinates(pattern)
    here, there = color[j] * n + i, color[i] * n + j
    slots = n * (int(color.max(initial=-1)) + 1)
    order, above = rooted(here[i != j], there[i != j], slots)
    place = np.empty(slots, np.int64)
    place[order] = np.arange(slots)
    below = np.flatnonzero(above < slots)
    C = csc_array((np.ones(len(below)), (place[above[below]], place[below])), (slots, slots))
    at = np.where((i == j) | (above[here] == there), here, there)
    return Substitution(order, csc_array(C + eye_array(slots, format="csc"))), at


def rooted(start: np.ndarray, end: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """The slots of a forest from the leaves up, and the parent of each, `slots` for roots."""
    forest = csr_array((np.ones(len(start), bool), (start, end)), (slots, slots))
    tops = np.unique(connected_components(forest, directed=False)[1], return_index=True)[1]
    start, end = np.append(start, np.full(len(tops), slots)), np.append(end, tops)
    tree = csr_array((np.ones(len(start), bool), (start, end)), (slots + 1, slots + 1))
    order, above = breadth_first_order(tree, slots)
    return order[:0:-1], above[:slots]
