"""Local: one step of a Jacobian, its rule with its mathematics, its blocks and its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ...jacobians import prod_text
from ...jacobians.errors import UnknownTensor, closest
from ...jacobians.hooks import Shown
from ...ops import Step
from ..reporting.tables import Table
from .blocks import COSTS, Row, held_in, row_of
from .explain import Linearization
from .explanation import BLOCKS, ESTIMATED, kink_table, not_met
from .kinks import Kink
from .mathematics import Mathematics, legend, mathematics
from .met import Met, kinks_at

TENSORS = ("tensor", "role", "shape", "type")


@dataclass(frozen=True)
class Local(Shown):
    """The rule of one step, or where no step makes the tensor, the blocks that begin at it.

    `why` says why there are no blocks where there are none.
    """

    title: str
    rule: Mathematics
    tensors: tuple[tuple[str, ...], ...]
    rows: tuple[Row, ...]
    legend: tuple[str, ...] = ()
    kinks: tuple[Kink, ...] = ()
    why: str = ""

    def tables(self) -> Iterator[Table]:
        """All tables that have rows."""
        head = tuple(name for name in BLOCKS if name != "after")
        cells = tuple(r.cells[:4] + r.cells[5:] for r in self.rows)
        found = (
            Table("tensors", TENSORS, self.tensors),
            Table("blocks", head, cells, (*COSTS, "flops", "bytes"), ESTIMATED),
            kink_table(self.kinks),
        )
        return (table for table in found if table.rows)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python data, for JSON; times in seconds, memory in bytes."""
        return asdict(self)

    def __str__(self) -> str:
        rule = "\n".join(filter(None, [self.rule.source and f"rule: {self.rule.source}",
                                       *self.rule.formulas]))  # fmt: skip
        parts = [self.title, rule, *map(str, self.tables()), "\n".join(self.legend),
                 *not_met(self.kinks), self.why]  # fmt: skip
        return "\n\n".join(filter(None, parts))

    __repr__ = __str__


def explain_local(J: Linearization, name: str) -> Local:
    """The step of that name, or the one that makes the tensor of that name.

    Raises `UnknownTensor` where the model has neither.
    """
    route, _ = J.route.flat(J.point)
    steps = (*route.steps, *J.route.steps)
    step = next((s for s in steps if s.name == name), None)
    step = step or next((s for s in steps if name in s.outputs), None)
    if step is not None:
        return of_step(J, step)
    if name in route.model.inputs or name in route.model.initializers:
        return of_given(J, name)
    made = (known for s in steps for known in (s.name, *filter(None, s.outputs)))
    known = dict.fromkeys((*made, *route.model.inputs, *route.model.initializers))
    raise UnknownTensor(f"the model has no node and no tensor {name!r}.{closest(name, known)}")


def of_step(J: Linearization, step: Step) -> Local:
    """One step: a step of a loop that was unrolled has its own name."""
    held = [h for h in held_in(J.entries, J.dag) if h.step is step]
    return Local(
        str(step), mathematics(step), tensors_of(J, step), tuple(map(row_of, held)),
        tuple(legend(h.operator for h in held)), kinks_at(J, step),
        "" if held else why_none(J, step),
    )  # fmt: skip


def of_given(J: Linearization, name: str) -> Local:
    """A tensor that nothing computes: the blocks that begin at it."""
    held = [h for h in held_in(J.entries, J.dag) if h.step.inputs[h.key[1]] == name]
    spec = J.route.model.spec(name)
    role = "an input" if name in J.route.model.inputs else "an initializer"
    why = "" if held else f"No block of this Jacobian begins at it: name it with wrt={name!r}."
    return Local(
        f"{spec}, {role}: nothing computes it", Mathematics("", ()), (),
        tuple(map(row_of, held)), tuple(legend(h.operator for h in held)), (), why,
    )  # fmt: skip


def why_none(J: Linearization, step: Step) -> str:
    """Why a step has no blocks."""
    if not J.entries:
        return "A checkpointed Jacobian holds no blocks: linearise without checkpoint= to see them."
    route, _ = J.route.flat(J.point)
    if step not in route.steps:
        return "At the point it is unrolled: its turns, or its branch, are steps of their own."
    of, wrt = (", ".join(spec.name for spec in side) for side in (J.codomain, J.domain))
    return f"It has no block here: it is not on a differentiable way from ({wrt}) to ({of})."


def tensors_of(J: Linearization, step: Step) -> tuple[tuple[str, ...], ...]:
    """Name, role, shape and type of the tensors of a step at the point."""
    route, _ = J.route.flat(J.point)
    if step not in route.steps:
        return ()
    values = Met(J).values((step,))
    named = [*((n, f"input {k}") for k, n in enumerate(step.inputs) if n),
             *((n, f"output {k}") for k, n in enumerate(step.outputs) if n)]  # fmt: skip
    return tuple(
        (n, role, prod_text(values[n].shape), str(values[n].dtype)) for n, role in named
        if hasattr(values[n], "shape")
    )  # fmt: skip
