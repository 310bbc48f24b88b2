"""Conditions: where a recording holds, and what it was decided by.

A recording is made at one point. What it was decided by there, such as a number that a rule read or
the branch of an If, makes a condition: the recording is right at the points where that is the same.
Conditions are checked where a point is computed, shown by `explain`, and written into exports.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from ....jacobians import shape_of
from ....jacobians.arrays import host
from ....jacobians.errors import InputError, warn
from ....jacobians.readings import library_of
from .contents import Contents, free_sizes

GUARDS = "onnxjac.guards"
"""Key of the metadata with the relations of sizes and integers under which a model is right."""

HELD = "onnxjac.held"
"""Key of the metadata with the tensors that became constants."""


@dataclass(frozen=True, eq=False)
class Condition:
    """What a recording was decided by; it holds where this is the same.

    | kind | `name` | what is the same |
    |---|---|---|
    | `"numbers"` | a tensor | the numbers, `here` |
    | `"shape"` | a tensor | the shape, `here` |
    | `"none"` | what there is none of, a tensor that counts it | the number, 0 |
    | `"relation"` | a relation of sizes and integers of inputs | that it is true |
    | `"size"` | a free size of inputs, in words | the size |
    | `"unrolled"` | an output of control flow | the turns and branches |
    | `"point"` | the point | all numbers |

    `reader` is the step that decided by it, or the reason why that had to be decided.
    """

    kind: Literal["numbers", "shape", "none", "relation", "size", "unrolled", "point"]
    name: str
    reader: str = ""
    here: Any = None

    def holds(self, values: Mapping[str, Any]) -> bool | None:
        """Whether it holds, by tensors or, for a relation, by numbers; None where these do not
        tell.
        """
        if self.kind == "relation":
            return is_true(self.name, values)
        found = values.get(self.name, 0)
        if self.kind == "none":
            return bool(found == 0) if library_of(found).knows(found) else None
        if self.kind == "shape":
            return tuple(shape_of(found)) == tuple(self.here)
        return np.array_equal(host(found), self.here)

    def __str__(self) -> str:
        text = TEXTS.get(self.kind, "{}").format(self.name)
        return f"{text}: {self.reader}" if self.reader else text


TEXTS = {
    "numbers": "{!r} has the numbers that it has here",
    "shape": "{!r} has the shape that it has here",
    "none": "there are no {}",
    "point": "all numbers are those of {}",
    "unrolled": "the control flow that computes {!r} is unrolled for the point, its turns and "
                "branches are fixed",
}  # fmt: skip
"""kind -> the text of a condition, without its reader; others are in words already."""


def state(graph: ir.Model, conditions: Iterable[Condition]) -> None:
    """Warn of conditions, each kind of them once, and write them into the metadata of a graph."""
    kinds: dict[str, list[Condition]] = {}
    for condition in conditions:
        kinds.setdefault(condition.kind, []).append(condition)
    for condition in (*kinds.get("size", ()), *kinds.get("unrolled", ())):
        warn(str(condition))
    if held := kinds.get("numbers"):
        parts = ", ".join(f"{c.name!r} ({c.reader})" for c in held)
        warn(f"the derivative holds only for the numbers that the point gives these: {parts}")
        graph.metadata_props[HELD] = ", ".join(c.name for c in held)
    if relations := kinds.get("relation"):
        parts = ", ".join(f"{c.name} ({c.reader})" for c in relations)
        warn(f"the derivative holds only where {parts}")
        graph.metadata_props[GUARDS] = "\n".join(c.name for c in relations)


def check_relations(model: Contents, point: Mapping[str, Any]) -> None:
    """Raises `InputError` where a recorded derivative is not valid at the point.

    Relations of intermediate values, and of names that are not identifiers, are not checked.
    """
    numbers = sizes_and_integers(model, point)
    for text in model.ir.metadata_props[GUARDS].splitlines():
        if Condition("relation", text).holds(numbers) is False:
            raise InputError(
                f"this derivative was recorded for points where {text}, which is not so here: "
                "export it again at a point like this one"
            )


# -- relations as text -----------------------------------------------------------------------------

RELATION_LETTERS = 2000
"""The longest relation."""

RELATION_ENTRIES = 2000
"""The most entries of an integer input that relations may read."""

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


def sizes_and_integers(model: Contents, point: Mapping[str, Any]) -> dict[str, int]:
    """The free sizes and the small integers of a point, as relations name them."""
    found: dict[str, int] = {}
    for name, sizes in free_sizes(model.inputs).items():
        array = host(point[name])
        found |= {size: array.shape[axis] for axis, size in sizes.items()}
        if array.dtype.kind in "iu" and array.size <= RELATION_ENTRIES:
            found |= {f"{name}[{k}]": int(n) for k, n in enumerate(array.ravel())}
    return found


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
