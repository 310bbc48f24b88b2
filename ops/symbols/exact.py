"""Exact numbers that round to given floats."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import sympy as sp
from mpmath import MPContext

DIGITS = 40
"""Decimal digits of the value at the point."""

MP = MPContext()
"""Arithmetic with `DIGITS` digits; mpmath's global context is untouched."""
MP.dps = DIGITS


@cache
def closed_form(number: Any) -> sp.Expr:
    """The simplest fraction, or √(p/q πᵏ), that rounds to a float.

    Floats that fit in single precision, as attributes do, are taken as rounded to it.

    >>> [closed_form(x) for x in (0.1, 2**-0.5, 3, float(np.float32(1 / 6)))]
    [1/10, sqrt(2)/2, 3, 1/6]
    """
    if isinstance(number, sp.Basic):
        return number
    if isinstance(number, int) or float(number).is_integer():
        return sp.Integer(int(number))
    number = float(number)
    if not math.isfinite(number):
        return {math.inf: sp.oo, -math.inf: -sp.oo}.get(number, sp.nan)
    single = float(np.float32(number)) == number
    return (single_form(number) if single else double_form(number)) or sp.Rational(
        *number.as_integer_ratio()
    )


def double_form(number: float) -> sp.Expr | None:
    """A fraction or a root that rounds to a double."""
    return decimal(number, repr(number), 9) or fraction(number, 10**7) or root(number, 2e-16)


def decimal(number: float, text: str, digits: int) -> sp.Rational | None:
    """The decimal fraction that a float prints as, if that has few digits."""
    mantissa = text.partition("e")[0].replace(".", "").replace("-", "").strip("0")
    return sp.Rational(text) if len(mantissa) <= digits else None


def single_form(number: float) -> sp.Expr | None:
    """A dyadic fraction, a decimal fraction with few digits, a root or a small fraction."""
    if number * 1024 % 1 == 0:
        return fraction(number, 1024)
    short = decimal(number, str(np.float32(number)), 6)
    return short or root(number, 6e-8, 20) or fraction(number, 1000, np.float32)


def fraction(number: float, limit: int, kind: Any = float) -> sp.Rational | None:
    """The fraction with a small denominator that rounds to a float of some kind."""
    found = Fraction(number).limit_denominator(limit)
    same = float(kind(found)) == number
    return sp.Rational(found.numerator, found.denominator) if same else None


def root(number: float, error: float, limit: int = 1000) -> sp.Expr | None:
    """±√(p/q πᵏ) with small p and q."""
    for power in (1, -1, 2, -2, 0):
        square = Fraction(number**2 / math.pi**power).limit_denominator(limit)
        exact = sp.sqrt(sp.Rational(square.numerator, square.denominator) * sp.pi**power)
        if 0 < square < limit and abs(float(exact) - abs(number)) <= error * abs(number):
            return exact if number > 0 else -exact
    return None


@cache
def value_of(expr: sp.Expr) -> Any:
    """A constant to `DIGITS` digits."""
    if expr.is_Rational:
        return MP.mpf(int(expr.p)) / int(expr.q)
    if expr in (sp.oo, -sp.oo, sp.nan):
        return MP.mpf(str(expr).replace("oo", "inf"))
    return MP.convert(sp.N(expr, DIGITS)._to_mpmath(140))
