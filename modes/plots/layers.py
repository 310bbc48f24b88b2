"""Layers: where the vertices of a graph stand, one layer below the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple


class Link(NamedTuple):
    """Operators between two vertices: what they are called, their flops, how many there are."""

    start: int
    end: int
    text: str
    flops: int
    number: int = 1


Places = dict[int, tuple[float, int]]
"""Vertex -> (x, layer)."""


def places(links: Iterable[Link]) -> Places:
    """Each vertex below all that lead to it, and to the right of what is taken already.

    What has predecessors stands under their mean, so that a chain is a straight line; what has
    none, as a weight, stands to the right, one layer above the first that needs it.
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
        wanted = {v: _mean([x[w] for w in before[v]]) for v in rows[depth]}
        taken = -float("inf")
        for v in sorted(rows[depth], key=lambda v: (wanted[v], v)):
            x[v] = taken = max(min(wanted[v], max(taken + 1, 0)), taken + 1)
    return {v: (x[v], depth) for v, depth in layer.items()}


def _mean(numbers: list[float]) -> float:
    """The mean; of nothing, as far right as there is."""
    return sum(numbers) / len(numbers) if numbers else float("inf")


def layers(links: Iterable[Link]) -> dict[int, int]:
    """The length of the longest way to each vertex; the sources moved down to what needs them.

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
