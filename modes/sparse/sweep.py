"""Sweep: an operator applied to a sparse matrix; and how a method finds the entries of one.

The matrix may hold symbolic numbers or booleans, or only estimate its number of entries. Composites
are taken apart here; a matrix has a method `under` for all other operators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from functools import reduce, singledispatch
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from ...jacobians import Block, Cast, Dag, Identity, Jacobian, Product, Reshape, Sum, size
from ...jacobians.closed import all_numbers
from ...jacobians.placing import HOST, placed
from ...jacobians.progress import counted
from ..hessian import Hessian
from ..linear.derivatives.point import Point
from ..linear.elimination.adaptive import Adaptive
from ..linear.linearization import Linearization
from ..linear.products.compiled import Compiled
from ..linear.symmetric import Symmetric

PASSED = Identity | Cast | Reshape
"""The operators that a sweep passes by."""


class Matrix(ABC):
    """A sparse matrix that a sweep multiplies from the left."""

    @abstractmethod
    def under(self, operator: Jacobian) -> Self:
        """operator · A for an operator that is not composed of others."""

    @abstractmethod
    def plus(self, others: list[Self]) -> Self:
        """A + B + …"""

    @abstractmethod
    def part(self, start: int, stop: int) -> Self:
        """The rows from start to stop."""

    @abstractmethod
    def zeros(self, rows: int) -> Self:
        """A matrix with the same columns and without entries."""

    @abstractmethod
    def stacked(self, parts: list[Self]) -> Self:
        """Matrices with the same columns, stacked vertically."""


@singledispatch
def sweep_matrix(operator: Jacobian, A: Any) -> Any:
    """operator · A."""
    behind = unwrap(operator)
    return A.under(operator) if behind is operator else sweep_matrix(behind, A)


@sweep_matrix.register
def _(operator: PASSED, A: Any) -> Any:
    return A


@sweep_matrix.register
def _(operator: Product, A: Any) -> Any:
    return reduce(lambda A, factor: sweep_matrix(factor, A), reversed(operator.factors), A)


@sweep_matrix.register
def _(operator: Sum, A: Any) -> Any:
    return sum_matrices([sweep_matrix(term, A) for term in operator.terms])


@sweep_matrix.register
def _(operator: Block, A: Any) -> Any:
    return sweep_matrix(operator.dag, A)


@sweep_matrix.register
def _(operator: Dag, A: Any) -> Any:
    """Forward over the vertices; each is summed at its first use and freed after its last."""
    arriving = defaultdict(list)
    ends = accumulate((size(operator.shapes[i]) for i in operator.sources), initial=0)
    for i, (start, stop) in zip(operator.sources, pairwise(ends), strict=True):
        arriving[i].append(A.part(start, stop))
    last = {edge.start: edge for edge in operator.edges}
    for edge in counted(operator.edges, "sparse matrix", "operators"):
        tangent = sum_matrices(arriving[edge.start])
        arriving[edge.start] = [tangent]
        arriving[edge.end].append(sweep_matrix(edge.operator, tangent))
        if last[edge.start] is edge and edge.start not in operator.sinks:
            del arriving[edge.start]
    reached = (sum_matrices(arriving[i]) if arriving[i] else A.zeros(size(operator.shapes[i]))
               for i in operator.sinks)  # fmt: skip
    return A.stacked(list(reached))


def sum_matrices(parts: list[Any]) -> Any:
    """The sum of one or more matrices."""
    first, *others = parts
    return first.plus(others) if others else first


def everything_in(operator: Jacobian) -> Iterator[Jacobian]:
    """The operator and all operators that it is composed of."""
    yield operator
    for part in composite_parts(operator):
        yield from everything_in(part)


def composite_parts(operator: Jacobian) -> tuple[Jacobian, ...]:
    """The operators that a composite is composed of; empty for other operators."""
    if not isinstance(operator, Product | Sum | Block | Dag):
        return ()
    return tuple(part for part in operator.contents() if part is not None)


def unwrapped_leaves(operator: Jacobian) -> Iterator[Jacobian]:
    """The operators that an operator is composed of, without composites and wrappers."""
    behind = strip_wrappers(operator)
    inner = composite_parts(operator) if behind is operator else (behind,)
    if not inner:
        yield operator
    for part in inner:
        yield from unwrapped_leaves(part)


# -- methods: ways to find the entries of a sparse Jacobian, which serve many points ---------------


class Method(ABC):
    """The entries of any operator with a `pattern`, in the order of the sorted pattern.

    By default a method works for every operator with the pattern, and needs the operator itself.
    """

    pattern: csr_array[Any]

    def fits(self, operator: Jacobian) -> bool:
        """Whether the method works for an `operator` of the same structure."""
        return True

    def knows(self, point: Point | None) -> bool:
        """Whether the residuals at a point, `point`, suffice, whatever the operators are."""
        return False

    def learn(self, operator: Jacobian, point: Point | None) -> None:  # noqa: B027 - may do nothing
        """Take note of an `operator` that fits, and of its residuals, `point`."""

    @abstractmethod
    def values(self, operator: Jacobian) -> np.ndarray:
        """The entries of an `operator`."""

    def write(self, operator: Jacobian, out: np.ndarray) -> None:
        """Write at least the entries of an `operator` that may vary into `out`."""
        out[:] = self.values(operator)


def unwrap(operator: Jacobian) -> Jacobian:
    """The operator without wrappers, over NumPy arrays."""
    behind = strip_wrappers(operator)
    return behind if getattr(behind, "place", None) is None else placed(behind, HOST)


def alike(operator: Jacobian) -> Jacobian:
    """The operator without wrappers: where its arrays are, if that is one place, else NumPy's."""
    found = strip_wrappers(operator)
    return found if all_numbers(found) else unwrap(found)


@singledispatch
def strip_wrappers(operator: Jacobian) -> Jacobian:
    """The operator without wrappers, over arrays where they are."""
    return operator


@strip_wrappers.register
def _(operator: Linearization) -> Jacobian:
    return operator.there


@strip_wrappers.register
def _(operator: Adaptive) -> Jacobian:
    return operator.dag


@strip_wrappers.register
def _(operator: Compiled | Hessian | Symmetric) -> Jacobian:
    return strip_wrappers(operator.operator)


def point_behind(operator: Jacobian) -> Point | None:
    """The point of a model's Jacobian; None for another operator."""
    J = operator.J if isinstance(operator, Hessian) else operator
    return J.at if isinstance(J, Linearization) else None
