"""Explanation: all that is told of a Jacobian, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ...jacobians.hooks import Shown
from ...jacobians.text import joined
from ..reporting.tables import Table, abridged_lines
from .blocks import COSTS, Row
from .kinks import Kink
from .stretches import Stretch

ESTIMATED = (
    "Times are estimates for one product, of the cost model that elimination decides with; dense "
    "is J v with the matrix of the block. Nothing was measured."
)
BLOCKS = ("op", "node", "block", "structure", "after", *COSTS, "flops", "bytes")
STRETCHES = ("stretch", "from → to", "ops", "not by", "structure", "choice", *COSTS, "bytes")
KINKS = ("op", "node", "tensor", "kink", "entries on it", "derivative given there")
CUTS = ("op", "node", "why its derivative is zero")


def kink_table(kinks: tuple[Kink, ...]) -> Table:
    """Those that are met."""
    rows = tuple(kink.cells for kink in kinks if kink.met)
    return Table("kinks at this point", KINKS, rows, KINKS[4:5])


def not_met(kinks: tuple[Kink, ...]) -> tuple[str, ...]:
    """One line for those that were looked at in vain, if there are any."""
    met = {(kink.op, kink.where) for kink in kinks if kink.met}
    missed = {(kink.op, kink.where) for kink in kinks} - met
    if not missed:
        return ()
    ops = joined(sorted({op for op, _ in missed}), ", ", width=80)
    kinds = f"{len(missed)} {'further ' * bool(met)}kind{'s' * (len(missed) > 1)}"
    return (f"kinks: {kinds} looked at and not met ({ops})",)


@dataclass(frozen=True)
class Cut:
    """A step without a derivative between the tensors of `wrt` and of `of`."""

    op: str
    node: str
    why: str

    @property
    def cells(self) -> tuple[str, ...]:
        return self.op, self.node, self.why


@dataclass(frozen=True)
class Explanation(Shown):
    """The blocks of a Jacobian in the order of the model and what became of them.

    `rows` are the blocks, `stretches` what elimination and planning made of them, `choices` how
    products are taken and why, `cuts` the steps without a derivative, `zeros` the pairs of tensors
    that nothing joins, and `kinks` where the steps are not differentiable, or not finitely so,
    with the number of entries that lie there at this very point. As text, only the kinks that are
    met are shown, and of many rows the first and the last; here are all.
    """

    title: str
    rows: tuple[Row, ...]
    stretches: tuple[Stretch, ...] = ()
    choices: tuple[str, ...] = ()
    cuts: tuple[Cut, ...] = ()
    zeros: tuple[str, ...] = ()
    kinks: tuple[Kink, ...] = ()

    def tables(self) -> Iterator[Table]:
        """All tables that have rows."""
        amounts = (*COSTS, "flops", "bytes")
        found = (
            Table("", BLOCKS, tuple(r.cells for r in self.rows), amounts, ESTIMATED),
            Table("stretches", STRETCHES, tuple(s.cells for s in self.stretches), amounts),
            kink_table(self.kinks),
            Table("what cuts the derivative", CUTS, tuple(c.cells for c in self.cuts)),
        )
        return (table for table in found if table.rows)

    @property
    def lines(self) -> tuple[str, ...]:
        """What is said beside the tables."""
        return *self.choices, *not_met(self.kinks), *self.zeros

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python data, for JSON; times in seconds, memory in bytes."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [*map(str, self.tables()), "\n".join(abridged_lines(self.lines))]
        return "\n\n".join(filter(None, parts))

    __repr__ = __str__
