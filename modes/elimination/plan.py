"""Plan: which stretches of a DAG to multiply out, given how many products are to come.

Narrow ends are accumulated from that side, narrow middles from the vertex where they are narrow,
convolutions of kernels get their patches gathered once. Each is done where the estimated saving
over the products to come exceeds the estimated cost of doing it, and only as far as memory goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ...jacobians import Dag, Edge, size
from .adjoints import Way, multiplied, row_bytes
from .cost import seconds
from .narrow import Choice, chosen, within_memory, without_dead
from .patches import with_patches
from .stretch import Stretch

ENDS = 4
"""So many tensors may be the ends to which direct edges lead; blocks for more never pay."""

LEAST = 256 * 2**20
"""Bytes that may be held without being asked."""

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

    @property
    def T(self) -> Plan:
        """The same for the transpose."""
        last = len(self.dag.shapes) - 1
        turned = (Stretch(last - s.end, last - s.start, s.text, s.before, s.after, s.nbytes)
                  for s in self.stretches)  # fmt: skip
        return Plan(self.dag.T, tuple(turned))


def multiplied_out(dag: Dag, *, products: int, memory: int | None = None) -> Dag:
    """The DAG that is best for so many products, of the same matrix up to rounding.

    It holds at most `memory` bytes more than the given one, also while it is made; by default,
    four times as much as the given one holds and 256 MiB at least.
    """
    return plan(dag, products=products, memory=memory).dag


def plan(dag: Dag, *, products: int, memory: int | None = None) -> Plan:
    """The same, with a record of what was done."""
    memory = max(LEAST, 4 * dag.nbytes) if memory is None else memory
    found = Plan(dag)
    found = narrowed(found, dag.sinks, products, memory)
    found = narrowed(found.T, found.T.dag.sinks, products, memory).T
    for neck in necks(found.dag):
        found = narrowed(found, (neck,), products, memory)
        found = narrowed(found.T, (len(dag.shapes) - 1 - neck,), products, memory).T
    unfolded, stretches = with_patches(found.dag, products, memory - found.nbytes)
    return Plan(unfolded, found.stretches + stretches)


def narrowed(past: Plan, ends: tuple[int, ...], products: int, memory: int) -> Plan:
    """Direct edges to some ends, for those vertices for which they pay."""
    dag, memory = past.dag, memory - past.nbytes
    ends = tuple(dict.fromkeys(end for end in ends if any(e.end == end for e in dag.edges)))
    found = chosen(dag, ends, products) if 0 < len(ends) <= ENDS else None
    if found is None:
        return past
    found = without_dead(dag, within_memory(without_dead(dag, found), memory))
    room = memory - found.nbytes
    before, after = cost(dag), cost(rewired(dag, hollow_edges(found)))
    fits = all(row_bytes(dag.between((v,), (w.sink,))) <= room for v, w in first_ways(found))
    if not found.ways or not fits or (before - after) * products <= found.setup:
        return past
    direct = list(direct_edges(dag, found, room))
    new = rewired(dag, direct)
    kept = (Stretch(e.start, e.end, f"{e.operator}", before, after, e.operator.nbytes) for e in direct)
    return Plan(new, past.stretches + tuple(kept))


def cost(dag: Dag) -> float:
    """Seconds of all edges."""
    return sum(seconds(edge.operator) for edge in dag.edges)


def first_ways(choice: Choice) -> Iterator[tuple[int, Way]]:
    """The longest way to each end: that of the first vertex."""
    first = {}
    for vertex in sorted(choice.ways, reverse=True):
        first |= {way.sink: (vertex, way) for way in choice.ways[vertex]}
    yield from first.values()


def hollow_edges(choice: Choice) -> list[Edge]:
    """The direct edges without their numbers."""
    return [Edge(v, w.sink, w.hollow()) for v, ways in choice.ways.items() for w in ways]


def direct_edges(dag: Dag, choice: Choice, room: int) -> Iterator[Edge]:
    """The direct edges, multiplied out by one sweep from each end."""
    by_end = defaultdict(list)
    for ways in choice.ways.values():
        for way in ways:
            by_end[way.sink].append(way)
    for end, ways in by_end.items():
        operators = multiplied(dag, ways, choice.layouts[end], room)
        yield from (Edge(w.vertex, end, J) for w, J in zip(ways, operators, strict=True))


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
    narrow = {v: size(dag.shapes[v]) / min(before[v], after[v]) for v in before.keys() & after.keys()}
    found = (v for v in narrow if v not in ends and narrow[v] <= 1 / 4)
    return sorted(found, key=narrow.__getitem__)[:NECKS]
