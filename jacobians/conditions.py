"""Conditions: where a recording holds, and what it was decided by.

A recording is made at one point. What it was decided by there, such as a number that a rule read or
the branch of an If, makes a condition: the recording is right at the points where that is the same.
Conditions are checked where a point is computed, shown by `explain`, and written into exports.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .errors import InputError
from .readings import host, library_of
from .vocabulary import Array

ZERO = np.zeros(())


@dataclass(frozen=True, eq=False)
class Condition:
    """What a recording was decided by; it holds where this is the same.

    | kind | `name` | what is the same |
    |---|---|---|
    | `"numbers"` | a tensor | the numbers, `here` |
    | `"entries"` | a tensor | whether all are one number; `here` are the number and the answer |
    | `"shape"` | a tensor | the shape, `here` |
    | `"none"` | what there is none of, a tensor that counts it | the number, 0 |
    | `"relation"` | a relation of sizes and integers of inputs | that it is true; `here` its sign |
    | `"size"` | a free size of inputs, in words | the size |
    | `"unrolled"` | an output of control flow | the turns and branches |
    | `"point"` | the point | all numbers |

    `reader` is the step that decided by it, or the reason why that had to be decided. `of` is what
    it is about while a graph is recorded: a graph value, or for a relation the `SymInt` that is
    compared with 0.
    """

    kind: Literal["numbers", "entries", "shape", "none", "relation", "size", "unrolled", "point"]
    name: str
    reader: str = ""
    here: Any = None
    of: Any = None

    def holds(self, values: Mapping[str, Any]) -> bool | None:
        """Whether it holds, by tensors or, for a relation, by numbers; None where these do not
        tell. Raises `InputError` for a tensor whose numbers are not known while it is traced.
        """
        if self.kind == "relation":
            return is_true(self.name, values)
        found = values.get(self.name, ZERO)
        if self.kind == "none":
            return is_all(found, 0) if library_of(found).knows(found) else None
        if self.kind != "shape" and not library_of(found).knows(found):
            raise InputError(f"J moves here only if {self}; that cannot be known while a function "
                             f"is traced: {REMEDIES[self.kind].format(self.name)}")  # fmt: skip
        if self.kind == "entries":
            number, answer = self.here
            return is_all(found, number) == answer
        if self.kind == "shape":
            return tuple(found.shape) == tuple(self.here)
        return np.array_equal(host(found), self.here)

    def __str__(self) -> str:
        text = TEXTS.get(self.kind, "{}").format(self.name, self.here)
        return f"{text}: {self.reader}" if self.reader else text


TEXTS = {
    "numbers": "{!r} has the numbers that it has here",
    "entries": "it is {1[1]} that all entries of {0!r} are {1[0]:g}",
    "shape": "{!r} has the shape that it has here",
    "none": "there are no {}",
    "point": "all numbers are as at {}",
    "unrolled": "the control flow that computes {!r} is unrolled for the point, its turns and "
                "branches are fixed",
}  # fmt: skip
"""kind -> the text of a condition, without its reader; others are in words already."""


MOVED_OUTSIDE = "move J outside of it"

REMEDIES = {
    "numbers": f"{MOVED_OUTSIDE}, give it the numbers of {{!r}} as arrays of NumPy, or, if they "
               "decide a branch or a loop, take oj.to_jax(model), which traces that as it is",
    "entries": f"{MOVED_OUTSIDE}, give it {{!r}} as an array of NumPy, or make it a constant of "
               "the model",
    **dict.fromkeys(("size", "unrolled", "point"), MOVED_OUTSIDE),
}  # fmt: skip
"""kind -> what to do where a function is traced and the numbers of a tensor are asked for."""


def is_all(x: Array, number: float) -> bool:
    """Whether all entries of a tensor are this number, asked where the tensor is."""
    with library_of(x).at_once(x):
        return bool((x == number).all())


# -- relations as text -----------------------------------------------------------------------------

RELATION_LETTERS = 2000
"""The longest relation."""

FUNCTIONS: dict[str, Callable[..., int]] = {
    "floor": operator.floordiv,
    "max": max,
    "choose": lambda x, then, otherwise: then if x < 0 else otherwise,
}
"""Functions for numbers that are not polynomials; see `jacobians/symint.py`."""

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Mult: operator.mul, ast.USub: operator.neg, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def is_true(relation: str, numbers: Mapping[str, int]) -> bool | None:
    """Whether a relation is true; None if that cannot be decided.

    >>> is_true("2·N + -1·x[0] >= 3", {"N": 2, "x[0]": 1}), is_true("floor(N, 2) == 1", {"N": 4})
    (True, False)
    """
    if len(relation) > RELATION_LETTERS:
        return None
    try:
        return bool(value(ast.parse(relation.replace("·", "*"), mode="eval").body, numbers))
    except (SyntaxError, LookupError, ArithmeticError, RecursionError, TypeError, ValueError):
        return None


def value(node: ast.expr, numbers: Mapping[str, int]) -> Any:
    """The value of an expression; raises `KeyError` for an unknown name."""
    match node:
        case ast.Constant(value=int() as n):
            return n
        case ast.UnaryOp(op=op, operand=x):
            return OPERATORS[type(op)](value(x, numbers))
        case ast.BinOp(left=a, op=op, right=b) | ast.Compare(left=a, ops=[op], comparators=[b]):
            return OPERATORS[type(op)](value(a, numbers), value(b, numbers))
        case ast.Call(func=ast.Name(id=name), args=args):
            return FUNCTIONS[name](*(value(x, numbers) for x in args))
    return numbers[ast.unparse(node)]
