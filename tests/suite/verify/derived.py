"""Derived: which rules SymPy derives, from a formula or from index notation, and why not others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from string import ascii_lowercase
from textwrap import fill

import numpy as np
import sympy as sp

from onnxjac.modes.verify.case import Case
from onnxjac.modes.verify.cases import CASES
from onnxjac.modes.verify.check import CaseCheck, Verdict
from onnxjac.modes.verify.definition import block_slices, symbolic_matrix
from onnxjac.ops import find
from onnxjac.ops.derive import find_derivation as declared_derivation
from onnxjac.ops.indexed import Indexed
from onnxjac.ops.node import Node
from onnxjac.ops.registry import full_name
from onnxjac.ops.symbols.stages import names_in_text, parted

FORMULA, INDICES, TESTED = "formula", "index notation", "index notation, in tests"
PARTS, LINEAR, NOT = "composition", "linear", "no"
DECLARED = frozenset({FORMULA, INDICES})
"""The rules that SymPy derives when they are declared: none is written by hand."""

BY_HAND = {
    "index notation has sums, but no maximum and no order of entries":
        "GlobalMaxPool MaxPool ReduceMax ReduceMin TopK Unique",
    "it samples between entries, at places that are computed, and an index is a whole number":
        "DeformConv GridSample Resize",
    "index notation has sums over an index, but no products": "CumProd ReduceProd",
    "it writes y at t[i], and index notation reads there only": "ScatterElements ScatterND",
    "a formula gives the derivative to one of the inputs that tie": "Max Min",
    "in training it has a mask that was drawn, which a formula does not name": "Dropout",
    "the slopes that SymPy finds, y/x xʸ and log(x) xʸ, are NaN at x = 0": "Pow",
    "the index of y is s·i + t, and index notation computes indices of inputs only":
        "ConvTranspose",
    "its windows of channels are cut off at both ends": "LRN",
    "an attribute is the length of its windows, and no input has that length": "LpPool",
    "its factors cos(2π k t / n) have indices as numbers": "STFT",
    "its sum has n! terms, one for each order of n columns": "Det",
    "its entries are quotients of sums of n! terms": "com.microsoft::Inverse",
    "its coefficients are lists of attributes, and index notation has tensors as inputs":
        "ai.onnx.ml::LinearClassifier ai.onnx.ml::LinearRegressor "
        "ai.onnx.ml::SVMClassifier ai.onnx.ml::SVMRegressor",
}  # fmt: skip
"""Why SymPy does not derive a rule -> operators."""

REASONS = {name: why for why, names in BY_HAND.items() for name in names.split()}

Text = Callable[..., str]

TEXTS: dict[str, Text] = {}
"""op_type -> its definition in index notation, for the shapes and attributes of a case."""


def text(*names: str) -> Callable[[Text], Text]:
    """Register a function of a case and the names of its inputs."""

    def enter(function: Text) -> Text:
        TEXTS.update(dict.fromkeys(names, function))
        return function

    return enter


def labels(rank: int, but: str = "") -> list[str]:
    """The names of some indices."""
    return [c for c in ascii_lowercase if c not in but][:rank]


def entry(name: str, over: Sequence[str]) -> str:
    """The entry of a tensor at some indices."""
    return f"{name}[{', '.join(over)}]"


def shapes(case: Case) -> list[tuple[int, ...]]:
    return [np.shape(x) for x in case.inputs if x is not None]


@text("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(case: Case, x: str, t: str, w: str = "") -> str:
    """-Σ w[tₙ] p[n, tₙ], with p = x or log softmax(x)."""
    if "ignore_index" in case.attrs:
        return ""
    logs = f" - log(sum(exp({x}[n, k]), k))" if case.op_type[0] == "S" else ""
    weight = f"{w}[{t}[n]]" if w else "1"
    one, how = f"-{weight}*({x}[n, {t}[n]]{logs})", case.attrs.get("reduction", "mean")
    if how == "none":
        return f"y[n] = {one}"
    total = f"sum({weight}, n)" if w else str(shapes(case)[1][0])
    return f"y = sum({one}, n)" + (f"/{total}" if how == "mean" else "")


@text("LpNormalization", "ai.onnx.ml::Normalizer")
def norms(case: Case, x: str) -> str:
    """x / ‖x‖ₚ along an axis, with ‖x‖ₚ = (Σ |x|ᵖ)^(1/p)."""
    norm = case.attrs.get("norm", "MAX") if case.domain else f"L{case.attrs.get('p', 2)}"
    if norm == "MAX":
        return ""
    over, p = labels(len(shapes(case)[0]), "x"), norm[1:]
    along = [over[case.attrs.get("axis", -1)]]
    term = f"abs({entry(x, [i.upper() if i in along else i for i in over])})**{p}"
    total = f"sum({term}, {', '.join(along).upper()})**(1/{p})"
    return f"{entry('y', over)} = {entry(x, over)}/{total}"


@text("Conv")
def conv(case: Case, x: str, w: str, b: str = "") -> str:
    """Σ w[m, c, t] x[n, c, stride · o + dilation · t], without padding: a sum over windows."""
    get, rank = case.attrs.get, len(shapes(case)[0]) - 2
    if get("group", 1) != 1 or any(get("pads") or ()) or get("auto_pad"):
        return ""
    out = labels(rank, "xwtbcnm")
    taps = [c.upper() for c in out]
    steps = zip(get("strides", [1] * rank), out, get("dilations", [1] * rank), taps, strict=True)
    places = ["n", "c", *(f"{s}*{o} + {d}*{t}" for s, o, d, t in steps)]
    term = f"{entry(w, ['m', 'c', *taps])}*{entry(x, places)}"
    total = f"sum({term}, c, {', '.join(taps)})" + (f" + {b}[m]" if b else "")
    return f"{entry('y', ['n', 'm', *out])} = {total}"


def derived_rule(case: Case) -> Indexed | None:
    """The rule that SymPy derives for a case, if it has a definition in index notation."""
    make = TEXTS.get(full_name(case.op_type, case.domain))
    names = [n for n, x in zip(case.names, case.inputs, strict=True) if x is not None]
    if make is None or not (made := make(case, *names)):
        return None
    _, body = parted(made)
    return Indexed(made, [n for n in names if n in names_in_text(body)])


def compared(case: Case) -> list[Verdict]:
    """The derived Jacobian of the first output against SymPy's derivative of the definition."""
    rule, check = derived_rule(case), CaseCheck(case)
    assert rule is not None
    values = check.reading.values
    inputs = tuple(values[n] for n in rule.variables)
    made = rule(check.op, Node(case.model.steps[0], inputs, (None,) * case.outputs))
    places = {
        k: v for k, v in block_slices(values, check.of, check.wrt).items() if k[0] == check.of[0]
    }
    found = sp.zeros(*check.truth.shape)
    for (_, i), J in made.items():
        if (pair := (check.of[0], rule.variables[i])) in places:
            found[places[pair]] = symbolic_matrix(J, check.op)
    return check.compare(found, check.truth, places)


def derivation(op_type: str, domain: str = "") -> tuple[str, str]:
    """How the rule of an operator is derived, or why it is not.

    >>> derivation("Tanh"), derivation("Transpose")[0], derivation("MaxPool")[0]
    (('formula', 'tanh(x)'), 'index notation', 'no')
    """
    declared, cases = find(op_type, domain), CASES.get((op_type, domain), [])
    if found := declared_derivation(op_type, domain):
        return INDICES if isinstance(found.rule, Indexed) else FORMULA, " or ".join(found.texts)
    if declared is None or declared.is_composed:
        return PARTS, "the rules of the operators that define it"
    texts = [case for case in cases if derived_rule(case)]
    if texts and all(compared(case) and all(compared(case)) for case in texts):
        kept = "" if len(texts) == len(cases) else f", in {len(texts)} of {len(cases)} cases"
        return TESTED, derived_rule(texts[0]).text + kept  # type: ignore[union-attr]
    name = full_name(op_type, domain)
    if name in REASONS or any(CaseCheck(case).truth.free_symbols for case in cases):
        return NOT, REASONS.get(name, "")
    return LINEAR, "y is linear: the rule is the operator itself, which moves or adds entries"


# -- the page ------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[3] / "docs/results/findings.md"
SAID = {
    FORMULA: "SymPy derives the rule from a formula; there is no derivative by hand",
    INDICES: "SymPy derives the rule from lines of index notation; there is no derivative by hand",
    PARTS: "defined by other operators, whose rules apply",
    TESTED: "the rule is by hand; SymPy derives the same Jacobian from index notation in a test",
    LINEAR: "the Jacobian is constant: the rule is the operator itself",
    NOT: "below",
}

Row = tuple[str, str, str]


def find_rows() -> list[Row]:
    """(operator, how its rule is derived, of what or why not) for every operator with cases."""
    return [(full_name(*key), *derivation(*key)) for key in CASES]


def section(rows: Sequence[Row]) -> str:
    """The tables of the page."""
    count = Counter(how for _, how, _ in rows)
    declared, free = sum(count[how] for how in DECLARED), count[PARTS] + count[LINEAR]
    names = ", ".join(sorted(name.rpartition("::")[2] for name, how, _ in rows if how == INDICES))
    texts = [f"| {name} | `{text.replace('|', chr(92) + '|')}` |" for name, how, text in rows
             if how == INDICES]  # fmt: skip
    return "\n".join((
        f"Of the {len(rows)} operators that have cases, {sum(map(len, CASES.values()))} in all, "
        f"{declared} have a rule that SymPy derives when\nit is declared, and {free} more have no "
        "rule of their own or a constant one. These tables are made by the code\n"
        "(`python tests/suite/verify/derived.py`).\n",
        "| rule | operators | |", "|---|---|---|",
        *(f"| {how} | {count[how]} | {said} |" for how, said in SAID.items()),
        "", *fill(f"By index notation: {names}.", 110, break_on_hyphens=False).splitlines(), "",
        "| operator | its texts |", "|---|---|", *texts, "",
        "| by hand | why |", "|---|---|",
        *(f"| {name} | {MEASURED[name] if how == TESTED else why} |" for name, how, why in rows
          if how in (NOT, TESTED)),
    )) + "\n"  # fmt: skip


MEASURED = {
    "Conv": "as a contraction over windows it takes 0.9 to 6.8 times as long",
    "LpNormalization": "a sum of squares would overflow where the norm does not",
    "NegativeLogLikelihoodLoss": "ignored labels and labels out of range are told by the node",
    "SoftmaxCrossEntropyLoss": "it shares log softmax with its second output, and ignored labels",
    "ai.onnx.ml::Normalizer": "a norm of 0 counts as 1, and one of its norms is a maximum",
}
"""Why a rule is by hand although SymPy derives its Jacobian."""

START, END = "<!-- derived -->\n", "<!-- end of derived -->\n"


def write_page() -> None:
    """Put the tables into the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, after = page[: page.index(START)], page[page.index(END) :]
    PAGE.write_text(f"{before}{START}\n{section(find_rows())}\n{after}", encoding="utf-8")


if __name__ == "__main__":
    write_page()
