"""Blocks: what each step contributes to J, and what elimination and planning do with it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from ...jacobians import Dag, Dense, Edge, Jacobian
from ...jacobians.text import bytes_text, clipped, joined, time_text
from ...ops import Step
from ..linear.elimination.cost import seconds
from ..linear.elimination.deferred import Deferred
from ..linear.elimination.plan import elimination_of, plan_of
from ..linear.elimination.vertex_elimination import Ends
from ..linear.explanation import Costs, Row, Stretch
from ..linear.linearization import Linearization
from ..linear.tape.active import Slot
from ..linear.tape.record import vertex_names

KEPT, SIMPLIFIED, MERGED, OUT = "kept", "simplified", "merged", "multiplied out"

structure_text = partial(clipped, width=60)
"""The structure of an operator, clipped for a table."""


def structure_kind(structure: str) -> str:
    """A structure without its sizes.

    >>> structure_kind("diag(2×8) · (I(8) ⊗ A[8×3]) · take(64 → 24)")
    'diag · (I ⊗ A) · take'
    >>> structure_kind("diag(2×8) · conv_x[8×3] · resha…")
    'diag · conv_x · …'
    """
    kind = re.sub(r"\[[^]]*]?|\(\d[^)]*\)?", "", structure)
    return re.sub(r"[^ ]*…$", "…", kind)


def end_names(J: Linearization) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the `wrt` and `of` tensors."""
    wrt, of = (tuple(spec.name for spec in side) for side in (J.domain, J.codomain))
    return wrt, of


def tensor_names(J: Linearization) -> tuple[str, ...]:
    """Names of the tensors behind the vertices of J's DAG."""
    return vertex_names(J.entries, *end_names(J))


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


def held_in(J: Linearization) -> Iterator[Held]:
    """The blocks of J's steps that are edges of its DAG; for Jᵀ, the blocks of J."""
    dag = J.dag.T if J.transposed else J.dag
    number = {name: k for k, name in enumerate(vertex_names(J.entries))}
    used = {(edge.start, edge.end) for edge in dag.edges}
    for entry in J.entries:
        for key, block in entry.blocks.items():
            start, end = entry.step.inputs[key[1]] or "", entry.step.outputs[key[0]] or ""
            if (ends := (number[start], number[end])) in used:
                yield Held(entry.step, key, block, ends)


def costs_of(J: Jacobian) -> Costs:
    """The costs of an operator, by the cost model of elimination."""
    matrix = Dense(Deferred(J.shape, J.dtype))
    return Costs(seconds(J), seconds(J.T), seconds(matrix))


def row_of(held: Held, after: Mapping[Ends, str] | None = None) -> Row:
    """The row of one block; `after` says what became of the blocks between two vertices."""
    J, step = held.operator, held.step
    return Row(
        step.op_type, step.name, held.text, structure_text(repr(J)),
        (after or {}).get(held.ends, ""), costs_of(J), J.flops, J.nbytes,
    )  # fmt: skip


# -- stretches: operators that replace several blocks ----------------------------------------------


@dataclass(frozen=True)
class Change:
    """An edge of the DAG after elimination, and the blocks that it replaces."""

    edge: Edge
    inside: frozenset[int]
    blocks: tuple[Edge, ...]
    choice: str
    why: str


def changes(dag: Dag) -> tuple[Change, ...]:
    """The edges of a DAG after elimination and planning, each with the blocks that it replaces."""
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
    """An edge that replaces others because one product with it is cheaper."""
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
    """An edge multiplied out to a matrix, because many products repay its computation."""
    before, after = (time_text(getattr(told, name)) for name in ("before", "after"))
    blocks = dag.between((edge.start,), (edge.end,)).edges
    inside = {v for e in blocks for v in (e.start, e.end)} - {edge.start, edge.end}
    why = f"all of J v {before} → {after}, holds {bytes_text(edge.operator.nbytes)}"
    return Change(edge, frozenset(inside), blocks, OUT, why)


def stretches_of(
    found: tuple[Change, ...], names: tuple[str, ...], ops: Mapping[Ends, str]
) -> Iterator[Stretch]:
    """A row for every edge that replaces blocks; `ops` has the operator of each block."""
    for number, c in enumerate((c for c in found if c.choice != KEPT), 1):
        gone = tuple(names[v] for v in sorted(c.inside))
        by = tuple(dict.fromkeys(ops.get((e.start, e.end), "?") for e in c.blocks))
        J, start, end = c.edge.operator, names[c.edge.start], names[c.edge.end]
        yield Stretch(
            number, start, end, by, gone, structure_text(repr(J)), c.choice, c.why, costs_of(J),
            J.nbytes,
        )  # fmt: skip


def fates(found: tuple[Change, ...]) -> dict[Ends, str]:
    """What became of the blocks between two vertices: kept, or the stretches that hold them."""
    numbers: dict[Ends, list[int]] = defaultdict(list)
    kept = {(e.start, e.end) for c in found if c.choice == KEPT for e in c.blocks}
    for number, c in enumerate((c for c in found if c.choice != KEPT), 1):
        for e in c.blocks:
            numbers[e.start, e.end].append(number)
    each = {ends: tuple(dict.fromkeys(known)) for ends, known in numbers.items()}
    said = {ends: f"in {joined(known, ', ', width=20)}" for ends, known in each.items()}
    return dict.fromkeys(kept, KEPT) | said
