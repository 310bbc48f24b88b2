"""Adjoints: derivatives of one tensor with respect to others, multiplied out in one reverse sweep.

Where all paths to the sink stay within samples, a row of each sample's block is computed for all
samples at once: m cotangents give `count` blocks of m rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from ....jacobians import BlockDiagonal, Dag, Dense, Jacobian, Permutation, Reshape, Shape, size
from ....jacobians.arrays import Array, is_tensor, owner, reading, space
from ....jacobians.products import factors_of
from ....jacobians.threads import check_wanted
from ....ops.numbers.convolution import BLOCK
from .cost import patches
from .samples import Batch, Mixing, mixing

starts = attrgetter("start")


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
        return self.operator(np.broadcast_to(np.zeros((), self.dtype), self.block))


def samples_first(batch: Batch, shape: Shape, dtype: np.dtype) -> Jacobian:
    """A tensor with its samples as the first axis and all else as the second."""
    outer = batch.outer(size(shape))
    apart = (outer, batch.count, batch.inner)
    flat = (batch.count, outer * batch.inner)
    if outer == 1:
        return Reshape(flat, shape, dtype)
    turned = Permutation((1, 0, 2), apart, dtype)
    return Reshape(flat, turned.out_shape, dtype) @ turned @ Reshape(apart, shape, dtype)


def multiplied(dag: Dag, ways: list[Way], layout: Mapping[int, Batch], room: int) -> list[Jacobian]:
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
        check_wanted()
        kept = slice(start, min(start + step, rows))
        seeds = unit_rows(layout[sink], shape, dag.dtype, kept)
        seeds = part.place.take(seeds) if part.place else seeds
        swept = adjoints(part, sink, seeds)
        for k, way in enumerate(ways):
            if step == rows and way.lies and is_alone(swept[way.vertex], way.nbytes):
                blocks[k] = swept[way.vertex].reshape(rows, way.block[0], -1).swapaxes(0, 1)
                continue
            if k not in blocks:
                empty = space(seeds).empty
                blocks[k] = empty(way.block, dtype=seeds.dtype, device=seeds.device)
            fill(dag, way, blocks[k][:, kept], swept, layout)
    return [way.operator(blocks[k]) for k, way in enumerate(ways)]


def is_alone(rows: Array, nbytes: int) -> bool:
    """Whether an array has this many bytes, and keeps no other memory alive."""
    whole = rows.untyped_storage().nbytes() if is_tensor(rows) else owner(rows).nbytes
    return bool(rows.nbytes == whole == nbytes)


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


def fill(
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
        block.reshape(samples, count, *apart.shape[1::2])[...] = space(apart).moveaxis(apart, 2, 0)
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
    kernels = 3 * max(map(patches, factors), default=0) * part.dtype.itemsize
    signals = max((patches(factor, signals=True) for factor in factors), default=0)
    return kernels + min(rows * signals * part.dtype.itemsize, BLOCK)


def row_bytes(part: Dag) -> int:
    """Bytes to sweep one row, with the temporaries of operators."""
    done: Counter[int] = Counter()
    last = {e.end: e.start for e in sorted(part.edges, key=starts, reverse=True)}
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
