"""Drawing: what of a DAG is shown, by how large it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...jacobians import Dag, Jacobian
from ...jacobians.cached import cached_property
from ..reporting.report import structure_kind
from .condense import banded, chained, merged
from .layers import Link, Places, places

NAMED = 40
"""So many tensors are drawn with names; in more, runs of operators become one arrow."""

DOTS = 300
"""So many are drawn as points; more are taken together, layer by layer."""

BANDS = 12
"""Layers that are left then."""


@dataclass(frozen=True)
class Drawing:
    """Arrows, the names of those points that are named, and which of them are ends."""

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
        """How many there are, one below the other."""
        return 1 + max(layer for _, layer in self.places.values())

    @property
    def height(self) -> float:
        """Inches that it needs."""
        return min(11.0, 0.9 + (0.5 if self.named else 0.25) * (self.layers - 1))

    @property
    def named(self) -> bool:
        """Whether every point has a name."""
        return len(self.names) == len(self.places)


def drawing_of(dag: Dag, names: Iterable[str]) -> Drawing:
    """As much of a DAG as can be looked at; `names` are those of its vertices."""
    shown = dict(enumerate(names))
    links = [Link(e.start, e.end, operator_text(e.operator), e.operator.flops) for e in dag.edges]
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
    """All sources, sinks and other tensors of neighbouring layers taken together."""
    stands = banded(drawing.links, drawing.sources, drawing.sinks, BANDS)
    links = merged(drawing.links, stands)
    sources, sinks = (frozenset(stands[v] for v in ends if v in stands)
                      for ends in (drawing.sources, drawing.sinks))  # fmt: skip
    counts = Counter(stands.values())
    met = {v for link in links for v in (link.start, link.end)}
    one = {stands[v]: name for v, name in drawing.names.items() if v in stands}
    names = {v: f"{counts[v]:,} tensors" if counts[v] > 1 else one[v] for v in sorted(met)}
    return Drawing(tuple(links), names, sources, sinks)


def operator_text(operator: Jacobian) -> str:
    """What an operator is, sizes left out."""
    return structure_kind(repr(operator))
