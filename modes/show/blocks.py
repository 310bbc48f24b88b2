"""Blocks: what each step contributes to J, and what elimination and planning do with it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial

from ...jacobians import Dag, Dense, Edge, Jacobian
from ...jacobians.text import bytes_text, clipped, joined, time_text
from ...ops import Step
from ..linear.derivatives.record import Slot, vertex_names
from ..linear.elimination.cost import seconds
from ..linear.elimination.deferred import Deferred
from ..linear.elimination.plan import elimination_of, new_edges, plan_of
from ..linear.elimination.vertex_elimination import Ends
from ..linear.explanation import Costs, Row, Stretch
from ..linear.linearization import Linearization

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


def memory_text(J: Jacobian) -> str:
    """The memory of the arrays that products read, and the memory of the matrix."""
    dense = J.shape[0] * J.shape[1] * J.dtype.itemsize
    return f"products read {bytes_text(J.nbytes)}; the matrix would take {bytes_text(dense)}"


SIGNS = {
    "·": "first the right one, then the left one",
    "+": "a sum",
    "⊗": "(A ⊗ B) is X ↦ A X Bᵀ, where I is the identity",
    "diag": "each entry times a number",
    "conv": "a convolution, by its image x or its kernel w",
    "convᵀ": "the adjoint of a convolution",
    "corr": "a convolution's adjoint, for its kernel",
    "einsum": "a sum of products of entries",
    "dense": "a matrix",
    "blockdiag": "a matrix for each sample",
    "lowrank": "a matrix of few rows times one of few columns",
    "circulant": "a cyclic convolution",
    "take": "picks entries",
    "slice": "picks a range",
    "scatter": "adds entries at their places",
    "embed": "puts a range into zeros",
    "reshape": "another shape",
    "perm": "axes in another order",
    "bcast": "repeats entries",
    "sum": "adds up along axes",
    "cumsum": "running sums along an axis",
    "cast": "another type of numbers",
}
"""A sign in the text of an operator -> what the operator does."""


def sign_meanings(structures: Iterable[str]) -> list[str]:
    """What the signs in some structures mean, in the order of `SIGNS`.

    >>> sign_meanings(["diag(3) · take(4 → 3)"])[1:]
    ['diag: each entry times a number', 'take: picks entries']
    """
    met = {sign for text in structures for sign in re.findall(r"[^\W\d_]+|[·+⊗]", text)}
    return [f"{sign}: {meaning}" for sign, meaning in SIGNS.items() if sign in met]


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
    return Costs(seconds(J), seconds(J.T), seconds(Dense(Deferred(J.shape, J.dtype))))


def block_row(held: Held, after: Mapping[Ends, str] | None = None) -> Row:
    """The row of one block; `after` says what became of the blocks between two vertices."""
    J, step = held.operator, held.step
    return Row(
        step.op_type, step.name, held.text, structure_text(repr(J)),
        (after or {}).get(held.ends, ""), costs_of(J), J.flops, J.nbytes,
    )  # fmt: skip


# -- stretches: operators that replace several blocks ----------------------------------------------


def stretches_of(
    dag: Dag, names: tuple[str, ...], ops: Mapping[Ends, str]
) -> tuple[tuple[Stretch, ...], dict[Ends, str]]:
    """The operators after elimination and planning that replace blocks, and each block's fate.

    `names` has the names of the vertices, `ops` the operator of each block.
    """
    collapse, plan = elimination_of(dag), plan_of(dag)
    after = collapse.after if plan is None else plan
    planned = {id(edge) for edge in new_edges(after, collapse.after)}
    before, beside = defaultdict[int, list[Edge]](list), defaultdict[Ends, list[Edge]](list)
    for edge in dag.edges:
        before[edge.end].append(edge)
        beside[edge.start, edge.end].append(edge)
    found: list[Stretch] = []
    numbers: dict[Ends, dict[int, None]] = {}
    for edge in after.edges:
        start, end, J = edge.start, edge.end, edge.operator
        inside: Set[int] = collapse.inside.get((start, end), frozenset())
        if id(edge) in planned:
            blocks = dag.between((start,), (end,)).edges
            inside = {v for e in blocks for v in (e.start, e.end)} - {start, end}
        else:
            near = (e for v in sorted(inside) for e in before[v] if e.start in inside | {start})
            last = (e for v in sorted(inside | {start}) for e in beside[v, end])
            blocks = (*near, *last)
        old, new = sum(seconds(e.operator) for e in blocks), seconds(J)
        gain = f"J v {time_text(old)} → {time_text(new)}"
        if id(edge) in planned:
            choice, why = "multiplied out", f"{gain}, holds {bytes_text(J.nbytes)}"
        else:
            choice = "merged" if inside else "simplified"
            why = gain if new < old else "no dearer, and simpler"
        kept = not inside and any(e.operator is J for e in blocks)
        for e in blocks:
            numbers.setdefault((e.start, e.end), {}).update({} if kept else {len(found) + 1: None})
        if not kept:
            by = tuple(dict.fromkeys(ops.get((e.start, e.end), "?") for e in blocks))
            gone = tuple(names[v] for v in sorted(inside))
            found.append(Stretch(
                len(found) + 1, names[start], names[end], by, gone, structure_text(repr(J)),
                choice, why, costs_of(J), J.nbytes,
            ))  # fmt: skip
    fates = {ends: f"in {joined([*known], ', ', width=20)}" if known else "kept"
             for ends, known in numbers.items()}  # fmt: skip
    return tuple(found), fates
