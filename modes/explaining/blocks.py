"""Blocks: what each step contributes to a Jacobian, and what a product with it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from ...jacobians import Dag, Dense, Jacobian
from ...jacobians.text import clipped
from ...ops import Step
from ..elimination.cost import seconds
from ..elimination.deferred import Deferred
from ..elimination.vertex_elimination import Ends
from ..reporting.units import time_text
from ..tape.active import Slot
from ..tape.record import Entry, vertex_names

structure_text = partial(clipped, width=60)
"""The structure of an operator in a table."""


@dataclass(frozen=True)
class Held:
    """A block ∂output/∂input of a step, and the vertices of the DAG that it joins."""

    step: Step
    key: Slot
    operator: Jacobian
    ends: Ends

    @property
    def text(self) -> str:
        """∂output/∂input, by name."""
        return f"∂{self.step.outputs[self.key[0]]}/∂{self.step.inputs[self.key[1]]}"


def held_in(entries: tuple[Entry, ...], dag: Dag) -> Iterator[Held]:
    """The blocks of some entries that a DAG of theirs has edges for."""
    number = {name: k for k, name in enumerate(vertex_names(entries))}
    used = {(edge.start, edge.end) for edge in dag.edges}
    for entry in entries:
        for key, J in entry.blocks.items():
            start, end = entry.step.inputs[key[1]] or "", entry.step.outputs[key[0]] or ""
            if (ends := (number[start], number[end])) in used:
                yield Held(entry.step, key, J, ends)


@dataclass(frozen=True)
class Costs:
    """Estimated seconds of one product: J v, Jᵀ u, and J v by the dense matrix."""

    forward: float
    reverse: float
    dense: float

    @property
    def cells(self) -> tuple[str, ...]:
        return time_text(self.forward), time_text(self.reverse), time_text(self.dense)


COSTS = ("J v", "Jᵀ u", "dense")
"""What the columns of costs are called."""


def costs_of(J: Jacobian) -> Costs:
    """The costs of an operator, by the figures that elimination decides with."""
    matrix = Dense(Deferred(J.shape, J.dtype, lambda: None))
    return Costs(seconds(J), seconds(J.T), seconds(matrix))


@dataclass(frozen=True)
class Row:
    """One block of one step: ∂output/∂input, and what elimination made of it."""

    op: str
    node: str
    block: str
    structure: str
    after: str
    costs: Costs
    flops: int
    nbytes: int

    @property
    def cells(self) -> tuple[str, ...]:
        counts = f"{self.flops:,}", f"{self.nbytes:,}"
        return (self.op, self.node, self.block, self.structure, self.after, *self.costs.cells,
                *counts)  # fmt: skip


def row_of(held: Held, after: Mapping[Ends, str] | None = None) -> Row:
    """The row of one block; `after` says what became of those between two vertices."""
    J, step = held.operator, held.step
    return Row(
        step.op_type, step.name, held.text, structure_text(repr(J)),
        (after or {}).get(held.ends, ""), costs_of(J), J.flops, J.nbytes,
    )  # fmt: skip
