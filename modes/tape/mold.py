"""Mold: an operator whose arrays are graph values, ready to be filled with the arrays of a point.

The structure of J does not depend on the point, only the numbers in it do. A rule that was read
once over graph values is not asked again: its operators are copied, the values in them replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx_ir as ir

from ...jacobians import Jacobian, dtype_of

Arrays = Mapping[int, Any]
"""The array of every graph value, by its identity."""

Fill = Callable[[Arrays], Any]


class Mold:
    """What operators have in common that differ in nothing but floating numbers."""


def mold_of(operator: Jacobian) -> Mold | None:
    """The mold that an operator comes from, if it decides all but its floating numbers."""
    found: Mold | None = vars(operator).get("_mold")
    return found


def values_in(x: Any) -> Iterator[ir.Value]:
    """The graph values that an operator holds, wherever in it they are."""
    if isinstance(x, ir.Value):
        yield x
    elif isinstance(x, Jacobian):
        for part in parts_of(x).values():
            yield from values_in(part)
    elif isinstance(x, tuple):
        for part in x:
            yield from values_in(part)


def mold(x: Any) -> Fill | None:
    """What makes x of the arrays of a point; None where x holds no graph value."""
    if isinstance(x, ir.Value):
        key = id(x)
        return lambda arrays: arrays[key]
    if isinstance(x, Jacobian):
        return _operator(x)
    return _tuple(x) if type(x) is tuple else None


def parts_of(operator: Jacobian) -> dict[str, Any]:
    """The attributes of an operator, but for itself as its own transpose."""
    return {name: part for name, part in vars(operator).items() if part is not operator}


def _operator(operator: Jacobian) -> Fill | None:
    kind, kept = type(operator), parts_of(operator)
    holes = {name: hole for name, part in kept.items() if (hole := mold(part))}
    if not holes:
        return None

    if all(dtype_of(value).kind == "f" for value in values_in(operator)):
        kept["_mold"] = Mold()

    def fill(arrays: Arrays) -> Jacobian:
        made: Jacobian = object.__new__(kind)
        made.__dict__.update(kept, **{name: hole(arrays) for name, hole in holes.items()})
        return made

    return fill


def _tuple(parts: tuple[Any, ...]) -> Fill | None:
    fills = [mold(part) for part in parts]
    if not any(fills):
        return None
    pairs = tuple(zip(fills, parts, strict=True))
    return lambda arrays: tuple(fill(arrays) if fill else part for fill, part in pairs)
