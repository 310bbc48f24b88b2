"""Planned: an operator made ready for many products, whatever it is composed of."""

from __future__ import annotations

from functools import singledispatch
from weakref import WeakKeyDictionary

from ...jacobians import Dag, Jacobian, Product, Sum
from .collapse import Collapse, collapse
from .plan import REPAID, Plan, plan

COLLAPSED: WeakKeyDictionary[Dag, Collapse] = WeakKeyDictionary()
PLANS: WeakKeyDictionary[Dag, tuple[tuple[int, int | None], Plan]] = WeakKeyDictionary()
"""What was made of a DAG last, as long as that lives: both directions share it."""


def eliminated(dag: Dag) -> Dag:
    """The DAG collapsed, once."""
    if dag.mirror is not None:
        return eliminated(dag.mirror).T
    return collapse_of(dag).after


def collapse_of(dag: Dag) -> Collapse:
    """What was eliminated from a DAG."""
    if dag not in COLLAPSED:
        COLLAPSED[dag] = collapse(dag)
    return COLLAPSED[dag]


def plan_of(dag: Dag) -> Plan | None:
    """What was multiplied out of a DAG last, if anything was."""
    return PLANS[dag][1] if dag in PLANS else None


@singledispatch
def planned(operator: Jacobian, products: int, memory: int | None = None) -> Jacobian:
    """The operator with its DAGs collapsed, and multiplied out where so many products repay it."""
    inner = operator.structure
    return operator if inner is operator else planned(inner, products, memory)


@planned.register
def _(operator: Dag, products: int, memory: int | None = None) -> Jacobian:
    if operator.mirror is not None:
        return planned(operator.mirror, products, memory).T
    asked = min(products, REPAID), memory
    if operator not in PLANS or PLANS[operator][0] != asked:
        made = plan(eliminated(operator), products=products, memory=memory)
        PLANS[operator] = asked, made
    return PLANS[operator][1].dag


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
