"""The registry: one declaration per operator, read by every mode."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from ..jacobians import Jacobian
from ..jacobians.errors import InputError, UnsupportedOp
from .node import Node

Blocks = Mapping[tuple[int, int], Jacobian]
"""(output, input) -> ∂output/∂input; an absent key is a structural zero."""

Rule = Callable[[Any, Node], Blocks]
"""rule(op, node): op is the vocabulary of the current reading."""


Definition = Callable[[Any, Node], Sequence[Any]]
"""definition(op, node): the outputs of an operator in calls of the vocabulary."""


@dataclass(frozen=True)
class Declaration:
    """What an operator says: a rule; or the reason why its derivative is zero; or what it is in
    terms of other operators, from which its derivative follows.
    """

    op_type: str
    domain: str
    rule: Rule
    zero: str | None = None
    definition: Definition | None = None


class Declarations(UserDict[tuple[str, str], Declaration]):
    """(operator, domain) -> what it says; `version` counts the changes.

    Whoever keeps what follows from rules or definitions keeps the version beside it: after a
    change all of that is made again.
    """

    version = 0

    def __setitem__(self, key: tuple[str, str], declaration: Declaration) -> None:
        super().__setitem__(key, declaration)
        self.version += 1

    def __delitem__(self, key: tuple[str, str]) -> None:
        super().__delitem__(key)
        self.version += 1


DECLARATIONS = Declarations()


def version() -> int:
    """How often declarations have changed: what was worked out at another count is stale."""
    return DECLARATIONS.version


F = TypeVar("F", bound=Callable[[Any, Node], Any])


def jacobian(*names: str, **values: Collection[Any]) -> Callable[[Rule], Rule]:
    """Declare the blocks of operators: `@jacobian("MatMul")`, `@jacobian("my.domain::Op")`.

    `values` are those that an attribute may have, `mode=("linear", "cubic")`: a node with another
    one is refused, with an `UnsupportedOp`. The Jacobian of a model is `linearize(model, inputs)`;
    this refuses one.
    """
    if not all(isinstance(name, str) for name in names):
        raise InputError("jacobian declares the rule of an operator, @jacobian('MatMul'): the "
                         "Jacobian of a model is linearize(model, inputs)")  # fmt: skip

    def register(rule: Rule) -> Rule:
        for name in names:
            domain, _, op_type = name.rpartition("::")
            DECLARATIONS[op_type, domain] = Declaration(op_type, domain, only(values, rule))
        return rule

    return register


def zero(reason: str, *names: str) -> None:
    """Declare operators whose derivative is structurally zero, and why."""
    for name in names:
        domain, _, op_type = name.rpartition("::")
        DECLARATIONS[op_type, domain] = Declaration(op_type, domain, _no_blocks, reason)


def defines(*names: str, **values: Collection[Any]) -> Callable[[Definition], Definition]:
    """Declare what operators are, in calls of the vocabulary: `@defines("LSTM")`.

    `values` are those that an attribute may have, as for `jacobian`.
    """
    if not all(isinstance(name, str) for name in names):
        raise InputError("defines takes names of operators: @defines('my.domain::Op')")

    def register(function: Definition) -> Definition:
        for name in names:
            domain, _, op_type = name.rpartition("::")
            held = only(values, function)
            DECLARATIONS[op_type, domain] = Declaration(op_type, domain, _no_blocks, None, held)
        return function

    return register


def only(values: Mapping[str, Collection[Any]], function: F) -> F:
    """The function, for nodes whose attributes have one of the values that are named here."""
    if not values:
        return function

    @wraps(function)
    def checked(op: Any, node: Node) -> Any:
        for name, allowed in values.items():
            check_attribute(node, name, allowed)
        return function(op, node)

    return checked  # type: ignore[return-value]


def check_attribute(node: Node, name: str, allowed: Collection[Any]) -> None:
    """Raise `UnsupportedOp` where an attribute has a value that is not allowed."""
    value = getattr(node, name)
    if value is not None and value not in allowed:
        raise UnsupportedOp(f"{node.step} has {name}={value!r}, of which no derivative is known: "
                            f"give one of {', '.join(map(repr, allowed))}")  # fmt: skip


def _no_blocks(op: Any, node: Node) -> Blocks:
    return {}


def find(op_type: str, domain: str = "") -> Declaration | None:
    """The declaration of an operator, or None."""
    return DECLARATIONS.data.get((op_type, "" if domain == "ai.onnx" else domain))
