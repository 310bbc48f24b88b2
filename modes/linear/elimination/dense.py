"""Dense: the matrix of a DAG, with as little arithmetic as its structure allows.

Three methods are compared: all columns forward or all rows backward; the rows of all samples at
once if no path to the sink mixes samples; a chain between stations, in the best matrix-chain order.

Station k of a chain has a size s(k), and the operator from k to k + 1 takes f(k) flops per column.
The matrix from i to j is computed from matrices of shorter chains, by the cheapest of:

    A(i, j) = F(j - 1) … F(k) A(i, k)   s(i) (f(k) + … + f(j - 1))    columns pushed forward
    A(i, j) = A(k, j) F(k - 1) … F(i)   s(j) (f(i) + … + f(k - 1))    rows pulled back
    A(i, j) = A(k, j) A(i, k)           2 s(i) s(k) s(j)              a product of matrices

Forward and reverse accumulation push and pull the identity, so the best order is never worse.
Columns pass all operators in blocks: no matrix on their way is held whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial, reduce, singledispatch
from itertools import accumulate, pairwise
from math import inf
from operator import itemgetter

import numpy as np

from ....jacobians import Dag, Dense, Diagonal, Edge, Eye, Jacobian, Kron, Product, Reshape, size
from ....jacobians.arrays import rounded, wide
from ....jacobians.base import CHUNK_BYTES, DENSE_LIMIT
from ....jacobians.progress import chunks
from ....ops.numbers import numbers
from .accumulation import Way, multiply_out, readings, row_bytes, ways_from
from .samples import Batch

ORDER = "order"
"""Cache key of the best order found for the matrix of a DAG."""

STATIONS = 48
"""Largest number of inner stations of a chain: the narrowest vertices are chosen."""


@dataclass(frozen=True)
class Order:
    """An order of the arithmetic: its name, its flops, and a function that computes the matrix.

    Without arithmetic the matrix may belong to an operator, and is not to be written to.
    """

    name: str
    flops: float
    compute: Callable[[], np.ndarray]


def dense(dag: Dag, *, limit: int = DENSE_LIMIT) -> np.ndarray:
    """The matrix of a DAG; no intermediate matrix takes more than `limit` bytes."""
    if 0 in dag.shape:
        return np.zeros(dag.shape, dag.dtype)
    order = best_order(dag, limit)
    found = rounded(order.compute(), dag.dtype)
    return found if order.flops else np.array(found)


def best_order(dag: Dag, limit: int = DENSE_LIMIT) -> Order:
    """The order of least arithmetic, cached with the DAG."""
    known, found = dag.known.get(ORDER, (None, None))
    if known != limit:
        found = min(orders(dag, limit), key=lambda order: order.flops)
        dag.known[ORDER] = limit, found
    best: Order = found
    return best


def orders(dag: Dag, limit: int = DENSE_LIMIT) -> list[Order]:
    """The orders that are compared."""
    m, n = dag.shape
    found = [
        Order("forward", n * dag.flops, lambda: columns(dag).T),
        Order("reverse", m * dag.flops, lambda: columns(dag.T)),
        *by_sample(dag),
        *(Order(f"{order.name}, transposed", order.flops, compute_transposed(order.compute))
          for order in by_sample(dag.T)),
    ]  # fmt: skip
    chain = stations(dag)
    order = order_of_chain(dag, chain, limit // dag.dtype.itemsize)
    if order:
        found.append(Order(str(order), order.flops, lambda: chain_matrix(dag, chain, order).T))
    return found


def compute_transposed(compute: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
    """A function that computes the transpose."""
    return lambda: compute().T


def columns(dag: Jacobian, rows: np.ndarray | None = None) -> np.ndarray:
    """(J R)ᵀ for Rᵀ = `rows`, the identity if left out, by as many rows at a time as fit.

    Few rows are faster, but matrices that J holds should not be read much more often than R.
    """
    n = dag.shape[1] if rows is None else len(rows)
    result = np.empty((n, dag.shape[0]), dag.dtype)
    each = row_bytes(dag) if isinstance(dag, Dag) else dag.dtype.itemsize * sum(dag.shape)
    room = min(CHUNK_BYTES, max(CHUNK_BYTES // 4, dag.nbytes))
    step = max(1, min(n, room // max(each, 1)))
    for start, stop in chunks(n, step, "matrix", "products"):
        part = np.eye(stop - start, n, start, wide(dag.dtype)) if rows is None else rows[start:stop]
        part = np.ascontiguousarray(part).reshape(stop - start, *dag.in_shape)
        found = dag._apply(numbers, part).reshape(stop - start, -1)
        result[start:stop] = rounded(found, dag.dtype)
    return result


def by_sample(dag: Dag) -> list[Order]:
    """Orders that compute the rows of all samples at once, for DAGs with a single sink."""
    sinks, sources = set(dag.sinks), set(dag.sources)
    if len(dag.sinks) != 1 or sinks & sources or len(sources) < len(dag.sources):
        return []
    (sink,), found = sinks, []
    for layout in readings(dag, dag.sinks):
        edges: dict[int, list[Edge]] = {v: [] for v in dag.sources}
        for edge in dag.edges:
            edges.get(edge.start, []).append(edge)
        ends = frozenset(sinks)
        tried = [ways_from(dag, v, edges[v], ends, layout) for v in dag.sources if edges[v]]
        chosen = [way for part in tried if part for way in part]
        if tried and len(chosen) == len(tried):
            rows = chosen[0].block[1]
            compute = partial(assemble_columns, dag, chosen, layout[sink])
            found.append(Order(f"{rows} rows for all samples", rows * dag.flops, compute))
    return found


def assemble_columns(dag: Dag, chosen: list[Way], layout: dict[int, Batch]) -> np.ndarray:
    """The matrices of direct edges side by side; zeros for a source that reaches nothing."""
    operators = multiply_out(dag, chosen, layout, CHUNK_BYTES)
    blocks = {way.vertex: J.toarray() for way, J in zip(chosen, operators, strict=True)}
    zero = (np.zeros((dag.shape[0], size(dag.shapes[v])), dag.dtype) for v in dag.sources)
    return np.hstack([blocks.get(v, z) for v, z in zip(dag.sources, zero, strict=True)])


def stations(dag: Dag) -> list[tuple[int, ...]]:
    """The sources, the narrowest vertices that every path passes, and the sinks."""
    inner, reach = [], max(dag.sources)
    first_sink = min(dag.sinks)
    met = sorted({e.start for e in dag.edges} & {e.end for e in dag.edges})
    ends: dict[int, int] = {}
    for edge in dag.edges:
        ends[edge.start] = max(ends.get(edge.start, 0), edge.end)
    crossed = iter(sorted(ends))
    start = next(crossed, None)
    for vertex in met:
        while start is not None and start < vertex:
            reach, start = max(reach, ends[start]), next(crossed, None)
        if max(dag.sources) < vertex < first_sink and reach <= vertex:
            inner.append(vertex)
    narrow = sorted(inner, key=lambda v: size(dag.shapes[v]))[:STATIONS]
    return [dag.sources, *((v,) for v in sorted(narrow)), dag.sinks]


def order_of_chain(dag: Dag, chain: list[tuple[int, ...]], limit: float) -> ChainOrder | None:
    """The best order for the chain between the stations of a DAG."""
    segments = [dag.between(a, b) for a, b in pairwise(chain)]
    sizes = [segments[0].shape[1], *(part.shape[0] for part in segments)]
    known = [given_of(part) is not None for part in segments]
    return chain_order(tuple(sizes), tuple(part.flops for part in segments), tuple(known), limit)


def chain_matrix(dag: Dag, chain: list[tuple[int, ...]], order: ChainOrder) -> np.ndarray:
    """The transposed matrix from one station to another, (size of start, size of stop)."""
    if order.left and order.right:
        return chain_matrix(dag, chain, order.right) @ chain_matrix(dag, chain, order.left)
    if order.right:
        swept = dag.between(chain[order.right.stop], chain[order.stop])
        return columns(swept, chain_matrix(dag, chain, order.right))
    if order.left:
        swept = dag.between(chain[order.start], chain[order.left.start])
        return columns(swept.T, chain_matrix(dag, chain, order.left).T).T
    swept = dag.between(chain[order.start], chain[order.stop])
    entries = given_of(swept)
    if entries is not None:
        return entries().T
    return columns(swept) if swept.shape[1] <= swept.shape[0] else columns(swept.T).T


def given_of(segment: Dag) -> Callable[[], np.ndarray] | None:
    """A function for the matrix of a segment that is a single operator, without zero blocks."""
    if len(segment.edges) != 1 or segment.edges[0].operator.shape != segment.shape:
        return None
    return given(segment.edges[0].operator)


@singledispatch
def given(operator: Jacobian) -> Callable[[], np.ndarray] | None:
    """A function for an operator's matrix, if it is stored or needs no arithmetic."""
    return None


@given.register
def _(operator: Dense) -> Callable[[], np.ndarray]:
    return lambda: operator.a


@given.register
def _(operator: Diagonal) -> Callable[[], np.ndarray]:
    return lambda: np.diag(operator.diagonal())


@given.register
def _(operator: Kron) -> Callable[[], np.ndarray] | None:
    """A ⊗ B where one factor is the number 1."""
    if size(operator.batch) != 1:
        return None
    for factor, other in ((operator.left, operator.right), (operator.right, operator.left)):
        if isinstance(factor, Eye) and factor.n == 1 and not isinstance(other, Eye):
            return lambda: other.reshape(other.shape[-2:])
    return None


@given.register
def _(operator: Product) -> Callable[[], np.ndarray] | None:
    """One factor between reshapes, which do not change the matrix."""
    inner = [factor for factor in operator.factors if not isinstance(factor, Reshape)]
    return given(inner[0]) if len(inner) == 1 else None


@dataclass(frozen=True)
class ChainOrder:
    """How the matrix from station `start` to station `stop` is computed, and its flops.

    The matrix is the product of the matrices `left` and `right`. If one of them is None, the
    operators of its segments are applied to the other matrix; if both are None, to the identity.
    """

    start: int
    stop: int
    flops: float
    left: ChainOrder | None = None
    right: ChainOrder | None = None

    def __str__(self) -> str:
        if self.left and self.right:
            return f"({self.left} {self.right})"
        if self.left:
            swept = range(self.left.start - 1, self.start - 1, -1)
            return reduce(lambda A, k: f"({A} J{k})", swept, str(self.left))
        start = self.right.stop if self.right else self.start + 1
        found = str(self.right or f"J{self.start}")
        return reduce(lambda A, k: f"(J{k} {A})", range(start, self.stop), found)


@lru_cache(maxsize=256)
def chain_order(
    sizes: tuple[int, ...], flops: tuple[int, ...], known: tuple[bool, ...], limit: float = inf
) -> ChainOrder | None:
    """The order of least arithmetic; None if the matrix has more than `limit` entries.

    No order holds a larger matrix. `known` marks the operators whose matrix needs no
    arithmetic. Orders of recent chains are cached, since a Jacobian at another point has the same
    chain.

    >>> best = chain_order((1000, 10, 1000, 5), (20000, 20000, 10000), (True,) * 3)
    >>> print(best), best.flops
    ((J2 J1) J0)
    (None, 200000)
    """
    upto = (0, *accumulate(flops))

    @cache
    def best(i: int, j: int) -> ChainOrder | None:
        if sizes[i] * sizes[j] > limit:
            return None
        swept = min(sizes[i], sizes[j]) * (upto[j] - upto[i])
        found: list[tuple[float, ChainOrder | None, ChainOrder | None]]
        found = [(0 if known[i] and j == i + 1 else swept, None, None)]
        found += [(r.flops + sizes[i] * (upto[j] - upto[k]), None, r)
                  for k in range(i + 1, j) for r in [best(i, k)] if r]  # fmt: skip
        found += [(a.flops + sizes[j] * (upto[k] - upto[i]), a, None)
                  for k in range(j - 1, i, -1) for a in [best(k, j)] if a]  # fmt: skip
        found += [(a.flops + r.flops + 2 * sizes[i] * sizes[k] * sizes[j], a, r)
                  for k in range(i + 1, j) for a in [best(k, j)] if a
                  for r in [best(i, k)] if r]  # fmt: skip
        return ChainOrder(i, j, *min(found, key=itemgetter(0)))

    return best(0, len(flops))
