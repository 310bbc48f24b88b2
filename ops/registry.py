"""The registry: one declaration per operator, read by every mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

    def outputs(self, op: Any, node: Node) -> tuple[Any, ...]:
        """What the definition gives; raises `UnsupportedOp` where it leaves out a named output."""
        assert self.definition is not None
        made = tuple(self.definition(op, node))
        for k, name in enumerate(node.step.outputs):
            if name is not None and (k >= len(made) or made[k] is None):
                raise UnsupportedOp(left_out(name, k))
        return made


DECLARATIONS: dict[tuple[str, str], Declaration] = {}


CHOICES: dict[tuple[str, str], dict[str, Sequence[str | int]]] = {}
"""(operator, domain) -> attribute -> the words or numbers that it may be; a model with another one
is not loaded.
"""


def jacobian(*names: str) -> Callable[[Rule], Rule]:
    """Declare the blocks of operators: `@jacobian("MatMul")`, `@jacobian("my.domain::Op")`.

    The Jacobian of a model is `linearize(model, inputs)`; this refuses one.
    """
    if not all(isinstance(name, str) for name in names):
        raise InputError("jacobian declares the rule of an operator, @jacobian('MatMul'): the "
                         "Jacobian of a model is linearize(model, inputs)")  # fmt: skip

    def register(rule: Rule) -> Rule:
        for name in names:
            domain, _, op_type = name.rpartition("::")
            DECLARATIONS[op_type, domain] = Declaration(op_type, domain, rule)
        return rule

    return register


def zero(reason: str, *names: str) -> None:
    """Declare operators whose derivative is structurally zero, and why."""
    for name in names:
        domain, _, op_type = name.rpartition("::")
        DECLARATIONS[op_type, domain] = Declaration(op_type, domain, _no_blocks, reason)


def defines(*names: str) -> Callable[[Definition], Definition]:
    """Declare what operators are, in calls of the vocabulary: `@defines("LSTM")`."""
    if not all(isinstance(name, str) for name in names):
        raise InputError("defines takes names of operators: @defines('my.domain::Op')")

    def register(function: Definition) -> Definition:
        for name in names:
            domain, _, op_type = name.rpartition("::")
            DECLARATIONS[op_type, domain] = Declaration(op_type, domain, _no_blocks, None, function)
        return function

    return register


def choices(*names: str, **known: Sequence[str | int]) -> None:
    """Declare what attributes may be: engines may read anything else as one or another of these."""
    for name in names:
        domain, _, op_type = name.rpartition("::")
        CHOICES.setdefault((op_type, domain), {}).update(known)


def left_out(name: str, k: int) -> str:
    """What to say where a definition does not give output k."""
    return (f"its definition gives no output number {k}, {name!r}: take it out of the model, "
            "or define the operator with @onnxjac.defines")  # fmt: skip


def _no_blocks(op: Any, node: Node) -> Blocks:
    return {}


def find(op_type: str, domain: str = "") -> Declaration | None:
    """The declaration of an operator, or None."""
    return DECLARATIONS.get((op_type, "" if domain == "ai.onnx" else domain))
