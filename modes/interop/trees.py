"""Trees: operators as arguments of functions of JAX, which are compiled once for many points.

The leaves of an operator are the floating arrays that it `holds`; the leaves of a Jacobian are the
residuals at its point. Its `Frame` is all else: JAX compiles anew where the frame differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial, singledispatch
from operator import methodcaller
from typing import Any, Protocol

import numpy as np

from ...jacobians import Jacobian, dtype_of, hooks
from ...jacobians.readings import is_kept
from ..linear.derivatives.derivative import Derivative
from ..linear.derivatives.point import Point
from ..linear.derivatives.route import Route
from ..linear.elimination.adaptive import products_of
from ..linear.linearization import Linearization


@hooks.jax_trees.register(object)
def _register(arrays: Any) -> None:
    """Let functions of JAX take operators, with other numbers at the next call."""
    for kind in {*subclasses_of(Jacobian)}:
        _register_kind(kind)
    hooks.CLASS_OBSERVERS.append(_register_kind)


def _register_kind(kind: type) -> None:
    """Let functions of JAX take operators of one class."""
    import jax

    jax.tree_util.register_pytree_node(kind, leaves_of, from_leaves)


def subclasses_of(kind: type) -> Iterator[type]:
    """The classes that are derived from one."""
    direct: list[type] = kind.__subclasses__()
    for derived in direct:
        yield derived
        yield from subclasses_of(derived)


class Skeleton(Protocol):
    """What is the same for all operators that a function is compiled for: it can be compared."""

    def joined(self, leaves: Any) -> Jacobian:
        """The operator with these leaves."""


def from_leaves(frame: Skeleton, leaves: Any) -> Jacobian:
    return frame.joined(leaves)


@dataclass(frozen=True, eq=False)
class Whole:
    """An operator that has no leaves: for another one, functions are compiled anew."""

    operator: Jacobian

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Whole) and self.operator is other.operator

    def __hash__(self) -> int:
        return id(self.operator)

    def joined(self, leaves: Any) -> Jacobian:
        return self.operator


# -- operators of arrays ---------------------------------------------------------------------------


LEAF = object()
"""What stands for a leaf in a frame."""


@dataclass(frozen=True, eq=False)
class Frame:
    """An operator without its numbers: its class, its data with `LEAF` for each leaf, all else."""

    kind: type[Jacobian]
    held: Mapping[str, Any]
    others: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and all(
            holds_same(getattr(self, part.name), getattr(other, part.name)) for part in fields(self)
        )

    def __hash__(self) -> int:
        return hash((self.kind, *self.held))

    def joined(self, leaves: Any) -> Jacobian:
        left = iter(leaves)

        def filled(part: Any) -> Any:
            if isinstance(part, tuple):
                return tuple(map(filled, part))
            return next(left) if part is LEAF else part

        return self.kind.joined({n: filled(part) for n, part in self.held.items()}, self.others)


@singledispatch
def leaves_of(operator: Jacobian) -> tuple[Sequence[Any], Skeleton]:
    """The floating arrays and the operators that it holds, and its frame."""
    (held, others), leaves = operator.apart(), list[Any]()
    if not all(map(is_comparable, others.values())):
        return [], Whole(operator)

    def opened(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(opened, part))
        if not isinstance(part, Jacobian) and not is_leaf(part):
            return part
        leaves.append(part)
        return LEAF

    frame = Frame(type(operator), {name: opened(part) for name, part in held.items()}, others)
    return leaves, frame


def is_leaf(part: Any) -> bool:
    """Whether this is an array of floating numbers, and no index."""
    return (isinstance(part, np.ndarray) or is_kept(part)) and dtype_of(part).kind not in "biuO"


PLAIN = int | float | complex | str | bytes | None | np.dtype | np.generic | np.ndarray | type


def is_comparable(value: Any) -> bool:
    """Whether a value can be compared by what it holds, or is a function."""
    if isinstance(value, tuple | list):
        return all(map(is_comparable, value))
    if type(value) is dict:
        return all(map(is_comparable, value.values()))
    return isinstance(value, PLAIN) or is_dataclass(value) or callable(value)


def holds_same(one: Any, other: Any) -> bool:
    """Whether two values hold the same; functions and objects of unknown kinds have to be one."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    match one:
        case tuple() | list():
            return len(one) == len(other) and all(map(holds_same, one, other))
        case dict():
            return one.keys() == other.keys() and all(holds_same(one[k], other[k]) for k in one)
        case np.ndarray():
            return one.dtype == other.dtype and np.array_equal(one, other)
        case partial() | methodcaller():
            return holds_same(one.__reduce__(), other.__reduce__())
        case Jacobian():
            import jax

            return bool(jax.tree.structure(one) == jax.tree.structure(other))
    if isinstance(one, PLAIN):
        return bool(one == other)
    return is_dataclass(one) and all(
        holds_same(getattr(one, part.name), getattr(other, part.name)) for part in fields(one)
    )


# -- Jacobians of a model --------------------------------------------------------------------------


@dataclass(frozen=True)
class Anywhere:
    """What is the same for J at all points; `names` are the tensors that are its leaves."""

    route: Route
    form: Derivative
    ends: tuple[Any, ...]
    transposed: bool
    names: tuple[str, ...]

    def joined(self, leaves: Any) -> Linearization:
        (given, values), form = leaves, self.form
        outputs = {name: values[name] for name in form.of} if isinstance(values, dict) else {}
        at = Point(outputs, form.ends, derivative=form, values=values if outputs else {},
                   compute=partial(form.evaluate, given), place=form.place)  # fmt: skip
        domain, codomain = self.ends
        return Linearization(self.route, given, at, domain=domain, codomain=codomain,
                             transposed=self.transposed)  # fmt: skip


@leaves_of.register
def _(J: Linearization) -> tuple[tuple[Any, ...], Skeleton]:
    """The inputs, residuals and outputs at the point; none unless the engine is JAX."""
    form, ends = J.at.derivative, (J.domain, J.codomain)
    if form is None or not form.compiles or J.make:
        return (), Whole(J)
    for transposed in (False, True):
        if shared := products_of(J.at, *J._ends, J.route.engine, transposed=transposed):
            shared.prepare()
    names = tuple(sorted({*form.residuals, *form.of}))
    leaves = dict(J.given), J.at.read(names)
    return leaves, Anywhere(J.route, form, ends, J.transposed, names)
