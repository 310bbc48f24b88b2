"""Explanation: what `explain()` of an operator returns, as data and as tables; `show/` makes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ...jacobians import prod_text
from ...jacobians.hooks import Shown
from ...jacobians.text import Cells, Table, abridged_lines, joined, time_text

COSTS = ("J v", "Jᵀ u", "dense")
BLOCKS = ("op", "node", "block", "structure", "after", *COSTS, "flops", "bytes")
STRETCHES = ("stretch", "from → to", "ops", "not by", "structure", "choice", *COSTS, "bytes")
KINKS = ("op", "node", "tensor", "kink", "entries on it", "derivative given there")
CUTS = ("op", "node", "why its derivative is zero")
TENSORS = ("tensor", "role", "shape", "type")
PARTS = ("term", "part", "what it is", "shape", "flops", "bytes")
AMOUNTS = (*COSTS, "flops", "bytes", "entries on it")
"""The columns that are right-aligned."""

ESTIMATED = (
    "Times are estimates for one product, of the cost model that elimination decides with; dense "
    "is J v with the matrix of the block. Nothing was measured."
)


@dataclass(frozen=True, repr=False)
class Tables(Shown):
    """A result that is shown as a title, tables, and lines of text beside the tables."""

    title: str

    def tables(self) -> list[Table]:
        """All tables that have rows."""
        raise NotImplementedError

    @property
    def lines(self) -> tuple[str, ...]:
        """The text beside the tables."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The same as plain Python data, for JSON; times in seconds, memory in bytes."""
        return asdict(self)

    def __repr__(self) -> str:
        return str(self)


def nonempty_tables(*tables: Table) -> list[Table]:
    """The tables that have rows."""
    return [table for table in tables if table.rows]


def table(title: str, head: Cells, things: Iterable[Any], note: str = "") -> Table:
    """A table with a row for each thing."""
    return Table(title, head, tuple(thing.cells for thing in things), AMOUNTS, note)


def paragraphs(*parts: object) -> str:
    """Texts with an empty line between them."""
    return "\n\n".join(filter(None, map(str, parts)))


@dataclass(frozen=True)
class Costs:
    """Estimated seconds of one product: J v, Jᵀ u, and J v by the dense matrix."""

    forward: float
    reverse: float
    dense: float

    @property
    def cells(self) -> Cells:
        return time_text(self.forward), time_text(self.reverse), time_text(self.dense)


@dataclass(frozen=True)
class Row:
    """One block ∂output/∂input of one step; `after` says what elimination made of it."""

    op: str
    node: str
    block: str
    structure: str
    after: str
    costs: Costs
    flops: int
    nbytes: int

    @property
    def cells(self) -> Cells:
        return (self.op, self.node, self.block, self.structure, self.after, *self.costs.cells,
                f"{self.flops:,}", f"{self.nbytes:,}")  # fmt: skip


@dataclass(frozen=True)
class Stretch:
    """One operator from tensor `start` to tensor `end`, which replaces several blocks.

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
    def cells(self) -> Cells:
        ops, gone = joined(self.ops, " · ", width=48), joined(self.gone, ", ", width=48)
        return (str(self.number), f"{self.start} → {self.end}", ops, gone or "–", self.structure,
                f"{self.choice}: {self.why}", *self.costs.cells, f"{self.nbytes:,}")  # fmt: skip


@dataclass(frozen=True)
class Cut:
    """A step without a derivative between the `wrt` and the `of` tensors."""

    op: str
    node: str
    why: str

    @property
    def cells(self) -> Cells:
        return self.op, self.node, self.why


@dataclass(frozen=True)
class StepKink:
    """A kink of a step: `count` of `size` entries lie on it, and `declared` is the value there.

    `tensor` holds the entries. `within` is the node whose definition the step belongs to.
    """

    op: str
    node: str
    tensor: str
    where: str
    count: int
    size: int
    declared: str
    within: str = ""

    @property
    def met(self) -> bool:
        """Whether the point lies on the kink."""
        return self.count > 0

    @property
    def cells(self) -> Cells:
        node = f"{self.node} of {self.within}" if self.within else self.node
        count = f"{self.count:,} of {self.size:,}"
        return self.op, node, self.tensor, self.where, count, self.declared


def kink_table(kinks: tuple[StepKink, ...]) -> Table:
    """The kinks on which the point lies."""
    return table("kinks at this point", KINKS, (kink for kink in kinks if kink.met))


def not_met(kinks: tuple[StepKink, ...]) -> tuple[str, ...]:
    """One line for the kinks on which the point does not lie, if there are any."""
    met = {(kink.op, kink.where) for kink in kinks if kink.met}
    missed = {(kink.op, kink.where) for kink in kinks} - met
    if not missed:
        return ()
    ops = joined(sorted({op for op, _ in missed}), ", ", width=80)
    kinds = f"{len(missed)} {'further ' * bool(met)}kind{'s' * (len(missed) > 1)}"
    return (f"kinks: {kinds} looked at and not met ({ops})",)


def condition_lines(conditions: Iterable[str]) -> Iterator[str]:
    """Lines that say where a recording holds."""
    return (f"recorded for points where {condition}" for condition in conditions)


@dataclass(frozen=True, repr=False)
class Explanation(Tables):
    """The blocks of a Jacobian in the order of the model, and what became of them.

    `title` is the first line, `rows` are the blocks, `stretches` what elimination and planning made
    of them, `choices` how products are taken and why, `cuts` the steps without a derivative,
    `zeros` the pairs of tensors that no path joins, `kinks` where the steps are not differentiable,
    or have an infinite derivative, with the number of entries there at this very point, and
    `conditions` what must be so where the same recording serves another point. The text shows only
    the kinks on which the point lies, and of many rows the first and the last; the fields hold all.
    """

    rows: tuple[Row, ...]
    stretches: tuple[Stretch, ...] = ()
    choices: tuple[str, ...] = ()
    cuts: tuple[Cut, ...] = ()
    zeros: tuple[str, ...] = ()
    kinks: tuple[StepKink, ...] = ()
    conditions: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        return nonempty_tables(
            table("", BLOCKS, self.rows, ESTIMATED),
            table("stretches", STRETCHES, self.stretches),
            kink_table(self.kinks),
            table("what cuts the derivative", CUTS, self.cuts),
        )

    @property
    def lines(self) -> tuple[str, ...]:
        return *self.choices, *condition_lines(self.conditions), *not_met(self.kinks), *self.zeros

    def __str__(self) -> str:
        return paragraphs(*self.tables(), "\n".join(abridged_lines(self.lines)))


@dataclass(frozen=True)
class Mathematics:
    """Where a derivative comes from, and its formulas, each in one or more lines."""

    source: str
    formulas: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Local(Tables):
    """One step: its `rule`, `tensors`, blocks and `kinks`; of an input, the blocks there.

    `title` is the first line, `rows` are the blocks, `legend` says what their letters mean, and
    `why` is the reason where there are no blocks.
    """

    rule: Mathematics
    tensors: tuple[tuple[str, ...], ...]
    rows: tuple[Row, ...]
    legend: tuple[str, ...] = ()
    kinks: tuple[StepKink, ...] = ()
    why: str = ""

    def tables(self) -> list[Table]:
        head, *rows = (cells[:4] + cells[5:] for cells in (BLOCKS, *(r.cells for r in self.rows)))
        blocks = Table("blocks", head, tuple(rows), AMOUNTS, ESTIMATED)  # without "after"
        return nonempty_tables(
            Table("tensors", TENSORS, self.tensors), blocks, kink_table(self.kinks)
        )

    @property
    def lines(self) -> tuple[str, ...]:
        return *self.legend, *not_met(self.kinks), *filter(None, [self.why])

    def __str__(self) -> str:
        rule = [f"rule: {self.rule.source}"] if self.rule.source else []
        return paragraphs(self.title, "\n".join([*rule, *self.rule.formulas]), *self.tables(),
                          "\n".join(self.legend), *not_met(self.kinks), self.why)  # fmt: skip


@dataclass(frozen=True)
class Factor:
    """One factor of one term: Jᵀ, J, or what stands between or beside them."""

    term: int
    name: str
    structure: str
    shape: tuple[int, int]
    flops: int
    nbytes: int

    @property
    def cells(self) -> Cells:
        return (str(self.term), self.name, self.structure, prod_text(self.shape),
                f"{self.flops:,}", f"{self.nbytes:,}")  # fmt: skip


@dataclass(frozen=True, repr=False)
class Composition(Tables):
    """The factors of a symmetric operator from left to right, and its cost.

    `asked` is the call that made the operator, `cost` what one product costs, `kinks` are the kinks
    of the Jacobians inside at their point, where J is what is declared there, `conditions` what
    must be so where the same recordings serve another point, and `choices` how products with these
    Jacobians are taken.
    """

    asked: str
    cost: str
    parts: tuple[Factor, ...]
    kinks: tuple[StepKink, ...] = ()
    conditions: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        return nonempty_tables(table("parts", PARTS, self.parts), kink_table(self.kinks))

    @property
    def lines(self) -> tuple[str, ...]:
        asked = filter(None, [self.asked])
        conditions = condition_lines(self.conditions)
        return *asked, self.cost, *self.choices, *conditions, *not_met(self.kinks)

    def __str__(self) -> str:
        return paragraphs(self.title, *self.tables(), "\n".join(self.lines))
