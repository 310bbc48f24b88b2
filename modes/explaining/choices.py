"""Choices: which way the products and the matrix of a Jacobian take, and why."""

from __future__ import annotations

from collections.abc import Iterator

from ...jacobians import Dag
from ..elimination.dense import orders
from ..elimination.plan import eliminated, elimination_of, plan_of
from ..reporting.units import bytes_text


def choices_of(dag: Dag) -> Iterator[str]:
    """One line for each decision."""
    if 0 in dag.shape or not dag.edges:
        yield "nothing to decide: no product takes any work"
        return
    yield f"elimination: {elimination_of(dag)!r}"
    yield f"multiplying out: {planning(dag)}"
    yield f"toarray(): {matrix(dag)}"


def planning(dag: Dag) -> str:
    """What was multiplied out, or why nothing was."""
    plan = plan_of(dag)
    if plan is None:
        return "not considered yet, since J has given few products; J.plan(products=) says how many"
    if not plan.steps:
        return "nothing, since no stretch would repay it"
    count = f"{len(plan.steps)} stretch{'es' * (len(plan.steps) > 1)}"
    return f"{count}, which hold {bytes_text(plan.nbytes)}"


def matrix(dag: Dag) -> str:
    """The order of least arithmetic, beside the others."""
    found = sorted(orders(eliminated(dag)), key=lambda order: order.flops)
    best, *others = (f"{order.name} {order.flops:.2g} flops" for order in found)
    legend = "J0, J1 … are the operators that elimination left, from wrt on"
    named = [legend] if any("J0" in order.name for order in found) else []
    return "; ".join([f"by {best}, the least", *others, *named])
