"""Proof: a readable proof that the rule of an operator is its derivative.

A proof is Markdown for a file, HTML for a notebook, and LaTeX for the Jacobian.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import onnx
import sympy as sp

from ...jacobians.errors import OnnxJacError, UnsupportedOp, closest
from ...jacobians.progress import counted
from ...jacobians.text import Table, clipped
from ...jacobians.threads import cached_property
from ...ops import find
from ...ops.conventions import CONVENTIONS, slopes_text
from ...ops.registry import Declaration, full_name
from ...ops.rules.quantization import DOMAIN
from ..linear.check import NOT_COMPARED, RIGHT, WRONG
from ..model.loading.upgrade import MICROSOFT
from ..model.markup import card
from .case import Case, ModelCase
from .cases import CASES
from .check import AGREES, EXACT, OUTCOMES, REFUTED, UNPROVED, CaseCheck, Verdict
from .coverage import AGREES as TAGGED_ALIKE
from .coverage import DISAGREES, NOT, Tag, ports_of, schemas
from .definition import Shapes, function_case, model_case, own_case, symbolic_matrix
from .derivation import derivation, derived_from, opaque
from .flow_cases import flow_cases
from .integers import SMALL, Example, examples_of
from .page import WIDTH, Monospace, Part, Section, aligned, array_text, number_text, wrapped_lines
from .scripts import Script, script_of, why_no_script
from .steps import plain_text


class Proof:
    """The derivative of an operator against its definition; results are computed when needed.

    >>> proof = proof_of("Tanh")
    >>> bool(proof), proof.outcome
    (True, 'exact')
    >>> proof_of("Relu").kinks
    ('relu(0): 0 (as on the constant side)',)
    """

    def __init__(
        self, op_type: str, domain: str, cases: Sequence[Case], stated: Stated | None = None
    ) -> None:
        self.op_type, self.domain, self.cases, self.stated = op_type, domain, cases, stated

    @cached_property
    def results(self) -> tuple[Proved, ...]:
        """Every case with its verdicts."""
        return tuple(proved(case) for case in counted(self.cases, "proof", "cases"))

    @property
    def outcome(self) -> str:
        """The worst outcome of all cases (one of `OUTCOMES`), or `stated.outcome`."""
        if self.stated:
            return self.stated.outcome
        return worst(tuple(v for r in self.results for v in (*r.first, *r.second)))

    @property
    def verdict(self) -> str:
        """`"right"`, `"wrong"`, or `"not compared"`, where the text says what was not, and why."""
        if self.stated or self.outcome in (AGREES, UNPROVED):
            return NOT_COMPARED
        return WRONG if self.outcome == REFUTED else RIGHT

    def __bool__(self) -> bool:
        return self.verdict == RIGHT

    @cached_property
    def shown(self) -> CaseCheck:
        """The case whose matrix is written out: a small case with more than one entry."""
        return CaseCheck(min(self.cases, key=lambda case: abs(count_entries(case) - 3)))

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """Numerical examples at two points of integers, with J v and Jᵀ u."""
        small = SMALL.get((self.op_type, self.domain), [])
        return examples_of([*small, *self.cases])

    @cached_property
    def script(self) -> Script | None:
        """A self-contained script that compares with PyTorch."""
        return script_of(self.op_type, self.domain)

    @property
    def kinks(self) -> tuple[str, ...]:
        """The declared values at points without a derivative, one line each."""
        return tuple(f"{c.what}: {slopes_text(c.ours)} ({c.why})"
                     for c in CONVENTIONS if c.op_type == self.title)  # fmt: skip

    @property
    def title(self) -> str:
        return full_name(self.op_type, self.domain)

    def sections(self, full: bool = False) -> tuple[Section, ...]:
        """The page in parts, the same in every form; `full` leaves nothing out."""
        made = [headline(self), differentiability(self)]
        if self.stated and self.outcome == "zero":
            made += [Section(EQUATION, (ZERO,))]
        if not self.stated:
            made += [from_equation(self, full), in_integers(self), by_torch(self),
                     verdicts(self, full), domain_of(self, full)]  # fmt: skip
        return tuple(section for section in made if section.parts)

    def markdown(self, full: bool = False) -> str:
        """The proof in Markdown; with `full`, all cases, all steps and all conditions of it."""
        said = (section.markdown() for section in self.sections(full))
        return "\n\n".join([f"# {self.title}", *said]) + "\n"

    def __str__(self) -> str:
        return self.markdown()

    _repr_markdown_ = __str__

    def _repr_html_(self) -> str:
        """The same sections in a notebook, each of which folds."""
        first, *rest = self.sections()
        said = " ".join(part for part in first.parts if isinstance(part, str)).replace("**", "")
        shown = (section.html(section.title in UNFOLDED) for section in rest)
        return card(f"Proof of {self.title}", said, *shown)

    def _repr_latex_(self) -> str:
        """The Jacobian alone."""
        if self.stated:
            return "0" if self.stated.outcome == "zero" else ""
        return f"$$J = {sp.latex(self.shown.matrix)}$$"

    def __repr__(self) -> str:
        return f"Proof({self.title}: {self.outcome}, {len(self.cases)} cases)"


def proof_of(
    what: Any, domain: str = "", *, shapes: Shapes | None = None,
    inputs: Mapping[str, Any] | None = None, **attrs: Any,
) -> Proof:  # fmt: skip
    """The proof of an operator, a function or a model: `onnxjac.prove`."""
    if isinstance(what, onnx.FunctionProto):
        return Proof(what.name, what.domain, (function_case(what, shapes, attrs),))
    if not isinstance(what, str) or what.endswith(".onnx"):
        case = model_case(what, inputs)
        return Proof(case.op_type, "", (case,))
    home, _, op_type = what.rpartition("::")
    domain = "" if (domain := home or domain) == "ai.onnx" else domain
    declared = find(op_type, domain)
    cases: Sequence[Case] | None = CASES.get((op_type, domain)) or flow_cases(op_type, domain)
    if sentence := zero_statement(declared):
        return Proof(op_type, domain, (), sentence)
    if cases is None and shapes is None and domain == MICROSOFT and declared:
        return Proof(op_type, domain, (), Stated(UNPROVED, why_unproved(declared)))
    if declared and (cases is None or shapes):
        title = full_name(op_type, domain)
        cases = [own_case(title, declared, shapes, attrs)]
    if cases is None:
        if declared or (op_type, domain) in schemas():
            return Proof(op_type, domain, (), Stated(UNPROVED, why_unproved(declared)))
        known = [name for name, held in CASES if held == domain]
        what = "is unknown"
        raise UnsupportedOp(f"{domain or 'ai.onnx'}::{op_type} {what}.{closest(op_type, known)}")
    return Proof(op_type, domain, tuple(cases))


@dataclass(frozen=True)
class Proved:
    """One case: the source of its definition, the verdicts, and the conditions of the identity."""

    case: Case
    source: str
    first: tuple[Verdict, ...]
    second: tuple[Verdict, ...]
    conditions: tuple[Any, ...]

    @property
    def outcome(self) -> str:
        """The worst outcome of the first derivative."""
        return worst(self.first)

    def __bool__(self) -> bool:
        return all(self.first) and all(self.second)


def proved(case: Case) -> Proved:
    """The verdicts of a case, with the second derivative where it is small enough."""
    check = CaseCheck(case)
    if (case.op_type, case.domain) in CASES and check.is_circular:
        values = check.against_runtime()
        text = " in values, against the runtime's kernel" if values == REFUTED else ""
        first = tuple(replace(v, outcome=max(v.outcome, values, key=OUTCOMES.index),
                              failure=v.failure or text) for v in check.here())  # fmt: skip
    else:
        first = tuple(check.first())
    second = tuple(check.second()) if case.second else ()
    return Proved(case, check.definition.source, first, second, check.op.conditions)


def worst(verdicts: tuple[Verdict, ...]) -> str:
    """The worst outcome, by the order of `OUTCOMES`."""
    return max((v.outcome for v in verdicts), key=OUTCOMES.index, default=EXACT)


def count_entries(case: Case) -> int:
    """The number of entries of the floating inputs."""
    return sum(case.point[name].size for name in case.floating(case.wrt))


@dataclass(frozen=True)
class Stated:
    """Why there is nothing to prove: a word, and a sentence."""

    outcome: str
    sentence: str


def why_unproved(declared: Declaration | None) -> str:
    """Why an operator that is known has no proof."""
    if declared and declared.refused:
        return f"It is not differentiated: {declared.refused}."
    if declared and declared.domain:
        return ("Nothing is compared: it is composed of other operators, or shares the rule of "
                "ONNX's operator of its name, and tests alone compare its values.")  # fmt: skip
    return "Nothing is compared: no floating number passes it."


def zero_statement(declared: Declaration | None) -> Stated | None:
    """The statement for a derivative that is zero, or for an estimator, which is no derivative.

    >>> zero_statement(find("Round", DOMAIN)).sentence
    'This is not the derivative, by intent, but a straight-through estimator: as if y = x.'
    """
    if declared is None or (declared.zero is None and declared.domain != DOMAIN):
        return None
    if declared.zero is not None:
        return Stated("zero", f"The derivative is zero: {declared.zero}.")
    said = inspect.cleandoc((declared.definition or declared.rule).__doc__ or "")
    what = "This is not the derivative, by intent, but a straight-through estimator"
    return Stated("estimator", f"{what}: {said[:1].lower()}{said[1:]}")


# -- sections --------------------------------------------------------------------------------------

EQUATION, INTEGERS, VERDICTS = "From the equation to J", "In integers", "Verdicts"

ZERO = (
    "∂y_i/∂x_i′ = 0 for all i and i′, wherever the derivative exists: J v = 0 and Jᵀ u = 0 at "
    "every point, so that an example in integers and a script for PyTorch would show zeros alone."
)

UNFOLDED = frozenset({EQUATION, INTEGERS})
"""Sections that a notebook shows unfolded."""

ORIENTATION = (
    "Rows are outputs and columns inputs: J = ∂y/∂x. "
    "ONNX's guide writes the transpose, rows = inputs."
)

GROUPS_SHOWN, CONDITIONS_SHOWN = 4, 4
"""Rows of verdicts and conditions on a short page."""


def headline(proof: Proof) -> Section:
    """The outcome in one sentence."""
    text = derived_from(proof.op_type, proof.domain)
    derived = (f"The rule is derived from {text} by SymPy.",) if text and proof.cases else ()
    compared = not proof.stated and proof.outcome not in (AGREES, UNPROVED)
    given = (given_by(proof),) if compared else ()
    return Section("", (headline_text(proof), *given, *derived))


def given_by(proof: Proof) -> str:
    """What says the values that the rule is the derivative of."""
    sources = dict.fromkeys(result.source for result in proof.results)
    return f"The values are given by {' or by '.join(sources)}."


def headline_text(proof: Proof) -> str:
    if proof.stated:
        return f"**{proof.outcome}**: {proof.stated.sentence}"
    if proof.outcome in (AGREES, UNPROVED):
        cases = sum(r.outcome == AGREES for r in proof.results)
        return (
            f"**{proof.outcome}**: it is composed of other operators, and no definition was "
            f"written apart: no proof. Its derivative is the composition's, whose values "
            f"equal ONNX Runtime's kernel in {cases} of {len(proof.results)} cases."
        )
    exact = sum(r.outcome == EXACT for r in proof.results)
    return (
        f"**{proof.outcome}**: the rule is the derivative of the definition in {exact} of "
        f"{len(proof.results)} cases exactly, entry by entry, by SymPy."
    )


def differentiability(proof: Proof) -> Section:
    """ONNX's tags and the verdicts here, tensor by tensor."""
    rows = ports_of(proof.op_type, proof.domain)
    if not rows:
        return Section("", ())
    xs, y = ([row.port for row in rows if row.kind == kind and row.verdict != NOT]
             for kind in ("input", "output"))  # fmt: skip
    schema = schemas().get((proof.op_type, proof.domain))
    graphs = schema and any(str(a.type).endswith("GRAPH") for a in schema.attributes.values())
    xs += ["what its graphs use from outside"] if graphs else []
    said = (f"In `Gradient`, `xs` may name {joined_names(xs)}, and `y` {joined_names(y)}."
            f"{tags_said(rows, proof.domain)}")  # fmt: skip
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        here = row.verdict + " ≠" * (row.agreement == DISAGREES)
        alike.setdefault((row.kind, row.onnx, here, row.evidence), []).append(row.port)
    cells = tuple((", ".join(names), *shared) for shared, names in alike.items())
    head = ("tensors", "role", "ONNX's tag", "here", "shown by")
    places = dict.fromkeys(row.where.capitalize() for row in rows if row.where)
    where = (f"{'; '.join(places)}.",) if places else ()
    return Section("Differentiability", (said, Table("", head, cells), *where))


def tags_said(rows: Sequence[Tag], domain: str) -> str:
    """Where ONNX's tags differ."""
    differ = [row.port for row in rows if row.agreement == DISAGREES]
    if differ:
        return f" ONNX's tag differs (≠) for {joined_names(differ)}: see the column “shown by”."
    if domain and (rows[0].op_type, domain) not in schemas():
        return " ONNX has no tags for it, since it is ONNX Runtime's."
    alike = all(row.agreement == TAGGED_ALIKE for row in rows)
    return " ONNX's tags say the same." if alike else " ONNX tags not all of them (unknown)."


def joined_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def from_equation(proof: Proof, full: bool) -> Section:
    """y_i = …, ∂y_i/∂x_i′ = …."""
    return Section(EQUATION, tuple(derivation(proof.op_type, proof.domain, proof.cases, full)))


def in_integers(proof: Proof) -> Section:
    """A case of a few entries: inputs, outputs, J, J v and Jᵀ u."""
    if not proof.examples:
        return Section(INTEGERS, (f"No example: {NO_INTEGERS}.",))
    first, *rest = proof.examples
    named = formal_names(proof, first)
    parts: list[Part] = [f"`{clipped(str(first.case), WIDTH)}`. {named}{ORIENTATION}",
                         Monospace(tuple(example_lines(first)))]  # fmt: skip
    for other in rest:
        lines = (line for text in short_lines(other) for line in wrapped_lines(text))
        again = "" if other.case is first.case else f", `{clipped(str(other.case), WIDTH)}`"
        parts += [f"Again{again}:", Monospace(tuple(lines))]
    worst_error = max(e.error for e in proof.examples)
    parts += [f"Central differences of the operator's values give J too, within {worst_error:.1e}."]
    return Section(INTEGERS, tuple(parts))


def formal_names(proof: Proof, example: Example) -> str:
    """Which tensor of the schema each letter is."""
    if isinstance(example.case, ModelCase):
        return ""
    rows = {(row.kind, row.index): row.port for row in ports_of(proof.op_type, proof.domain)}
    sides = (("input", example.case.names), ("output", example.case.results))
    pairs = [(name, rows.get((kind, k), name)) for kind, names in sides
             for k, name in enumerate(names) if name in (*example.point, *example.of)]  # fmt: skip
    said = ", ".join(f"{name} is {port}" for name, port in pairs if port.lower() != name)
    return f"Here {said}. " if said else ""


NO_INTEGERS = (
    "no integers were found at which its cases of 2 to 6 entries are smooth and J is not zero"
)


def example_lines(example: Example) -> Iterator[str]:
    """The whole example."""
    yield from (line for text in point_lines(example) for line in wrapped_lines(text))
    named = [", ".join(names) for names in (example.of, example.wrt)]
    y, x = (f"({name})" if "," in name else name for name in named)
    yield f"J = ∂{y}/∂{x} ="
    if symbols := symbol_lines(example):
        yield from symbols
        yield "  ="
    yield from aligned([[number_text(x) for x in row] for row in example.matrix])
    yield from (line for text in product_lines(example) for line in wrapped_lines(text))


def short_lines(example: Example) -> Iterator[str]:
    yield from point_lines(example)
    yield f"J = {array_text(example.matrix)}"
    yield from product_lines(example)


def point_lines(example: Example) -> Iterator[str]:
    """Inputs and outputs."""
    yield ", ".join(f"{name} = {array_text(x)}" for name, x in example.point.items())
    yield ", ".join(f"{name} = {array_text(example.outputs[name])}" for name in example.of)


def product_lines(example: Example) -> Iterator[str]:
    yield f"for the tangent v = {array_text(example.v)}: J v = {array_text(example.forward)}"
    yield f"for the cotangent u = {array_text(example.u)}: Jᵀ u = {array_text(example.reverse)}"


def symbol_lines(example: Example) -> tuple[str, ...]:
    """J in symbols of the inputs and outputs; nothing where it does not fit the page."""
    case = replace(example.case, inputs=tuple(example.point.get(n) for n in example.case.names),
                   wrt=tuple(map(example.case.names.index, example.wrt)))  # fmt: skip
    try:
        check, outputs, blocks = opaque(case)
        held = {pair: J for pair, J in blocks.items() if J is not None}
        if len(held) < len(blocks):
            return ()
        rows: list[list[str]] = []
        for o in check.of:
            made = [symbolic_matrix(held[o, i], check.op) if (o, i) in held
                    else sp.zeros(outputs[o].entries.size, check.symbols[i].entries.size)
                    for i in check.wrt]  # fmt: skip
            rows += [[plain_text(x) for x in row] for row in sp.Matrix.hstack(*made).tolist()]
    except (OnnxJacError, NotImplementedError, TypeError, ValueError):  # SymPy cannot write it out
        return ()
    lines = tuple(aligned(rows))
    return lines if max(map(len, lines)) <= WIDTH and not numbers_alone(rows) else ()


def numbers_alone(rows: list[list[str]]) -> bool:
    """Whether symbols would say nothing that the numbers do not."""
    return not any(c.isalpha() for row in rows for cell in row for c in cell)


def by_torch(proof: Proof) -> Section:
    """The script for PyTorch, and what it prints; or why there is none."""
    title = "By PyTorch"
    if proof.script is None:
        return Section(title, (f"No script: {why_no_script(proof.op_type, proof.domain)}.",))
    return Section(title, (Monospace(tuple(proof.script.text.splitlines()), "python"),))


HEAD = ("cases", "block", "first derivative", "second, by the recorded VJP")


def verdicts(proof: Proof, full: bool) -> Section:
    """Every block of every case; on a short page, cases with the same verdicts are one row."""
    rows = list(cells(proof)) if full else list(grouped_rows(proof))
    shown = rows if full else rows[:GROUPS_SHOWN]
    more = len(rows) - len(shown)
    note = (f"And {more} more rows, which the full page shows: `onnxjac prove NAME --full` or "
            "`markdown(full=True)`.",) if more else ()  # fmt: skip
    return Section(VERDICTS, (Table("", HEAD, tuple(shown)), *note))


def grouped_rows(proof: Proof) -> Iterator[tuple[str, ...]]:
    """One row for all cases whose blocks have the same outcome; failures are rows of their own."""

    def key(row: tuple[str, ...]) -> tuple[str, ...]:
        return row[2:]

    for outcome, group in groupby(sorted(cells(proof), key=key), key):
        rows = list(group)
        cases = list(dict.fromkeys(row[0] for row in rows))
        pairs = list(dict.fromkeys(row[1].partition(",")[0] for row in rows))
        named = clipped(", ".join(cases[:2]), 56) + (f", … {len(cases)} cases" if len(cases) > 2
                                                     else "")  # fmt: skip
        yield named, clipped(", ".join(pairs), 40), *outcome


def cells(proof: Proof) -> Iterator[tuple[str, ...]]:
    """A row for every block of every case."""
    for result in proof.results:
        second = ", ".join(sorted({v.outcome for v in result.second})) or "not asked"
        for v in result.first:
            (o, i), (m, n) = v.pair, v.shape
            yield f"`{result.case}`", f"∂{o}/∂{i}, {m}×{n}", f"{v.outcome}{v.failure}", second


def domain_of(proof: Proof, full: bool) -> Section:
    """Where the proof holds, and the declared derivatives elsewhere."""
    met = list(dict.fromkeys(c for r in proof.results for c in r.conditions))
    if not met:
        parts: list[Part] = ["The identities hold wherever the expressions above are defined."]
    else:
        shown = met if full else met[:CONDITIONS_SHOWN]
        said = ", ".join(plain_text(c) for c in shown)
        more = f" and {len(met) - len(shown)} more" if len(met) > len(shown) else ""
        parts = ["The identities hold in the open sets where these conditions hold, which the "
                 f"cases chose: {clipped(said, 3 * WIDTH)}{more}."]  # fmt: skip
    if proof.kinks:
        parts += ["At the kinks it is declared, not proved:", Monospace(proof.kinks)]
    return Section("Domain", tuple(parts))
