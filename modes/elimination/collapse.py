"""Collapse: the vertices of a DAG are eliminated whose elimination makes products cheaper.

Eliminating v replaces the edges i → v → o by the products J_ov J_vi, added to the edge i → o where
there is one. All is decided on deferred arrays; at the end, those that remain are computed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ...jacobians import Dag, Edge
from ...jacobians.cached import cached_property
from . import distribute, entries, rows, scaling, smaller  # noqa: F401  (each enters its rules into the table)
from .cost import seconds
from .graph import Ends, Graph

DEGREE = 64
"""A vertex with more pairs of edges than that is kept: too many products to look at."""


@dataclass(frozen=True)
class Collapse:
    """What was done: the DAGs, and the vertices that went, each with the links that replaced it."""

    before: Dag
    after: Dag
    gone: tuple[tuple[int, tuple[Ends, ...]], ...]

    @cached_property
    def inside(self) -> dict[Ends, frozenset[int]]:
        """The vertices that each edge stands for, where it stands for some."""
        found: dict[Ends, frozenset[int]] = defaultdict(frozenset)
        for v, links in self.gone:
            for i, o in links:
                found[i, o] |= found[i, v] | found[v, o] | {v}
        return {ends: found[ends] for e in self.after.edges if found[ends := (e.start, e.end)]}

    @property
    def seconds(self) -> tuple[float, float]:
        """The estimated time of one product, before and after."""
        return seconds(self.before), seconds(self.after)

    @property
    def vertices(self) -> tuple[int, int]:
        """How many tensors a product computes, before and after."""
        before, after = ({v for e in dag.edges for v in (e.start, e.end)}
                         for dag in (self.before, self.after))  # fmt: skip
        return len(before), len(after)

    def __repr__(self) -> str:
        (m, n), (s, t) = self.vertices, self.seconds
        return f"{m} → {n} tensors, {s * 1e6:.0f} → {t * 1e6:.0f} µs per product (estimated)"


def collapsed(dag: Dag) -> Dag:
    """The same matrix, up to rounding, by cheaper products."""
    return collapse(dag).after


def collapse(dag: Dag) -> Collapse:
    """The collapsed DAG and what was done to get there."""
    graph = Graph(dag)
    eliminate(graph)
    edges = [Edge(i, o, k.result) for o, found in graph.incoming.items() for i, k in found.items()]
    after = Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype)
    return Collapse(dag, after, tuple(graph.gone))


def eliminate(graph: Graph) -> None:
    """Greedily, those with the fewest pairs of edges first; neighbours are looked at again."""
    waiting = {v for v in graph.interior if graph.pairs(v) <= DEGREE}
    queue = [(graph.pairs(v), v) for v in waiting]
    heapify(queue)
    while queue:
        pairs, v = heappop(queue)
        if v not in waiting or pairs != graph.pairs(v):
            continue
        waiting.remove(v)
        neighbours = graph.neighbours(v)
        if graph.remove(v):
            for w in neighbours & graph.interior:
                if graph.pairs(w) <= DEGREE:
                    waiting.add(w)
                    heappush(queue, (graph.pairs(w), w))
