"""Dense: the matrix of a DAG, with as little arithmetic as its structure allows.

Three ways are compared: all columns forward or all rows backward; the rows of all samples at once
where no way to the sink mixes samples; a chain between stations, multiplied out in the best order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, singledispatch
from itertools import pairwise

import numpy as np

from ...jacobians import Dag, Dense, Diagonal, Eye, Jacobian, Kron, Product, Reshape, size
from ...jacobians.arrays import rounded, wide
from ...jacobians.base import DENSE_LIMIT
from ...jacobians.entries import CHUNK
from ...jacobians.progress import chunks
from ...ops.numbers import numbers
from .adjoints import Way, multiplied, row_bytes
from .batch import Batch
from .bracket import Bracket, bracketed
from .narrow import readings, ways_from

ORDER = "order"
"""Key of the order in which the matrix of a DAG was had last."""

STATIONS = 48
"""So many vertices of a chain are considered as places of a bracket: the narrowest ones."""


@dataclass(frozen=True)
class Order:
    """One order of the arithmetic: its name, its arithmetic, what computes it."""

    name: str
    flops: float
    compute: Callable[[], np.ndarray]


def dense(dag: Dag, *, limit: int = DENSE_LIMIT) -> np.ndarray:
    """The matrix of a DAG; no matrix on the way takes more than `limit` bytes."""
    if 0 in dag.shape:
        return np.zeros(dag.shape, dag.dtype)
    return rounded(best_order(dag, limit).compute(), dag.dtype)


def best_order(dag: Dag, limit: int = DENSE_LIMIT) -> Order:
    """The order of least arithmetic, found once for a DAG, with which it is kept."""
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
        *(Order(f"{order.name}, transposed", order.flops, transposed(order.compute))
          for order in by_sample(dag.T)),
    ]  # fmt: skip
    chain = stations(dag)
    segments = [dag.between(a, b) for a, b in pairwise(chain)]
    bracket = bracket_of(segments, limit // dag.dtype.itemsize)
    if bracket:
        found.append(Order(str(bracket), bracket.flops, lambda: matrix(segments, bracket).T))
    return found


def transposed(compute: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
    """What computes the transpose."""
    return lambda: compute().T


def columns(dag: Jacobian, rows: np.ndarray | None = None) -> np.ndarray:
    """(J R)ᵀ for Rᵀ = `rows`, the identity if left out, by as many rows at a time as fit."""
    n = dag.shape[1] if rows is None else len(rows)
    result = np.empty((n, dag.shape[0]), dag.dtype)
    each = row_bytes(dag) if isinstance(dag, Dag) else dag.dtype.itemsize * sum(dag.shape)
    step = max(1, min(n, CHUNK // max(each, 1)))
    for start, stop in chunks(n, step, "matrix", "products"):
        part = np.eye(stop - start, n, start, wide(dag.dtype)) if rows is None else rows[start:stop]
        part = part.reshape(stop - start, *dag.in_shape)
        found = dag._apply(numbers, part).reshape(stop - start, -1)
        result[start:stop] = rounded(found, dag.dtype)
    return result


def by_sample(dag: Dag) -> list[Order]:
    """The rows of all samples at once, where there is one sink and no source mixes them."""
    sinks, sources = set(dag.sinks), set(dag.sources)
    if len(dag.sinks) != 1 or sinks & sources or len(sources) < len(dag.sources):
        return []
    (sink,), found = sinks, []
    for layout in readings(dag, dag.sinks):
        edges = {v: [e for e in dag.edges if e.start == v] for v in dag.sources}
        ends = frozenset(sinks)
        tried = [ways_from(dag, v, edges[v], ends, layout) for v in dag.sources if edges[v]]
        chosen = [way for part in tried if part for way in part]
        if tried and len(chosen) == len(tried):
            rows = chosen[0].block[1]
            compute = partial(assembled, dag, chosen, layout[sink])
            found.append(Order(f"{rows} rows for all samples", rows * dag.flops, compute))
    return found


def assembled(dag: Dag, chosen: list[Way], layout: dict[int, Batch]) -> np.ndarray:
    """The matrix of direct edges, side by side; a source that reaches nothing has zeros."""
    operators = multiplied(dag, chosen, layout, CHUNK)
    blocks = {way.vertex: J.toarray() for way, J in zip(chosen, operators, strict=True)}
    zero = (np.zeros((dag.shape[0], size(dag.shapes[v])), dag.dtype) for v in dag.sources)
    return np.hstack([blocks.get(v, z) for v, z in zip(dag.sources, zero, strict=True)])


def stations(dag: Dag) -> list[tuple[int, ...]]:
    """The sources, the vertices that every way passes, the sinks."""
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


def bracket_of(segments: list[Dag], limit: float) -> Bracket | None:
    """The best order for the segments of a chain."""
    sizes = [segments[0].shape[1], *(part.shape[0] for part in segments)]
    known = [given_of(part) is not None for part in segments]
    return bracketed(tuple(sizes), tuple(part.flops for part in segments), tuple(known), limit)


def matrix(segments: list[Dag], bracket: Bracket) -> np.ndarray:
    """The transposed matrix from one station to another, (size of start, size of stop)."""
    first, last = segments[bracket.start], segments[bracket.stop - 1]
    if bracket.left and bracket.right:
        return matrix(segments, bracket.right) @ matrix(segments, bracket.left)
    if bracket.right:
        return columns(last, matrix(segments, bracket.right))
    if bracket.left:
        return columns(first.T, np.ascontiguousarray(matrix(segments, bracket.left).T)).T
    entries = given_of(first)
    if entries is not None:
        return entries().T
    return columns(first) if first.shape[1] <= first.shape[0] else columns(first.T).T


def given_of(segment: Dag) -> Callable[[], np.ndarray] | None:
    """What gives the matrix of a segment whose only operator fills it: no blocks of zeros."""
    if len(segment.edges) != 1 or segment.edges[0].operator.shape != segment.shape:
        return None
    return given(segment.edges[0].operator)


@singledispatch
def given(operator: Jacobian) -> Callable[[], np.ndarray] | None:
    """What gives a copy of an operator's matrix, where it is held or takes no arithmetic."""
    return None


@given.register
def _(operator: Dense) -> Callable[[], np.ndarray]:
    return operator.a.copy


@given.register
def _(operator: Diagonal) -> Callable[[], np.ndarray]:
    return lambda: np.diag(operator.diagonal())


@given.register
def _(operator: Kron) -> Callable[[], np.ndarray] | None:
    """A ⊗ B where one of them is a single one."""
    if size(operator.batch) != 1:
        return None
    for factor, other in ((operator.left, operator.right), (operator.right, operator.left)):
        if isinstance(factor, Eye) and factor.n == 1 and not isinstance(other, Eye):
            return other.reshape(other.shape[-2:]).copy
    return None


@given.register
def _(operator: Product) -> Callable[[], np.ndarray] | None:
    """One factor between reshapes, which as a matrix are nothing."""
    inner = [factor for factor in operator.factors if not isinstance(factor, Reshape)]
    return given(inner[0]) if len(inner) == 1 else None
