"""Acyclic: fewer colours still for a symmetric matrix, whose entries are then solved for.

A colouring of a graph is acyclic if neighbours differ and no cycle has only two colours. Row i of
the product of colour d holds the sum of the entries (i, j) with j of that colour: the unknowns that
two colours share with each other form a forest, which is solved from its leaves (Gebremedhin,
Tarafdar, Manne and Pothen, New acyclic and star coloring algorithms, 2007).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import DisjointSet
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.sparse.linalg import splu

from .star import coordinates, neighbours

Groups = Mapping[int, list[int]]
"""colour -> the neighbours of a vertex that have it."""


def acyclic(pattern: csr_array[Any]) -> np.ndarray | None:
    """A greedy acyclic colouring of a symmetric pattern, vertices with many neighbours first.

    None where that would take long. The slots (vertex, colour) are joined by the entries: that of
    v and w joins (v, colour of w) to (w, colour of v), and a cycle is one of two colours.
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
    """Whether a vertex of colour c closes no cycle: neighbours of one colour are in other trees."""
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
    """h = (I + C)⁻¹ b: slot p holds the sum of its entry and of those of the slots below it in C.

    `order` has what is below first, so that the matrix is `triangle`. Rounding errors of b add up
    along the way, which may be as long as a matrix has rows.
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

    Each tree of slots is hung up at one of them; an entry is that of its lower end.
    """
    n, (i, j) = len(color), coordinates(pattern)
    here, there = color[j] * n + i, color[i] * n + j
    slots = n * (int(color.max(initial=-1)) + 1)
    order, above = hung(here[i != j], there[i != j], slots)
    place = np.empty(slots, np.int64)
    place[order] = np.arange(slots)
    below = np.flatnonzero(above < slots)
    C = csc_array((np.ones(len(below)), (place[above[below]], place[below])), (slots, slots))
    at = np.where((i == j) | (above[here] == there), here, there)
    return Substitution(order, csc_array(C + eye_array(slots, format="csc"))), at


def hung(start: np.ndarray, end: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """The slots from the leaves of a forest up, and the one above each; at the top, `slots`."""
    forest = csr_array((np.ones(len(start), bool), (start, end)), (slots, slots))
    tops = np.unique(connected_components(forest, directed=False)[1], return_index=True)[1]
    start, end = np.append(start, np.full(len(tops), slots)), np.append(end, tops)
    rooted = csr_array((np.ones(len(start), bool), (start, end)), (slots + 1, slots + 1))
    order, above = breadth_first_order(rooted, slots)
    return order[:0:-1], above[:slots]
