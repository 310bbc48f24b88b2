"""Chain: products whose factors trade places until those that can merge stand side by side.

The table `SWAPS` says what two neighbours become: one operator, or two in the other order.
Diagonals and scalars go to the smaller of two tensors; past a layout they go towards the input.
Matrices are never multiplied here: that is for the planner to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...jacobians import (
    BlockDiagonal,
    Contraction,
    Convolution,
    Dense,
    Diagonal,
    Jacobian,
    Kron,
    LowRank,
    Permutation,
    Product,
    Reshape,
    Scalar,
    shape_of,
    size,
)
from ...jacobians.products import factors_of, merge
from .deferred import numbers_of

Factors = tuple[Jacobian, ...]
Swap = Callable[[Any, Any], Factors | None]
SWAPS: dict[tuple[type, type], Swap] = {}
"""(left kind, right kind) -> the factors that take their place, or None."""

MATRICES = {BlockDiagonal, Contraction, Convolution, Dense, Kron, LowRank}

F = TypeVar("F", bound=Swap)


def swaps(left: type, right: type) -> Callable[[F], F]:
    """Register what two neighbours become."""

    def register(function: F) -> F:
        SWAPS[left, right] = function
        return function

    return register


def product(left: Jacobian, right: Jacobian) -> Jacobian:
    """left · right, in few factors."""
    chain, others = list(factors_of(left)), factors_of(right)
    for position, factor in enumerate(others):
        push(chain, factor)
        if chain[-1] is factor:  # what follows is settled with it already
            return as_product([*chain, *others[position + 1 :]])
    return as_product(chain)


def as_product(factors: list[Jacobian]) -> Jacobian:
    """One factor, or the product of several."""
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def push(chain: list[Jacobian], factor: Jacobian) -> None:
    """Append a factor; what it and the last one become is appended in their place."""
    met = meet(chain[-1], factor) if chain else None
    if met is None:
        chain.append(factor)
        return
    chain.pop()
    for part in met:
        push(chain, part)


def meet(left: Jacobian, right: Jacobian) -> Factors | None:
    """What two neighbours become, or None if they stay as they are."""
    if not (type(left) in MATRICES and type(right) in MATRICES):
        merged = merge(left, right)
        if merged is not None:
            return factors_of(simple(merged))
    swap = SWAPS.get((type(left), type(right)))
    return swap(left, right) if swap else None


def simple(operator: Jacobian) -> Jacobian:
    """A diagonal of one number as a scalar; a permutation of axes of length 1 as a reshape."""
    if type(operator) is Diagonal and size(shape_of(operator.d)) == 1:
        return Scalar(numbers_of(operator.d).item(), operator.out_shape, operator.dtype)
    if type(operator) is not Permutation:
        return operator
    moved = [k for k in operator.perm if operator.in_shape[k] != 1]
    if moved != sorted(moved):
        return operator
    return Reshape(operator.out_shape, operator.in_shape, operator.dtype)
