"""Chosen: entries that an operator does not select have no part in J, whatever their derivative.

Where(c, √x, 0) ignores √x where c is false, and so must J: 0 · ∞ would be NaN. A diagonal that
`chooses` drops the entries where it is 0. Dropped entries are followed towards inputs and outputs,
through operators that keep entries apart, and their derivatives there are set to 0 in J itself, so
that products, plans, compiled programs and recorded graphs agree. An exact 0 that results from
arithmetic, as exp(x) = 0, drops nothing: 0 · ∞ is NaN there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import is_not

import numpy as np

from .arrays import SINGLE, Array, Op, is_recorded
from .base import Jacobian
from .dag import Dag, Edge
from .elementwise import Cast, Diagonal, Identity, Scalar
from .layout import Broadcast, Embed, Permutation, Reshape, Scatter, Slice, SumTo, Take
from .products import Product
from .sums import Sum

SAME = Identity | Scalar | Cast
MOVES = Reshape | Permutation | Broadcast | SumTo | Slice | Embed | Take | Scatter


Chosen = Array | None
"""A boolean mask of the entries of a tensor that count, or None for all."""


def chosen(op: Op, dag: Dag) -> Dag:
    """The DAG with zero derivatives for entries that reach no output, or that no input reaches.

    For NumPy arrays, diagonals of finite numbers are unchanged. The numbers in a graph are unknown:
    there, every diagonal is masked, unless it is constant or part of a sum. `op` is the vocabulary
    of the arrays in `dag`.
    """
    if not has_choices(dag) or not any(map(may_be_infinite, diagonals_in(dag))):
        return dag
    edges = followed(op, dag.edges[::-1], dag.sinks, forward=False)
    edges = followed(op, edges[::-1], dag.sources, forward=True)
    return Dag(dag.shapes, edges, dag.sources, dag.sinks, dag.dtype)


def has_choices(dag: Dag) -> bool:
    """Whether some operator drops entries."""
    return any(d.chooses for d in diagonals_in(dag))


def followed(op: Op, edges: Sequence[Edge], ends: tuple[int, ...], *, forward: bool) -> list[Edge]:
    """Edges in order, with zero derivatives for entries that no path joins to an end."""
    counting: dict[int, list[Chosen]] = {end: [None] for end in ends}
    made = []
    for edge in edges:
        near, far = (edge.start, edge.end) if forward else (edge.end, edge.start)
        operator = edge.operator.T if forward else edge.operator
        found, beyond = follow(op, operator, either(op, counting[near]))
        counting.setdefault(far, []).append(beyond)
        same = found is operator
        made.append(edge if same else replace(edge, operator=found.T if forward else found))
    return made


def diagonals_in(operator: Jacobian) -> Iterator[Diagonal]:
    """The diagonals among the factors and terms of an operator, or of all edges."""
    if isinstance(operator, Diagonal):
        yield operator
    elif isinstance(operator, Product | Sum | Dag):
        for part in operator.contents():
            yield from diagonals_in(part)


def may_be_infinite(d: Diagonal) -> bool:
    """Whether some entry is not finite; true for a graph value that is not constant."""
    if is_recorded(d.d):
        return d.d.const_value is None
    return not bool((abs(d.d) < np.inf).all())


def follow(op: Op, operator: Jacobian, mine: Chosen) -> tuple[Jacobian, Chosen]:
    """The operator, masked to the entries of y that count, and the entries of x that then count."""
    if isinstance(operator, SAME):
        return operator, mine
    if isinstance(operator, MOVES):
        return operator, None if mine is None else moved(op, operator, mine)
    if isinstance(operator, Diagonal):
        before = kept(op, operator, mine) if operator.chooses else mine
        return operator if mine is None else masked(op, operator, mine), before
    if isinstance(operator, Product):
        factors = []
        for factor in operator.factors:
            factor, mine = follow(op, factor, mine)
            factors.append(factor)
        changed = any(map(is_not, factors, operator.factors))
        return Product(tuple(factors)) if changed else operator, mine
    if isinstance(operator, Sum) and not any(map(is_recorded, operator.arrays())):
        pairs = [follow(op, term, mine) for term in operator.terms]
        terms = [term for term, _ in pairs]
        changed = any(map(is_not, terms, operator.terms))
        return Sum(tuple(terms)) if changed else operator, either(op, [c for _, c in pairs])
    return operator, None


def masked(op: Op, d: Diagonal, mine: Array) -> Diagonal:
    """The diagonal with 0 at entries that do not count, if it may have non-finite entries."""
    if not may_be_infinite(d):
        return d
    return Diagonal(op.Where(mine, d.d, op.CastLike(0.0, d.d)), d.out_shape, chooses=d.chooses)


def kept(op: Op, d: Diagonal, mine: Chosen) -> Array:
    """The entries of x that count for a diagonal that chooses."""
    found = op.Not(op.Equal(d.d, op.CastLike(0.0, d.d)))
    return found if mine is None else op.And(mine, found)


def moved(op: Op, J: Jacobian, mine: Array) -> Array:
    """The entries of x that count where y = J x moves or sums entries."""
    ones = op.CastLike(op.Expand(mine, J.out_shape), np.zeros((), SINGLE))
    return op.Greater(J.T._apply(op, ones), np.zeros((), SINGLE))


def either(op: Op, several: Iterable[Chosen]) -> Chosen:
    """The entries that count for at least one of several users."""
    found = {id(mine): mine for mine in several}
    return None if id(None) in found else reduce(op.Or, found.values())
