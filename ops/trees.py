"""Trees: formulas ready for evaluation in any reading of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Tree = float | str | tuple[Any, ...]
"""A number, a name, or (vocabulary operator, *arguments)."""

INPUTS = ("x", "y", "z")


def evaluate(op: Any, tree: Tree, values: Mapping[str, Any], dtype: np.dtype) -> Any:
    """The value of a tree in the reading `op`; equal subtrees are computed once.

    Numbers become scalars of `dtype`, so that the result has that dtype; a tree that is one
    number stays a Python float.
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
