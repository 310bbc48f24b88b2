"""The registry: one declaration per operator, read by every mode."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..jacobians import Jacobian, Op
from ..jacobians.errors import InputError, UnsupportedOp
from .node import Node

Blocks = Mapping[tuple[int, int], Jacobian]
"""(output, input) -> ∂output/∂input; an absent key is a structural zero."""

Rule = Callable[[Any, Node], Blocks]
"""rule(op, node): op is the vocabulary of the current reading."""


Definition = Callable[[Any, Node], Sequence[Any]]
"""definition(op, node): the outputs of an operator, in vocabulary calls."""


Count = tuple[int, int]
"""How many entries of a node lie on a kink, out of how many."""


@dataclass(frozen=True)
class Kinks:
    """Where an operator has no derivative, and which one is given there: see `conventions`."""

    where: str
    given: str
    count: Callable[[Node], Count] | None = None
    moves: tuple[int, ...] = ()


@dataclass(frozen=True)
class Declaration:
    """How an operator is differentiated: by a rule; as zero, with the reason; or through its
    definition in terms of other operators. Or why its floating results are not. And what else is
    said of it, also of a function of ONNX's, which has no rule.
    """

    op_type: str
    domain: str
    rule: Rule
    zero: str | None = None
    definition: Definition | None = None
    refused: str | None = None
    values: Mapping[str, Collection[Any]] = field(default_factory=dict)
    """attribute -> its allowed values, where engines would read any other as one of these."""
    kinks: Kinks | None = None
    grows: bool = False
    random: bool = False
    memory: Callable[[Node], int] | None = None
    """Bytes that its kernel needs besides its outputs, for padding or intermediate results."""
    turns: Callable[[Node], int] | None = None
    """The time steps of a node whose definition is unrolled."""
    near: Callable[[int, Any], Any] | None = None
    """Position of an input and numbers -> numbers nearby that it takes; all others, where None."""

    @property
    def is_composed(self) -> bool:
        """Whether its definition is differentiated, as it has no rule of its own."""
        return self.definition is not None and self.rule is _no_blocks

    def outputs(self, op: Op, node: Node) -> tuple[Any, ...]:
        """The outputs of the definition; raises `UnsupportedOp` where it omits a named output."""
        assert self.definition is not None
        made = tuple(self.definition(op, node))
        for k, name in enumerate(node.step.outputs):
            if name is not None and (k >= len(made) or made[k] is None):
                raise UnsupportedOp(omitted_output_error(name, k))
        return made


class Declarations(UserDict[tuple[str, str], Declaration]):
    """(operator, domain) -> its declaration; `version` counts the changes.

    Caches of results derived from rules or definitions store the version, and are rebuilt when it
    changes.
    """

    version = 0

    def __setitem__(self, key: tuple[str, str], declaration: Declaration) -> None:
        super().__setitem__(key, declaration)
        self.version += 1

    def __delitem__(self, key: tuple[str, str]) -> None:
        super().__delitem__(key)
        self.version += 1


DECLARATIONS = Declarations()


def _by_body(op: Op, node: Node) -> Blocks:
    raise UnsupportedOp(f"{node.step} has no rule")


PLAIN = Declaration("", "", _by_body)
"""The declaration of an operator of which nothing is said."""


def full_name(op_type: str, domain: str = "") -> str:
    """`Op` in ONNX's default domain, else `domain::Op`."""
    return op_type if domain in ("", "ai.onnx") else f"{domain}::{op_type}"


def says(*names: str, **facts: Any) -> None:
    """Add facts to the declarations of operators."""
    for name in names:
        domain, _, op_type = name.rpartition("::")
        known = DECLARATIONS.get((op_type, domain), Declaration(op_type, domain, _by_body))
        DECLARATIONS[op_type, domain] = replace(known, **facts)


def traits_of(step: Any) -> Declaration:
    """What is said of the operator of a step, or of a node."""
    key = step.op_type, "" if step.domain == "ai.onnx" else step.domain
    return DECLARATIONS.data.get(key, PLAIN)


def version() -> int:
    """The number of changes to the declarations: results cached at another version are stale."""
    return DECLARATIONS.version


def declare(
    names: Collection[str], rule: Rule, *, grows: bool = False, random: bool = False, **fields: Any
) -> None:
    """Enter a declaration under each name, `Op` or `domain::Op`; what else was said of it holds."""
    fresh: dict[str, Any] = {"zero": None, "definition": None, "refused": None, "values": {}}
    traits = {name: True for name, has in (("grows", grows), ("random", random)) if has}
    says(*names, rule=rule, **{**fresh, **fields}, **traits)


def jacobian(
    *names: str, grows: bool = False, random: bool = False, **values: Collection[Any]
) -> Callable[[Rule], Rule]:
    """Declare the blocks of operators: `@jacobian("MatMul")`, `@jacobian("my.domain::Op")`.

    `names` are the operators, `values` are the allowed values of attributes, `mode=("linear",
    "cubic")`; a model with another value is not loaded. An operator `grows` if the number of
    elements of its output may exceed the product of its inputs' sizes; a `random` operator draws
    a sample, which is a constant of the linearisation. For the Jacobian of a model, use
    `linearize(model, inputs)`.

    An operator that has a definition keeps it: the definition then gives the values, and the truth
    that `prove` compares the rule with.

    Shapes: the block of output y and input x is an operator (size of y, size of x). Raises
    `InputError` where a name is not a string.
    """
    if not all(isinstance(name, str) for name in names):
        raise InputError("jacobian declares the rule of an operator, @jacobian('MatMul'): the "
                         "Jacobian of a model is linearize(model, inputs)")  # fmt: skip

    def register(rule: Rule) -> Rule:
        for name in names:
            domain, _, op_type = name.rpartition("::")
            known = find(op_type, domain)
            declare([name], rule, values=values, definition=known and known.definition,
                    grows=grows, random=random)  # fmt: skip
        return rule

    return register


def zero(
    reason: str, *names: str, definition: Definition | None = None, grows: bool = False,
    random: bool = False, **values: Collection[Any],
) -> None:  # fmt: skip
    """Declare operators whose derivative is structurally zero, and why.

    `reason` is why, `names` are the operators.

    `definition` gives the values of an operator that is not ONNX's, as for `defines`; `values` are
    the allowed values of attributes, as for `jacobian`: `load` raises `LoadError` for a model with
    another value. `grows` and `random` are as for `jacobian`.
    """
    declare(names, _no_blocks, grows=grows, random=random, zero=reason, definition=definition,
            values=values)  # fmt: skip


def defines(
    *names: str, grows: bool = False, **values: Collection[Any]
) -> Callable[[Definition], Definition]:
    """Declare the definition of operators, in vocabulary calls: `@defines("LSTM")`.

    `names` are the operators, `values` are the allowed values of attributes, and `grows` is as for
    `jacobian`.

    Raises `InputError` where a name is not a string. A model with a named output that the
    definition omits raises `UnsupportedOp`.
    """
    if not all(isinstance(name, str) for name in names):
        raise InputError("defines takes names of operators: @defines('my.domain::Op')")

    def register(function: Definition) -> Definition:
        declare(names, _no_blocks, definition=function, values=values, grows=grows)
        return function

    return register


def refuses(reason: str, *names: str) -> None:
    """Declare operators whose floating results are not differentiated, and why."""

    def refuse(op: Op, node: Node) -> Blocks:
        raise UnsupportedOp(f"{node.step} is not differentiated: {reason}")

    declare(names, refuse, refused=reason)


def omitted_output_error(name: str, k: int) -> str:
    """The error message for an output k that a definition omits."""
    return (f"its definition gives no output number {k}, {name!r}: take it out of the model, "
            "or define the operator with @onnxjac.defines")  # fmt: skip


def _no_blocks(op: Op, node: Node) -> Blocks:
    return {}


def find(op_type: str, domain: str = "") -> Declaration | None:
    """The declaration of an operator that has a rule, a definition or a reason; else None."""
    found = DECLARATIONS.data.get((op_type, "" if domain == "ai.onnx" else domain))
    return None if found is None or found.rule is _by_body else found
