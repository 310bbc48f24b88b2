"""Condense: a graph of thousands of operators made small enough to be looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from .layers import Link, layers


def chained(links: Iterable[Link], kept: Iterable[int]) -> list[Link]:
    """Runs of vertices with one way in and one way out, each become one link.

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
        while link.end in through:
            link = joined(link, outgoing[link.end][0])
        found.append(link)
    return found


def joined(first: Link, then: Link) -> Link:
    """One after the other."""
    number = first.number + then.number
    return Link(first.start, then.end, f"{number:,} operators", first.flops + then.flops, number)


def banded(
    links: Iterable[Link], sources: frozenset[int], sinks: frozenset[int], bands: int
) -> dict[int, int]:
    """Vertex -> 3 · band of layers + 0 for a source, 1 for what is between, 2 for a sink."""
    layer = layers(links)
    height = max(layer.values()) + 1
    kind = {v: 0 if v in sources else 2 if v in sinks else 1 for v in layer}
    return {v: 3 * (depth * bands // height) + kind[v] for v, depth in layer.items()}


def merged(links: Iterable[Link], stands: Mapping[int, int]) -> list[Link]:
    """The links between those that stand for the vertices; parallel ones are added up."""
    groups: dict[tuple[int, int], list[Link]] = defaultdict(list)
    for link in links:
        ends = stands[link.start], stands[link.end]
        if ends[0] < ends[1]:
            groups[ends].append(link)
    return [united(ends, found) for ends, found in groups.items()]


def united(ends: tuple[int, int], found: list[Link]) -> Link:
    """One link for several beside each other."""
    number = sum(link.number for link in found)
    text = found[0].text if len(found) == 1 else f"{number:,} operators"
    return Link(*ends, text, sum(link.flops for link in found), number)
