"""Collapse: the vertices of a DAG are eliminated whose elimination makes products cheaper.

Eliminating v replaces the edges i → v → o by the products J_ov J_vi, added to the edge i → o where
there is one. All is decided on deferred arrays; at the end, those that remain are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from ...jacobians import Dag, Edge
from . import rows, scaling, smaller  # noqa: F401  (each enters its rules into the table)
from .cost import seconds
from .graph import Graph

DEGREE = 64
"""A vertex with more pairs of edges than that is kept: too many products to look at."""


@dataclass(frozen=True)
class Collapse:
    """What was done: the vertices that went, and through which edge their tangents pass now."""

    before: Dag
    after: Dag
    inside: dict[tuple[int, int], tuple[int, ...]]

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
    links = [(i, o, link) for o, found in graph.incoming.items() for i, link in found.items()]
    edges = [Edge(i, o, link.result) for i, o, link in links]
    after = Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype)
    present = {(e.start, e.end) for e in after.edges}
    inside = {(i, o): link.inside for i, o, link in links if (i, o) in present and link.inside}
    return Collapse(dag, after, inside)


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
