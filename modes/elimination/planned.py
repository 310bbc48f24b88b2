"""Planned: an operator made ready for many products, whatever it is composed of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

from ...jacobians import Array, Dag, Jacobian, Product, Sum
from ..support.locks import Lock
from .collapse import Collapse, collapse
from .cost import COLLAPSING, DECIDING, SAVED, seconds
from .plan import Plan, counted, plan

COLLAPSE, PLAN, SECONDS, LOCK = "collapse", "plan", "seconds", "lock"
"""Keys of what was made of a DAG last. It is kept with the DAG, which it may hold itself, and goes
with it; both directions share it.
"""


def lock_of(dag: Dag) -> Lock:
    """What lets one thread at a time work something out of a DAG or its transpose."""
    known = (dag.mirror or dag).known
    lock: Lock = known.get(LOCK) or known.setdefault(LOCK, Lock())
    return lock


def eliminated(dag: Dag) -> Dag:
    """The DAG collapsed, once."""
    if dag.mirror is not None:
        return eliminated(dag.mirror).T
    return collapse_of(dag).after


def collapse_of(dag: Dag) -> Collapse:
    """What was eliminated from a DAG."""
    with lock_of(dag):
        if COLLAPSE not in dag.known:
            dag.known[COLLAPSE] = collapse(dag)
        found: Collapse = dag.known[COLLAPSE]
        return found


def seconds_of(dag: Dag) -> float:
    """The estimated time of one product, worked out once."""
    if SECONDS not in dag.known:
        dag.known[SECONDS] = seconds(dag)
    found: float = dag.known[SECONDS]
    return found


def repays_elimination(dag: Dag, products: int) -> bool:
    """Whether a DAG is eliminated already, or so many products take as long as that does."""
    if COLLAPSE in (dag.mirror or dag).known:
        return True
    return products * seconds_of(dag) >= COLLAPSING * len(dag.edges)


def repays_decision(dag: Dag, products: int) -> bool:
    """Whether so many products may save the time that it takes to decide what to multiply out."""
    return SAVED * counted(products) * seconds_of(dag) > DECIDING * len(dag.edges)


def plan_of(dag: Dag) -> Plan | None:
    """What was multiplied out of a DAG last, if anything was."""
    found: tuple[Any, Plan | None] = dag.known.get(PLAN, (None, None))
    return found[1]


def held(dag: Dag) -> Iterator[Array]:
    """The arrays of a DAG and of what was made of it."""
    first = dag.mirror or dag
    yield from first.arrays()
    if COLLAPSE in first.known:
        yield from collapse_of(first).after.arrays()
    if found := plan_of(first):
        yield from found.dag.arrays()


@singledispatch
def planned(operator: Jacobian, products: int, memory: int | None = None) -> Jacobian:
    """The operator with its DAGs collapsed, and multiplied out where so many products repay it."""
    inner = operator.structure
    return operator if inner is operator else planned(inner, products, memory)


@planned.register
def _(operator: Dag, products: int, memory: int | None = None) -> Jacobian:
    if operator.mirror is not None:
        return planned(operator.mirror, products, memory).T
    if not repays_decision(dag := eliminated(operator), products):
        return dag
    asked = counted(products), memory
    with lock_of(operator):
        known, found = operator.known.get(PLAN, (None, None))
        if known != asked:
            found = plan(dag, products=products, memory=memory)
            operator.known[PLAN] = asked, found
    planned_dag: Dag = found.dag
    return planned_dag


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
