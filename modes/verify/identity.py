"""Whether an expression is identically zero: by algebra, else by its values to many digits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import cache, reduce
from typing import Any

import sympy as sp
from mpmath.ctx_iv import MPIntervalContext
from sympy.polys.fields import field
from sympy.polys.rings import ring

EXACT, DIGITS, REFUTED = "exact", "30 digits", "refuted"

LARGE, HUGE = 1500, 12000
"""Operations in an expression beyond which fractions, or even polynomials, take too long."""

FEW = 8
"""Below this number of symbols, even a huge expression becomes one fraction in little time."""

INTERVALS = MPIntervalContext()
INTERVALS.dps = 80

ENCLOSED = {name: getattr(INTERVALS, name) for name in ("exp", "log", "sqrt", "sin", "cos", "pi")}
"""The functions of interval arithmetic, beside the rational operations."""

Point = dict[sp.Symbol, sp.Rational]


@cache
def verdict(expr: sp.Expr, conditions: tuple[Any, ...] = (), point: Any = ()) -> str:
    """EXACT where SymPy shows that expr = 0; else DIGITS where interval arithmetic encloses 0
    within 10⁻³⁰ at random rational points; else REFUTED.

    >>> x = sp.Symbol("x", real=True)
    >>> verdict(sp.cosh(x) ** 2 - sp.sinh(x) ** 2 - 1), verdict(sp.cos(x) - 1)
    ('exact', 'refuted')
    """
    expr = unsigned(expr, dict(point))
    operations = sp.count_ops(expr)
    small = operations < LARGE
    if operations < HUGE and is_zero_polynomial(expr):
        return EXACT
    if (small and is_zero(expr)) or (len(expr.free_symbols) < FEW and vanishes(expr)):
        return EXACT
    if not vanishes_near(expr, dict(point), conditions):
        return REFUTED
    if small and (sp.simplify(expr) == 0 or expr.equals(0) is True):
        return EXACT
    return DIGITS if enclosed(expr, dict(point), conditions) else REFUTED


def unsigned(expr: sp.Expr, point: Point) -> sp.Expr:
    """|e| as ±e and δ(e) as 0, by the sign of e at the point, and therefore near the point."""
    for part in expr.atoms(sp.Abs, sp.sign, sp.DiracDelta):
        inner = part.args[0]
        side = sp.sign(sp.N(inner.subs(point), 20))
        if side in (1, -1):
            near = {sp.Abs: side * inner, sp.sign: side, sp.DiracDelta: sp.Integer(0)}
            expr = expr.subs(part, near[part.func])
    return expr


def vanishes_near(expr: sp.Expr, point: Point, conditions: Iterable[Any]) -> bool:
    """Whether |expr| < 10⁻³⁰ at three random rational points where the conditions hold."""
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
    """Random fractions near the point, or near 1, drawn closer until the conditions hold."""
    held = tuple(conditions)
    names = sorted(expr.free_symbols.union(*(c.free_symbols for c in held)), key=str)
    width = sp.Rational(1, 4)
    for _ in range(12):
        near = {s: point.get(s, sp.Integer(1)) + width * rng.randint(-97, 97) / 100 for s in names}
        if all(c.subs(near) == True for c in held):  # noqa: E712  (SymPy's own truth)
            break
        width /= 4
    return near


# Algebra: rational functions of entries, exponentials and roots are compared as polynomials.


def is_zero(expr: sp.Expr) -> bool:
    """Whether algebra shows that an expression vanishes; False where algebra cannot tell.

    Functions become unknowns, and √s an unknown r with r² = s.

    >>> a, b = sp.symbols("a b", positive=True)
    >>> is_zero(1 / (sp.sqrt(a) + sp.sqrt(b)) - (sp.sqrt(a) - sp.sqrt(b)) / (a - b))
    True
    """
    return vanishes(expr) or vanishes(spelled(expr), sp.cancel)


def vanishes(expr: sp.Expr, canonical: Callable[[sp.Expr], sp.Expr] = lambda e: e) -> bool:
    """Whether the numerator vanishes, where functions of equal canonical arguments are equal.

    By default they are equal only where their arguments are written alike.
    """
    unknowns = Unknowns(expr, canonical)
    plain = unknowns.replace(expr)
    names = occurring(plain, *(s for _, s in unknowns.roots))
    if not names:
        return bool(plain == 0)
    fractions = field(names, sp.QQ)[0]
    try:
        numerator = fractions.from_expr(plain).numer
        divisors = [fractions.from_expr(r**2 - s).numer for r, s in unknowns.roots]
    except (ValueError, NotImplementedError, ZeroDivisionError, sp.CoercionFailed):
        return False
    return bool(reduce(lambda p, r: p.rem(r), divisors, numerator) == 0)


def occurring(*exprs: sp.Expr) -> list[sp.Symbol]:
    """The symbols in some expressions, in alphabetical order."""
    return sorted(frozenset().union(*(e.free_symbols for e in exprs)), key=str)


def spelled(expr: sp.Expr) -> sp.Expr:
    """Hyperbolic functions as exponentials, and exponentials of sums as products."""
    if expr.has(sp.sinh, sp.cosh, sp.tanh):
        expr = expr.rewrite(sp.exp)
    return sp.expand_power_exp(expr) if expr.has(sp.exp) else expr


class Unknowns:
    """Names for subexpressions that are not rational; names of roots sort first."""

    def __init__(self, expr: sp.Expr, canonical: Callable[[sp.Expr], sp.Expr]) -> None:
        self.canonical, self.units = canonical, units_of(expr)
        self.names: dict[sp.Expr, sp.Symbol] = {}
        self.roots: list[tuple[sp.Symbol, sp.Expr]] = []

    def name(self, expr: sp.Expr, kind: str) -> sp.Symbol:
        """One name for equal expressions."""
        if expr not in self.names:
            self.names[expr] = sp.Dummy(f"{kind}{len(self.names)}")
        return self.names[expr]

    def replace(self, expr: sp.Expr) -> sp.Expr:
        """The expression with names in place of functions and roots."""
        if expr.is_Rational or expr.is_Symbol:
            return expr
        if expr.is_Add or expr.is_Mul:
            return expr.func(*map(self.replace, expr.args))
        if isinstance(expr, sp.exp):
            return self._power(sp.E, expr.exp)
        if expr.is_Pow:
            return self._power(*expr.args)
        return self.name(expr.func(*map(self.canonical, expr.args)), "f")

    def _power(self, base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
        if exponent.is_Integer:
            return self.replace(base) ** exponent
        if exponent.is_Rational and exponent.q == 2:
            return self._root(self.canonical(base)) ** exponent.p
        content, rest = parted(exponent)
        unit = self.units.get(rest, content.q) if base == sp.E else content.q
        known, turned = (base ** (self.canonical(e) / unit) for e in (rest, -rest))
        if turned in self.names:
            return self._whole(self.names[turned], -content * unit)
        return self._whole(self.name(known, "e"), content * unit)

    def _whole(self, base: sp.Expr, n: Any) -> sp.Expr:
        return base**n

    def _root(self, base: sp.Expr) -> sp.Symbol:
        known = sp.Pow(base, sp.S.Half, evaluate=False)
        if known not in self.names:
            self.roots.append((self.name(known, "a"), self.replace(base)))
        return self.names[known]


def is_zero_polynomial(expr: sp.Expr) -> bool:
    """Whether an expression vanishes as a polynomial in its symbols, functions and denominators.

    Every 1/b gets a name i with i b = 1. Nothing is brought over a common denominator, which makes
    this fast for long derivatives of sigmoids and similar functions.

    >>> x = sp.Symbol("x")
    >>> y = 1 / (1 + sp.exp(-x))
    >>> is_zero_polynomial(sp.diff(y, x, 2) - y * (1 - y) * (1 - 2 * y)), is_zero_polynomial(y - 1)
    (True, False)
    """
    unknowns = Reciprocals(expr)
    plain = unknowns.replace(expr)
    names = occurring(plain, *unknowns.relations)
    if not names:
        return bool(plain == 0)
    polynomials = ring(names, sp.QQ)[0]
    relations = [polynomials.from_expr(r) for r in unknowns.relations]
    return bool(polynomials.from_expr(plain).rem(relations) == 0)


class Reciprocals(Unknowns):
    """Names for denominators as well; functions of equal polynomials share a name."""

    def __init__(self, expr: sp.Expr) -> None:
        super().__init__(expr, lambda e: sp.expand(self.replace(e)))
        self.relations: list[sp.Expr] = []

    def replace(self, expr: sp.Expr) -> sp.Expr:
        """The expression as a polynomial in names."""
        if expr.is_Pow and expr.exp.is_Integer:
            return self._whole(self.replace(expr.base), expr.exp)
        return super().replace(expr)

    def _whole(self, base: sp.Expr, n: Any) -> sp.Expr:
        return base**n if n > 0 else self._reciprocal(base, 1) ** -n

    def _reciprocal(self, base: sp.Expr, power: int) -> sp.Expr:
        """The name i of b^(-1/power), with iᵖ b = 1."""
        if base.is_Rational and power == 1:
            return 1 / base
        known = sp.Pow(base, -sp.Rational(1, power), evaluate=False)
        if known not in self.names:
            self.relations.append(self.name(known, "a") ** power * base - 1)
        return self.names[known]

    def _power(self, base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
        if exponent.is_Rational:
            inner, (p, q) = self.replace(base), (exponent.p, exponent.q)
            i = self._reciprocal(inner, q)
            return i**-p if p < 0 else (i ** (q - 1) * inner) ** p
        return super()._power(base, exponent)


def parted(exponent: sp.Expr) -> tuple[Any, sp.Expr]:
    """A rational factor of an exponent, and the rest."""
    parts: tuple[Any, sp.Expr] = (
        exponent.primitive() if exponent.is_Add else exponent.as_coeff_Mul()
    )
    return parts if parts[0].is_Rational else (sp.S.One, exponent)


def units_of(expr: sp.Expr) -> dict[sp.Expr, int]:
    """For each exponent without its factor, the n for which its factors are multiples of 1/n."""
    units: dict[sp.Expr, int] = {}
    for power in expr.atoms(sp.exp):
        content, rest = parted(power.exp)
        units[rest] = sp.ilcm(units.get(rest, 1), content.q)
    return units
