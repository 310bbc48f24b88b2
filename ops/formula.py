"""Formulas: SymPy turns a line of mathematics into a derivative made of vocabulary calls.

A formula is text in `x`, `y`, `z` (the inputs, in order), `Y` (the output) and the operator's
attributes. SymPy is imported only when the first derivative is requested.
"""

from __future__ import annotations

from functools import cache

from .trees import INPUTS, Tree


@cache
def derivative(formula: str, variable: str, given: str | None = None) -> Tree:
    """∂formula/∂variable as a tree; a stable form given by hand replaces the one SymPy derives."""
    from .symbols import formulas

    if given is not None:
        return formulas.tree(formulas.parse(given))
    return formulas.tree(formulas.derive(formulas.parse(formula), variable))


def variables(formula: str) -> tuple[str, ...]:
    """The inputs that a formula uses.

    >>> variables("x**y")
    ('x', 'y')
    """
    words = "".join(c if c.isalnum() or c == "_" else " " for c in formula).split()
    return tuple(name for name in INPUTS if name in words)
