"""Kinks: where an operator has no derivative, by one-sided limits of formulas, else in words.

>>> [kink_set(name) for name in ("Tanh", "Relu", "Celu")]
['', 'x = 0', 'x = 0, in the second derivative only']
>>> kink_set("Elu")
'x = 0, unless alpha = 1'
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import sympy as sp
from sympy.core.relational import Relational

from .conventions import SECOND
from .formulas import ATTRIBUTES, NAMES, parse, stable, steady, unstable
from .registry import DECLARATIONS
from .rules.elementwise import FORMULAS
from .symbols.stages import differentiate_pieces
from .trees import Piece

X = NAMES["x"]
GENERIC = {NAMES[name]: sp.prime(k) for k, name in enumerate(ATTRIBUTES, 1)}
"""Generic values of the attributes, to find the piece on either side of a root."""

def kink_set(op_type: str, domain: str = "") -> str:
    """Where the derivative of an operator does not exist, in words; empty if it always exists.

    >>> kink_set("ThresholdedRelu"), kink_set("ReduceL2"), kink_set("MatMul")
    ('x = alpha', 'where the norm is 0', '')
    """
    if op_type in FORMULAS and not domain:
        return " or ".join(map(str, kinks(op_type)))
    said = DECLARATIONS.get((op_type, domain))
    return said.kinks.where if said and said.kinks else ""


@dataclass(frozen=True)
class Kink:
    """A kink at `where` = 0, or at integer `where`: its order, the first derivative that jumps.

    `where` is solved for the variable `x`.
    """

    where: sp.Expr
    order: int
    whole: bool = False
    unless: tuple[sp.Expr, ...] = ()
    x: sp.Symbol = X

    def __str__(self) -> str:
        place = f"{self.where} whole" if self.whole else f"{self.x} = {self.x - self.where}"
        exceptions = " or ".join(f"{s} = {value}" for s, value in self.unless)
        unless = f", unless {exceptions}" if exceptions else ""
        return place + unless + (SECOND if self.order == 2 else "")


def kinks(op_type: str) -> tuple[Kink, ...]:
    """The kinks of all formulas of an operator."""
    found = (k for text in FORMULAS[op_type].formulas.values() for k in kinks_in(text))
    return tuple(dict.fromkeys(found))


@cache
def kinks_in(text: str) -> tuple[Kink, ...]:
    """The kinks of one formula."""
    return tuple(kinks_of(parse(text)))


def kinks_of(formula: sp.Expr) -> Iterator[Kink]:
    """The points where the two sides of a formula differ."""
    yield from (Kink(f.args[0], 0, whole=True) for f in formula.atoms(sp.floor, sp.ceiling))
    pieces = formula.replace(sp.Abs, lambda e: sp.Piecewise((e, e > 0), (-e, True)))
    pieces = pieces.replace(sp.sign, lambda e: sp.Piecewise((1, e > 0), (-1, e < 0), (0, True)))
    for line in sorted({r.lhs - r.rhs for r in pieces.atoms(Relational)}, key=str):
        inputs = sorted(line.free_symbols - GENERIC.keys() - {X}, key=str)
        x = X if line.has(X) or not inputs else inputs[0]
        for root in sp.solve(line, x):
            gaps = gaps_at(pieces, root, x)
            alone = gaps_at(pieces, root, x, 0) if formula.has(sp.Eq, sp.sign) else ()
            order = min((k for found in (gaps, alone) for k, gap in enumerate(found) if gap != 0),
                        default=None)  # fmt: skip
            if order is not None:
                yield Kink(x - root, order, unless=tuple(exceptions(gaps, root)), x=x)


def gaps_at(
    pieces: sp.Expr, root: sp.Expr, x: sp.Symbol = X, start: int = -1
) -> tuple[sp.Expr, ...]:
    """The jumps of value, first and second derivative at a root, from left to right, or from the
    root itself with `start` = 0.
    """
    left, right = (piece_beside(pieces, root, h, x) for h in (start, 1))
    step = right - left
    slopes = (steady(step, lambda e, k=k: sp.diff(e, x, k)) for k in range(3))  # type: ignore[misc]
    return tuple(sp.simplify(slope.subs(x, root)) for slope in slopes)


def piece_beside(pieces: sp.Expr, root: sp.Expr, direction: int, x: sp.Symbol = X) -> sp.Expr:
    """The piece of the formula on one side of a root, or at the root."""
    others = sorted(pieces.free_symbols - GENERIC.keys(), key=str)
    generic = {**GENERIC, **{s: sp.prime(9 + k) for k, s in enumerate(others)}}
    near: dict[Any, Any] = {**generic, x: root.subs(generic) + sp.Rational(direction, 1000)}

    def chosen(*cases: Any) -> sp.Expr:
        return next(value for value, condition in cases if condition.subs(near) == True)  # noqa: E712

    return pieces.replace(sp.Piecewise, chosen)


def exceptions(
    gaps: tuple[sp.Expr, ...], root: sp.Expr
) -> Iterator[tuple[sp.Symbol, sp.Expr]]:
    """The values of attributes for which value and slope agree at the root."""
    for name in GENERIC:
        for value in sp.solve(gaps[1], name) if gaps[1].has(name) else ():
            same = gaps[0].subs(name, value) == 0
            if same and value.is_number and root.subs(name, value).is_finite is not False:
                yield name, value


def weakness(pieces: Iterable[Piece]) -> str:
    """Where double precision loses the value or a derivative: at 0, ±800, between, and at kinks."""
    for expr, found in differentiate_pieces(pieces):
        if expr.has(sp.floor, sp.ceiling, sp.sign):
            continue  # rounding may cross a step
        roots = (kink.x - kink.where for kink in kinks_of(expr))
        at = tuple(float(root) for root in roots if root.is_number)
        if weak := unstable(stable(expr), expr, kinks=at):
            return f"y = {weak}"
        for name, d in found.items():
            if weak := unstable(d, expr, name, kinks=at):
                return f"∂y/∂{name} = {weak}"
    return ""
