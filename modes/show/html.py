"""HTML: how notebooks show models, operators and results, registered for each type.

No scripts, style sheets or external resources: tables and `<details>` in the colours of the page,
legible on light and dark backgrounds and where styles are stripped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from ...jacobians import Block, Dag, Jacobian, prod_text
from ...jacobians.hooks import html
from ...jacobians.text import FIRST, LAST, Table, abridged_lines, bytes_text, clipped, joined
from ..data.stream import OverData
from ..estimators.density import SpectralDensity
from ..estimators.estimate import Estimate
from ..linear.check import SIGNS, Check
from ..linear.derivatives.checkpoint import is_checkpointed
from ..linear.elimination.adaptive import Adaptive
from ..linear.elimination.cost import seconds
from ..linear.explanation import Local, Tables
from ..linear.linearization import Linearization
from ..model.flow.contents import Contents, TensorSpec
from ..model.markup import CELL, FAINT, OPEN, Markup, card, fold, fold_table, grid, pre, tag
from ..solvers.iteration import OptimizeResult
from .blocks import held_in, memory_text, tensor_names

SPECS = ("tensor", "shape", "type")

DERIVED = frozenset({"T", "dag", "structure", "known"})
"""Attributes whose operators are not parts: the operator itself again, or shown elsewhere."""

ROOM = 200
"""The most rows in a whole tree."""

DEPTH = 6
"""The deepest nesting of folds."""

NOTE = "share: of the estimated time of one product; nothing was measured"


# -- operators -------------------------------------------------------------------------------------


@html.register
def _(operator: Jacobian) -> str:
    """Any operator."""
    return card(repr(operator), amounts(operator), fold_parts("parts", parts_of(operator)))


@html.register
def _(J: Linearization) -> str:
    """A Jacobian between named tensors: its blocks, and the operators after elimination."""
    return card(
        repr(J), amounts(J), fold_parts("blocks, as the rules give them", parts_of(J)),
        fold_parts("operators, as products take them by now", taking(J)),
    )  # fmt: skip


def amounts(J: Jacobian) -> str:
    """Size, arithmetic and memory."""
    return (f"{prod_text(J.shape)} {J.dtype}, {flops_text(J)} flops in one product, "
            f"{memory_text(J)}")  # fmt: skip


def flops_text(operator: Jacobian) -> str:
    """Multiplications and additions of one product, or a dash where only running it would tell."""
    unknown = is_checkpointed(operator) or isinstance(operator, OverData)
    return "–" if unknown else f"{operator.flops:,}"


# -- parts: what an operator is composed of --------------------------------------------------------


@dataclass(frozen=True)
class OperatorPart:
    """An operator, and its place in the model or in a larger operator."""

    operator: Jacobian
    origin: str = ""


@singledispatch
def parts_of(operator: Jacobian) -> tuple[OperatorPart, ...]:
    """The operators that an operator holds: its factors, its terms, or the one that it wraps."""
    held = {name: found for name, value in vars(operator).items()
            if name not in DERIVED and (found := tuple(operators_in(value)))}  # fmt: skip
    named = len(held) > 1
    return tuple(OperatorPart(J, name * named) for name, found in held.items() for J in found)


def operators_in(value: Any) -> Iterator[Jacobian]:
    """A value itself where it is an operator, or the operators in a list."""
    if isinstance(value, Jacobian):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from operators_in(part)


@parts_of.register
def _(operator: Dag) -> tuple[OperatorPart, ...]:
    return tuple(OperatorPart(e.operator, f"tensor {e.start} → {e.end}") for e in operator.edges)


@parts_of.register
def _(operator: Block) -> tuple[OperatorPart, ...]:
    return tuple(
        OperatorPart(block, f"row {i}, column {j}")
        for i, row in enumerate(operator.rows) for j, block in enumerate(row) if block is not None
    )  # fmt: skip


@parts_of.register
def _(operator: Adaptive) -> tuple[OperatorPart, ...]:
    return parts_of(operator.dag)


@parts_of.register
def _(operator: Linearization) -> tuple[OperatorPart, ...]:
    """The blocks of the rules with their nodes, in the order of the model."""
    held = tuple(held_in(operator))
    if not held:
        return parts_of(operator.dag)
    found = tuple(
        OperatorPart(h.operator, f"{h.text}, {h.step.op_type} {h.step.name}") for h in held
    )
    if not operator.transposed:
        return found
    return tuple(OperatorPart(part.operator.T, f"({part.origin})ᵀ") for part in reversed(found))


def taking(J: Linearization) -> tuple[OperatorPart, ...]:
    """The blocks after elimination, if products have been taken."""
    structure = vars(J).get("structure")
    while structure is not None and not isinstance(structure, Dag):
        inner = structure.structure
        structure = None if inner is structure else inner
    if structure is None or J.transposed or not J.entries:
        return ()
    names = tensor_names(J)
    return tuple(
        OperatorPart(e.operator, f"{names[e.start]} → {names[e.end]}") for e in structure.edges
    )


# -- tree: an operator and its parts, as tables within folds ---------------------------------------


def fold_parts(title: str, parts: tuple[OperatorPart, ...]) -> Markup:
    """The fold of some parts, if there are any."""
    if not parts:
        return Markup()
    return fold(f"{title}: {len(parts):,}", operator_table(parts), unfolded=len(parts) <= OPEN)


def operator_table(
    parts: Sequence[OperatorPart], room: int = ROOM, depth: int = DEPTH, note: str = NOTE
) -> Markup:
    """A table of operators, each with a fold of its own parts.

    Shares are of the time that the cost model of elimination estimates. The rows of `room` that
    this table does not use are divided among the folds.
    """
    times = [seconds(part.operator) for part in parts]
    total = sum(times)
    first, last = max(min(FIRST, room * 3 // 4), 1), max(min(LAST, room // 4), 1)
    shown = min(len(parts), first + last)
    left = (room - shown) // max(shown, 1) if depth else 0
    named = any(part.origin for part in parts)
    hidden = range(first, len(parts) - last) if len(parts) > first + last + 1 else range(0)
    rows: list[tuple[str, ...]] = []
    for k, part in enumerate(parts):
        if k in hidden:
            continue
        J, cell = part.operator, clipped(repr(part.operator), CELL)
        if inner := parts_of(J) if left > 1 and depth > 1 else ():  # which are indented
            step = "margin-left:.4em;padding-left:.8em;border-left:1px solid"
            cell = fold(cell, tag("div", operator_table(inner, left, depth - 1, ""), style=step))
        shape = f"{prod_text(J.out_shape)} ← {prod_text(J.in_shape)}"
        rows.append((cell, *[part.origin] * named, shape, flops_text(J), bytes_text(J.nbytes),
                     percent_text(times[k], total)))  # fmt: skip
    if hidden:
        rest = percent_text(sum(times[k] for k in hidden), total)
        rows.insert(first, (f"… {len(hidden):,} more, {rest} of the time",))
    head = ("operator", *["from"] * named, "shape", "flops", "bytes", "share")
    return grid(Table("", head, tuple(rows), ("flops", "bytes", "share"), note))


def percent_text(part: float, total: float) -> str:
    """A part of the whole in percent.

    >>> percent_text(1, 3), percent_text(0, 0)
    ('33 %', '–')
    """
    return f"{100 * part / total:.0f} %" if total else "–"


# -- models ----------------------------------------------------------------------------------------


@html.register
def _(model: Contents) -> str:
    """A model: its inputs and outputs, its weights, its nodes."""
    def names(tensors: Iterable[str | None]) -> str:
        return joined([name or "–" for name in tensors], ", ", width=60)

    nodes = tuple((s.op_type, s.name, names(s.inputs), names(s.outputs)) for s in model.steps)
    held = tuple((*cells, bytes_text(model.constants[cells[0]].nbytes))
                 for cells in spec_cells(model.initializers.values()))  # fmt: skip
    sides = (("inputs", model.inputs), ("outputs", model.outputs))
    kinds = Counter(step.op_type for step in model.steps).most_common()
    return card(
        repr(model), ", ".join(f"{name} {n}" for name, n in kinds[:12]),
        *(fold_table(Table(title, SPECS, spec_cells(specs.values())))
          for title, specs in sides if specs),
        fold_table(Table("initializers", (*SPECS, "bytes"), held, ("bytes",))),
        fold_table(Table("nodes", ("op", "name", "inputs", "outputs"), nodes)),
    )  # fmt: skip


def spec_cells(specs: Iterable[TensorSpec]) -> tuple[tuple[str, ...], ...]:
    """Names, shapes and types of tensors, as far as the model says."""
    return tuple(
        (s.name, "unknown" if s.shape is None
         else "×".join("?" if d is None else str(d) for d in s.shape) or "1",
         str(s.dtype or "unknown")) for s in specs
    )  # fmt: skip


# -- results ---------------------------------------------------------------------------------------


@html.register
def _(found: Tables) -> str:
    """An explanation: lines, and every table as a fold."""
    return card(found.title, "", listing(found.lines), *map(fold_table, found.tables()))


@html.register
def _(found: Local) -> str:
    """One step: its rule, lines, and every table as a fold."""
    rule = tag("div", f"rule: {found.rule.source}" if found.rule.source else "", style=FAINT)
    formulas = map(pre, found.rule.formulas)
    return card(found.title, "", rule, *formulas, listing(found.lines),
                *map(fold_table, found.tables()))  # fmt: skip


def listing(lines: Iterable[str]) -> Markup:
    """One line below the other."""
    shown = abridged_lines([clipped(line, 400) for line in lines])
    return Markup("".join(tag("div", line) for line in shown))


@html.register
def _(found: Check) -> str:
    """A row for every test."""
    rows = tuple((SIGNS[o.verdict].strip(), f"{o.name} ({o.note})" if o.note else o.name,
                  f"{o.error:.1e}", f"{o.tolerance:.1e}") for o in found.outcomes)  # fmt: skip
    head = ("", "test", "error", "allowed")
    return card(found.summary, "", grid(Table("", head, rows, head[2:])))


@html.register
def _(found: Estimate) -> str:
    """The value, its error, and its cost."""
    return card(repr(found), "", pairs(vars(found)))


@html.register
def _(found: SpectralDensity) -> str:
    """The range of the eigenvalues, and the cost."""
    about = {"eigenvalues": f"{found.n:,}", "from": found.nodes.min(), "to": found.nodes.max(),
             "products": found.products, "method": found.method}  # fmt: skip
    return card(repr(found), "", pairs(about))


@html.register
def _(found: OptimizeResult) -> str:
    """How a solver ended, and its fields; arrays by shape and norm."""
    ended = "solved" if found.get("success") else "not solved"
    about = {k: v for k, v in found.items() if k not in ("success", "message", "tensors")}
    tensors = {f"tensor {name}": array for name, array in found.get("tensors", {}).items()}
    return card(f"{ended}: {found.get('message', '')}", "", pairs(tensors | about))


def pairs(about: Mapping[str, Any]) -> Markup:
    """Names and values."""
    rows = tuple((name, value_text(value)) for name, value in about.items())
    return grid(Table("", ("", "value"), rows))


def value_text(value: Any) -> str:
    """A value in one cell.

    >>> value_text(0.12345678), value_text(np.ones((2, 2)))
    ('0.123457', 'array 2×2, norm 2')
    """
    if isinstance(value, np.ndarray) and value.ndim:
        norm = np.linalg.norm(value.astype(float)) if value.dtype.kind in "fiub" else np.nan
        return f"array {prod_text(value.shape)}, norm {norm:.6g}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
