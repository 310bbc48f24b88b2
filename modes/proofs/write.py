"""A proof as a document: equation, operators, matrix, verdicts, examples, script, domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy as sp

from .check import Check, blocks_of

Proof = Any
"""A proof, which imports this."""

ORIENTATION = (
    "Rows are outputs and columns inputs: J = ∂y/∂x. "
    "ONNX's guide writes the transpose, rows = inputs."
)
MOST = 64
"""Entries of a matrix that are still written out."""


def document(proof: Proof) -> str:
    """The proof in Markdown."""
    if proof.stated:
        return f"# {proof.title}\n\n{proof.stated.sentence}\n"
    sections = (
        verdict, definition, structure, matrix, table, numbers, script, domain,
    )  # fmt: skip
    parts = [f"# {proof.title}", *(text for section in sections if (text := section(proof)))]
    return "\n\n".join(parts) + "\n"


def verdict(proof: Proof) -> str:
    exact = sum(r.outcome == "exact" for r in proof.results)
    return (
        f"**{proof.outcome}**: the rule is the derivative of the definition in {exact} of "
        f"{len(proof.results)} cases exactly, entry by entry, by SymPy."
    )


def definition(proof: Proof) -> str:
    """The equation of the case that is shown."""
    check = proof.shown
    lines = [
        f"$${sp.latex(left(name))} = {sp.latex(tensor(exprs))}$$" for name, exprs in outputs(check)
    ]
    return f"## Equation\n\n`{check.case}`, by {check.definition.source}:\n\n" + "\n\n".join(lines)


def outputs(check: Check) -> Iterator[tuple[str, np.ndarray]]:
    for name in check.of:
        yield name, check.reading.values[name].exprs


def left(name: str) -> sp.Symbol:
    return sp.Symbol(name)


def tensor(exprs: np.ndarray) -> Any:
    """A tensor as SymPy prints it."""
    if exprs.ndim == 0:
        return exprs[()]
    return sp.Array(exprs.ravel().tolist(), exprs.shape) if exprs.size else sp.Symbol("()")


def structure(proof: Proof) -> str:
    """The operators that are applied, never formed."""
    blocks = blocks_of(proof.shown)
    if not blocks:
        return ""
    lines = [f"- ∂{o}/∂{i} = `{J}`" for (o, i), J in blocks.items()]
    return "## Jacobian\n\nAs operators, which are applied and never formed:\n\n" + "\n".join(lines)


def matrix(proof: Proof) -> str:
    """The matrix, entry by entry."""
    found = proof.shown.matrix
    if found.rows * found.cols > MOST:
        return f"As a matrix it has {found.rows} × {found.cols} entries. {ORIENTATION}"
    return f"As a matrix:\n\n$$J = {sp.latex(found)}$$\n\n{ORIENTATION}"


def equations(proof: Proof) -> str:
    """The Jacobian alone, for LaTeX."""
    if proof.stated:
        return "0" if proof.stated.outcome == "zero" else ""
    return f"$$J = {sp.latex(proof.shown.matrix)}$$"


def table(proof: Proof) -> str:
    head = f"| {' | '.join(HEAD)} |\n|---|---|---|---|"
    cells = (cells for result in proof.results for cells in case_cells(result))
    rows = (f"| `{case}` | {' | '.join(others)} |" for case, *others in cells)
    return "## Verdicts\n\n" + "\n".join([head, *rows])


HEAD = ("case", "block", "first derivative", "second, by the recorded VJP")


def case_cells(result: Any) -> Iterator[tuple[str, ...]]:
    """A row for every block of a case."""
    outcomes = {v.outcome for v in result.second}
    again = ", ".join(sorted(outcomes)) or "not asked"
    for v in result.first:
        block = f"∂{v.pair[0]}/∂{v.pair[1]}"
        size = f"{v.shape[0]}×{v.shape[1]}"
        yield str(result.case), f"{block}, {size}", f"{v.outcome}{v.failure}", again


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
    """The script of method 1."""
    if proof.script is None:
        return ""
    found = proof.script.agreement
    said = "PyTorch is not installed here." if found is None else f"It prints {found:.1e}."
    return f"## By PyTorch\n\n```python\n{proof.script.text}```\n\n{said}"


def domain(proof: Proof) -> str:
    """Where the proof holds, and what is declared elsewhere."""
    met = dict.fromkeys(c for r in proof.results for c in r.conditions)
    conditions = [f"- ${sp.latex(c)}$" for c in list(met)[:12]]
    if len(met) > 12:
        conditions.append(f"- and {len(met) - 12} more")
    where = "wherever the expressions above are defined"
    if met:
        where = "in the open sets where these hold, which the cases chose:\n\n" + "\n".join(
            conditions
        )
    kinks = "".join(f"\n- {line}" for line in proof.kinks)
    declared = f"\n\nAt the kinks it is declared, not proved:\n{kinks}" if kinks else ""
    return f"## Domain\n\nThe identities hold {where}.{declared}"
