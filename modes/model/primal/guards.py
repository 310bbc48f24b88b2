"""Guards: whether a recorded derivative is valid at a point, by the conditions in its metadata."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ....jacobians.arrays import host
from ....jacobians.errors import InputError
from ..flow.contents import Contents, free_sizes

GUARDS = "onnxjac.guards"
"""Key of the metadata with the conditions on sizes and integers of a recorded derivative."""

LONGEST = 2000
"""Longest condition, in characters, and largest integer input that conditions may read."""

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


def check_guards(model: Contents, point: Mapping[str, Any]) -> None:
    """Raises `InputError` where a recorded derivative is not valid at the point.

    Conditions on intermediate values, and on names that are not identifiers, are not checked.
    """
    guards = model.ir.metadata_props.get(GUARDS, "").splitlines()
    numbers = numbers_of(model, point) if guards else {}
    for guard in guards:
        if holds(guard, numbers) is False:
            raise InputError(
                f"this derivative was recorded for points where {guard}, which is not so here: "
                "export it again at a point like this one"
            )


def is_guarded(model: Contents) -> bool:
    """Whether a model is a derivative that was recorded under conditions."""
    return GUARDS in model.ir.metadata_props


def numbers_of(model: Contents, point: Mapping[str, Any]) -> dict[str, int]:
    """The free sizes and the small integers of a point, as guards name them."""
    found: dict[str, int] = {}
    for name, sizes in free_sizes(model.inputs).items():
        array = host(point[name])
        found |= {size: array.shape[axis] for axis, size in sizes.items()}
        if array.dtype.kind in "iu" and array.size <= LONGEST:
            found |= {f"{name}[{k}]": int(n) for k, n in enumerate(array.ravel())}
    return found


def holds(guard: str, numbers: Mapping[str, int]) -> bool | None:
    """Whether a condition is true; None if that cannot be decided.

    >>> holds("2·N + -1·x[0] >= 3", {"N": 2, "x[0]": 1}), holds("floor(N, 2) == 1", {"N": 4})
    (True, False)
    """
    if len(guard) > LONGEST:
        return None
    try:
        return bool(value(ast.parse(guard.replace("·", "*"), mode="eval").body, numbers))
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
