"""Rational functions of entries, exponentials and roots: equality by polynomial arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import sympy as sp
from sympy.polys.fields import field


def is_zero(expr: sp.Expr) -> bool:
    """Whether algebra shows that an expression vanishes: False where it cannot tell.

    Functions become unknowns, and √s an unknown r with r² = s.

    >>> a, b = sp.symbols("a b", positive=True)
    >>> is_zero(1 / (sp.sqrt(a) + sp.sqrt(b)) - (sp.sqrt(a) - sp.sqrt(b)) / (a - b))
    True
    """
    return vanishes(expr, lambda e: e) or vanishes(spelled(expr), sp.cancel)


def vanishes(expr: sp.Expr, canonical: Callable[[sp.Expr], sp.Expr]) -> bool:
    """The same, with arguments of functions taken to be equal where their canonical forms are."""
    unknowns = Unknowns(canonical)
    plain = unknowns.replace(expr)
    names = sorted(plain.free_symbols.union(*(s.free_symbols for _, s in unknowns.roots)), key=str)
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


def spelled(expr: sp.Expr) -> sp.Expr:
    """Hyperbolic functions as exponentials, and these as products."""
    if expr.has(sp.sinh, sp.cosh, sp.tanh):
        expr = expr.rewrite(sp.exp)
    return sp.expand_power_exp(expr) if expr.has(sp.exp) else expr


class Unknowns:
    """Names for what is not rational; those of roots come first in alphabetical order."""

    def __init__(self, canonical: Callable[[sp.Expr], sp.Expr]) -> None:
        self.canonical = canonical
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
        content, rest = exponent.as_coeff_Mul()
        if content.is_Integer:
            return self.name(base ** self.canonical(rest), "e") ** content
        return self.name(base ** self.canonical(exponent), "e")

    def _root(self, base: sp.Expr) -> sp.Symbol:
        known = sp.Pow(base, sp.S.Half, evaluate=False)
        if known not in self.names:
            self.roots.append((self.name(known, "a"), self.replace(base)))
        return self.names[known]
