"""Formulas: a line of mathematics becomes, by SymPy, a derivative in calls of the vocabulary.

A formula is text in `x`, `y`, `z` (the inputs, in order), `Y` (the output) and the operator's
attributes. SymPy is imported when the first derivative is asked for, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

Tree = float | str | tuple[Any, ...]
"""A number, a name, or (vocabulary operator, *arguments)."""

INPUTS = ("x", "y", "z")


def evaluate(op: Any, tree: Tree, values: Mapping[str, Any], dtype: np.dtype) -> Any:
    """The value of a tree in the reading `op`; equal subtrees are computed once.

    Numbers become scalars of `dtype`, so that the result has it too; a tree that is one number
    stays a Python float.
    """
    done: dict[Tree, Any] = {}

    def value(node: Tree) -> Any:
        if isinstance(node, str):
            known = values[node]
            return np.asarray(known, dtype) if isinstance(known, float | int) else known
        if not isinstance(node, tuple):
            return np.asarray(node, dtype)
        if node not in done:
            done[node] = getattr(op, node[0])(*map(value, node[1:]))
        return done[node]

    return tree if isinstance(tree, float) else value(tree)


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
