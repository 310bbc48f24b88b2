"""Rational functions of entries, exponentials and roots: equality by polynomial arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy as sp
from sympy.polys.fields import field
from sympy.polys.rings import ring


def is_zero(expr: sp.Expr) -> bool:
    """Whether algebra shows that an expression vanishes: False where it cannot tell.

    Functions become unknowns, and √s an unknown r with r² = s.

    >>> a, b = sp.symbols("a b", positive=True)
    >>> is_zero(1 / (sp.sqrt(a) + sp.sqrt(b)) - (sp.sqrt(a) - sp.sqrt(b)) / (a - b))
    True
    """
    return is_zero_fraction(expr) or vanishes(spelled(expr), sp.cancel)


def is_zero_fraction(expr: sp.Expr) -> bool:
    """The same, with functions taken to be equal only where they are written alike."""
    return vanishes(expr, lambda e: e)


def vanishes(expr: sp.Expr, canonical: Callable[[sp.Expr], sp.Expr]) -> bool:
    """The same, with arguments of functions taken to be equal where their canonical forms are."""
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
    return bool(reduced(numerator, divisors) == 0)


def reduced(numerator: Any, relations: list[Any]) -> Any:
    """A polynomial modulo the relations of the roots, each of which a name of its own leads."""
    return reduce(lambda p, r: p.rem(r), relations, numerator)


def occurring(*exprs: sp.Expr) -> list[sp.Symbol]:
    """The symbols of some expressions, in alphabetical order."""
    return sorted(frozenset().union(*(e.free_symbols for e in exprs)), key=str)


def spelled(expr: sp.Expr) -> sp.Expr:
    """Hyperbolic functions as exponentials, and these as products."""
    if expr.has(sp.sinh, sp.cosh, sp.tanh):
        expr = expr.rewrite(sp.exp)
    return sp.expand_power_exp(expr) if expr.has(sp.exp) else expr


class Unknowns:
    """Names for what is not rational; those of roots come first in alphabetical order."""

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
        """The expression with names instead of functions and roots."""
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

    Every 1/b gets a name i with i b = 1. Derivatives of what is made of sigmoids and the like have
    no other denominators, and are never multiplied out: this is fast where they are long.

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
    """Names for denominators too; functions of equal polynomials have one name."""

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
    """A rational factor, and what is left."""
    parts: tuple[Any, sp.Expr] = (
        exponent.primitive() if exponent.is_Add else exponent.as_coeff_Mul()
    )
    return parts if parts[0].is_Rational else (sp.S.One, exponent)


def units_of(expr: sp.Expr) -> dict[sp.Expr, int]:
    """For every exponent but for its factor, the n such that all factors are multiples of 1/n."""
    units: dict[sp.Expr, int] = {}
    for power in expr.atoms(sp.exp):
        content, rest = parted(power.exp)
        units[rest] = sp.ilcm(units.get(rest, 1), content.q)
    return units
