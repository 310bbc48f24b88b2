"""Coloring: few products from which every entry of a sparse matrix can be read.

Columns that share no row are multiplied together: J (e_i + e_j) holds both columns. Every entry is
then read from one place, or, with an acyclic colouring, solved for. Some rows may be read from
products with Jᵀ instead, so that a full row does not force all columns apart. In a symmetric
matrix, J eᵢ is row i as well: see `symmetric_coloring`.

The columns are coloured in rounds, all vertices of a round at once: every vertex that comes before
all its uncoloured neighbours takes the smallest free colour (Jones and Plassmann), vertices with
many neighbours first. Periodic colourings, i mod p, are tried before that: on regular grids they
often need fewer colours.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.csgraph import breadth_first_order, connected_components
from scipy.sparse.linalg import splu

from ...jacobians import Jacobian, prod_text
from ...jacobians.arguments import validated
from ...jacobians.arrays import wide
from ...jacobians.errors import InputError
from .program import expand_ranges
from .sweep import Method

Partition = Literal["column", "row", "bidirectional", "star", "symmetric", "acyclic"]

THRESHOLDS = 16
"""About how many thresholds between full and other rows are compared."""

Cost = Callable[[np.ndarray], int]
"""A lower bound on the number of products for a choice of rows."""


@dataclass(frozen=True, repr=False)
class Coloring(Method):
    """The colours of `columns` and `rows`, -1 for none, and where to read every entry, `at`.

    Entry k of the `pattern` is element at[k] of the products J @ V, then Jᵀ @ U, each product one
    row, or of the solution that a `substitution` finds from them.
    """

    pattern: csr_array[Any]
    columns: np.ndarray
    rows: np.ndarray
    at: np.ndarray
    substitution: Substitution | None = None

    @property
    def seeds(self) -> tuple[np.ndarray, np.ndarray]:
        """V and U: a column of zeros and ones for every colour."""
        return indicator(self.columns), indicator(self.rows)

    @property
    def products(self) -> int:
        """The number of products."""
        return int(self.columns.max(initial=-1) + self.rows.max(initial=-1)) + 2

    def __repr__(self) -> str:
        size = prod_text(self.pattern.shape)
        return f"Coloring of {size}, {self.pattern.nnz:,} entries from {self.products} products"

    def decompress(self, forward: np.ndarray, reverse: np.ndarray) -> csr_array[Any]:
        """J from the products `forward` = J @ V and `reverse` = Jᵀ @ U."""
        numbers = np.concatenate([np.ravel(forward.T), np.ravel(reverse.T)])
        numbers = self.substitution(numbers) if self.substitution else numbers
        read = numbers[self.at]
        return csr_array((read, self.pattern.indices, self.pattern.indptr), self.pattern.shape)

    def values(self, operator: Jacobian) -> np.ndarray:
        V, U = (seeds.astype(wide(operator.dtype)) for seeds in self.seeds)
        return self.decompress(operator @ V, operator.T @ U).data


def indicator(color: np.ndarray) -> np.ndarray:
    """A matrix with ones in column c where the colour is c."""
    seeds = np.zeros((len(color), int(color.max(initial=-1)) + 1))
    colored = np.flatnonzero(color >= 0)
    seeds[colored, color[colored]] = 1
    return seeds


@validated
def coloring(pattern: Any, partition: Partition = "column") -> Coloring:
    """A colouring of a sparse pattern: `"column"`, `"row"` or `"bidirectional"`.

    For a symmetric pattern also `"star"`; `"symmetric"`, the better of a star colouring and one
    with full columns first; and `"acyclic"`, which takes fewer products but subtracts entries from
    their sums, so that rounding errors accumulate. The pattern is a matrix, dense or sparse;
    `pattern(J)` is the pattern of an operator.

    Shapes: the pattern is (m, n); the colours of the result are (n,) for columns and (m,) for rows.
    Raises `InputError` for an operator in place of a pattern, and for an unknown `partition`.
    Source: Gebremedhin, Manne, Pothen, "What color is your Jacobian? Graph coloring for computing
    derivatives", 2005.

    >>> coloring(np.eye(1000, dtype=bool))
    Coloring of 1000×1000, 1,000 entries from 1 products
    """
    if isinstance(pattern, Jacobian):
        raise InputError("coloring takes a matrix, dense or sparse, not an operator: pattern(J)")
    pattern = csr_array(pattern, dtype=bool)
    if partition in ("star", "symmetric", "acyclic") and pattern.shape[0] != pattern.shape[1]:
        raise InputError(f"a symmetric pattern is square, not of shape {pattern.shape}")
    return PARTITIONS[partition](pattern)


def bidirectional(pattern: csr_array[Any]) -> Coloring:
    """The fullest rows from Jᵀ @ U, the others from J @ V, split for the fewest products."""
    none = np.zeros(pattern.shape[0], bool)
    tried = (none, ~none, best(pattern, cover(pattern))[1])
    return min((split_coloring(pattern, full) for full in tried), key=lambda c: c.products)


def cover(pattern: csr_array[Any]) -> Cost:
    """A lower bound on the products, where the rows in `full` are read from Jᵀ @ U."""
    return lambda full: width(pattern[~full]) + width(pattern[full].T)


def split_coloring(pattern: csr_array[Any], full: np.ndarray) -> Coloring:
    """The rows in `full` from Jᵀ @ U, the others from J @ V."""
    (m, n), others = pattern.shape, np.flatnonzero(~full)
    columns, rows = np.full(n, -1), np.full(m, -1)
    used = np.flatnonzero(np.diff(pattern[others].tocsc().indptr))
    columns[used] = colors(pattern[others][:, used])
    rows[full] = colors(pattern[np.flatnonzero(full)].T.tocsr())
    i, j = entry_coordinates(pattern)
    at = np.where(full[i], (columns.max(initial=-1) + 1) * m + rows[i] * n + j, columns[j] * m + i)
    return Coloring(pattern, columns, rows, at)


def symmetric_coloring(pattern: csr_array[Any]) -> Coloring:
    """By symmetry: a star colouring, or the fullest columns first if that takes fewer colours."""
    _, hubs = best(
        pattern, lambda hubs: width(pattern[:, hubs]) + width(pattern[~hubs][:, ~hubs])
    )
    none = np.zeros_like(hubs)
    tried = [symmetric_with(pattern, chosen) for chosen in (none, hubs)]
    return min(*tried, by_star(pattern), key=lambda c: c.products)


def by_star(pattern: csr_array[Any]) -> Coloring:
    """A star colouring: by columns, or greedily, which usually takes fewer colours."""
    found = [colors(pattern), star(pattern)]
    columns = min((c for c in found if c is not None), key=lambda c: int(c.max(initial=-1)))
    none = np.full_like(columns, -1)
    return Coloring(pattern, columns, none, star_places(pattern, columns))


def by_acyclic(pattern: csr_array[Any]) -> Coloring:
    """An acyclic colouring, solved by substitution; a star colouring if that would take long."""
    columns = acyclic(pattern)
    if columns is None or pattern.nnz == 0:
        return by_star(pattern)
    solved, at = substitution(pattern, columns)
    return Coloring(pattern, columns, np.full_like(columns, -1), at, solved)


def symmetric_with(pattern: csr_array[Any], hubs: np.ndarray) -> Coloring:
    """Colours for the whole columns of the hubs, and for other columns without the hubs' rows.

    Entry (i, j) is read from column j, or from column i as entry (j, i).
    """
    columns = np.full(pattern.shape[0], -1)
    columns[hubs] = colors(pattern[:, hubs])
    columns[~hubs] = colors(pattern[~hubs][:, ~hubs]) + columns.max(initial=-1) + 1
    i, j = entry_coordinates(pattern)
    i, j = np.where(hubs[i] & ~hubs[j], (j, i), (i, j))
    return Coloring(pattern, columns, np.full_like(columns, -1), columns[j] * len(columns) + i)


PARTITIONS: dict[Partition, Callable[[csr_array[Any]], Coloring]] = {
    "column": lambda pattern: split_coloring(pattern, np.zeros(pattern.shape[0], bool)),
    "row": lambda pattern: split_coloring(pattern, np.ones(pattern.shape[0], bool)),
    "bidirectional": bidirectional,
    "star": by_star,
    "symmetric": symmetric_coloring,
    "acyclic": by_acyclic,
}
"""partition -> function that colours a pattern."""


def best(pattern: csr_array[Any], cost: Cost) -> tuple[int, np.ndarray]:
    """The lowest cost over thresholds for full rows, and the mask of the full rows."""
    counts = np.diff(pattern.indptr)
    limits = np.unique(counts)[::-1]
    tried = [counts > limit for limit in (*limits[:: len(limits) // THRESHOLDS + 1], -1)]
    costs = [cost(full) for full in tried]
    least = int(np.argmin(costs))
    return costs[least], tried[least]


def width(pattern: Any) -> int:
    """The most entries in a row: no colouring of the columns has fewer colours."""
    return int(np.diff(pattern.tocsr().indptr).max(initial=0))


PERIODS = 1.5
"""Up to this multiple of the lower bound, and 8 more, periods are tried; greedy colourings of
grids need about 1.8 times the bound."""

MEETINGS = 2 * 10**8
"""With more pairs of columns in common rows than this, every column has its own colour."""


def colors(pattern: csr_array[Any]) -> np.ndarray:
    """A colour for every column, so that columns of one colour share no row.

    >>> colors(csr_array(np.array([[1, 1, 0], [0, 1, 1]], bool)))
    array([0, 1, 0])
    """
    pattern = pattern[distinct_rows(pattern[:, :])[0]]
    n, widest = pattern.shape[1], int(np.diff(pattern.indptr).max(initial=0))
    pairs = np.square(np.diff(pattern.indptr).astype(float)).sum()
    if widest == n or pairs > MEETINGS:
        return np.arange(n)
    start, end = conflicts(pattern)
    periodic = period(np.abs(end - start), max(widest, 1), n)
    return np.arange(n) % periodic if periodic else rounds(start, end, n)


def distinct_rows(pattern: csr_array[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The first of each set of equal rows, and for every row the number of its set.

    Indices must be sorted. Rows are told apart by sums of random numbers, and then compared.

    >>> first, of = distinct_rows(csr_array(np.array([[1, 1, 0], [0, 1, 1], [1, 1, 0]], bool)))
    >>> len(first), bool(of[0] == of[2] != of[1])
    (2, True)
    """
    key = np.random.default_rng(0).integers(2**62, size=pattern.shape[1])
    sums = np.add.reduceat(np.append(key[pattern.indices], 0), pattern.indptr[:-1])
    sums[np.diff(pattern.indptr) == 0] = 0
    _, first, of = np.unique(sums, return_index=True, return_inverse=True)
    found, of = pattern[first][of], of.astype(pattern.indices.dtype)
    pairs = (found.indptr, pattern.indptr), (found.indices, pattern.indices)
    if all(np.array_equal(a, b) for a, b in pairs):
        return first, of
    return np.arange(len(of)), np.arange(len(of), dtype=of.dtype)


def conflicts(pattern: csr_array[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of different columns that share a row, in both orders, sorted by the first."""
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
    return next((p for p in range(least, int(PERIODS * least) + 8) if np.all(found % p)), None)


def rounds(start: np.ndarray, end: np.ndarray, n: int) -> np.ndarray:
    """A greedy colouring of the graph with these edges, in both directions, sorted by `start`."""
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
    row, at = expand_ranges(indptr[chosen], np.diff(indptr)[chosen])
    taken = np.zeros((len(chosen), color.max() + 3), bool)
    taken[row, color[end[at]]] = True
    taken[:, -1] = False  # where the uncoloured neighbours, of colour -1, were noted
    return np.argmin(taken[:, :-1], axis=1)


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


def star_places(pattern: csr_array[Any], color: np.ndarray) -> np.ndarray:
    """Where to read each entry (i, j): in row i of the product of colour j if it is alone there.

    Otherwise in row j of the product of colour i.
    """
    n, width = len(color), int(color.max(initial=-1)) + 1
    i, j = entry_coordinates(pattern)
    meeting = np.bincount(i * width + color[j], minlength=n * width)
    alone = meeting[i * width + color[j]] == 1
    return np.where(alone, color[j] * n + i, color[i] * n + j)


def entry_coordinates(pattern: csr_array[Any]) -> tuple[np.ndarray, np.ndarray]:
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
    from scipy.cluster.hierarchy import DisjointSet  # with half of SciPy behind it

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


def is_free(c: int, groups: Groups, trees: Any) -> bool:
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
    n, (i, j) = len(color), entry_coordinates(pattern)
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
