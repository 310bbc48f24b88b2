"""Placing: an operator over the arrays of another reading, as tensors on a GPU.

An operator's arrays are copied there once, at its first product or by `to`, and kept as long as the
operator. The DAG of a model has one copy for itself and its transpose.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any
from weakref import WeakKeyDictionary

from .base import Holder, Jacobian
from .dag import Dag, Joint
from .readings import HOST, Place, host, is_kept, library_of

__all__ = ["HOST", "PLACED", "Place", "placed", "with_parts"]

PLACED: WeakKeyDictionary[Holder, dict[Place, Any]] = WeakKeyDictionary()
"""operator -> place -> the operator over the arrays there."""


@singledispatch
def placed(part: Any, place: Place) -> Any:
    """The operator, or an array or a part of it, with its arrays at a place."""
    if is_kept(part) and library_of(part) is not place.op:
        return place.hold(host(part))
    return place.hold(part) if hasattr(part, "__array__") or is_kept(part) else part


@placed.register
def _(part: tuple, place: Place) -> Any:
    return tuple(placed(one, place) for one in part)


@placed.register
def _(operator: Holder, place: Place) -> Any:
    """The operator with other arrays where its class says that it `holds` some."""
    if isinstance(operator, Jacobian) and operator.structure is not operator:
        return placed(operator.structure, place)
    known = PLACED.setdefault(operator, {})
    if place not in known:
        made = with_parts(operator, lambda part: placed(part, place))
        if made is operator:
            return operator
        known.setdefault(place, made)
    return known[place]


def with_parts(operator: Holder, change: Callable[[Any], Any]) -> Any:
    """The operator with `change` of every part that it holds; itself where none changes."""
    held = {name: getattr(operator, name) for name in operator.holds}
    moved = {name: change(part) for name, part in held.items()}
    if all(moved[name] is part for name, part in held.items()):
        return operator
    return operator._holding(**moved)


@placed.register
def _(dag: Dag, place: Place) -> Any:
    if dag.mirror is not None:
        return placed(dag.mirror, place).T
    known = PLACED.setdefault(dag, {})
    if place not in known:
        known.setdefault(place, dag._holding(operators=placed(dag.operators, place)))
    return known[place]


@placed.register
def _(joint: Joint, place: Place) -> Any:
    """A loop stays: its programs run on the host."""
    return joint
