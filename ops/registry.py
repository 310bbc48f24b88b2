"""The registry: one declaration per operator, read by every mode."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    values: Mapping[str, Collection[Any]] = field(default_factory=dict)
    """attribute -> what it may be, where engines would read anything else as one of these."""

    def outputs(self, op: Any, node: Node) -> tuple[Any, ...]:
        """What the definition gives; raises `UnsupportedOp` where it leaves out a named output."""
        assert self.definition is not None
        made = tuple(self.definition(op, node))
        for k, name in enumerate(node.step.outputs):
            if name is not None and (k >= len(made) or made[k] is None):
                raise UnsupportedOp(left_out(name, k))
        return made


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


def jacobian(*names: str, **values: Collection[Any]) -> Callable[[Rule], Rule]:
    """Declare the blocks of operators: `@jacobian("MatMul")`, `@jacobian("my.domain::Op")`.

    `values` are what an attribute may be, `mode=("linear", "cubic")`; a model with another value is
    not loaded. The Jacobian of a model is `linearize(model, inputs)`; this refuses one.

    Shapes: the block of output y and input x is an operator (size of y, size of x). Raises
    `InputError` where a name is no string.
    """
    if not all(isinstance(name, str) for name in names):
        raise InputError("jacobian declares the rule of an operator, @jacobian('MatMul'): the "
                         "Jacobian of a model is linearize(model, inputs)")  # fmt: skip

    def register(rule: Rule) -> Rule:
        for name in names:
            domain, _, op_type = name.rpartition("::")
            DECLARATIONS[op_type, domain] = Declaration(op_type, domain, rule, values=values)
        return rule

    return register


def zero(reason: str, *names: str, **values: Collection[Any]) -> None:
    """Declare operators whose derivative is structurally zero, and why.

    `values` are what an attribute may be, as for `jacobian`: `load` raises `LoadError` for a model
    with another value.
    """
    for name in names:
        domain, _, op_type = name.rpartition("::")
        DECLARATIONS[op_type, domain] = Declaration(
            op_type, domain, _no_blocks, reason, values=values
        )


def defines(*names: str, **values: Collection[Any]) -> Callable[[Definition], Definition]:
    """Declare what operators are, in calls of the vocabulary: `@defines("LSTM")`.

    `values` are what an attribute may be, as for `jacobian`.

    Raises `InputError` where a name is no string. A model in which the definition leaves out a
    named output raises `UnsupportedOp`.
    """
    if not all(isinstance(name, str) for name in names):
        raise InputError("defines takes names of operators: @defines('my.domain::Op')")

    def register(function: Definition) -> Definition:
        for name in names:
            domain, _, op_type = name.rpartition("::")
            DECLARATIONS[op_type, domain] = Declaration(
                op_type, domain, _no_blocks, None, function, values
            )
        return function

    return register


def left_out(name: str, k: int) -> str:
    """What to say where a definition does not give output k."""
    return (f"its definition gives no output number {k}, {name!r}: take it out of the model, "
            "or define the operator with @onnxjac.defines")  # fmt: skip


def _no_blocks(op: Any, node: Node) -> Blocks:
    return {}


def find(op_type: str, domain: str = "") -> Declaration | None:
    """The declaration of an operator, or None."""
    return DECLARATIONS.data.get((op_type, "" if domain == "ai.onnx" else domain))
