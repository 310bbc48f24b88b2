"""Tags: what ONNX says of the differentiability of every port, and what is proved."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from onnx import defs

from ...jacobians.errors import UnsupportedOp, closest
from .cases import CASES
from .coverage import DOMAINS, NOT_A_FUNCTION, ZERO, operators, schemas, status
from .kinked import STATED, kink_set
from .ports import met, passed

EVERYWHERE, ALMOST, NOT = "everywhere", "almost everywhere", "not"

AGREES, SILENT, DISAGREES = "agrees", "ONNX says nothing", "disagrees"


@dataclass(frozen=True)
class Tag:
    """One port of one operator: ONNX's tag, our verdict, and why."""

    domain: str
    op_type: str
    kind: str
    index: int
    port: str
    onnx: str
    verdict: str
    where: str
    evidence: str

    @property
    def agreement(self) -> str:
        """Whether tag and verdict say the same."""
        if self.onnx == "unknown":
            return SILENT
        return AGREES if (self.onnx == "differentiable") == (self.verdict != NOT) else DISAGREES


COLUMNS = ("domain", "op_type", "kind", "port", "onnx", "verdict", "where", "agreement", "evidence")

NAMES = {"Differentiable": "differentiable", "NonDifferentiable": "not", "Unknown": "unknown"}


class Tags(list[Tag]):
    """The table, which prints itself."""

    def disagreements(self) -> Tags:
        """The rows in which ONNX says something else."""
        return Tags(row for row in self if row.agreement == DISAGREES)

    def untagged(self) -> Tags:
        """The differentiable ports of which ONNX says nothing."""
        return Tags(row for row in self if row.agreement == SILENT and row.verdict != NOT)

    def of(self, op_type: str) -> Tags:
        """The rows of an operator."""
        found = Tags(row for row in self if row.op_type == op_type)
        if not found:
            names = sorted({row.op_type for row in self})
            raise UnsupportedOp(f"ONNX has no operator {op_type!r}.{closest(op_type, names)}")
        return found

    def records(self) -> list[dict[str, Any]]:
        return [{**asdict(row), "agreement": row.agreement} for row in self]

    def markdown(self) -> str:
        """A table in Markdown."""
        head = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
        rows = (" | ".join(str(r[c]).replace("|", "∣") for c in COLUMNS) for r in self.records())
        return "\n".join([head, *(f"| {row} |" for row in rows)])

    def csv(self) -> str:
        """Comma-separated values."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records())
        return text.getvalue().rstrip("\n")

    def json(self) -> str:
        """A list of objects."""
        return json.dumps(self.records(), indent=1, ensure_ascii=False)

    _repr_markdown_ = __str__ = markdown


def tags(op_type: str | None = None) -> Tags:
    """Every port of every operator: ONNX's tag of its differentiability against what is proved.

    >>> [(row.port, row.onnx, row.verdict) for row in tags("Hardmax")]
    [('input', 'differentiable', 'not'), ('output', 'differentiable', 'not')]
    """
    found = Tags(
        row for domain in DOMAINS for name in operators(domain)
        if op_type in (None, name) for row in ports(name, domain)
    )  # fmt: skip
    return found if op_type is None or found else tags().of(op_type)


def ports(op_type: str, domain: str) -> Iterator[Tag]:
    """The rows of an operator, inputs first."""
    schema = schemas()[op_type, domain]
    for kind, formals in (("input", schema.inputs), ("output", schema.outputs)):
        for index, formal in enumerate(formals):
            tag = NAMES[str(formal.differentiation_category).rpartition(".")[2]]
            known, evidence = judged(schema, kind, index, formal)
            verdict, where = placed(op_type, formal, known)
            yield Tag(
                domain or "ai.onnx",
                op_type,
                kind,
                index,
                formal.name,
                tag,
                verdict,
                where,
                evidence,
            )


def judged(schema: defs.OpSchema, kind: str, index: int, formal: Any) -> tuple[bool, str]:
    """Whether a derivative passes the port, and by which evidence."""
    op_type, domain = schema.name, schema.domain
    if not any(holds_floats(t) for t in formal.types):
        return False, "it holds no floating numbers"
    what, reason = status(op_type, domain)
    if what in (ZERO, NOT_A_FUNCTION):
        return False, reason
    seen = met(op_type, domain)[kind == "input"]
    if any(same(formal, index, k) for k in seen):
        slots = {slot[kind == "input"] for slot in passed(op_type, domain)}
        found = any(same(formal, index, k) for k in slots)
        if found:
            return True, f"proof: {len(CASES[op_type, domain])} cases by SymPy"
    why, differentiable = STATED.get(op_type, ("", frozenset()))
    if why and formal.name in differentiable:
        return True, why
    if any(same(formal, index, k) for k in seen):
        return False, "proof: its block is zero in every case"
    return False, why or "it decides which entries count, or where, and is piecewise constant there"


def same(formal: Any, index: int, k: int) -> bool:
    """Whether position k belongs to the port: a variadic one has all that follow."""
    variadic = str(formal.option).endswith("Variadic")
    return k >= index if variadic else k == index


def holds_floats(kind: str) -> bool:
    return "float" in kind or "double" in kind


def placed(op_type: str, formal: Any, known: bool) -> tuple[str, str]:
    """The verdict, with the set where there is no derivative and the types that have one."""
    if not known:
        return NOT, ""
    kink = kink_set(op_type)
    kinds = "" if all(map(holds_floats, formal.types)) else "for floating types"
    where = "; ".join(filter(None, (f"except {kink}" if kink else "", kinds)))
    return ALMOST if kink else EVERYWHERE, where
