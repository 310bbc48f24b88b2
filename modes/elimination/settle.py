"""Settle: an operator as it was declared, brought to the form that its neighbours can meet."""

from __future__ import annotations

from functools import reduce

from ...jacobians import Jacobian, Product, Sum
from .chain import product, simple
from .terms import plus


def settled(operator: Jacobian) -> Jacobian:
    """Products and sums rebuilt from their parts, so that these meet."""
    if isinstance(operator, Product):
        return reduce(product, map(settled, operator.factors))
    if isinstance(operator, Sum):
        return plus(*map(settled, operator.terms))
    return simple(operator)
