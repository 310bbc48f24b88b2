"""Parts: what an operator is composed of, whatever its kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from ....jacobians import Block, Dag, Jacobian
from ...data.cluster import Distributed
from ...data.stream import OverBatches
from ...elimination.adaptive import Adaptive
from ...explaining.blocks import held_in
from ...linearization import Linearization
from ...tape.checkpoint import Checkpointed
from ...tape.record import vertex_names

DERIVED = frozenset({"T", "mirror", "dag", "structure", "known"})
"""Attributes that hold an operator which is the same again, or is shown otherwise."""


@dataclass(frozen=True)
class Part:
    """An operator, and where in the model or in the whole it comes from."""

    operator: Jacobian
    origin: str = ""


@singledispatch
def parts_of(operator: Jacobian) -> tuple[Part, ...]:
    """The operators that an operator holds: its factors, its terms, what is behind its face."""
    held = {name: found for name, value in vars(operator).items()
            if name not in DERIVED and (found := tuple(operators_in(value)))}  # fmt: skip
    named = len(held) > 1
    return tuple(Part(J, name * named) for name, found in held.items() for J in found)


def operators_in(value: Any) -> Iterator[Jacobian]:
    """A value itself where it is an operator, or those in a list of them."""
    if isinstance(value, Jacobian):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from operators_in(part)


@parts_of.register
def _(operator: Dag) -> tuple[Part, ...]:
    return tuple(Part(e.operator, f"tensor {e.start} → {e.end}") for e in operator.edges)


@parts_of.register
def _(operator: Block) -> tuple[Part, ...]:
    return tuple(
        Part(block, f"row {i}, column {j}")
        for i, row in enumerate(operator.rows) for j, block in enumerate(row) if block is not None
    )  # fmt: skip


@parts_of.register
def _(operator: Adaptive) -> tuple[Part, ...]:
    return parts_of(operator.dag)


@parts_of.register
def _(operator: Linearization) -> tuple[Part, ...]:
    """The blocks of the rules, with the nodes that they are of, in the order of the model."""
    dag = operator.dag.T if operator.transposed else operator.dag
    held = tuple(held_in(operator.entries, dag))
    origins = (f"{h.text}, {h.step.op_type} {h.step.name}" for h in held)
    if not held:
        return parts_of(operator.dag)
    found = tuple(Part(h.operator, o) for h, o in zip(held, origins, strict=True))
    if not operator.transposed:
        return found
    return tuple(Part(part.operator.T, f"({part.origin})ᵀ") for part in reversed(found))


def taking(J: Linearization) -> tuple[Part, ...]:
    """What takes the products by now, if anything does: the blocks after elimination."""
    structure = vars(J).get("structure")
    while structure is not None and not isinstance(structure, Dag):
        inner = structure.structure
        structure = None if inner is structure else inner
    if structure is None or J.transposed or not J.entries:
        return ()
    of, wrt = (tuple(spec.name for spec in side) for side in (J.codomain, J.domain))
    names = vertex_names(J.entries, wrt, of)
    return tuple(Part(e.operator, f"{names[e.start]} → {names[e.end]}") for e in structure.edges)


@singledispatch
def flops_text(operator: Jacobian) -> str:
    """Multiplications and additions of one product, where they are known without taking it."""
    return f"{operator.flops:,}"


@flops_text.register(Checkpointed)
@flops_text.register(OverBatches)
@flops_text.register(Distributed)
def _(operator: Jacobian) -> str:
    return "–"
