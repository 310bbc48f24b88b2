"""Composition: the operators inside a symmetric operator, and the call that made it."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...jacobians import Jacobian
from ...jacobians.products import factors_of
from ...jacobians.sums import terms_of
from ..linear.linearization import Linearization


def origin(C: Jacobian) -> Jacobian:
    """The operator before it was planned, compiled, scaled, cut or damped."""
    again = getattr(C, "again", None)
    while isinstance(again, partial) and again.args and isinstance(again.args[0], Jacobian):
        C = again.args[0]
        again = getattr(C, "again", None)
    return C


def inner(C: Jacobian) -> Jacobian:
    """The operator without its names."""
    found = getattr(C, "operator", C)
    return found if isinstance(found, Jacobian) else C


def linearized(C: Jacobian) -> tuple[Linearization, ...]:
    """The Jacobians of a model among the factors, not their transposes."""
    factors = (factor for term in terms_of(inner(C)) for factor in factors_of(term))
    return tuple(J for J in factors if isinstance(J, Linearization) and not J.transposed)


def maker(C: Jacobian) -> tuple[str, dict[str, Any]]:
    """The name of the function that made an operator, and its options; empty if unknown."""
    again = getattr(C, "again", None)
    if not isinstance(again, partial) or not again.keywords:
        return "", {}
    return again.func.__name__, dict(again.keywords)
