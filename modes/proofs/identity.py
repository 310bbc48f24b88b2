"""Whether an expression is identically zero: by algebra, else by its values in many digits."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache
from typing import Any

import sympy as sp
from mpmath.ctx_iv import MPIntervalContext

from .algebra import is_zero, is_zero_fraction, is_zero_polynomial

EXACT, DIGITS, REFUTED = "exact", "30 digits", "refuted"

LARGE, HUGE = 1500, 12000
"""Operations in an expression beyond which algebra, or that of polynomials, would take too long."""

FEW = 8
"""Symbols of which even a huge expression is soon one fraction."""

INTERVALS = MPIntervalContext()
INTERVALS.dps = 80

ENCLOSED = {name: getattr(INTERVALS, name) for name in ("exp", "log", "sqrt", "sin", "cos", "pi")}
"""What interval arithmetic knows; with them go the rational operations."""

Point = dict[sp.Symbol, sp.Rational]


@cache
def verdict(expr: sp.Expr, conditions: tuple[Any, ...] = (), point: Any = ()) -> str:
    """EXACT where SymPy shows expr = 0, DIGITS where it cannot, but intervals of less than 10⁻³⁰
    enclose 0 at random rational points; else REFUTED.

    >>> x = sp.Symbol("x", real=True)
    >>> verdict(sp.cosh(x) ** 2 - sp.sinh(x) ** 2 - 1), verdict(sp.cos(x) - 1)
    ('exact', 'refuted')
    """
    expr = unsigned(expr, dict(point))
    operations = sp.count_ops(expr)
    small = operations < LARGE
    if operations < HUGE and is_zero_polynomial(expr):
        return EXACT
    if (small and is_zero(expr)) or (len(expr.free_symbols) < FEW and is_zero_fraction(expr)):
        return EXACT
    if not vanishes_near(expr, dict(point), conditions):
        return REFUTED
    if small and proved(expr):
        return EXACT
    return DIGITS if enclosed(expr, dict(point), conditions) else REFUTED


def unsigned(expr: sp.Expr, point: Point) -> sp.Expr:
    """|e| as ±e and δ(e) as 0, by the sign that e has at the point and therefore near it."""
    for part in expr.atoms(sp.Abs, sp.sign, sp.DiracDelta):
        inner = part.args[0]
        side = sp.sign(sp.N(inner.subs(point), 20))
        if side in (1, -1):
            near = {sp.Abs: side * inner, sp.sign: side, sp.DiracDelta: sp.Integer(0)}
            expr = expr.subs(part, near[part.func])
    return expr


def proved(expr: sp.Expr) -> bool:
    """Whether some rewriting gives zero, where polynomial arithmetic did not."""
    return sp.simplify(expr) == 0 or expr.equals(0) is True


def vanishes_near(expr: sp.Expr, point: Point, conditions: Iterable[Any]) -> bool:
    """Whether it is below 10⁻³⁰ at three random rational points where the conditions hold."""
    rng = random.Random(0)
    for _ in range(3):
        value = sp.N(expr.subs(drawn(expr, point, conditions, rng)), 50, maxn=400)
        if not value.is_number or value.has(sp.nan, sp.zoo) or abs(value) > sp.Float("1e-30"):
            return False
    return True


def enclosed(expr: sp.Expr, point: Point, conditions: Iterable[Any]) -> bool:
    """Whether interval arithmetic encloses 0 within 10⁻³⁰ at three random rational points."""
    rng = random.Random(0)
    for _ in range(3):
        at = drawn(expr, point, conditions, rng)
        inputs = [INTERVALS.mpf(int(v.p)) / INTERVALS.mpf(int(v.q)) for v in at.values()]
        function = sp.lambdify(list(at), expr, modules=[ENCLOSED, {"Abs": abs}])
        value = INTERVALS.mpf(function(*inputs))
        if 0 not in value or value.delta > INTERVALS.mpf("1e-30"):
            return False
    return True


def drawn(expr: sp.Expr, point: Point, conditions: Iterable[Any], rng: random.Random) -> Point:
    """Random fractions near the point, or near 1, ever nearer until the conditions hold."""
    held = tuple(conditions)
    names = sorted(expr.free_symbols.union(*(c.free_symbols for c in held)), key=str)
    width = sp.Rational(1, 4)
    for _ in range(12):
        near = {s: point.get(s, sp.Integer(1)) + width * rng.randint(-97, 97) / 100 for s in names}
        if all(c.subs(near) == True for c in held):  # noqa: E712  (SymPy's own truth)
            break
        width /= 4
    return near
