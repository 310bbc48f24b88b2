"""Graph: the edges of a DAG while its vertices are eliminated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from ...jacobians import Dag, Embed, Jacobian, Product, Slice, Zero, size
from ...jacobians.products import factors_of
from ...jacobians.sums import terms_of
from .chain import MATRICES, product
from .cost import BANDWIDTH, seconds
from .deferred import Deferred, deferred, forced
from .parallel import factored
from .settle import settled
from .terms import plus

GAIN = 1e-9
"""Relative to the cost; less than that is rounding."""


LONG = 8
"""So many factors or terms on an edge are taken apart again and again, but not more."""


@dataclass(frozen=True)
class Link:
    """An edge: its operator over deferred arrays and the vertices that were eliminated into it."""

    operator: Jacobian
    inside: tuple[int, ...] = ()
    original: Jacobian | None = None

    @cached_property
    def cost(self) -> float:
        """Estimated seconds of one product."""
        return seconds(self.operator)

    @property
    def result(self) -> Jacobian:
        """The operator over numbers: the very one that was there, where nothing was gained."""
        return self.original or forced(factored(self.operator))


Links = dict[tuple[int, int], Link]


class Graph:
    """Links by their ends; `interior` are the vertices that may go."""

    def __init__(self, dag: Dag) -> None:
        self.shapes, self.itemsize = dag.shapes, dag.dtype.itemsize
        self.incoming: dict[int, dict[int, Link]] = defaultdict(dict)
        self.outgoing: dict[int, dict[int, Link]] = defaultdict(dict)
        known: dict[int, Deferred] = {}
        for edge in dag.edges:
            link = linked(edge.operator, known)
            present = self.incoming[edge.end].get(edge.start)
            self.add(edge.start, edge.end, link if present is None else beside(present, link))
        self.interior = {*self.incoming} & {*self.outgoing} - {*dag.sources} - {*dag.sinks}

    def add(self, start: int, end: int, link: Link) -> None:
        self.incoming[end][start] = self.outgoing[start][end] = link

    def pairs(self, v: int) -> int:
        """How many products its elimination takes."""
        return len(self.incoming[v]) * len(self.outgoing[v])

    def neighbours(self, v: int) -> set[int]:
        return {*self.incoming[v], *self.outgoing[v]}

    def remove(self, v: int) -> bool:
        """Eliminate a vertex if that makes products cheaper, or no dearer where all is simple."""
        before = self.cost_around(v)
        links = self.products(v, before)
        if links is None:
            return False
        after = sum(link.cost for link in links.values()) + self.additions(links)
        neutral = after <= before * (1 + GAIN) and self.simple(v) and all(map(short, links.values()))
        if after >= before * (1 - GAIN) and not neutral:
            return False
        self.replace(v, links)
        return True

    def cost_around(self, v: int) -> float:
        """Of the edges at v, of those beside the ways through it, and of adding them up."""
        ins, outs = self.incoming[v], self.outgoing[v]
        beside = {(i, o): self.incoming[o][i] for o in outs for i in ins if i in self.incoming[o]}
        around = sum(link.cost for link in (*ins.values(), *outs.values(), *beside.values()))
        added = [*((i, v) for i in [*ins][1:]), *((v, o) for o in outs), *beside]
        return around + self.additions(added)

    def additions(self, ways: Iterable[tuple[int, int]]) -> float:
        """Seconds for adding what comes along some ways to what else their ends get."""
        return sum(3 * size(self.shapes[end]) for _, end in ways) * self.itemsize / BANDWIDTH

    def products(self, v: int, limit: float) -> Links | None:
        """The links that would replace v; None as soon as they cost more than the limit."""
        links: Links = {}
        spent = 0.0
        for o, out in self.outgoing[v].items():
            for i, into in self.incoming[v].items():
                operator = product(out.operator, into.operator)
                if breaks_tiling(operator, out.operator, into.operator):
                    return None
                link = Link(operator, (*into.inside, v, *out.inside))
                present = self.incoming[o].get(i)
                link = link if present is None else beside(present, link)
                if len(terms_of(link.operator)) > LONG:
                    return None
                if not isinstance(link.operator, Zero):
                    links[i, o] = link
                    spent += link.cost
                if spent > limit * (1 + GAIN):
                    return None
        return links

    def simple(self, v: int) -> bool:
        """Whether no matrix is at v, nothing that the planner looks for."""
        links = (*self.incoming[v].values(), *self.outgoing[v].values())
        return not any(type(link.operator) in MATRICES for link in links)

    def replace(self, v: int, links: Links) -> None:
        """Take v out and the new links in."""
        ins, outs = self.incoming.pop(v), self.outgoing.pop(v)
        for i in ins:
            del self.outgoing[i][v]
        for o in outs:
            del self.incoming[o][v]
            for i in ins:
                self.incoming[o].pop(i, None)
                self.outgoing[i].pop(o, None)
        for (i, o), link in links.items():
            self.add(i, o, link)
        self.interior.discard(v)


def linked(operator: Jacobian, known: dict[int, Deferred]) -> Link:
    """The operator of an edge settled; the original is kept where that is no gain."""
    found = deferred(operator, known)
    link = Link(settled(found))
    gained = link.operator is not found and link.cost < seconds(operator) * (1 - GAIN)
    return link if gained else replace(link, original=operator)


def beside(present: Link, link: Link) -> Link:
    """Two parallel edges as one."""
    return Link(plus(present.operator, link.operator), (*present.inside, *link.inside))


def short(link: Link) -> bool:
    """Whether an edge has few factors."""
    return len(factors_of(link.operator)) <= LONG


def breaks_tiling(whole: Jacobian, out: Jacobian, into: Jacobian) -> bool:
    """Whether a slab would be lost that Concat or Split moves without adding anything up."""
    slabs = any(isinstance(factor, Embed | Slice) for factor in (out, into))
    return slabs and isinstance(whole, Product)
