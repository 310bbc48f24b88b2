"""Trees: formulas, and nested sums of formulas, ready for any reading of the vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ..jacobians import Op
from .numbers import numbers

Tree = float | str | tuple[Any, ...]
"""A number, a name, or (vocabulary operator, *arguments)."""

INPUTS = ("x", "y", "z")

SHARE = "softmax of Y"
"""The name of exp(term) / Σ exp(term) in the slopes of Y = log Σ exp(term)."""

TREE_ENTRIES = 2**17
"""Entries that are computed at a time, so that their intermediate results stay in the cache."""


def evaluate_tree(op: Op, tree: Tree, values: Mapping[str, Any], dtype: np.dtype) -> Any:
    """The value of a tree in the reading `op`; equal subtrees are computed once.

    Numbers become scalars of `dtype`, so that the result has that dtype; a tree that is one
    number stays a Python float.
    """
    arrays = {name: x for name, x in values.items() if np.ndim(x)} if op is numbers else {}
    shapes = {x.shape for x in arrays.values()}
    if len(shapes) == 1 and (n := prod(*shapes)) > TREE_ENTRIES and isinstance(tree, tuple):
        made, flat = np.empty(n, dtype), {name: x.reshape(-1) for name, x in arrays.items()}
        for k in range(0, n, TREE_ENTRIES):
            part = {name: x[k : k + TREE_ENTRIES] for name, x in flat.items()}
            made[k : k + TREE_ENTRIES] = evaluate_tree(op, tree, {**values, **part}, dtype)
        return made.reshape(*shapes)
    if isinstance(tree, float):
        return tree
    return evaluate_node(op, tree, values, dtype, dict(count_uses(tree)), {})


def evaluate_node(
    op: Op, node: Tree, values: Mapping[str, Any], dtype: np.dtype, left: dict[Tree, int],
    done: dict[Tree, Any],
) -> Any:  # fmt: skip
    """The value of a subtree that is read so many times more, `left`, or is `done` already.

    It is no closure that calls itself, which would keep the values until Python looks for cycles.
    """
    if isinstance(node, str):
        known = values[node]
        return np.asarray(known, dtype) if isinstance(known, float | int) else known
    if not isinstance(node, tuple):
        return np.asarray(node, dtype)
    left[node] -= 1
    if node in done:
        made = done.pop(node)
    else:
        parts = (evaluate_node(op, part, values, dtype, left, done) for part in node[1:])
        made = getattr(op, node[0])(*parts)
    if left[node]:  # else its memory is free for the next result
        done[node] = made
    return made


@cache
def count_uses(tree: Tree) -> Mapping[Tree, int]:
    """How often each subtree is an operand where equal subtrees are computed once."""
    found, waiting = Counter([tree]), [tree]
    for node in waiting:
        for part in node[1:] if isinstance(node, tuple) else ():
            waiting += [part] * (part not in found)
            found[part] += 1
    return found


@cache
def names(tree: Tree) -> frozenset[str]:
    """The names in a tree.

    >>> sorted(names(("Mul", "x", ("Exp", "Y"))))
    ['Y', 'x']
    """
    if isinstance(tree, tuple):
        return frozenset[str]().union(*map(names, tree[1:]))
    return frozenset([tree] if isinstance(tree, str) else [])


@dataclass(frozen=True)
class Piece:
    """A formula, the names by which it is differentiated, and whether its value is at hand."""

    text: str
    names: tuple[str, ...]
    known: bool = True


# -- index notation --------------------------------------------------------------------------------

Labels = tuple[str, ...]

REST = "..."
"""The label of `x[...]`: as many of the last indices of the output as x has axes."""

WHOLE = ":"
"""The label of `x[:]`: all entries in row-major order."""

Index = Any
"""A label; the factors of labels in an affine expression, its constant under ""; or an `Access`."""


@dataclass(frozen=True, eq=False)
class Access:
    """An input at some indices; `plain` where these are distinct indices and nothing else."""

    name: str
    indices: tuple[Index, ...]
    labels: Labels

    @property
    def plain(self) -> bool:
        return self.labels == self.indices


@dataclass(frozen=True, eq=False)
class Stage:
    """y[labels] = Σ over `summed` of a product of factors, or log Σ exp of one factor, or a mean.

    `atoms` are the inputs and inner sums by their names in the factors; `slopes` the factors of the
    derivative by each atom, where the output is Y; for `choices`, they are 1 or 0. Where `shares`
    says so, the softmax of the terms of log Σ exp is the output of the whole, with these
    labels. For Y = f(Σ g(x)), `direct` has f' g', which loses fewer digits than f' and g'.
    """

    labels: Labels
    summed: Labels
    atoms: Mapping[str, Access | Stage]
    factors: tuple[Tree, ...]
    slopes: Mapping[str, tuple[Tree, ...]]
    logs: bool = False
    text: str = ""
    means: bool = False
    shares: Labels = ()
    choices: frozenset[str] = frozenset()
    direct: Stage | None = None


def stages(stage: Stage) -> Iterator[Stage]:
    """A stage and those inside it."""
    yield stage
    for atom in stage.atoms.values():
        if isinstance(atom, Stage):
            yield from stages(atom)


def accesses(stage: Stage) -> Iterator[Access]:
    """The inputs in a stage, with those that are indices of others."""
    for one in stages(stage):
        for atom in one.atoms.values():
            if isinstance(atom, Access):
                yield atom
                yield from (index for index in atom.indices if isinstance(index, Access))
