"""Pieces: where the formula of an elementwise operator has no derivative, by its one-sided limits.

>>> [kinked(name) for name in ("Tanh", "Relu", "Celu")]
['', 'x = 0', 'x = 0, in the second derivative only']
>>> kinked("Elu")
'x = 0, unless alpha = 1'
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import sympy as sp
from sympy.core.relational import Relational

from ...ops.rules.elementwise import FORMULAS
from ...ops.symbols.formulas import ATTRIBUTES, NAMES, parse

X = NAMES["x"]
GENERIC = {NAMES[name]: sp.prime(k) for k, name in enumerate(ATTRIBUTES, 1)}
"""Attributes without a relation among them, where it must be known which piece is on which side."""

SECOND = ", in the second derivative only"


@dataclass(frozen=True)
class Kink:
    """`where` is zero, or whole; the first derivative that differs there; and unless what."""

    where: sp.Expr
    order: int
    whole: bool = False
    unless: tuple[sp.Expr, ...] = ()

    def __str__(self) -> str:
        return self._place() + self._exception() + (SECOND if self.order == 2 else "")

    def _place(self) -> str:
        return f"{self.where} whole" if self.whole else f"x = {X - self.where}"

    def _exception(self) -> str:
        equations = (f"{s} = {value}" for s, value in self.unless)
        return f", unless {' or '.join(equations)}" if self.unless else ""

    def meets(self, values: Mapping[sp.Symbol, Any]) -> bool:
        """Whether a point, with the values of inputs and attributes, lies on it."""
        here = self.where.subs(values)
        return bool(here.is_integer if self.whole else here == 0)


def kinked(op_type: str) -> str:
    """Where the derivative of an elementwise operator does not exist, in words."""
    return " or ".join(map(str, kinks(op_type)))


def kinks(op_type: str) -> tuple[Kink, ...]:
    """The kinks of all formulas of an operator."""
    found = (k for text in FORMULAS[op_type].formulas.values() for k in kinks_in(text))
    return tuple(dict.fromkeys(found))


@cache
def kinks_in(text: str) -> tuple[Kink, ...]:
    """The kinks of one formula."""
    return tuple(kinks_of(parse(text)))


def kinks_of(formula: sp.Expr) -> Iterator[Kink]:
    """Where the sides of a formula differ."""
    yield from (Kink(f.args[0], 0, whole=True) for f in formula.atoms(sp.floor))
    pieces = formula.replace(sp.Abs, lambda e: sp.Piecewise((e, e > 0), (-e, True)))
    for line in sorted({r.lhs - r.rhs for r in pieces.atoms(Relational)}, key=str):
        for root in sp.solve(line, X):
            gaps = gaps_at(pieces, root)
            order = next((k for k, gap in enumerate(gaps) if gap != 0), None)
            if order is not None:
                yield Kink(X - root, order, unless=tuple(exceptions(gaps, root)))


def gaps_at(pieces: sp.Expr, root: sp.Expr) -> tuple[sp.Expr, ...]:
    """What value, first and second derivative gain at a root, from its left to its right."""
    left, right = (side(pieces, root, h) for h in (-1, 1))
    step = right - left
    return tuple(sp.simplify(sp.diff(step, X, k).subs(X, root)) for k in range(3))


def side(pieces: sp.Expr, root: sp.Expr, direction: int) -> sp.Expr:
    """The formula right beside a root, without cases."""
    near: dict[Any, Any] = {**GENERIC, X: root.subs(GENERIC) + sp.Rational(direction, 1000)}

    def chosen(*cases: Any) -> sp.Expr:
        return next(value for value, condition in cases if condition.subs(near) == True)  # noqa: E712

    return pieces.replace(sp.Piecewise, chosen)


def exceptions(
    gaps: tuple[sp.Expr, ...], root: sp.Expr
) -> Iterator[tuple[sp.Symbol, sp.Expr]]:
    """The values of attributes for which there is a root, but value and slope agree at it."""
    for name in GENERIC:
        for value in sp.solve(gaps[1], name) if gaps[1].has(name) else ():
            same = gaps[0].subs(name, value) == 0
            if same and value.is_number and root.subs(name, value).is_finite is not False:
                yield name, value
