"""Ways: a DAG as a grid of blocks, each the sum of the few ways from a source to a sink."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import islice
from operator import add

from ...jacobians import Block, Dag, Identity, Jacobian, Zero
from ..elimination.plan import eliminated

FEW = 4
"""A block with more ways than this is not written as a sum: it would grow exponentially."""

Grid = list[list[Jacobian]]


def as_blocks(operator: Dag | Block) -> Grid | None:
    """Jᵢⱼ = Σ over the ways from source j to sink i, or None where there are more than a few."""
    dag = eliminated(operator.dag if isinstance(operator, Block) else operator)
    rows = [[block(dag, source, sink) for source in dag.sources] for sink in dag.sinks]
    grid = [[part for part in row if part is not None] for row in rows]
    return grid if grid and list(map(len, grid)) == list(map(len, rows)) else None


def block(dag: Dag, source: int, sink: int) -> Jacobian | None:
    """Σ over the ways from a source to a sink, or None where there are more than a few."""
    part = dag.between((source,), (sink,))  # in which every step back leads to the source
    found = list(islice(_ways(part, source, sink), FEW + 1))
    if len(found) > FEW:
        return None
    zero = Zero(dag.shapes[sink], dag.shapes[source], dag.dtype)
    return reduce(add, found, zero)


def _ways(dag: Dag, source: int, sink: int) -> Iterator[Jacobian]:
    """The product of the operators along each way."""
    if source == sink:
        yield Identity(dag.shapes[sink], dag.dtype)
    for edge in dag.edges:
        if edge.end == sink:
            yield from (edge.operator @ way for way in _ways(dag, source, edge.start))
