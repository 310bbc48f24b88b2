"""Stretches: what elimination and planning made of the blocks, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...jacobians import Dag, Edge
from ...jacobians.text import joined
from ..elimination.cost import seconds
from ..elimination.plan import elimination_of, plan_of
from ..elimination.vertex_elimination import Ends
from ..reporting.units import bytes_text, time_text
from .blocks import Costs, costs_of, structure_text

KEPT, SIMPLIFIED, MERGED, OUT = "kept", "simplified", "merged", "multiplied out"


@dataclass(frozen=True)
class Stretch:
    """From tensor `start` to tensor `end` by one operator, where there were several blocks.

    `gone` are the tensors that no product computes any more.
    """

    number: int
    start: str
    end: str
    ops: tuple[str, ...]
    gone: tuple[str, ...]
    structure: str
    choice: str
    why: str
    costs: Costs
    nbytes: int

    @property
    def cells(self) -> tuple[str, ...]:
        ops, gone = joined(self.ops, " · ", width=48), joined(self.gone, ", ", width=48)
        return (str(self.number), f"{self.start} → {self.end}", ops, gone or "–", self.structure,
                f"{self.choice}: {self.why}", *self.costs.cells, f"{self.nbytes:,}")  # fmt: skip


@dataclass(frozen=True)
class Change:
    """An edge of the DAG that takes the products, and the blocks that it stands for."""

    edge: Edge
    inside: frozenset[int]
    blocks: tuple[Edge, ...]
    choice: str
    why: str


def changes(dag: Dag) -> tuple[Change, ...]:
    """What takes the products of a DAG, edge by edge."""
    collapse, plan = elimination_of(dag), plan_of(dag)
    final = collapse.after if plan is None else plan.dag
    told = {} if plan is None else {(s.start, s.end): s for s in plan.steps}
    before: dict[int, list[Edge]] = defaultdict(list)
    for edge in dag.edges:
        before[edge.end].append(edge)
    return tuple(
        multiplied(dag, edge, told[ends]) if (ends := (edge.start, edge.end)) in told
        else merged(before, edge, collapse.inside.get(ends, frozenset()))
        for edge in final.edges
    )  # fmt: skip


def merged(before: Mapping[int, list[Edge]], edge: Edge, inside: frozenset[int]) -> Change:
    """An edge that stands for others because one product with it is cheaper."""
    starts, ends = inside | {edge.start}, inside | {edge.end}
    blocks = tuple(e for end in sorted(ends) for e in before[end] if e.start in starts)
    old, new = sum(seconds(e.operator) for e in blocks), seconds(edge.operator)
    gain = f"J v {time_text(old)} → {time_text(new)}" if new < old else "no dearer, and simpler"
    if inside:
        return Change(edge, inside, blocks, MERGED, gain)
    if any(e.operator is edge.operator for e in blocks):
        return Change(edge, inside, blocks, KEPT, "nothing that was tried is cheaper")
    return Change(edge, inside, blocks, SIMPLIFIED, gain)


def multiplied(dag: Dag, edge: Edge, told: object) -> Change:
    """An edge whose numbers were computed once, because so many products repay it."""
    before, after = (time_text(getattr(told, name)) for name in ("before", "after"))
    blocks = dag.between((edge.start,), (edge.end,)).edges
    inside = {v for e in blocks for v in (e.start, e.end)} - {edge.start, edge.end}
    why = f"all of J v {before} → {after}, holds {bytes_text(edge.operator.nbytes)}"
    return Change(edge, frozenset(inside), blocks, OUT, why)


def stretches_of(
    found: tuple[Change, ...], names: tuple[str, ...], ops: Mapping[Ends, str]
) -> Iterator[Stretch]:
    """A row for every edge that is not a block as it was; `ops` tells whose the blocks were."""
    for number, c in enumerate((c for c in found if c.choice != KEPT), 1):
        gone = tuple(names[v] for v in sorted(c.inside))
        by = tuple(dict.fromkeys(ops.get((e.start, e.end), "?") for e in c.blocks))
        J, start, end = c.edge.operator, names[c.edge.start], names[c.edge.end]
        yield Stretch(
            number, start, end, by, gone, structure_text(repr(J)), c.choice, c.why, costs_of(J),
            J.nbytes,
        )  # fmt: skip


def fates(found: tuple[Change, ...]) -> dict[Ends, str]:
    """What became of the blocks between two vertices: kept, or the stretches that they are in."""
    numbers: dict[Ends, list[int]] = defaultdict(list)
    kept = {(e.start, e.end) for c in found if c.choice == KEPT for e in c.blocks}
    for number, c in enumerate((c for c in found if c.choice != KEPT), 1):
        for e in c.blocks:
            numbers[e.start, e.end].append(number)
    each = {ends: tuple(dict.fromkeys(known)) for ends, known in numbers.items()}
    said = {ends: f"in {joined(known, ', ', width=20)}" for ends, known in each.items()}
    return dict.fromkeys(kept, KEPT) | said
