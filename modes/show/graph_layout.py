"""Layout of a graph: which tensors and operators of a DAG are drawn, and where they stand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import NamedTuple

from ...jacobians import Dag
from ...jacobians.cached import cached_property
from .blocks import structure_kind

NAMED = 40
"""Up to this many tensors are drawn with names; in more, runs of operators become one arrow."""

DOTS = 300
"""Up to this many tensors are drawn as points; more are merged, layer by layer."""

BANDS = 12
"""Layers that are left when tensors are merged."""

Places = dict[int, tuple[float, int]]
"""Vertex -> (x, layer)."""


class Link(NamedTuple):
    """The operators between two vertices: their names, their flops, how many there are."""

    start: int
    end: int
    text: str
    flops: int
    number: int = 1


@dataclass(frozen=True)
class Drawing:
    """Arrows, the names of points, and which points are sources and sinks."""

    links: tuple[Link, ...]
    names: dict[int, str]
    sources: frozenset[int]
    sinks: frozenset[int]

    @cached_property
    def places(self) -> Places:
        """Where the points stand."""
        return places(self.links)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return 1 + max(layer for _, layer in self.places.values())

    @property
    def height(self) -> float:
        """Inches that the drawing needs."""
        return min(11.0, 0.9 + (0.5 if self.named else 0.25) * (self.layers - 1))

    @property
    def named(self) -> bool:
        """Whether every point has a name."""
        return len(self.names) == len(self.places)


def drawing_of(dag: Dag, names: Iterable[str]) -> Drawing:
    """The drawing of a DAG, condensed where it is large; `names` has a name for each vertex."""
    shown = dict(enumerate(names))
    kinds = ((e, structure_kind(repr(e.operator))) for e in dag.edges)
    links = [Link(e.start, e.end, kind, e.operator.flops) for e, kind in kinds]
    links = merged(links, {v: v for v in shown})
    found = Drawing(tuple(links), shown, frozenset(dag.sources), frozenset(dag.sinks))
    ends = found.sources | found.sinks
    if len(found.places) > NAMED:
        whole, found = found, replace(found, links=tuple(chained(links, ends)))
        if len(found.places) > DOTS:
            return summary(whole)
    all_named = len(found.places) <= NAMED
    return replace(found, names={v: shown[v] for v in found.places if all_named or v in ends})


def summary(drawing: Drawing) -> Drawing:
    """A drawing in which the tensors of neighbouring layers are one point.

    Sources, sinks and other tensors are merged separately.
    """
    stands = banded(drawing.links, drawing.sources, drawing.sinks, BANDS)
    links = merged(drawing.links, stands)
    sources, sinks = (frozenset(stands[v] for v in ends if v in stands)
                      for ends in (drawing.sources, drawing.sinks))  # fmt: skip
    counts = Counter(stands.values())
    met = {v for link in links for v in (link.start, link.end)}
    one = {stands[v]: name for v, name in drawing.names.items() if v in stands}
    names = {v: f"{counts[v]:,} tensors" if counts[v] > 1 else one[v] for v in sorted(met)}
    return Drawing(tuple(links), names, sources, sinks)


# -- layers: where the vertices stand --------------------------------------------------------------


def places(links: Iterable[Link]) -> Places:
    """Each vertex below all its predecessors, and to the right of the vertices placed before it.

    A vertex stands under the mean of its predecessors, so that a chain is a straight line. A vertex
    without predecessors, like a weight, stands to the right, one layer above the first vertex
    that needs it.
    """
    layer = layers(links)
    before = defaultdict(list)
    for link in links:
        before[link.end].append(link.start)
    rows = defaultdict(list)
    for vertex, depth in layer.items():
        rows[depth].append(vertex)
    x: dict[int, float] = {}
    for depth in sorted(rows):
        wanted = {v: fmean(x[w] for w in before[v]) if before[v] else inf for v in rows[depth]}
        taken = -inf
        for v in sorted(rows[depth], key=lambda v: (wanted[v], v)):
            x[v] = taken = max(min(wanted[v], max(taken + 1, 0)), taken + 1)
    return {v: (x[v], depth) for v, depth in layer.items()}


def layers(links: Iterable[Link]) -> dict[int, int]:
    """The longest path to each vertex; sources stand just above the first vertex that needs them.

    >>> layers([Link(0, 1, "", 0), Link(1, 3, "", 0), Link(2, 3, "", 0)])
    {0: 0, 1: 1, 3: 2, 2: 1}
    """
    ordered = sorted(links, key=lambda link: link.end)  # edges lead to greater numbers
    depth: dict[int, int] = {}
    for link in ordered:
        depth.setdefault(link.start, 0)
        depth[link.end] = max(depth.get(link.end, 0), depth[link.start] + 1)
    ends = {link.end for link in ordered}
    first: dict[int, int] = {}
    for link in ordered:
        first[link.start] = min(first.get(link.start, depth[link.end]), depth[link.end])
    return {v: d if v in ends else first[v] - 1 for v, d in depth.items()}


# -- condensing: few arrows for thousands of operators ---------------------------------------------


def chained(links: Iterable[Link], kept: Iterable[int]) -> list[Link]:
    """The links, with each unbranched run of links as one link; runs end at `kept` vertices.

    >>> chained([Link(0, 1, "a", 2), Link(1, 2, "b", 3)], (0, 2))
    [Link(start=0, end=2, text='2 operators', flops=5, number=2)]
    """
    incoming, outgoing = defaultdict(list), defaultdict(list)
    for link in links:
        incoming[link.end].append(link)
        outgoing[link.start].append(link)
    through = {v for v in incoming if len(incoming[v]) == len(outgoing[v]) == 1} - set(kept)
    found = []
    for link in links:
        if link.start in through:
            continue
        run = [link]
        while run[-1].end in through:
            run.append(outgoing[run[-1].end][0])
        found.append(united((link.start, run[-1].end), run))
    return found


def banded(
    links: Iterable[Link], sources: frozenset[int], sinks: frozenset[int], bands: int
) -> dict[int, int]:
    """Vertex -> 3 · band of layers + 0 for a source, 1 for a vertex between, 2 for a sink."""
    layer = layers(links)
    height = max(layer.values()) + 1
    kind = {v: 0 if v in sources else 2 if v in sinks else 1 for v in layer}
    return {v: 3 * (depth * bands // height) + kind[v] for v, depth in layer.items()}


def merged(links: Iterable[Link], stands: Mapping[int, int]) -> list[Link]:
    """The links after vertices are replaced by their points; parallel links are summed."""
    groups: dict[tuple[int, int], list[Link]] = defaultdict(list)
    for link in links:
        ends = stands[link.start], stands[link.end]
        if ends[0] < ends[1]:
            groups[ends].append(link)
    return [united(ends, found) for ends, found in groups.items()]


def united(ends: tuple[int, int], found: list[Link]) -> Link:
    """One link for several."""
    number = sum(link.number for link in found)
    text = found[0].text if len(found) == 1 else f"{number:,} operators"
    return Link(*ends, text, sum(link.flops for link in found), number)
