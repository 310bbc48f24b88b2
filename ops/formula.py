"""Formulas: SymPy turns a line of mathematics into a derivative made of vocabulary calls.

A formula is text in the names of the inputs, `Y` (the output) and the operator's attributes. SymPy
is imported only when the first derivative is requested.
"""

from __future__ import annotations

from functools import cache

from .trees import INPUTS, Tree


@cache
def derivative(formula: str, variable: str) -> Tree:
    """∂formula/∂variable as a tree, in a stable form."""
    from .symbols import formulas

    return formulas.tree(formulas.derive(formulas.parse(formula), variable))


@cache
def derivative_of_sum(outer: str, inner: str) -> Tree:
    """∂Y/∂x for Y = outer(s) and s = Σ inner(x), as a tree in x and Y."""
    from .symbols import formulas

    return formulas.tree(formulas.derive_sum(*map(formulas.parse, (outer, inner))))


@cache
def value(formula: str) -> Tree:
    """A formula as a tree, in a stable form."""
    from .symbols import formulas

    return formulas.tree(formulas.stable(formulas.parse(formula)))


def variables(formula: str) -> tuple[str, ...]:
    """The inputs `x`, `y` and `z` that a formula uses.

    >>> variables("x**y")
    ('x', 'y')
    """
    words = "".join(c if c.isalnum() or c == "_" else " " for c in formula).split()
    return tuple(name for name in INPUTS if name in words)
