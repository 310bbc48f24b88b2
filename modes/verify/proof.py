"""Proof: a readable proof that the rule of an operator is its derivative.

A proof is Markdown for a file, HTML for a notebook, and LaTeX for the Jacobian.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
import sympy as sp

from ...jacobians.errors import OnnxJacError, OnnxJacWarning, UnsupportedOp, closest
from ...jacobians.progress import counted
from ...jacobians.text import Table
from ...jacobians.threads import cached_property
from ...ops import find
from ...ops.conventions import CONVENTIONS, slopes_text
from ...ops.indexed import Indexed
from ...ops.registry import Declaration, full_name
from ...ops.rules.elementwise import Elementwise
from ...ops.rules.quantization import DOMAIN
from ..linear.check import NOT_COMPARED, RIGHT, WRONG
from ..linearize import linearize
from ..model.markup import Markup, card, fold, fold_table, pre
from .case import Case
from .cases import CASES, SCRIPTS
from .check import AGREES, EXACT, OUTCOMES, REFUTED, UNPROVED, CaseCheck, Verdict, operators
from .coverage import schemas
from .definition import Shapes, function_case, model_case, own_case
from .differences import central, mismatch


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
        """Numerical examples: products against differences, at two points or more."""
        small = [*self.cases[:2]] + [self.cases[0]] * (len(self.cases) == 1)
        return tuple(example(case, seed) for seed, case in enumerate(small))

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

    def markdown(self) -> str:
        """The whole proof in Markdown."""
        if self.stated:
            return f"# {self.title}\n\n{self.stated.sentence}\n"
        sections = (
            headline,
            equation,
            structure,
            matrix_rows,
            verdicts,
            numerical_examples,
            script,
            domain,
        )
        parts = [f"# {self.title}", *filter(None, (section(self) for section in sections))]
        return "\n\n".join(parts) + "\n"

    __str__ = _repr_markdown_ = markdown

    def _repr_html_(self) -> str:
        """The proof in a notebook, without the examples and the script that Markdown has."""
        title = f"Proof of {self.title}"
        if self.stated:
            return card(title, f"{self.outcome}: {self.stated.sentence}")
        return card(title, headline(self).replace("**", ""), *folds(self))

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
    declared, cases = find(op_type, domain), CASES.get((op_type, domain))
    if sentence := zero_statement(declared):
        return Proof(op_type, domain, (), sentence)
    if declared and (cases is None or shapes):
        title = full_name(op_type, domain)
        cases = [own_case(title, declared, shapes, attrs)]
    if cases is None:
        known = [name for name, held in CASES if held == domain]
        what = "has no closed form to be proved" if (op_type, domain) in schemas() else "is unknown"
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


# -- numerical examples --------------------------------------------------------------------------

STEPS, GOOD = (1e-5, 1e-2, 0.25), 1e-6
"""Steps of the differences, tried until the error is good; single precision needs long steps."""


@dataclass(frozen=True)
class Example:
    """A point, a direction v, J v at the point, and central differences along v."""

    case: Case
    point: dict[str, np.ndarray]
    direction: dict[str, np.ndarray]
    product: np.ndarray
    differences: np.ndarray

    @property
    def error(self) -> float:
        """The greatest error, relative to the greatest entry or to 1."""
        return mismatch(self.product, self.differences, floor=1.0)


def example(case: Case, seed: int) -> Example:
    """One example; the direction is random, with two decimals."""
    rng = np.random.default_rng(seed)
    wrt, point = case.floating(case.wrt), nearby(case, seed)
    values = case.model.run(point, engine="numpy")
    of = tuple(name for name in case.chosen if values[name].dtype.kind == "f")
    direction = {n: np.round(rng.standard_normal(point[n].shape), 2) for n in wrt}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxJacWarning)  # about blocks that are zero
        J = linearize(case.model, point, of=of, wrt=wrt, engine="numpy")
    product = flatten_named(J.apply(direction), of)
    found: list[Example] = []
    for h in STEPS:
        slopes = central(lambda x: case.model.run(x, engine="numpy"), point, direction, h)
        found.append(Example(case, point, direction, product, flatten_named(slopes, of)))
        if found[-1].error < GOOD:
            break
    return min(found, key=lambda made: made.error)


def flatten_named(values: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray:
    """The named tensors, flattened and concatenated."""
    return np.concatenate([np.ravel(values[name]) for name in names])


def nearby(case: Case, seed: int) -> dict[str, np.ndarray]:
    """The point of a case for seed 0; for other seeds a point nearby, if the model runs there."""
    kinds = {name: spec.dtype for name, spec in case.model.inputs.items()}
    point = {name: np.asarray(x, kinds.get(name)) for name, x in case.point.items()}
    wrt = case.floating(case.wrt)
    moved = {n: x * (1 + seed / 64) if n in wrt else x for n, x in point.items()}
    try:
        case.model.run(moved, engine="numpy")
    except OnnxJacError:
        return point
    return moved


# -- sections of the text --------------------------------------------------------------------------

ORIENTATION = (
    "Rows are outputs and columns inputs: J = ∂y/∂x. "
    "ONNX's guide writes the transpose, rows = inputs."
)
WRITTEN_ENTRIES = 64
"""A matrix of up to this many entries is written out."""

HEAD = ("case", "block", "first derivative", "second, by the recorded VJP")


def headline(proof: Proof) -> str:
    """The outcome in one sentence."""
    if proof.outcome in (AGREES, UNPROVED):
        cases = sum(r.outcome == AGREES for r in proof.results)
        return (
            f"**{proof.outcome}**: it is composed of other operators, and no definition was "
            f"written apart: no proof. Its derivative is the composition's, whose values "
            f"equal ONNX Runtime's kernel in {cases} of {len(proof.results)} cases."
        )
    exact = sum(r.outcome == EXACT for r in proof.results)
    text = derived_from(proof.op_type, proof.domain)
    derived = f" The rule is derived from {text} by SymPy." if text else ""
    return (
        f"**{proof.outcome}**: the rule is the derivative of the definition in {exact} of "
        f"{len(proof.results)} cases exactly, entry by entry, by SymPy.{derived}"
    )


def derived_from(op_type: str, domain: str) -> str:
    """The text of which SymPy makes the rule, while it is declared; empty for any other rule."""
    rule = declared.rule if (declared := find(op_type, domain)) else None
    if isinstance(rule, Elementwise):
        return " or ".join(rule.formulas.values())
    return rule.text if isinstance(rule, Indexed) else ""


def equation(proof: Proof) -> str:
    """The equation of the case that is shown."""
    check = proof.shown
    lines = [f"$${sp.latex(y)} = {sp.latex(tensor)}$$" for y, tensor in outputs(check)]
    return f"## Equation\n\n`{check.case}`, by {check.definition.source}:\n\n" + "\n\n".join(lines)


def outputs(check: CaseCheck) -> Iterator[tuple[sp.Symbol, Any]]:
    """Each output: its name, and its entries as SymPy prints them."""
    for name in check.of:
        exprs: np.ndarray = check.reading.values[name].exprs
        made = sp.Array(exprs.ravel().tolist(), exprs.shape) if exprs.size else sp.Symbol("()")
        yield sp.Symbol(name), exprs[()] if exprs.ndim == 0 else made


def structure(proof: Proof) -> str:
    """The operators that are applied, never formed."""
    lines = [f"- ∂{o}/∂{i} = `{J}`" for (o, i), J in operators(proof.shown).items()]
    head = "## Jacobian\n\nAs operators, which are applied and never formed:\n\n"
    return head + "\n".join(lines) if lines else ""


def matrix_rows(proof: Proof) -> str:
    """The matrix, entry by entry."""
    found = proof.shown.matrix
    if found.rows * found.cols > WRITTEN_ENTRIES:
        return f"As a matrix it has {found.rows} × {found.cols} entries. {ORIENTATION}"
    return f"As a matrix:\n\n$$J = {sp.latex(found)}$$\n\n{ORIENTATION}"


def verdicts(proof: Proof) -> str:
    """A table of all blocks of all cases."""
    head = f"| {' | '.join(HEAD)} |\n|---|---|---|---|"
    rows = (f"| `{case}` | {' | '.join(others)} |" for case, *others in cells(proof))
    return "## Verdicts\n\n" + "\n".join([head, *rows])


def cells(proof: Proof) -> Iterator[tuple[str, ...]]:
    """A row for every block of every case."""
    for result in proof.results:
        second = ", ".join(sorted({v.outcome for v in result.second})) or "not asked"
        for v in result.first:
            (o, i), (m, n) = v.pair, v.shape
            yield str(result.case), f"∂{o}/∂{i}, {m}×{n}", f"{v.outcome}{v.failure}", second


def numerical_examples(proof: Proof) -> str:
    """Numerical examples."""
    parts = []
    for e in proof.examples:
        point = {n: np.round(x, 6) if x.dtype.kind == "f" else x for n, x in e.point.items()}
        lines = [f"- {name} = {x.tolist()}" for name, x in point.items()]
        lines += [f"- v along {name} = {v.tolist()}" for name, v in e.direction.items()]
        lines += [f"- J v = {np.round(e.product, 9).tolist()}"]
        lines += [f"- differences: {np.round(e.differences, 9).tolist()}, off by {e.error:.1e}"]
        parts.append(f"`{e.case}`\n\n" + "\n".join(lines))
    return "## Numerical examples\n\nJ v against central differences.\n\n" + "\n\n".join(parts)


def script(proof: Proof) -> str:
    """The script for PyTorch, and what it prints."""
    if proof.script is None:
        return ""
    found = proof.script.agreement
    said = "PyTorch is not installed here." if found is None else f"It prints {found:.1e}."
    return f"## By PyTorch\n\n```python\n{proof.script.text}```\n\n{said}"


def domain(proof: Proof) -> str:
    """Where the proof holds, and the declared derivatives elsewhere."""
    met = list(dict.fromkeys(c for r in proof.results for c in r.conditions))
    where = "wherever the expressions above are defined"
    if met:
        conditions = [f"- ${sp.latex(c)}$" for c in met[:12]]
        conditions += [f"- and {len(met) - 12} more"] * (len(met) > 12)
        chosen = "in the open sets where these hold, which the cases chose:\n\n"
        where = chosen + "\n".join(conditions)
    kinks = "".join(f"\n- {line}" for line in proof.kinks)
    declared = f"\n\nAt the kinks it is declared, not proved:\n{kinks}" if kinks else ""
    return f"## Domain\n\nThe identities hold {where}.{declared}"


# -- folds in a notebook ---------------------------------------------------------------------------


def folds(proof: Proof) -> Iterator[Markup]:
    """The sections, each of which unfolds."""
    check, found = proof.shown, proof.shown.matrix
    lines = (pre(pretty(sp.Eq(*sides, evaluate=False))) for sides in outputs(check))
    source = f"{check.case}, by {check.definition.source}"
    yield fold("equation", pre(source), *lines, unfolded=True)
    rows = tuple((f"∂{o}/∂{i}", repr(J)) for (o, i), J in operators(check).items())
    yield fold_table(
        Table("Jacobian, as operators that are never formed", ("block", "operator"), rows)
    )
    small = found.rows * found.cols <= WRITTEN_ENTRIES
    text = pretty(found) if small else f"more than {WRITTEN_ENTRIES} entries are not written out"
    yield fold(f"Jacobian, as a matrix of {found.rows}×{found.cols}", pre(text), ORIENTATION)
    yield fold_table(Table("verdicts", HEAD, tuple(cells(proof))))
    if kinks := tuple((line,) for line in proof.kinks):
        yield fold_table(Table("declared at kinks, not proved", ("convention",), kinks))


def pretty(expression: Any) -> str:
    """Mathematics over several lines."""
    return str(sp.pretty(expression, use_unicode=True, wrap_line=False))


TEMPLATE = """\
import torch
import torch.nn.functional as F
from torch.autograd.functional import jacobian

{inputs}

def f({names}):
    return {expression}

by_torch = jacobian(f, ({names},))
by_onnxjac = (
{blocks}
)
worst = max(
    (a.reshape(b.shape) - b).abs().max().item() for a, b in zip(by_torch, by_onnxjac)
)
print("greatest difference:", worst)
"""


@dataclass(frozen=True)
class Script:
    """A script, and what it prints."""

    text: str

    @cached_property
    def agreement(self) -> float | None:
        """The greatest difference that the script finds; None where PyTorch is not installed."""
        if find_spec("torch") is None:
            return None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(self.text, "<script>", "exec"), {})
        return float(printed.getvalue().rpartition(":")[2])


def script_of(op_type: str, domain: str = "") -> Script | None:
    """The script of an operator; None where PyTorch does not have the operator."""
    found = SCRIPTS.get(full_name(op_type, domain))
    return write_script(*found) if found else None


def write_script(text: str, case: Case) -> Script:
    """The script that compares a case with an expression of PyTorch."""
    wrt, of = case.floating(case.wrt), case.results[(case.of or (0,))[0]]
    J = linearize(case.model, case.point, of=of, wrt=wrt, engine="numpy")
    blocks = (tensor_expression(J[of, name].toarray()) for name in wrt)
    return Script(TEMPLATE.format(
        inputs="\n".join(f"{name} = {tensor_expression(x)}" for name, x in case.point.items()),
        names=", ".join(wrt), expression=text.format(*case.names, all=", ".join(case.names)),
        blocks="\n".join(f"    {block}," for block in blocks),
    ))  # fmt: skip


def tensor_expression(x: np.ndarray) -> str:
    """A tensor as an expression of PyTorch; floats have double precision."""
    kind = ", dtype=torch.float64" if x.dtype.kind == "f" else ""
    return f"torch.tensor({x.tolist()}{kind})"
