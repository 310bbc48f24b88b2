"""Coverage: how each operator is differentiated, and ONNX's tags against the verdict of proofs."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain, product
from typing import Any

import numpy as np
from onnx import defs

from ...jacobians.errors import OnnxJacError, OnnxJacWarning, UnsupportedOp, closest
from ...ops import find
from ...ops.kinks import kink_set
from ...ops.node import TRAINING
from ...ops.registry import full_name, version
from ...ops.rules.zeros import NOT_REAL
from ..linearize import linearize
from ..model.flow.control import CONTROL, SEQUENCES
from ..model.loading.bodies import has_body
from ..model.loading.upgrade import MICROSOFT, SHARED
from ..training.optimizers import OPERATORS as OPTIMIZERS
from .case import Case
from .cases import CASES
from .transcriptions import TRANSCRIPTIONS

EVERYWHERE, ALMOST, NOT = "everywhere", "almost everywhere", "not"

AGREES, SILENT, DISAGREES = "agrees", "ONNX says nothing", "disagrees"


def tags(op_type: str | None = None) -> Tags:
    """Every port of every operator, or of one: `onnxjac.tags`.

    >>> [(row.port, row.onnx, row.verdict) for row in tags("Hardmax")]
    [('input', 'differentiable', 'not'), ('output', 'differentiable', 'not')]
    """
    found = Tags(
        row for domain in DOMAINS for name in operators(domain)
        if op_type in (None, name) for row in ports(name, domain)
    )  # fmt: skip
    return found if op_type is None or found else tags().of(op_type)


@dataclass(frozen=True)
class Tag:
    """One port of one operator: ONNX's tag, our verdict, and its evidence."""

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
        """Whether ONNX's tag and our verdict agree."""
        if self.onnx == "unknown":
            return SILENT
        return AGREES if (self.onnx == "differentiable") == (self.verdict != NOT) else DISAGREES


COLUMNS = ("domain", "op_type", "kind", "port", "onnx", "verdict", "where", "agreement", "evidence")

NAMES = {"Differentiable": "differentiable", "NonDifferentiable": "not", "Unknown": "unknown"}


class Tags(list[Tag]):
    """A table of ports, printed as Markdown."""

    def disagreements(self) -> Tags:
        """The rows in which ONNX's tag differs from our verdict."""
        return Tags(row for row in self if row.agreement == DISAGREES)

    def untagged(self) -> Tags:
        """The differentiable ports that ONNX does not tag."""
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


def ports(op_type: str, domain: str) -> Iterator[Tag]:
    """The rows of an operator, inputs first."""
    schema, home = schemas()[op_type, domain], domain or "ai.onnx"
    for kind, formals in (("input", schema.inputs), ("output", schema.outputs)):
        for k, formal in enumerate(formals):
            tag = NAMES[str(formal.differentiation_category).rpartition(".")[2]]
            known, evidence = judged(schema, kind, k, formal)
            verdict, where = locate_verdict(op_type, formal, known)
            yield Tag(home, op_type, kind, k, formal.name, tag, verdict, where, evidence)


def ports_of(op_type: str, domain: str) -> list[Tag]:
    """The rows of an operator of any domain; where ONNX has no schema, inputs of its cases."""
    if (op_type, domain) in schemas():
        return list(ports(op_type, domain))
    slots, cases, made = passed(op_type, domain, version()), CASES.get((op_type, domain), []), []
    names = runtime_names(op_type, domain)
    for side, kind in ((True, "input"), (False, "output")):
        width = max((len(c.inputs if side else c.results) for c in cases), default=0)
        for k in range(width):
            held = [c for c in cases if not side or (len(c.inputs) > k and c.inputs[k] is not None)]
            kinds = (getattr(c.inputs[k], "dtype", np.dtype(bool)).kind for c in held if side)
            floats = not side or "f" in kinds
            met = any(slot[side] == k for slot in slots)
            why = f"{len(held)} cases" if floats else "it holds no floating numbers"
            named = dict(enumerate(names[kind])).get(k) or f"{kind} {k}"
            made.append(Tag(domain, op_type, kind, k, named, "unknown",
                            EVERYWHERE if met else NOT, "", why))  # fmt: skip
    return made


@cache
def runtime_names(op_type: str, domain: str) -> dict[str, list[str]]:
    """The names of inputs and outputs by ONNX Runtime's schemas; none where it is not installed."""
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError:
        return {"input": [], "output": []}
    for schema in state.get_all_operator_schema():
        if (schema.name, schema.domain) == (op_type, domain):
            return {"input": [p.name for p in schema.inputs],
                    "output": [p.name for p in schema.outputs]}  # fmt: skip
    return {"input": [], "output": []}


def judged(schema: defs.OpSchema, kind: str, index: int, formal: Any) -> tuple[bool, str]:
    """Whether a derivative passes the port, and the evidence."""
    op_type, domain, side = schema.name, schema.domain, kind == "input"
    if not any(holds_floats(t) for t in formal.types):
        return False, "it holds no floating numbers"
    what, reason = status(op_type, domain)
    if what in (ZERO, NOT_A_FUNCTION):
        return False, reason
    slots, cases = passed(op_type, domain, version()), CASES.get((op_type, domain), [])
    if any(belongs_to_port(formal, index, slot[side]) for slot in slots):
        declared = find(op_type, domain)
        alone = declared and declared.is_composed and full_name(op_type, domain) in TRANSCRIPTIONS
        proved = alone or not declared or not declared.is_composed
        return True, f"{'proof' if proved else 'composition'}: {len(cases)} cases by SymPy"
    if not cases and what in (RULE, BODY):
        return bool(schema.inputs), reason
    why, differentiable = STATED.get(op_type, ("", set[str]()))
    if why and formal.name in differentiable:
        return True, why
    held = (case.inputs if side else case.results for case in cases)
    seen = {k for tensors in held for k, tensor in enumerate(tensors) if tensor is not None}
    if any(belongs_to_port(formal, index, k) for k in seen):
        return False, "proof: its block is zero in every case"
    return False, why or "it decides which entries count, or where, and is piecewise constant there"


def belongs_to_port(formal: Any, index: int, k: int) -> bool:
    """Whether position k belongs to the port; a variadic port has all positions from its own on."""
    variadic = str(formal.option).endswith("Variadic")
    return k >= index if variadic else k == index


@cache
def passed(op_type: str, domain: str, declared: int) -> frozenset[tuple[int, int]]:
    """(output, input) of the blocks that are not zero in some case, by one version of the rules."""
    return frozenset(chain.from_iterable(map(nonzero_blocks, CASES.get((op_type, domain), ()))))


def nonzero_blocks(case: Case) -> Iterator[tuple[int, int]]:
    """(output, input) of the blocks of a case that are not zero."""
    wrt = case.floating(None)
    try:
        values = case.model.run(case.point, engine="numpy")
    except OnnxJacError:  # an attribute that the reference implementation does not know
        return
    of = tuple(n for n in case.results if values[n].dtype.kind == "f")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxJacWarning)
        J = linearize(case.model, case.point, of=of, wrt=wrt, engine="numpy")
    for o, i in product(of, wrt):
        if np.any(J[o, i].toarray()):
            yield case.results.index(o), case.names.index(i)


def holds_floats(kind: str) -> bool:
    return "float" in kind or "double" in kind


def locate_verdict(op_type: str, formal: Any, known: bool) -> tuple[str, str]:
    """The verdict, the points without a derivative, and the types that have one."""
    if not known:
        return NOT, ""
    kink = kink_set(op_type)
    kinds = "" if all(map(holds_floats, formal.types)) else "for floating types"
    where = "; ".join(filter(None, (f"except {kink}" if kink else "", kinds)))
    return ALMOST if kink else EVERYWHERE, where


STATED: dict[str, tuple[str, set[str]]] = {
    "DynamicQuantizeLinear": ("y_scale = (max x - min x) / 255; y is rounded", {"x", "y_scale"}),
    "Dropout": ("in training y = x mask / (1 - ratio)", {"data", "ratio", "output"}),
    "BatchNormalization": ("in training the running statistics are affine in the old ones", set()),
}
"""op_type -> evidence, and differentiable ports that no case shows."""


# -- coverage: how every operator of ONNX is differentiated, or why not ----------------------------

RULE, BODY, ZERO, NOT_A_FUNCTION = "rule", "body", "zero", "not a function of real numbers"

REFUSED = "refused"
"""The kind of an operator that a model may not have on a differentiable path."""

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", TRAINING)


def status(op_type: str, domain: str = "") -> tuple[str, str]:
    """(kind, reason), where kind is RULE, BODY, ZERO, NOT_A_FUNCTION or REFUSED.

    >>> status("MatMul"), status("SoftmaxCrossEntropyLoss")[0], status("Attention")[0]
    (('rule', 'a rule gives its Jacobian blocks'), 'rule', 'body')
    >>> status("Floor")
    ('zero', 'the result is piecewise constant')
    >>> status("StringConcat")
    ('not a function of real numbers', 'there is no floating input')
    """
    declared = find(op_type, domain)
    if declared is not None:
        if declared.refused is not None:
            return REFUSED, declared.refused
        if declared.zero is not None:
            return (NOT_A_FUNCTION if declared.zero in NOT_REAL else ZERO), declared.zero
        defined = declared.definition is not None
        return RULE, "defined by other operators" if defined else "a rule gives its Jacobian blocks"
    if not domain and op_type in CONTROL:
        return RULE, "its branch, or its turns, at the point are differentiated: tests/suite"
    if not domain and op_type in SEQUENCES:
        return RULE, "a sequence or optional stands for the tensors that it holds: tests/suite"
    if domain == TRAINING and (op_type == "Gradient" or op_type in OPTIMIZERS):
        return RULE, "replaced by plain operators"
    if domain == MICROSOFT and op_type in SHARED:
        return RULE, "it means the same as ONNX's own"
    if (op_type, domain) in schemas() and has_body(schemas()[op_type, domain]):
        return BODY, "ONNX defines it by other operators"
    raise UnsupportedOp(f"{domain or 'ai.onnx'}::{op_type} has no rule, no body and no reason")


@cache
def schemas() -> dict[tuple[str, str], defs.OpSchema]:
    """The newest schema of every operator, deprecated ones included."""
    return {(schema.name, schema.domain): schema for schema in defs.get_all_schemas()}


def operators(domain: str = "") -> Iterator[str]:
    """The operators of a domain, without ONNX's deprecated ones; `ai.onnx.ml` keeps them."""
    for (op_type, held), schema in sorted(schemas().items()):
        if held == domain and (not schema.deprecated or domain):
            yield op_type
