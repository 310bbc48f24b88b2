"""Reverse accumulation: which vertices get direct, multiplied-out edges to the ends.

Once ∂end/∂v is known, v needs no other path to the end, and vertices reached only through v are
dead. With weights as sources and logits as the end, each layer keeps only its own term, contracted
with the adjoint of its output. Vertices are chosen from the end backwards, by the time saved per
product and the cost of multiplying out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ....jacobians import Dag, Edge
from ....jacobians.dag import useful
from .adjoints import Way, part_of, row_bytes, workspace
from .cost import BANDWIDTH, seconds
from .samples import Batch, batches_of, layouts, mixing

Layouts = dict[int, dict[int, Batch]]
"""end -> vertex -> its samples, where all paths from the vertex to the end stay within them."""


@dataclass
class Choice:
    """Vertices and their direct edges: `gain` seconds saved per product, `setup` spent once."""

    layouts: Layouts
    ways: dict[int, tuple[Way, ...]] = field(default_factory=dict)
    gains: dict[int, float] = field(default_factory=dict)
    setup: float = 0.0

    @property
    def gain(self) -> float:
        """Seconds saved per product."""
        return sum(self.gains.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all direct edges."""
        return sum(way.nbytes for ways in self.ways.values() for way in ways)

    def hollow(self) -> list[Edge]:
        """The direct edges with blocks that take no memory, for estimates."""
        return [Edge(v, w.sink, w.hollow()) for v, ways in self.ways.items() for w in ways]

    def copy(self) -> Choice:
        """A copy of the choice."""
        return Choice(self.layouts, dict(self.ways), dict(self.gains), self.setup)

    def worth(self, products: int) -> float:
        """Seconds saved over a number of products."""
        return self.gain * products - self.setup


class Remaining:
    """The edges left in a DAG while some are replaced: where each leads, and its cost."""

    def __init__(self, dag: Dag, costs: Iterable[float]) -> None:
        self.sources = frozenset(dag.sources)
        self.after: dict[int, list[tuple[int, float]]] = defaultdict(list)
        self.arriving: Counter[int] = Counter()
        for edge, cost in zip(dag.edges, costs, strict=True):
            self.after[edge.start].append((edge.end, cost))
            self.arriving[edge.end] += 1

    def only_through(self, vertex: int) -> tuple[float, Counter[int]]:
        """Seconds of the edges reached only through a vertex, and their number by end vertex."""
        lost: Counter[int] = Counter()
        spent, dead = 0.0, [vertex]
        while dead:
            for end, cost in self.after[dead.pop()]:
                spent += cost
                lost[end] += 1
                if lost[end] == self.arriving[end] and end not in self.sources:
                    dead.append(end)
        return spent, lost

    def replace(self, vertex: int, lost: Counter[int], ways: Iterable[tuple[int, float]]) -> None:
        """Replace the edges of a vertex by direct ones."""
        self.after[vertex] = list(ways)
        self.arriving.subtract(lost)
        self.arriving.update(end for end, _ in self.after[vertex])


def chosen(dag: Dag, ends: tuple[int, ...], products: int, memory: int) -> Choice | None:
    """The vertices whose direct edges to the ends save most within `memory`; None if nothing pays.

    While they do not fit, each byte held is given a price, which is doubled until they do.
    """
    best = best_choice(dag, ends, products, 0.0)
    if best is None:
        return None
    price = best.gain / best.nbytes / 16
    while best and needed(dag, best) > memory:
        best, price = best_choice(dag, ends, products, price), 2 * price
    return best


def best_choice(dag: Dag, ends: tuple[int, ...], products: int, price: float) -> Choice | None:
    """The best choice over all sample layouts, at a price in seconds per byte held and product."""
    costs = [seconds(edge.operator) for edge in dag.edges]
    found = readings(dag, ends)
    tried = (Accumulation(dag, costs, layout, products, price).best() for layout in found)
    best = max(tried, key=lambda choice: choice.worth(products))
    return without_dead(dag, best) if best.worth(products) > 0 else None


def needed(dag: Dag, choice: Choice) -> int:
    """Bytes that a choice holds, plus the bytes to sweep one row."""
    ways = [way for ways in choice.ways.values() for way in ways]
    spent = [swept_bytes(dag, [w for w in ways if w.sink == end]) for end in choice.layouts]
    return choice.nbytes + max(spent)


def swept_bytes(dag: Dag, ways: list[Way]) -> int:
    """Bytes that the sweep for direct edges to one end takes, one row at a time."""
    part = part_of(dag, ways)
    return row_bytes(part) + workspace(part, max((way.block[1] for way in ways), default=0))


def readings(dag: Dag, ends: tuple[int, ...]) -> Iterable[Layouts]:
    """Candidate sample layouts of the ends: samples along one or two axes, or a single sample."""
    options = {end: list(batches_of(dag.shapes[end])) for end in ends}
    for k in range(max(map(len, options.values()))):
        batches = {end: found[min(k, len(found) - 1)] for end, found in options.items()}
        yield {end: layouts(dag, end, batch) for end, batch in batches.items()}


class Accumulation:
    """A walk from the ends backwards, vertex by vertex, that builds a choice.

    Each byte held costs `price` seconds per product.
    """

    def __init__(
        self, dag: Dag, costs: list[float], layouts: Layouts, products: int, price: float
    ) -> None:
        self.dag, self.products, self.price = dag, products, price
        self.remaining, self.choice = Remaining(dag, costs), Choice(layouts)
        self.outgoing: dict[int, list[Edge]] = defaultdict(list)
        self.swept: dict[int, float] = defaultdict(float)  # seconds of a row of adjoints
        for edge, cost in zip(dag.edges, costs, strict=True):
            self.outgoing[edge.start].append(edge)
            self.swept[edge.start] += cost

    def best(self) -> Choice:
        """The best choice found on the walk.

        Nothing is chosen beyond a sink that is not an end: direct edges would bypass it.
        """
        ends = self.choice.layouts
        passed = {*self.dag.sinks} - ends.keys()
        reached = {end: frozenset((end,)) for end in ends}
        best = self.choice.copy()
        for vertex in sorted(self.outgoing.keys() - ends.keys(), reverse=True):
            heads = {e.end for e in self.outgoing[vertex]}
            if not heads <= reached.keys():
                continue
            found = frozenset[int]().union(*(reached[head] for head in heads))
            if vertex not in passed:
                reached[vertex] = found
            self.visit(vertex, found)
            if self.choice.worth(self.products) > best.worth(self.products):
                best = self.choice.copy()
        return best

    def visit(self, vertex: int, ends: frozenset[int]) -> None:
        """Choose a vertex if its direct edges are cheaper than the edges that they make dead."""
        edges, choice = self.outgoing[vertex], self.choice
        ways = ways_from(self.dag, vertex, edges, ends, choice.layouts)
        if ways is None:
            return
        swept = sum(way.block[1] for way in ways) * self.swept[vertex]
        passed = all(way.own for way in ways)  # on the way to other vertices, chosen or not
        choice.setup += swept if passed else 0
        setup = 6 * least(ways) + (0 if passed else swept)  # the blocks are written once
        spent, lost = self.remaining.only_through(vertex)
        if (spent - least(ways)) * self.products <= setup:
            return
        costs = [(way.sink, seconds(way.hollow()) + self.price * way.nbytes) for way in ways]
        gain = spent - sum(cost for _, cost in costs)
        if gain * self.products > setup:
            self.remaining.replace(vertex, lost, costs)
            choice.ways[vertex], choice.gains[vertex] = ways, gain
            choice.setup += setup


def least(ways: tuple[Way, ...]) -> float:
    """Lower bound in seconds of a product with direct edges: reading their blocks."""
    return sum(way.nbytes for way in ways) / 2 / BANDWIDTH


def ways_from(
    dag: Dag, vertex: int, edges: list[Edge], ends: frozenset[int], layout: Layouts
) -> tuple[Way, ...] | None:
    """The direct edges of a vertex to every end that it reaches; None if one cannot be formed."""
    ways = []
    for end in sorted(ends):
        own = layout[end].get(vertex)
        if own is None and not all(splits(edge, layout[end]) for edge in edges):
            return None
        ways.append(
            Way(vertex, end, dag.shapes[vertex], dag.shapes[end], layout[end][end], own, dag.dtype)
        )
    return tuple(ways)


def splits(edge: Edge, layout: dict[int, Batch]) -> bool:
    """Whether an edge has operators for the rows of single samples."""
    return edge.end in layout and mixing(edge.operator, layout[edge.end]) is not None


def without_dead(dag: Dag, choice: Choice) -> Choice:
    """The choice without the vertices that its other direct edges make unreachable."""
    kept = (e for e in dag.edges if e.start not in choice.ways)
    ends = {way.sink for ways in choice.ways.values() for way in ways}
    alive = {e.start for e in useful((*kept, *choice.hollow()), dag.sources, (*dag.sinks, *ends))}
    ways = {v: w for v, w in choice.ways.items() if v in alive}
    return Choice(choice.layouts, ways, choice.gains, choice.setup)
