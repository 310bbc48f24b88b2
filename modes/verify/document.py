"""A proof as a document: Markdown for a file, HTML for a notebook, LaTeX for the Jacobian."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy as sp

from ...jacobians.text import Table
from ..support.markup import Markup, card, fold, folded, pre
from .check import Check, operators

Proof = Any
"""A `Proof`, whose module imports this one."""

ORIENTATION = (
    "Rows are outputs and columns inputs: J = ∂y/∂x. "
    "ONNX's guide writes the transpose, rows = inputs."
)
MOST = 64
"""A matrix of up to this many entries is written out."""

HEAD = ("case", "block", "first derivative", "second, by the recorded VJP")


def markdown(proof: Proof) -> str:
    """The proof in Markdown."""
    if proof.stated:
        return f"# {proof.title}\n\n{proof.stated.sentence}\n"
    sections = (
        verdict, definition, structure, matrix, verdicts, numbers, script, domain,
    )  # fmt: skip
    parts = [f"# {proof.title}", *(text for section in sections if (text := section(proof)))]
    return "\n\n".join(parts) + "\n"


def equations(proof: Proof) -> str:
    """The Jacobian alone, in LaTeX."""
    if proof.stated:
        return "0" if proof.stated.outcome == "zero" else ""
    return f"$$J = {sp.latex(proof.shown.matrix)}$$"


def verdict(proof: Proof) -> str:
    """The outcome in one sentence."""
    exact = sum(r.outcome == "exact" for r in proof.results)
    return (
        f"**{proof.outcome}**: the rule is the derivative of the definition in {exact} of "
        f"{len(proof.results)} cases exactly, entry by entry, by SymPy."
    )


def definition(proof: Proof) -> str:
    """The equation of the case that is shown."""
    check = proof.shown
    lines = [f"$${sp.latex(y)} = {sp.latex(tensor)}$$" for y, tensor in outputs(check)]
    return f"## Equation\n\n`{check.case}`, by {check.definition.source}:\n\n" + "\n\n".join(lines)


def outputs(check: Check) -> Iterator[tuple[sp.Symbol, Any]]:
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


def matrix(proof: Proof) -> str:
    """The matrix, entry by entry."""
    found = proof.shown.matrix
    if found.rows * found.cols > MOST:
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


def numbers(proof: Proof) -> str:
    """Numerical examples."""
    parts = []
    for e in proof.examples:
        lines = [f"- {name} = {np.round(x, 6).tolist()}" for name, x in e.point.items()]
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


# -- HTML ----------------------------------------------------------------------------------------


def page(proof: Proof) -> str:
    """The proof in a notebook, without the examples and the script that `markdown()` has."""
    title = f"Proof of {proof.title}"
    if proof.stated:
        return card(title, f"{proof.outcome}: {proof.stated.sentence}")
    return card(title, verdict(proof).replace("**", ""), *folds(proof))


def folds(proof: Proof) -> Iterator[Markup]:
    """The sections, each of which unfolds."""
    check, found = proof.shown, proof.shown.matrix
    lines = (pre(pretty(sp.Eq(*sides, evaluate=False))) for sides in outputs(check))
    source = f"{check.case}, by {check.definition.source}"
    yield fold("equation", pre(source), *lines, unfolded=True)
    rows = tuple((f"∂{o}/∂{i}", repr(J)) for (o, i), J in operators(check).items())
    yield folded(Table("Jacobian, as operators that are never formed", ("block", "operator"), rows))
    small = found.rows * found.cols <= MOST
    text = pretty(found) if small else f"more than {MOST} entries are not written out"
    yield fold(f"Jacobian, as a matrix of {found.rows}×{found.cols}", pre(text), ORIENTATION)
    yield folded(Table("verdicts", HEAD, tuple(cells(proof))))
    if kinks := tuple((line,) for line in proof.kinks):
        yield folded(Table("declared at kinks, not proved", ("convention",), kinks))


def pretty(expression: Any) -> str:
    """Mathematics over several lines."""
    return str(sp.pretty(expression, use_unicode=True, wrap_line=False))
