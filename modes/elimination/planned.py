"""Planned: an operator made ready for many products, whatever it is composed of."""

from __future__ import annotations

from functools import singledispatch
from weakref import WeakKeyDictionary

from ...jacobians import Dag, Jacobian, Product, Sum
from .collapse import collapsed
from .plan import multiplied_out

COLLAPSED: WeakKeyDictionary[Dag, Dag] = WeakKeyDictionary()
PLANS: WeakKeyDictionary[Dag, dict[tuple[int, int | None], Dag]] = WeakKeyDictionary()
"""What was made of a DAG, as long as that lives: both directions share it."""


def eliminated(dag: Dag) -> Dag:
    """The DAG collapsed, once."""
    if dag.mirror is not None:
        return eliminated(dag.mirror).T
    if dag not in COLLAPSED:
        COLLAPSED[dag] = collapsed(dag)
    return COLLAPSED[dag]


@singledispatch
def planned(operator: Jacobian, products: int, memory: int | None = None) -> Jacobian:
    """The operator with its DAGs collapsed, and multiplied out where so many products repay it."""
    inner = operator.structure
    return operator if inner is operator else planned(inner, products, memory)


@planned.register
def _(operator: Dag, products: int, memory: int | None = None) -> Jacobian:
    if operator.mirror is not None:
        return planned(operator.mirror, products, memory).T
    plans = PLANS.setdefault(operator, {})
    if (products, memory) not in plans:
        ready = eliminated(operator)
        plans[products, memory] = multiplied_out(ready, products=products, memory=memory)
    return plans[products, memory]


@planned.register
def _(operator: Product, products: int, memory: int | None = None) -> Jacobian:
    """The memory is shared out evenly."""
    factors = operator.factors
    share = None if memory is None else memory // len(factors)
    return Product(tuple(planned(factor, products, share) for factor in factors))


@planned.register
def _(operator: Sum, products: int, memory: int | None = None) -> Jacobian:
    share = None if memory is None else memory // len(operator.terms)
    return Sum(tuple(planned(term, products, share) for term in operator.terms))
