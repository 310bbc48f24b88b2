"""Formulas: a line of mathematics becomes, by SymPy, a derivative in calls of the vocabulary.

A formula is text in `x`, `y`, `z` (the inputs, in order), `Y` (the output) and the operator's
attributes. SymPy is imported when the first derivative is asked for, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

Tree = float | str | tuple[Any, ...]
"""A number, a name, or (vocabulary operator, *arguments)."""

INPUTS = ("x", "y", "z")


def evaluate(op: Any, tree: Tree, values: Mapping[str, Any]) -> Any:
    """The value of a tree in the reading `op`; equal subtrees are computed once."""
    done: dict[Tree, Any] = {}

    def value(node: Tree) -> Any:
        if isinstance(node, str):
            return values[node]
        if not isinstance(node, tuple):
            return node
        if node not in done:
            done[node] = getattr(op, node[0])(*map(value, node[1:]))
        return done[node]

    return value(tree)


@cache
def derivative(formula: str, variable: str, given: str | None = None) -> Tree:
    """∂formula/∂variable as a tree; a stable form given by hand replaces the one SymPy derives."""
    from . import symbols

    if given is not None:
        return symbols.tree(symbols.parse(given))
    return symbols.tree(symbols.derive(symbols.parse(formula), variable))


def variables(formula: str) -> tuple[str, ...]:
    """The inputs that a formula speaks of.

    >>> variables("x**y")
    ('x', 'y')
    """
    words = "".join(c if c.isalnum() or c == "_" else " " for c in formula).split()
    return tuple(name for name in INPUTS if name in words)
