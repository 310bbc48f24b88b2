"""Number: a SymPy expression and its value at a point, as an entry of an object array.

NumPy calls its methods, so that the kernels of the numbers reading work on it unchanged.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import sympy as sp
from mpmath import MPContext

DIGITS = 40
"""Decimal digits of the value at the point."""

MP = MPContext()
"""Arithmetic with `DIGITS` digits; mpmath's global context is untouched."""
MP.dps = DIGITS

SAME = MP.mpf(10) ** -25
"""Values that differ by less are compared as expressions."""

Notes = dict[sp.Expr, None]
"""The decisions taken, in order."""

FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "exp": (sp.exp, MP.exp), "log": (sp.log, MP.log), "sqrt": (sp.sqrt, MP.sqrt),
    "sin": (sp.sin, MP.sin), "cos": (sp.cos, MP.cos), "tan": (sp.tan, MP.tan),
    "sinh": (sp.sinh, MP.sinh), "cosh": (sp.cosh, MP.cosh), "tanh": (sp.tanh, MP.tanh),
    "arcsin": (sp.asin, MP.asin), "arccos": (sp.acos, MP.acos),
    "arctan": (sp.atan, MP.atan), "arcsinh": (sp.asinh, MP.asinh),
    "arccosh": (sp.acosh, MP.acosh), "arctanh": (sp.atanh, MP.atanh),
    "erf": (sp.erf, MP.erf), "reciprocal": (lambda x: 1 / x, lambda x: 1 / x),
    "square": (lambda x: x**2, lambda x: x**2),
}  # fmt: skip
"""The method that a NumPy function calls on an entry -> the functions of SymPy and of MP."""


def arithmetic_methods(function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The methods for f(x, y) and f(y, x), in symbols and at the point."""

    def method(self: Number, other: Any) -> Number:
        expr, at = self.lift(other)
        return Number(function(self.expr, expr), function(self.at, at), self.notes)

    def reflected(self: Number, other: Any) -> Number:
        expr, at = self.lift(other)
        return Number(function(expr, self.expr), function(at, self.at), self.notes)

    return method, reflected


def comparison(function: Callable[[int, int], bool]) -> Any:
    """The method for a comparison at the point, which is noted."""
    return lambda self, other: function(self.order(other), 0)


class Number:
    """An expression `expr`, with the value `at` at the point."""

    __slots__ = ("at", "expr", "notes")

    def __init__(self, expr: Any, at: Any, notes: Notes) -> None:
        self.expr, self.at, self.notes = expr, at, notes

    def lift(self, other: Any) -> tuple[Any, Any]:
        """(expression, value) of another operand."""
        if isinstance(other, Number):
            return other.expr, other.at
        expr = nearby_closed_form(other)
        return expr, value_of(expr)

    def made(self, function: Callable[[Any], Any], numeric: Callable[[Any], Any]) -> Number:
        """f(x), in symbols and at the point."""
        return Number(function(self.expr), numeric(self.at), self.notes)

    __add__, __radd__ = arithmetic_methods(operator.add)
    __sub__, __rsub__ = arithmetic_methods(operator.sub)
    __mul__, __rmul__ = arithmetic_methods(operator.mul)
    __truediv__, __rtruediv__ = arithmetic_methods(operator.truediv)
    __pow__, __rpow__ = arithmetic_methods(operator.pow)

    def __mod__(self, other: Any) -> Number:
        """a - b ⌊a/b⌋, with the quotient at the point."""
        return self - (self / other).floor() * other

    def __neg__(self) -> Number:
        return Number(-self.expr, -self.at, self.notes)

    def __abs__(self) -> Number:
        return self if self >= 0 else -self

    # -- decisions, taken at the point ---------------------------------------------------------

    def order(self, other: Any) -> int:
        """-1, 0 or 1 if it is less, equal or greater at the point; the decision is noted."""
        expr, at = self.lift(other)
        difference = self.at - at
        if abs(difference) > SAME:
            self.note(self.expr > expr if difference > 0 else self.expr < expr)
            return 1 if difference > 0 else -1
        if self.expr != expr and sp.simplify(self.expr - expr) != 0:
            self.note(sp.Eq(self.expr, expr))
        return 0

    def note(self, condition: Any) -> None:
        """Keep a condition unless it is always true."""
        if condition not in (True, sp.true):
            self.notes[condition] = None

    __lt__, __le__ = comparison(operator.lt), comparison(operator.le)
    __gt__, __ge__ = comparison(operator.gt), comparison(operator.ge)
    __eq__, __ne__ = comparison(operator.eq), comparison(operator.ne)

    def __hash__(self) -> int:
        return hash(self.expr)

    def __bool__(self) -> bool:
        return self != 0

    def integer(self, rounded: Callable[[Any], Any], below: Any, above: Any) -> Number:
        """A piecewise constant function of x: its value at the point; bounds on x are noted."""
        whole = int(rounded(self.at))
        if self.expr.free_symbols:
            self.note(sp.And(self.expr > whole + below, self.expr < whole + above))
        return Number(sp.Integer(whole), MP.mpf(whole), self.notes)

    def floor(self) -> Number:
        return self.integer(MP.floor, 0, 1)

    def ceil(self) -> Number:
        return self.integer(MP.ceil, -1, 0)

    def rint(self) -> Number:
        return self.integer(MP.nint, -sp.S.Half, sp.S.Half)

    # -- what NumPy and SymPy ask of an entry ---------------------------------------------------

    dtype = np.dtype(object)

    def astype(self, dtype: Any, copy: bool = False) -> Number:
        return self

    def conjugate(self) -> Number:
        return self

    def _sympy_(self) -> sp.Expr:
        raise sp.SympifyError("a Number is no SymPy object: let its own arithmetic have it")

    def __int__(self) -> int:
        return int(self.at)

    def __float__(self) -> float:
        return float(self.at)

    def __repr__(self) -> str:
        return str(self.expr)


for _name, _pair in FUNCTIONS.items():
    setattr(Number, _name, lambda self, pair=_pair: self.made(*pair))


def apply_function(method: str, function: Any, x: Any) -> Any:
    """A function of a symbolic number, or of a constant."""
    return getattr(x, method)() if isinstance(x, Number) else function(x)


METHODS = {f.__name__: partial(apply_function, name, f) for name, (f, _) in FUNCTIONS.items()} | {
    "floor": lambda x: x.floor(), "ceiling": lambda x: x.ceil(), "ceil": lambda x: x.ceil(),
    "sign": lambda x: (x > 0) - (x < 0), "Abs": abs, "pi": sp.pi,
    "Rational": sp.Rational,
}  # fmt: skip
"""The functions of a formula over symbolic numbers, by the names under which SymPy writes them."""


@cache
def nearby_closed_form(number: Any) -> sp.Expr:
    """The simplest fraction, or √(p/q πᵏ), that rounds to a float.

    Floats that fit in single precision, as attributes do, are taken as rounded to it.

    >>> [nearby_closed_form(x) for x in (0.1, 2**-0.5, 3, float(np.float32(1 / 6)))]
    [1/10, sqrt(2)/2, 3, 1/6]
    """
    if isinstance(number, sp.Basic):
        return number
    if isinstance(number, int) or float(number).is_integer():
        return sp.Integer(int(number))
    number = float(number)
    if not math.isfinite(number):
        return {math.inf: sp.oo, -math.inf: -sp.oo}.get(number, sp.nan)
    if float(np.float32(number)) != number:
        found = (
            decimal(number, repr(number), 9)
            or fraction(number, 10**7)
            or nearby_root(number, 2e-16)
        )
    elif number * 1024 % 1 == 0:
        found = fraction(number, 1024)
    else:
        short = decimal(number, str(np.float32(number)), 6)
        found = short or nearby_root(number, 6e-8, 20) or fraction(number, 1000, np.float32)
    return found or sp.Rational(*number.as_integer_ratio())


def decimal(number: float, text: str, digits: int) -> sp.Rational | None:
    """The decimal fraction that a float prints as, if that has few digits."""
    mantissa = text.partition("e")[0].replace(".", "").replace("-", "").strip("0")
    return sp.Rational(text) if len(mantissa) <= digits else None


def fraction(number: float, limit: int, kind: Any = float) -> sp.Rational | None:
    """The fraction with a small denominator that rounds to a float of some kind."""
    found = Fraction(number).limit_denominator(limit)
    same = float(kind(found)) == number
    return sp.Rational(found.numerator, found.denominator) if same else None


def nearby_root(number: float, error: float, limit: int = 1000) -> sp.Expr | None:
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


Kernel = Callable[..., Any]


# -- kernels: plain mathematics, numerically stable or not -----------------------------------------

KERNELS: dict[str, Kernel] = {}


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register a function of object arrays as the kernel of some operators."""

    def enter(function: Kernel) -> Kernel:
        for name in names:
            KERNELS[name] = function
        return function

    return enter


def entrywise(name: str, function: Callable[..., Any]) -> None:
    """Register a function of numbers and attributes, applied entry by entry."""

    def apply(*inputs: Any, **attributes: Any) -> Any:
        applied = np.frompyfunc(partial(function, **attributes), len(inputs), 1)
        return np.asarray(applied(*inputs), object)

    KERNELS[name] = apply
