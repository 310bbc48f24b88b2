"""Placing: an operator over the arrays of another reading, as tensors on a GPU.

An operator's arrays are copied there once, at its first product or by `to`, and kept as long as the
operator. The DAG of a model has one copy for itself and its transpose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from .arrays import Array, Op, host, is_tensor, reading
from .base import Holder, Jacobian
from .dag import Dag, Joint


@dataclass(frozen=True)
class Place:
    """Where arrays go: `take` makes them arrays there, which `op` computes with.

    `random` makes a generator of a seed, with methods as NumPy's, `module` has the functions of the
    arrays, and `device` is PyTorch's. `hold` is `take` for arrays that nobody writes to, such as
    the weights of a model, which are there once.
    """

    name: str
    take: Callable[[Any], Array] = field(compare=False)
    op: Op = field(default=None, compare=False)
    random: Callable[[int], Any] = field(default=np.random.default_rng, compare=False)
    module: Any = field(default=np, compare=False)
    device: Any = field(default=None, compare=False)
    hold: Callable[[Any], Array] = field(default=host, compare=False)


HOST = Place("NumPy", host)
"""Main memory, as NumPy arrays."""


def place_of(x: Array) -> Place:
    """Where an array is."""
    return reading(x).place(x.device) if is_tensor(x) else HOST


PLACED: WeakKeyDictionary[Holder, dict[Place, Any]] = WeakKeyDictionary()
"""operator -> place -> the operator over the arrays there."""


@singledispatch
def placed(part: Any, place: Place) -> Any:
    """The operator, or an array or a part of it, with its arrays at a place."""
    return place.hold(part) if hasattr(part, "__array__") else part


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
