"""Plan: a DAG prepared for many products.

First, vertices are eliminated; then parts of the DAG are multiplied out where future products repay
it. Narrow ends are accumulated from their side. Each step is taken if its estimated saving over the
counted products exceeds its estimated cost, and if it fits into memory.

Every step preserves the matrix: the sum over all paths from a source to a sink stays the same, even
where a sink lies upstream of another sink, or a source downstream of another source.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any

from ....jacobians import Array, Dag, Edge, Jacobian, Product, Sum
from ....jacobians.errors import LimitError
from ....jacobians.hooks import compiled
from ....jacobians.threads import Lock, remembered
from ..products.compiled import Compiled
from .accumulation import Choice, choose_vertices, multiply_out
from .cost import DECIDING, ELIMINATING, SAVED, seconds
from .vertex_elimination import Elimination, elimination

ENDS = 4
"""Largest number of tensors that direct edges may lead to; blocks for more never pay."""

REPAID, TRUSTED = 30, 10
"""Up to 30 products count in full; of more, one in ten counts, but at least 30, since estimates of
a distant future are unreliable.
"""

PLAN_BYTES = 2**30
"""Bytes that a plan may hold by default, even if the DAG itself holds little."""

ELIMINATED, PLAN, SECONDS, LOCK = "elimination", "plan", "seconds", "lock"
"""Keys of the results that are cached with a DAG and shared with its transpose."""

Maker = Callable[[Dag], Jacobian]
"""A function from the DAG of a Jacobian to the operator that computes its products."""


@singledispatch
def planned(operator: Jacobian, products: int, memory: int | None = None) -> Jacobian:
    """The operator with its DAGs planned: reduced, and multiplied out where `products` repay it."""
    inner = operator.structure
    return operator if inner is operator else planned(inner, products, memory)


@planned.register
def _(operator: Dag, products: int, memory: int | None = None) -> Jacobian:
    if operator.mirror is not None:
        return planned(operator.mirror, products, memory).T
    dag = eliminated(operator)
    asked = repaying_products(products), memory
    with lock_of(operator):
        known, found = operator.known.get(PLAN, (None, None))
        if known != asked:
            found = plan(dag, products=products, memory=memory)
            found.names = operator.names
            operator.known[PLAN] = asked, found
    made: Dag = found
    return made


@planned.register
def _(operator: Product | Sum, products: int, memory: int | None = None) -> Jacobian:
    """Each factor or term gets an equal share of the memory."""
    parts = tuple(operator.contents())
    share = None if memory is None else memory // len(parts)
    return type(operator)(tuple(planned(part, products, share) for part in parts))


@compiled.register
def by_engine(
    operator: Jacobian, engine: str | None = None, products: int = 100, memory: int | None = None
) -> Jacobian:
    """The operator planned for a number of products and compiled."""
    return Compiled(planned(operator, products, memory), engine)


def lock_of(dag: Dag) -> Lock:
    """The lock for cached results of a DAG and its transpose."""
    return remembered((dag.mirror or dag).known, LOCK, Lock)


def eliminated(dag: Dag) -> Dag:
    """The DAG after vertex elimination, which is cached."""
    if dag.mirror is not None:
        return eliminated(dag.mirror).T
    return elimination_of(dag).after


def elimination_of(dag: Dag) -> Elimination:
    """The vertex elimination of a DAG, cached."""
    if ELIMINATED not in dag.known:
        with lock_of(dag):  # also held while the DAG is planned
            if ELIMINATED not in dag.known:
                dag.known[ELIMINATED] = elimination(dag)
    found: Elimination = dag.known[ELIMINATED]
    return found


def seconds_of(dag: Dag) -> float:
    """The estimated time of one product, cached."""
    return remembered(dag.known, SECONDS, lambda: seconds(dag))


def repays_elimination(dag: Dag, products: int) -> bool:
    """Whether elimination is done already, or takes no longer than `products` products."""
    if ELIMINATED in (dag.mirror or dag).known:
        return True
    return products * seconds_of(dag) >= ELIMINATING * len(dag.edges)


def repays_decision(dag: Dag, products: int) -> bool:
    """Whether `products` products may save more time than deciding what to multiply out takes."""
    return SAVED * repaying_products(products) * seconds_of(dag) > DECIDING * len(dag.edges)


def plan_of(dag: Dag) -> Dag | None:
    """The last plan of a DAG, if there is one."""
    found: tuple[Any, Dag | None] = dag.known.get(PLAN, (None, None))
    return found[1]


def new_edges(after: Dag, before: Dag) -> list[Edge]:
    """The edges whose operators were multiplied out."""
    known = {id(edge.operator) for edge in before.edges}
    return [edge for edge in after.edges if id(edge.operator) not in known]


def spent(after: Dag, before: Dag) -> int:
    """Bytes of all operators that were multiplied out."""
    return sum(edge.operator.nbytes for edge in new_edges(after, before))


def held(dag: Dag) -> Iterator[Array]:
    """The arrays of a DAG, and of the DAGs derived from it."""
    first = dag.mirror or dag
    yield from first.arrays()
    if ELIMINATED in first.known:
        yield from elimination_of(first).after.arrays()
    if found := plan_of(first):
        yield from found.arrays()


def plan(dag: Dag, *, products: int, memory: int | None = None) -> Dag:
    """The best DAG with the same matrix for a number of products.

    It takes at most `memory` bytes more than the given DAG, also while it is made. The default
    is four times the bytes of the given DAG, at least 1 GiB, but at most an eighth of the memory of
    the machine, whatever else runs there.
    """
    memory = spare(dag) if memory is None else memory
    if not repays_decision(dag, products):
        return dag
    products = repaying_products(products)
    found = narrowed(dag, dag.sinks, products, memory)
    return narrow_starts(found, dag.sources, products, memory - spent(found, dag))


def repaying_products(products: int) -> int:
    """The number of products within which a plan must pay, for a requested number.

    >>> [repaying_products(n) for n in (8, 100, 1000)]
    [8, 30, 100]
    """
    return min(products, max(REPAID, products // TRUSTED))


def narrow_starts(dag: Dag, ends: tuple[int, ...], products: int, memory: int) -> Dag:
    """Direct edges from some starts, where they pay: `narrowed` on the transpose."""
    last, mirrored = len(dag.shapes) - 1, dag.T
    found = narrowed(mirrored, tuple(last - end for end in ends), products, memory)
    if found is mirrored:
        return dag
    own = {id(edge.operator.T): edge.operator for edge in dag.edges}
    edges = (Edge(last - e.end, last - e.start, own.get(id(e.operator)) or e.operator.T)
             for e in found.edges)  # fmt: skip
    return Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype)


def spare(dag: Dag) -> int:
    """Bytes that a plan may take by default."""
    wanted = max(PLAN_BYTES, 4 * dag.nbytes)
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return wanted
    return min(wanted, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)


def narrowed(dag: Dag, ends: tuple[int, ...], products: int, memory: int) -> Dag:
    """Direct edges to some ends, for the vertices for which they pay.

    A direct edge is the sum over the paths from a vertex to an end that pass no other end.
    Paths through another end continue from there along the edges of the DAG, which are kept.
    """
    ends = tuple(dict.fromkeys(end for end in ends if any(e.end == end for e in dag.edges)))
    if not 0 < len(ends) <= ENDS:
        return dag
    paths = up_to(dag, ends)
    found = choose_vertices(paths, ends, products, memory)
    if found is None:
        return dag
    if (cost(dag) - cost(rewired(dag, found.hollow()))) * products <= found.setup:
        return dag
    try:
        return rewired(dag, list(direct_edges(paths, found, memory - found.nbytes)))
    except LimitError:  # a loop holds more than the model may, for so many cotangents at once
        return dag


def up_to(dag: Dag, ends: tuple[int, ...]) -> Dag:
    """The DAG with paths cut at the ends; vertices right behind an end become sources."""
    behind = [edge.end for edge in dag.edges if edge.start in ends]
    if not behind:
        return dag
    edges = (edge for edge in dag.edges if edge.start not in ends)
    sources, sinks = (*dag.sources, *behind), (*dag.sinks, *ends)
    return Dag(dag.shapes, edges, sources, sinks, dag.dtype)


def cost(dag: Dag) -> float:
    """Seconds of all edges."""
    return sum(seconds(edge.operator) for edge in dag.edges)


def direct_edges(dag: Dag, choice: Choice, room: int) -> Iterator[Edge]:
    """The direct edges, multiplied out by one sweep from each end."""
    by_end = defaultdict(list)
    for ways in choice.ways.values():
        for way in ways:
            by_end[way.sink].append(way)
    for end, to_end in by_end.items():
        operators = multiply_out(dag, to_end, choice.layouts[end], room)
        yield from (Edge(w.vertex, end, J) for w, J in zip(to_end, operators, strict=True))


def rewired(dag: Dag, direct: list[Edge]) -> Dag:
    """The DAG in which the starts of direct edges have no other edges."""
    starts = {edge.start for edge in direct}
    kept = [edge for edge in dag.edges if edge.start not in starts]
    return Dag(dag.shapes, (*kept, *direct), dag.sources, dag.sinks, dag.dtype)
