"""Vertex elimination: vertices of a DAG are removed where products get cheaper without them.

Eliminating v replaces the edges i → v → o by the products J_ov J_vi, added to the edge i → o if
there is one. Neighbouring factors and terms merge as in any product or sum, by the rules of
`jacobians.products` and `jacobians.sums`; but matrices are never multiplied here: the planner
decides that. All decisions are made on deferred arrays; only the final edges are computed, or
recorded, where the arrays are graph values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from heapq import heapify, heappop, heappush
from operator import add

from ....jacobians import (
    BlockDiagonal,
    Contraction,
    Convolution,
    Dag,
    Dense,
    Diagonal,
    Edge,
    Embed,
    Identity,
    Jacobian,
    Kron,
    LowRank,
    Part,
    Product,
    Scalar,
    Slice,
    Sum,
    size,
)
from ....jacobians.dag import tiling
from ....jacobians.products import Factors, factors_of, push, simplified
from ....jacobians.sums import terms_of
from ....jacobians.threads import cached_property
from .cost import BANDWIDTH, seconds
from .deferred import Deferred, deferred, forced

DEGREE = 64
"""Vertices with more pairs of edges are not tried: there would be too many products."""

GAIN = 1e-9
"""Least gain relative to the cost that is more than rounding error."""

EDGE_TERMS = 8
"""Largest number of terms of a new edge, and of its factors if the elimination gains nothing."""

EDGE_LEVELS = 32
"""Most sums and products inside one another in a new edge: Python limits how deep calls may be."""

MATRICES = frozenset({BlockDiagonal, Contraction, Convolution, Dense, Kron, LowRank})

DIAGONALS = Diagonal, Identity, Scalar

Ends = tuple[int, int]


def multiply_operators(left: Jacobian, right: Jacobian) -> Jacobian:
    """left · right, with neighbouring factors merged that are not both matrices."""
    chain = list(factors_of(left))
    for factor in factors_of(right):
        push(chain, factor, meet)
    return chain[0] if len(chain) == 1 else Product(tuple(chain))


def meet(*factors: Jacobian) -> Factors | None:
    """The factors that replace two neighbours; None where these stay."""
    stay = len(factors) > 2 or MATRICES.issuperset(map(type, factors))
    return None if stay else simplified(*factors)


def add_operators(*operators: Jacobian) -> Jacobian:
    """Σ operators, with like terms merged; a diagonal also meets those inside of products."""
    terms = [term for operator in operators for term in terms_of(operator)]
    if any(isinstance(term, DIAGONALS) for term in terms):
        terms = [part for term in terms for part in open_sum(term)]
    return reduce(add, terms)


def open_sum(term: Jacobian) -> tuple[Jacobian, ...]:
    """d e and d A for a term d (A + e) whose diagonal d e merges with one beside it."""
    match factors_of(term):
        case d, Sum() as S if isinstance(d, DIAGONALS):
            e = [t for t in S.terms if isinstance(t, DIAGONALS)]
            A = [t for t in S.terms if not isinstance(t, DIAGONALS)]
            if e and A:
                return multiply_operators(d, reduce(add, e)), multiply_operators(d, reduce(add, A))
    return (term,)


@dataclass(frozen=True)
class Elimination:
    """The DAG after, and the eliminated vertices with the links that replaced each."""

    after: Dag
    gone: tuple[tuple[int, tuple[Ends, ...]], ...]

    @cached_property
    def inside(self) -> dict[Ends, frozenset[int]]:
        """Edge -> the eliminated vertices that it stands for, if any."""
        found: dict[Ends, frozenset[int]] = defaultdict(frozenset)
        for v, links in self.gone:
            for i, o in links:
                found[i, o] |= found[i, v] | found[v, o] | {v}
        return {ends: found[ends] for e in self.after.edges if found[ends := (e.start, e.end)]}


def elimination(dag: Dag) -> Elimination:
    """The elimination of a DAG of arrays, or of graph values."""
    graph = LinkGraph(dag)
    eliminate_vertices(graph)
    edges = [
        Edge(i, o, dag.edges[link.place].operator if link.place is not None else link.result)
        for o, found in graph.incoming.items() for i, link in found.items()
    ]  # fmt: skip
    after = Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype)
    after.names = dag.names
    return Elimination(after, tuple(graph.gone))


def eliminate_vertices(graph: LinkGraph) -> None:
    """Greedily, the vertex with the fewest pairs of edges first; its neighbours are tried again."""
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


@dataclass(frozen=True)
class Link:
    """An edge: its operator over deferred arrays, and its index in the DAG while unchanged."""

    operator: Jacobian
    place: int | None = None

    @cached_property
    def cost(self) -> float:
        """Estimated seconds of one product."""
        return seconds(self.operator)

    @property
    def result(self) -> Jacobian:
        """The operator over arrays."""
        return forced(self.operator)


class LinkGraph:
    """Links by their ends; `interior` are the vertices that may be eliminated.

    `gone` are the eliminated vertices, each with the ends of the links that replaced it.
    """

    def __init__(self, dag: Dag) -> None:
        self.shapes, self.itemsize = dag.shapes, dag.dtype.itemsize
        self.incoming: dict[int, dict[int, Link]] = defaultdict(dict)
        self.outgoing: dict[int, dict[int, Link]] = defaultdict(dict)
        leaves: dict[int, Deferred] = {}
        for place, edge in enumerate(dag.edges):
            link = Link(deferred(edge.operator, leaves), place)
            present = self.incoming[edge.end].get(edge.start)
            link = link if present is None else Link(add_operators(present.operator, link.operator))
            self.add(edge.start, edge.end, link)
        self.gone: list[tuple[int, tuple[Ends, ...]]] = []
        self.tiled: dict[tuple[int, bool], bool] = {}  # whether the slabs at a vertex tile it
        self.interior = {*self.incoming} & {*self.outgoing} - {*dag.sources} - {*dag.sinks}

    def add(self, start: int, end: int, link: Link) -> None:
        self.incoming[end][start] = self.outgoing[start][end] = link

    def pairs(self, v: int) -> int:
        """The number of products that eliminating v takes."""
        return len(self.incoming[v]) * len(self.outgoing[v])

    def neighbours(self, v: int) -> set[int]:
        return {*self.incoming[v], *self.outgoing[v]}

    def remove(self, v: int) -> bool:
        """Eliminate v if products get cheaper, or cost the same and no matrix is involved."""
        before = self.cost_around(v)
        links = self.products(v, before)
        if links is None:
            return False
        after = sum(link.cost for link in links.values()) + self.additions(links)
        neutral = self.simple(v) and all(map(short, links.values()))
        if after > before * (1 + GAIN if neutral else 1 - GAIN):
            return False
        self.replace(v, links)
        return True

    def cost_around(self, v: int) -> float:
        """The cost of the edges at v and parallel to paths through v, and of their additions."""
        ins, outs = self.incoming[v], self.outgoing[v]
        beside = {(i, o): self.incoming[o][i] for o in outs for i in ins if i in self.incoming[o]}
        around = sum(link.cost for link in (*ins.values(), *outs.values(), *beside.values()))
        added = [*((i, v) for i in [*ins][1:]), *((v, o) for o in outs), *beside]
        return around + self.additions(added)

    def additions(self, ways: Iterable[Ends]) -> float:
        """Seconds to add the contributions of some edges to the other terms at their ends."""
        return sum(3 * size(self.shapes[end]) for _, end in ways) * self.itemsize / BANDWIDTH

    def products(self, v: int, limit: float) -> dict[Ends, Link] | None:
        """The links that would replace v; None as soon as they cost more than the limit.

        None also at a block of a loop: all blocks share one run as long as they are edges.
        """
        around = (*self.incoming[v].values(), *self.outgoing[v].values())
        if any(isinstance(link.operator, Part) for link in around):
            return None
        links: dict[Ends, Link] = {}
        spent = 0.0
        for o, out in self.outgoing[v].items():
            for i, into in self.incoming[v].items():
                operator = multiply_operators(out.operator, into.operator)
                if isinstance(operator, Product) and (self.tiles(i, v) or self.tiles(v, o)):
                    return None
                present = self.incoming[o].get(i)
                link = Link(
                    operator if present is None else add_operators(present.operator, operator)
                )
                if len(terms_of(link.operator)) > EDGE_TERMS:
                    return None
                if levels_of(link.operator) > EDGE_LEVELS:
                    return None
                links[i, o] = link
                spent += link.cost
                if spent > limit * (1 + GAIN):
                    return None
        return links

    def tiles(self, start: int, end: int) -> bool:
        """Whether a link is a slab that Concat or Split moves without any addition."""
        factors = factors_of(self.incoming[end][start].operator)
        into = isinstance(factors[0], Embed)
        if not into and not isinstance(factors[-1], Slice):
            return False
        key = (end if into else start), into
        if key not in self.tiled:
            links = (self.incoming[end] if into else self.outgoing[start]).values()
            slabs = [link.operator if into else link.operator.T for link in links]
            self.tiled[key] = tiling(slabs) is not None
        return self.tiled[key]

    def simple(self, v: int) -> bool:
        """Whether there is no matrix at v, which would be left to the planner."""
        links = (*self.incoming[v].values(), *self.outgoing[v].values())
        factors = (factor for link in links for factor in factors_of(link.operator))
        return not any(type(factor) in MATRICES for factor in factors)

    def replace(self, v: int, links: dict[Ends, Link]) -> None:
        """Replace v by the new links."""
        ins, outs = self.incoming.pop(v), self.outgoing.pop(v)
        for i in ins:
            del self.outgoing[i][v]
            self.tiled.pop((i, False), None)
        for o in outs:
            del self.incoming[o][v]
            self.tiled.pop((o, True), None)
            for i in ins:
                self.incoming[o].pop(i, None)
                self.outgoing[i].pop(o, None)
        for (i, o), link in links.items():
            self.add(i, o, link)
        self.interior.discard(v)
        self.gone.append((v, tuple(links)))


def levels_of(operator: Jacobian) -> int:
    """How many sums and products are inside one another."""
    parts = operator.terms if isinstance(operator, Sum) else factors_of(operator)
    return 0 if parts == (operator,) else 1 + max(map(levels_of, parts))


def short(link: Link) -> bool:
    """Whether an edge has few factors."""
    return len(factors_of(link.operator)) <= EDGE_TERMS
