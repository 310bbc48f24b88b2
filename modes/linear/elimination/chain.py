"""Chain: products whose factors are commuted until factors that can merge are adjacent.

The table `rewrites` maps neighbouring factors to their replacement: one operator, or the same
operators in another order. Diagonals and scalars move to the smaller of two tensors, and past
layout operators towards the input. Matrices are never multiplied here: the planner decides that.
"""

from __future__ import annotations

from collections.abc import Callable

from ....jacobians import (
    BlockDiagonal,
    Broadcast,
    Contraction,
    Convolution,
    Dense,
    Embed,
    Inner,
    Jacobian,
    Kron,
    LowRank,
    Outer,
    Product,
    Scatter,
    Slice,
    SumTo,
    Take,
)
from ....jacobians.products import Rewrites, factors_of, merge

Factors = tuple[Jacobian, ...]
Rule = Callable[..., Factors | None]

rewrites = Rewrites()
"""Kinds of two or three neighbours -> the factors that take their place."""

MATRICES = {BlockDiagonal, Contraction, Convolution, Dense, Kron, LowRank}

TRANSPOSES: dict[type, type] = {
    Broadcast: SumTo, Inner: Outer, Outer: Inner, Slice: Embed, Take: Scatter
}  # fmt: skip
"""Kind -> the kind of its transpose, where it is a different one."""


def rewrites_both(*kinds: type) -> Callable[[Rule], Rule]:
    """Register a rule for A B, and its transpose for Bᵀ Aᵀ."""

    def register(rule: Rule) -> Rule:
        def transposed(*factors: Jacobian) -> Factors | None:
            given = {factor.T: factor for factor in reversed(factors)}
            found = rule(*given)
            return found and tuple(given.get(factor) or factor.T for factor in reversed(found))

        rewrites(*kinds)(rule)
        rewrites(*(TRANSPOSES.get(kind, kind) for kind in reversed(kinds)))(transposed)
        return rule

    return register


def product(left: Jacobian, right: Jacobian) -> Jacobian:
    """left · right, with neighbouring factors merged."""
    chain, others, unmoved = list(factors_of(left)), factors_of(right), 0
    for position, factor in enumerate(others):
        push(chain, factor)
        unmoved = unmoved + 1 if chain[-1] is factor else 0
        if unmoved == 2:  # the rest of `right` is merged with these already
            return as_product([*chain, *others[position + 1 :]])
    return as_product(chain)


def as_product(factors: list[Jacobian]) -> Jacobian:
    """One factor, or the product of several."""
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def push(chain: list[Jacobian], factor: Jacobian) -> None:
    """Append a factor; if it rewrites with the last ones, the result replaces them."""
    met, last = (meet(chain[-1], factor) if chain else None), 1
    if met is None and len(chain) > 1:
        met, last = rewrites.rewritten(*chain[-2:], factor), 2
    if met is None:
        chain.append(factor)
        return
    del chain[-last:]
    for part in met:
        push(chain, part)


def meet(left: Jacobian, right: Jacobian) -> Factors | None:
    """The factors that replace two neighbours, or None if they stay as they are."""
    if not (type(left) in MATRICES and type(right) in MATRICES):
        merged = merge(left, right)
        if merged is not None:
            return factors_of(merged)
    found: Factors | None = rewrites.rewritten(left, right)
    return found
