"""Sweep: an operator applied to a sparse matrix, as `_apply` does to a vector.

What a sparse matrix is, is left open: one with symbolic numbers, one of booleans, or an estimate
of how many entries there would be. Composites are taken apart; what is left is `under`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce, singledispatch
from itertools import accumulate, pairwise
from operator import add
from typing import Any, Protocol, Self, TypeVar

from ...jacobians import Block, Cast, Dag, Identity, Jacobian, Product, Reshape, Sum, size


class Matrix(Protocol):
    """A sparse matrix: what a sweep needs of it."""

    def under(self, operator: Jacobian) -> Self:
        """operator · A for an operator that is no composite."""

    def __add__(self, other: Self, /) -> Self: ...

    def part(self, start: int, stop: int) -> Self:
        """The rows from start to stop."""


M = TypeVar("M", bound=Matrix)
Stack = Callable[[list[M], Any], M]


@singledispatch
def swept(operator: Jacobian, A: Any, stack: Any) -> Any:
    """operator · A; `stack` puts matrices on top of each other."""
    return A.under(operator)


@swept.register(Identity)
@swept.register(Cast)
@swept.register(Reshape)
def _(operator: Jacobian, A: Any, stack: Any) -> Any:
    return A


@swept.register
def _(operator: Product, A: Any, stack: Any) -> Any:
    return reduce(lambda A, factor: swept(factor, A, stack), reversed(operator.factors), A)


@swept.register
def _(operator: Sum, A: Any, stack: Any) -> Any:
    return reduce(add, (swept(term, A, stack) for term in operator.terms))


@swept.register
def _(operator: Block, A: Any, stack: Any) -> Any:
    return swept(operator.dag, A, stack)


@swept.register
def _(operator: Dag, A: Any, stack: Any) -> Any:
    """Forward over the vertices; a matrix is let go after its last use."""
    at: dict[int, Any] = {}
    sizes = [size(operator.shapes[i]) for i in operator.sources]
    for i, (start, stop) in zip(operator.sources, pairwise(accumulate(sizes, initial=0)), strict=True):
        gather(at, i, A.part(start, stop))
    for edge in operator.edges:
        if edge.start in at:
            gather(at, edge.end, swept(edge.operator, at[edge.start], stack))
    return stack([(at.get(i), size(operator.shapes[i])) for i in operator.sinks], A)
