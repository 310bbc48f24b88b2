"""Explain: what each step contributes to a Jacobian, and what cuts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..jacobians import Dag, Jacobian
from .elimination.planned import collapse_of, plan_of
from .tape.record import Entry


@dataclass(frozen=True)
class Row:
    """One block of one step."""

    op: str
    node: str
    block: str
    structure: str
    flops: int
    nbytes: int

    @property
    def cells(self) -> tuple[str, ...]:
        counts = f"{self.flops:,}", f"{self.nbytes:,}"
        return self.op, self.node, self.block, self.structure, *counts


@dataclass(frozen=True)
class Explanation:
    """The blocks of a Jacobian in the order of the model, what was eliminated from them before
    products are taken, and the pairs that nothing joins.
    """

    rows: tuple[Row, ...]
    zeros: tuple[str, ...]
    eliminated: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = ("op", "node", "block", "structure", "flops", "bytes")
        cells = [head, *(row.cells for row in self.rows)]
        widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
                 for row in cells]  # fmt: skip
        return "\n".join([*lines, *self.eliminated, *self.zeros])

    __repr__ = __str__


def explain(
    entries: tuple[Entry, ...], dag: Dag, names: tuple[str, ...], zeros: tuple[str, ...]
) -> Explanation:
    """A row for every block that the Jacobian uses; `names` are those of the vertices."""
    used = frozenset(id(edge.operator) for edge in dag.edges)
    rows = tuple(
        Row(e.step.op_type, e.step.name, block_text(e, key), shortened(J), J.flops, J.nbytes)
        for e in entries
        for key, J in e.blocks.items()
        if id(J) in used
    )
    return Explanation(rows, zeros, tuple(history(dag, names)))


def history(dag: Dag, names: tuple[str, ...]) -> Iterator[str]:
    """What happened to a DAG before its products: what was eliminated, and multiplied out."""
    collapse, plan = collapse_of(dag), plan_of(dag)
    if collapse.inside:
        yield f"eliminated: {collapse!r}"
    for (start, end), inside in collapse.inside.items():
        gone = ", ".join(names[v] for v in inside)
        yield f"  {names[end]} straight from {names[start]}, not by {gone}"
    if plan is not None and plan.stretches:
        yield f"multiplied out: {plan.nbytes:,} bytes"
        yield from (f"  {s.told(names[s.start], names[s.end])}" for s in plan.stretches)


def block_text(entry: Entry, key: tuple[int, int]) -> str:
    """∂output/∂input, by name."""
    return f"∂{entry.step.outputs[key[0]]}/∂{entry.step.inputs[key[1]]}"


def shortened(J: Jacobian, width: int = 60) -> str:
    """The structure in one line that fits a table."""
    text = repr(J)
    return text if len(text) <= width else text[: width - 1] + "…"
