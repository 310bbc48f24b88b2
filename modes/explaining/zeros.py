"""Zeros: the pairs of tensors that no differentiable path joins, told when J is made."""

from __future__ import annotations

from ...jacobians.errors import warn
from ..linearization import Linearization

ZEROS = "zeros"
"""Key of the pairs in what is known of a template."""


def warn_of_zeros(J: Linearization) -> None:
    """A warning that names the first of them, and what cuts the way."""
    if zeros := zeros_of(J):
        shown = "; ".join(zeros[:3]) + (f"; and {len(zeros) - 3} more" if zeros[3:] else "")
        warn(f"{shown}: zero blocks")


def zeros_of(J: Linearization) -> tuple[str, ...]:
    """The pairs in words; they are the same at all points of a template that asks no rule."""
    tape = J.tape
    known = tape.template.known if tape is not None and tape.template.closed else {}
    if ZEROS not in known:
        of, wrt = (tuple(s.name for s in side) for side in (J.codomain, J.domain))
        known[ZEROS] = J.route.zeros(J.dag, of, wrt)
    found: tuple[str, ...] = known[ZEROS]
    return found
