"""The registry: one declaration per operator, read by every mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..jacobians import Jacobian
from .node import Node

Blocks = Mapping[tuple[int, int], Jacobian]
"""(output, input) -> ∂output/∂input; an absent key is a structural zero."""

Rule = Callable[[Any, Node], Blocks]
"""rule(op, node): op is the vocabulary of the current reading."""


@dataclass(frozen=True)
class Declaration:
    """What an operator says about its derivative: a rule, or the reason why it has none."""

    op_type: str
    domain: str
    rule: Rule
    zero: str | None = None


DECLARATIONS: dict[tuple[str, str], Declaration] = {}


def jacobian(*names: str) -> Callable[[Rule], Rule]:
    """Declare the blocks of one or more operators: `@jacobian("MatMul")`, `@jacobian("my.domain::Op")`."""

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


def _no_blocks(op: Any, node: Node) -> Blocks:
    return {}


def find(op_type: str, domain: str = "") -> Declaration | None:
    """The declaration of an operator, or None."""
    return DECLARATIONS.get((op_type, "" if domain == "ai.onnx" else domain))
