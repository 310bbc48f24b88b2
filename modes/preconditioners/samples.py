"""Samples: whether an operator acts within the samples of a batch, whatever it is composed of."""

from __future__ import annotations

from functools import reduce, singledispatch
from typing import Any

from ...jacobians import Dag, Jacobian, Product, Sum
from ..elimination.samples import Batch, layouts, within
from ..sparse.faces import bare


def within_samples(operator: Any, batch: Batch) -> bool:
    """Whether y = A x keeps the samples apart, and where they were."""
    return isinstance(operator, Jacobian) and after(operator, batch) == batch


@singledispatch
def after(operator: Jacobian, batch: Batch) -> Batch | None:
    """The samples of y, from those of x; None where they may mix."""
    behind = bare(operator)
    return within(operator, batch) if behind is operator else after(behind, batch)


@after.register
def _(operator: Product, batch: Batch) -> Batch | None:
    """From factor to factor."""
    steps = reversed(operator.factors)
    return reduce(lambda known, factor: known and after(factor, known), steps, batch)  # type: ignore[arg-type,return-value]


@after.register
def _(operator: Sum, batch: Batch) -> Batch | None:
    """Where all terms agree."""
    first, *others = (after(term, batch) for term in operator.terms)
    return first if all(other == first for other in others) else None


@after.register
def _(operator: Dag, batch: Batch) -> Batch | None:
    """Between one source and one sink; the samples of the sink are found backwards."""
    if len(operator.sources) != 1 or len(operator.sinks) != 1:
        return None
    (source,), (sink,) = operator.sources, operator.sinks
    for inner in range(1, operator.shape[0] // batch.count + 1):
        candidate = Batch(batch.count, inner)
        fits = operator.shape[0] % (batch.count * inner) == 0
        if fits and layouts(operator, sink, candidate).get(source) == batch:
            return candidate
    return None
