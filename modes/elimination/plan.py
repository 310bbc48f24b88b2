"""Plan: which stretches of a DAG to multiply out, given how many products are to come.

Narrow ends are accumulated from that side, narrow middles from the vertex where they are narrow,
convolutions of kernels get their patches gathered once. Each is done where the estimated saving
over the products that count exceeds the estimated cost of doing it, and only as far as memory goes.

Every step keeps the matrix: the sum over all paths from a source to a sink stays what it was,
also where a sink lies upstream of another, or a source downstream.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...jacobians import Dag, Edge, size
from .adjoints import multiplied
from .cost import seconds
from .narrow import Choice, chosen
from .patches import with_patches
from .stretch import Stretch, text_of

ENDS = 4
"""So many tensors may be the ends to which direct edges lead; blocks for more never pay."""

REPAID, TRUSTED = 30, 10
"""So many products count in full, and of more of them one in ten, if that is more: estimates of a
far future are not to be trusted.
"""

LEAST = 2**30
"""Bytes that may be held without being asked, however little the DAG itself holds."""

NECKS = 16
"""So many narrow vertices in the middle are tried."""


@dataclass(frozen=True)
class Plan:
    """A DAG with the same matrix, and what was multiplied out to get it."""

    dag: Dag
    stretches: tuple[Stretch, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all that was multiplied out."""
        return sum(stretch.nbytes for stretch in self.stretches)


def multiplied_out(dag: Dag, *, products: int, memory: int | None = None) -> Dag:
    """The DAG that is best for so many products, of the same matrix up to rounding.

    It holds at most `memory` bytes more than the given one, also while it is made; by default,
    four times as much as the given one holds or 1 GiB, if a quarter of what is free allows it.
    """
    return plan(dag, products=products, memory=memory).dag


def plan(dag: Dag, *, products: int, memory: int | None = None) -> Plan:
    """The same, with a record of what was done."""
    memory = spare(dag) if memory is None else memory
    products = counted(products)
    found = Plan(dag)
    found = narrowed(found, dag.sinks, products, memory)
    found = turned(found, dag.sources, products, memory)
    for neck in necks(found.dag):
        found = narrowed(found, (neck,), products, memory)
        found = turned(found, (neck,), products, memory)
    alive = {(edge.start, edge.end) for edge in found.dag.edges}
    kept = tuple(s for s in found.stretches if (s.start, s.end) in alive)
    unfolded, stretches = with_patches(found.dag, products, memory - Plan(dag, kept).nbytes)
    return Plan(unfolded, kept + stretches)


def counted(products: int) -> int:
    """The products that must repay whatever is done, where so many are asked for.

    >>> [counted(n) for n in (8, 100, 1000)]
    [8, 30, 100]
    """
    return min(products, max(REPAID, products // TRUSTED))


def turned(past: Plan, ends: tuple[int, ...], products: int, memory: int) -> Plan:
    """The same from the other side: direct edges from some starts, where they are narrow."""
    last = len(past.dag.shapes) - 1
    mirrored = Plan(past.dag.T, past.stretches)
    found = narrowed(mirrored, tuple(last - end for end in ends), products, memory)
    if found is mirrored:
        return past
    new = found.stretches[len(past.stretches) :]
    back = (replace(s, start=last - s.end, end=last - s.start) for s in new)
    return Plan(found.dag.T, past.stretches + tuple(back))


def spare(dag: Dag) -> int:
    """Bytes that a plan may take where nothing is said."""
    wanted = max(LEAST, 4 * dag.nbytes)
    if not hasattr(os, "sysconf") or "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return wanted
    return min(wanted, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)


def narrowed(past: Plan, ends: tuple[int, ...], products: int, memory: int) -> Plan:
    """Direct edges to some ends, for those vertices for which they pay.

    A direct edge is the sum over the paths from a vertex to an end that meet no other end on the
    way: a path that does goes on from that end by the edges of the DAG, which are kept.
    """
    dag, memory = past.dag, memory - past.nbytes
    ends = tuple(dict.fromkeys(end for end in ends if any(e.end == end for e in dag.edges)))
    if not 0 < len(ends) <= ENDS:
        return past
    paths = up_to(dag, ends)
    found = chosen(paths, ends, products, memory)
    if found is None:
        return past
    before, after = cost(dag), cost(rewired(dag, hollow_edges(found)))
    if (before - after) * products <= found.setup:
        return past
    direct = list(direct_edges(paths, found, memory - found.nbytes))
    stretches = (Stretch(e.start, e.end, text_of(e.operator), before, after, e.operator.nbytes)
                 for e in direct)  # fmt: skip
    return Plan(rewired(dag, direct), past.stretches + tuple(stretches))


def up_to(dag: Dag, ends: tuple[int, ...]) -> Dag:
    """The DAG whose paths stop at the ends; the vertices behind an end are sources of their own."""
    behind = [edge.end for edge in dag.edges if edge.start in ends]
    if not behind:
        return dag
    edges = (edge for edge in dag.edges if edge.start not in ends)
    sources, sinks = (*dag.sources, *behind), (*dag.sinks, *ends)
    return Dag(dag.shapes, edges, sources, sinks, dag.dtype)


def cost(dag: Dag) -> float:
    """Seconds of all edges."""
    return sum(seconds(edge.operator) for edge in dag.edges)


def hollow_edges(choice: Choice) -> list[Edge]:
    """The direct edges without their numbers."""
    return [Edge(v, w.sink, w.hollow()) for v, ways in choice.ways.items() for w in ways]


def direct_edges(dag: Dag, choice: Choice, room: int) -> Iterator[Edge]:
    """The direct edges, multiplied out by one sweep from each end."""
    by_end = defaultdict(list)
    for ways in choice.ways.values():
        for way in ways:
            by_end[way.sink].append(way)
    for end, to_end in by_end.items():
        operators = multiplied(dag, to_end, choice.layouts[end], room)
        yield from (Edge(w.vertex, end, J) for w, J in zip(to_end, operators, strict=True))


def rewired(dag: Dag, direct: list[Edge]) -> Dag:
    """The DAG where some vertices have direct edges only."""
    starts = {edge.start for edge in direct}
    kept = [edge for edge in dag.edges if edge.start not in starts]
    return Dag(dag.shapes, (*kept, *direct), dag.sources, dag.sinks, dag.dtype)


def necks(dag: Dag) -> list[int]:
    """Vertices in the middle that are far narrower than what leads there and what follows."""
    before: dict[int, int] = defaultdict(int)
    after: dict[int, int] = defaultdict(int)
    for edge in dag.edges:
        before[edge.end] = max(before[edge.end], size(dag.shapes[edge.start]))
        after[edge.start] = max(after[edge.start], size(dag.shapes[edge.end]))
    ends = {*dag.sources, *dag.sinks}
    inner = (before.keys() & after.keys()) - ends
    narrow = {v: size(dag.shapes[v]) / min(before[v], after[v]) for v in inner}
    found = (v for v in inner if narrow[v] <= 1 / 4)
    return sorted(found, key=narrow.__getitem__)[:NECKS]
