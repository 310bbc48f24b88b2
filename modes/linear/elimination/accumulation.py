"""Reverse accumulation: direct, multiplied-out edges from vertices to the ends.

Once ∂end/∂v is known, v needs no other path to the end, and vertices reached only through v are
dead. With weights as sources and logits as the end, each layer keeps only its own term, contracted
with the adjoint of its output. Vertices are chosen from the end backwards, by the time saved per
product and the cost of multiplying out.

The edges to one end come from one reverse sweep. Where all paths to the end stay within samples, a
row of each sample's block is computed for all samples at once: m cotangents give `count` blocks of
m rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from ....jacobians import (
    BlockDiagonal,
    Dag,
    Dense,
    Edge,
    Jacobian,
    Permutation,
    Reshape,
    Shape,
    size,
)
from ....jacobians.arrays import Array, memory_of, reading, zeros
from ....jacobians.dag import useful
from ....jacobians.products import factors_of
from ....jacobians.readings import host, library_of, module_of
from ....ops.numbers.convolution import PATCH_BYTES
from .cost import BANDWIDTH, patch_entries, seconds
from .samples import Batch, Mixing, candidate_batches, layouts, mixing

Layouts = dict[int, dict[int, Batch]]
"""end -> vertex -> its samples, where all paths from the vertex to the end stay within them."""


@dataclass(frozen=True)
class Way:
    """∂sink/∂vertex as one operator: a block per sample, or one dense matrix where samples mix.

    `own` is the batch of the vertex, None where samples mix; `batch` is the batch of the sink.
    """

    vertex: int
    sink: int
    shape: Shape
    sink_shape: Shape
    batch: Batch
    own: Batch | None
    dtype: np.dtype

    @property
    def block(self) -> Shape:
        """(samples, rows per sample, entries of the vertex per row)."""
        entries = size(self.shape) // (self.own.count if self.own else 1)
        return self.batch.count, size(self.sink_shape) // self.batch.count, entries

    @property
    def nbytes(self) -> int:
        """Bytes of the blocks."""
        return size(self.block) * self.dtype.itemsize

    @property
    def lies(self) -> bool:
        """Whether adjoints of the vertex have the layout of the blocks: every row by samples."""
        return self.own is not None and self.own.outer(size(self.shape)) == 1

    def operator(self, blocks: np.ndarray) -> Jacobian:
        """The operator with these blocks, between the shapes of the two tensors."""
        samples, m, n = self.block
        if self.own is None or samples == 1:
            core: Jacobian = Dense(blocks.reshape(samples * m, n), (samples, m), self.shape)
        else:
            core = BlockDiagonal(blocks) @ samples_first(self.own, self.shape, self.dtype)
        return samples_first(self.batch, self.sink_shape, self.dtype).T @ core

    def hollow(self) -> Jacobian:
        """The operator with blocks that take no memory, to estimate its cost."""
        return self.operator(zeros(self.block, self.dtype))


def samples_first(batch: Batch, shape: Shape, dtype: np.dtype) -> Jacobian:
    """A tensor with its samples as the first axis and all else as the second."""
    outer = batch.outer(size(shape))
    apart = (outer, batch.count, batch.inner)
    flat = (batch.count, outer * batch.inner)
    if outer == 1:
        return Reshape(flat, shape, dtype)
    turned = Permutation((1, 0, 2), apart, dtype)
    return Reshape(flat, turned.out_shape, dtype) @ turned @ Reshape(apart, shape, dtype)


@dataclass
class Choice:
    """Vertices and their direct edges: `gain` seconds saved per product, `setup` spent once."""

    layouts: Layouts
    ways: dict[int, tuple[Way, ...]] = field(default_factory=dict)
    gain: float = 0.0
    setup: float = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of all direct edges."""
        return sum(way.nbytes for ways in self.ways.values() for way in ways)

    def hollow(self) -> list[Edge]:
        """The direct edges with blocks that take no memory, for estimates."""
        return [Edge(v, w.sink, w.hollow()) for v, ways in self.ways.items() for w in ways]

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


def choose_vertices(dag: Dag, ends: tuple[int, ...], products: int, memory: int) -> Choice | None:
    """The vertices whose direct edges to the ends save most within `memory`; None if nothing pays.

    While they do not fit, each byte held is given a price, which is doubled until they do.
    """
    best = best_choice(dag, ends, products, 0.0)
    if best is None:
        return None
    price = best.gain / best.nbytes / 16
    while best and needed_bytes(dag, best) > memory:
        best, price = best_choice(dag, ends, products, price), 2 * price
    return best


def best_choice(dag: Dag, ends: tuple[int, ...], products: int, price: float) -> Choice | None:
    """The best choice over all sample layouts, at a price in seconds per byte held and product."""
    costs = [seconds(edge.operator) for edge in dag.edges]
    found = readings(dag, ends)
    tried = (BackwardWalk(dag, costs, layout, products, price).best() for layout in found)
    best = max(tried, key=lambda choice: choice.worth(products))
    return without_dead(dag, best) if best.worth(products) > 0 else None


def needed_bytes(dag: Dag, choice: Choice) -> int:
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
    options = {end: list(candidate_batches(dag.shapes[end])) for end in ends}
    for k in range(max(map(len, options.values()))):
        batches = {end: found[min(k, len(found) - 1)] for end, found in options.items()}
        yield {end: layouts(dag, end, batch) for end, batch in batches.items()}


class BackwardWalk:
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
        best = replace(self.choice, ways={})
        for vertex in sorted(self.outgoing.keys() - ends.keys(), reverse=True):
            heads = {e.end for e in self.outgoing[vertex]}
            if not heads <= reached.keys():
                continue
            found = frozenset[int]().union(*(reached[head] for head in heads))
            if vertex not in passed:
                reached[vertex] = found
            self.visit(vertex, found)
            if self.choice.worth(self.products) > best.worth(self.products):
                best = replace(self.choice, ways=dict(self.choice.ways))
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
            choice.ways[vertex] = ways
            choice.gain, choice.setup = choice.gain + gain, choice.setup + setup


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
    return replace(choice, ways={v: w for v, w in choice.ways.items() if v in alive})


def multiply_out(
    dag: Dag, ways: list[Way], layout: Mapping[int, Batch], room: int
) -> list[Jacobian]:
    """The operators of ways to one sink, from sweeps of as many rows as fit into `room` bytes.

    If all rows fit with the adjoints themselves as blocks, one sweep computes them without a copy.
    """
    (sink,) = {way.sink for way in ways}
    part, blocks = part_of(dag, ways), dict[int, np.ndarray]()
    rows, shape = ways[0].block[1], ways[0].sink_shape
    each, room = max(row_bytes(part), 1), room - workspace(part, rows)
    spared = sum(way.nbytes for way in ways if way.lies)
    step = rows if rows * each <= room + spared else max(1, room // each)
    for start in range(0, rows, step):
        kept = slice(start, min(start + step, rows))
        seeds = unit_rows(layout[sink], shape, dag.dtype, kept)
        seeds = part.place.take(seeds) if part.place else seeds
        swept = adjoints(part, sink, seeds)
        for k, way in enumerate(ways):
            if step == rows and way.lies and is_alone(swept[way.vertex], way.nbytes):
                blocks[k] = swept[way.vertex].reshape(rows, way.block[0], -1).swapaxes(0, 1)
                continue
            if k not in blocks:
                blocks[k] = empty_block(seeds, way.block)
            fill_rows(dag, way, blocks[k][:, kept], swept, layout)
    take = host if part.place is None else part.place.take
    return [way.operator(take(blocks[k])) for k, way in enumerate(ways)]


def empty_block(rows: Array, shape: Shape) -> Array:
    """An array to write to where the rows are; in main memory if nobody writes to such arrays."""
    if not library_of(rows).writes:
        return np.empty(shape, library_of(rows).dtype(rows))
    made: Array = module_of(rows).empty(shape, dtype=rows.dtype, device=rows.device)
    return made


def is_alone(rows: Array, nbytes: int) -> bool:
    """Whether an array has this many bytes, and keeps no other memory alive."""
    return bool(rows.nbytes == memory_of(rows) == nbytes)


def part_of(dag: Dag, ways: list[Way]) -> Dag:
    """The part of a DAG that is swept for ways to one sink; empty without ways."""
    met = {v for way in ways for v in vertices_met(dag, way)}
    return dag.between(tuple(sorted(met)), tuple({way.sink for way in ways}))


def vertices_met(dag: Dag, way: Way) -> tuple[int, ...]:
    """The vertices whose adjoints make up a way: its vertex, or the successors of its vertex."""
    if way.own is not None:
        return (way.vertex,)
    return tuple(e.end for e in dag.edges if e.start == way.vertex)


def unit_rows(batch: Batch, shape: Shape, dtype: np.dtype, kept: slice) -> np.ndarray:
    """Some unit vectors of a sample, repeated in every sample: (rows, *shape)."""
    outer, count = batch.outer(size(shape)), kept.stop - kept.start
    rows = np.zeros((count, outer, batch.count, batch.inner), dtype)
    k = np.arange(kept.start, kept.stop)
    rows[np.arange(count), k // batch.inner, :, k % batch.inner] = 1
    return rows.reshape(count, *shape)


def fill_rows(
    dag: Dag,
    way: Way,
    block: np.ndarray,
    swept: Mapping[int, np.ndarray],
    layout: Mapping[int, Batch],
) -> None:
    """Write some rows of a way into its blocks (samples, rows, entries)."""
    if way.own is not None:
        rows = swept[way.vertex]
        apart = rows.reshape(len(rows), -1, way.own.count, way.own.inner)
        samples, count, _ = block.shape
        moved = module_of(apart).moveaxis(apart, 2, 0)
        block.reshape(samples, count, *apart.shape[1::2])[...] = moved
        return
    for k, edge in enumerate(e for e in dag.edges if e.start == way.vertex):
        split = mixing(edge.operator, layout[edge.end])
        assert split is not None
        write_samples(split, swept[edge.end], block, added=k > 0)


def write_samples(split: Mixing, rows: np.ndarray, block: np.ndarray, *, added: bool) -> None:
    """Write the adjoints of every sample into its rows, or add them to the rows."""
    for target, part in zip(block, split.adjoints(rows), strict=True):
        found = part.reshape(target.shape)
        target[...] = target + found if added else found


def workspace(part: Dag, rows: int) -> int:
    """Bytes for the patches of one operator at a time; patches of signals come in blocks."""
    factors = [factor for edge in part.edges for factor in factors_of(edge.operator)]
    kernels = 3 * max(map(patch_entries, factors), default=0) * part.dtype.itemsize
    signals = max((patch_entries(factor, signals=True) for factor in factors), default=0)
    return kernels + min(rows * signals * part.dtype.itemsize, PATCH_BYTES)


def row_bytes(part: Dag) -> int:
    """Bytes to sweep one row, with the temporaries of operators."""
    done: Counter[int] = Counter()
    last = {e.end: e.start for e in sorted(part.edges, key=attrgetter("start"), reverse=True)}
    for end, first in last.items():
        done[first] += size(part.shapes[end])
    live = peak = 0
    for vertex in sorted({v for e in part.edges for v in (e.start, e.end)}, reverse=True):
        live += size(part.shapes[vertex])
        peak = max(peak, live)
        live -= done[vertex]
    kept = sum(size(part.shapes[v]) for v in part.sources)
    return 3 * (kept + peak) * part.dtype.itemsize


def adjoints(part: Dag, sink: int, seeds: np.ndarray) -> dict[int, np.ndarray]:
    """Rows (r, *shape) at the sources of a DAG, by vertex, from rows at its sink."""
    last = len(part.shapes) - 1
    swept = part.T.sweep(reading(seeds), {last - sink: seeds})
    return {last - vertex: rows for vertex, rows in swept.items()}
