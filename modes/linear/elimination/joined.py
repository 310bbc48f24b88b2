"""Joined: neighbouring matrices of a chain multiplied once, where products repay that.

A chain is a run of edges whose inner tensors no other edge reaches. The matrices may stand on both
sides of reshapes and permutations: the table `jacobians.products.merges` says what merges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
from operator import matmul

from ....jacobians import Dag, Edge, Jacobian, Permutation, Reshape, shape_of
from ....jacobians.products import factors_of
from .chain import MATRICES
from .cost import BANDWIDTH, CALL, RATE, seconds
from .deferred import Deferred, deferred, forced

LAYOUTS = Permutation, Reshape


def joined(dag: Dag, products: int, memory: int) -> tuple[list[Edge], list[Edge]]:
    """The edges of the DAG where matrices are multiplied, and the new ones among them."""
    kept, new = list[Edge](), list[Edge]()
    leaves: dict[int, Deferred] = {}
    for chain in chains(dag):
        done = list[Edge]()
        for edge in chain:
            done.append(edge)
            while (start := first_matrix(done)) is not None:
                parts = [deferred(e.operator, leaves) for e in done[start:]]
                made = reduce(matmul, reversed(parts))
                gain = sum(map(seconds, parts)) - seconds(made)
                if gain * products <= making(made) or made.nbytes > memory:
                    break
                done[start:] = [Edge(done[start].start, edge.end, made)]
        for edge in done:
            if any(isinstance(array, Deferred) for array in edge.operator.arrays()):
                new.append(Edge(edge.start, edge.end, forced(edge.operator)))
            else:
                kept.append(edge)
    return kept + new, new


def chains(dag: Dag) -> Iterator[list[Edge]]:
    """The maximal runs of edges between vertices at which edges branch, join or end."""
    into, out = defaultdict[int, list[Edge]](list), defaultdict[int, list[Edge]](list)
    for edge in dag.edges:
        into[edge.end].append(edge)
        out[edge.start].append(edge)
    ends = {*dag.sources, *dag.sinks}
    inner = {v for v in out if len(out[v]) == len(into[v]) == 1} - ends
    for edge in dag.edges:
        if edge.start in inner:
            continue
        chain = [edge]
        while chain[-1].end in inner:
            chain += out[chain[-1].end]
        yield chain


def first_matrix(chain: list[Edge]) -> int | None:
    """Where the run of a matrix, layouts and the last matrix of a chain begins."""
    if len(chain) < 2 or type(factors_of(chain[-1].operator)[-1]) not in MATRICES:
        return None
    start = len(chain) - 2
    while start > 0 and all(isinstance(f, LAYOUTS) for f in factors_of(chain[start].operator)):
        start -= 1
    return start if type(factors_of(chain[start].operator)[0]) in MATRICES else None


def making(operator: Jacobian) -> float:
    """Estimated seconds to compute the deferred arrays of an operator."""
    spent, waiting = 0.0, list(operator.arrays())
    while waiting:
        array = waiting.pop()
        if isinstance(array, Deferred) and array.known is None:
            waiting += array.inputs
            inner = shape_of(array.inputs[0])[-1]
            work = 2 * inner * array.nbytes / 4 / RATE  # an upper bound: as if a matrix product
            spent += work + array.nbytes / BANDWIDTH + CALL
    return spent
