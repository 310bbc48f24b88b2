"""A proof as HTML: the equation, the operators, the matrix, the verdicts, the kinks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy as sp

from ...jacobians.text import Table
from ..show.markup import Markup, card, fold, folded, pre
from .check import blocks_of
from .write import HEAD, MOST, ORIENTATION, Proof, case_cells, left, outputs, tensor, verdict


def page(proof: Proof) -> str:
    """What a notebook shows; `markdown()` has numerical examples and a script as well."""
    title = f"Proof of {proof.title}"
    if proof.stated:
        return card(title, f"{proof.outcome}: {proof.stated.sentence}")
    return card(title, verdict(proof).replace("**", ""), *sections(proof))


def sections(proof: Proof) -> Iterator[Markup]:
    """One fold after the other."""
    check = proof.shown
    equations = (sp.Eq(left(name), tensor(exprs), evaluate=False) for name, exprs in outputs(check))
    source = f"{check.case}, by {check.definition.source}"
    yield fold("equation", pre(source), *(pre(written(e)) for e in equations), unfolded=True)
    rows = tuple((f"∂{o}/∂{i}", repr(J)) for (o, i), J in blocks_of(check).items())
    yield folded(Table("Jacobian, as operators that are never formed", ("block", "operator"), rows))
    yield matrix(check.matrix)
    cells = tuple(c for result in proof.results for c in case_cells(result))
    yield folded(Table("verdicts", HEAD, cells))
    kinks = tuple((line,) for line in proof.kinks)
    if kinks:
        yield folded(Table("declared at kinks, not proved", ("convention",), kinks))


def matrix(found: Any) -> Markup:
    """The matrix, written out where it is small."""
    title = f"Jacobian, as a matrix of {found.rows}×{found.cols}"
    small = found.rows * found.cols <= MOST
    text = written(found) if small else f"more than {MOST} entries are not written out"
    return fold(title, pre(text), ORIENTATION)


def written(expression: Any) -> str:
    """Mathematics over several lines."""
    return str(sp.pretty(expression, use_unicode=True, wrap_line=False))
