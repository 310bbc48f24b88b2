"""Planned: an operator made ready for many products, whatever it is composed of."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from ...jacobians import Dag, Jacobian, Product, Sum
from .collapse import Collapse, collapse
from .plan import REPAID, Plan, plan

COLLAPSE, PLAN = "collapse", "plan"
"""Keys of what was made of a DAG last. It is kept with the DAG, which it may hold itself, and goes
with it; both directions share it.
"""


def eliminated(dag: Dag) -> Dag:
    """The DAG collapsed, once."""
    if dag.mirror is not None:
        return eliminated(dag.mirror).T
    return collapse_of(dag).after


def collapse_of(dag: Dag) -> Collapse:
    """What was eliminated from a DAG."""
    if COLLAPSE not in dag.known:
        dag.known[COLLAPSE] = collapse(dag)
    found: Collapse = dag.known[COLLAPSE]
    return found


def plan_of(dag: Dag) -> Plan | None:
    """What was multiplied out of a DAG last, if anything was."""
    found: tuple[Any, Plan | None] = dag.known.get(PLAN, (None, None))
    return found[1]


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
    known, found = operator.known.get(PLAN, (None, None))
    if known != asked:
        found = plan(eliminated(operator), products=products, memory=memory)
        operator.known[PLAN] = asked, found
    dag: Dag = found.dag
    return dag


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
