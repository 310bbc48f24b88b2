"""Unwrap: the operator inside a wrapper that only adds names, an engine or a plan."""

from __future__ import annotations

from functools import singledispatch

from ...jacobians import Jacobian
from ..hessian import Hessian
from ..linear.elimination.adaptive import Adaptive
from ..linear.linearization import Linearization
from ..linear.products.compiled import Compiled
from ..linear.symmetric import Symmetric
from ..linear.tape.tape import Tape


@singledispatch
def unwrap(operator: Jacobian) -> Jacobian:
    """The operator without wrappers, with its arrays as the rules placed them."""
    return operator


@unwrap.register
def _(operator: Linearization | Adaptive) -> Jacobian:
    return operator.dag


@unwrap.register
def _(operator: Compiled | Hessian | Symmetric) -> Jacobian:
    return unwrap(operator.operator)


def tape_of(operator: Jacobian) -> Tape | None:
    """The tape of a model's Jacobian; None for another operator."""
    J = operator.J if isinstance(operator, Hessian) else operator
    return J.tape if isinstance(J, Linearization) else None
