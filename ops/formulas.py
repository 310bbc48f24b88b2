"""SymPy's side of the formulas: parse, differentiate in a stable form, translate to the vocabulary.

Text is read by Python's `ast`, and only numbers, names, operators and the functions in `FUNCTIONS`
become SymPy: nothing is evaluated.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from functools import cache, reduce
from itertools import product
from typing import Any

import numpy as np
import sympy as sp
from mpmath import MPContext
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import BooleanAtom, BooleanFunction
from sympy.printing.pycode import MpmathPrinter

from ..jacobians.errors import InputError, closest
from .numbers import numbers
from .trees import INPUTS, REST, WHOLE, Tree, evaluate_tree

OUTPUT = sp.Symbol("Y", real=True)
ATTRIBUTES = ("alpha", "beta", "gamma", "lambd", "bias")

NAMES: dict[str, Any] = {name: sp.Symbol(name, real=True) for name in (*INPUTS, *ATTRIBUTES)}


class sigmoid(sp.Function):
    """1 / (1 + exp(-z)), kept whole so that its derivative is σ(z) σ(-z), right in both tails."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return self * sigmoid(-self.args[0])

    def _eval_rewrite(self, rule: Any, args: Any, **hints: Any) -> sp.Expr:
        return 1 / (1 + sp.exp(-self.args[0]))


class softplus(sp.Function):
    """log(1 + exp(z)), kept whole so that its derivative is σ(z)."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sigmoid(self.args[0])

    def _eval_rewrite(self, rule: Any, args: Any, **hints: Any) -> sp.Expr:
        return sp.log(1 + sp.exp(self.args[0]))


class Total(sp.Function):
    """Σ term over some indices: Total(term, i, j)."""

    @property
    def term(self) -> sp.Expr:
        return self.args[0]

    @property
    def over(self) -> tuple[str, ...]:
        """The names of the indices."""
        return tuple(map(str, self.args[1:]))

    def _latex(self, printer: Any) -> str:
        return rf"\sum_{{{', '.join(self.over)}}} {printer.doprint(self.term)}"


class Mean(Total):
    """The mean of a term over some indices: Mean(term, i, j)."""

    def _latex(self, printer: Any) -> str:
        return rf"\operatorname{{mean}}_{{{', '.join(self.over)}}} {printer.doprint(self.term)}"


CALLS: dict[Any, str] = {
    sp.exp: "Exp", sp.log: "Log", sp.sin: "Sin", sp.cos: "Cos", sp.tan: "Tan", sp.sinh: "Sinh",
    sp.cosh: "Cosh", sp.tanh: "Tanh", sp.asin: "Asin", sp.acos: "Acos", sp.atan: "Atan",
    sp.asinh: "Asinh", sp.acosh: "Acosh", sp.atanh: "Atanh", sp.erf: "Erf", sp.Abs: "Abs",
    sp.sign: "Sign", sp.floor: "Floor", sp.ceiling: "Ceil", sigmoid: "Sigmoid",
    softplus: "Softplus", sp.Gt: "Greater", sp.Lt: "Less", sp.Ge: "GreaterOrEqual",
    sp.Le: "LessOrEqual", sp.Eq: "Equal", sp.And: "And", sp.Or: "Or", sp.Not: "Not",
}  # fmt: skip


def max_by_cases(*args: sp.Expr) -> sp.Expr:
    """max by cases, since SymPy differentiates `Max` to a step that is 1/2 at the kink."""
    return reduce(lambda a, b: sp.Piecewise((a, a > b), (b, True)), args)


def smaller(*args: sp.Expr) -> sp.Expr:
    """min by cases."""
    return reduce(lambda a, b: sp.Piecewise((a, a < b), (b, True)), args)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f.__name__: f for f in CALLS if issubclass(f, sp.Function)},
    "abs": sp.Abs, "ceil": sp.ceiling, "sqrt": sp.sqrt, "max": max_by_cases, "min": smaller,
    "Max": max_by_cases, "Min": smaller, "Piecewise": sp.Piecewise, "Eq": sp.Eq, "And": sp.And,
    "Or": sp.Or, "Not": sp.Not,
}  # fmt: skip
"""The functions that a formula may call, besides `sum(term, index, ...)`."""

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.Gt: sp.Gt, ast.Lt: sp.Lt, ast.GtE: sp.Ge, ast.LtE: sp.Le,
    ast.Eq: sp.Eq, ast.And: sp.And, ast.Or: sp.Or, ast.BitAnd: sp.And, ast.BitOr: sp.Or,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: sp.Not, ast.Invert: sp.Not,
}  # fmt: skip

EXPANDED_POWER = 64
"""The largest power of a number that is worked out."""


@cache
def parse(text: str) -> sp.Expr:
    """A formula as a SymPy expression over real symbols.

    >>> parse("x if x > 0 else alpha*(exp(x) - 1)")
    Piecewise((x, x > 0), (alpha*(exp(x) - 1), True))
    """
    try:
        found = sp.sympify(built(ast.parse(text.strip(), mode="eval").body))
        check_kinds(found)
        return found
    except InputError as error:
        raise InputError(f"the formula {text!r}: {error}") from None
    except (SyntaxError, RecursionError, MemoryError, TypeError, ValueError) as error:
        raise InputError(f"the formula {text!r} cannot be read: {error}") from None


def check_kinds(expr: sp.Basic, *, truth: bool = False) -> None:
    """Raises `InputError` for a number in place of a condition, and the reverse."""
    if isinstance(expr, Relational | BooleanFunction | BooleanAtom) != truth:
        said = "is a number, not a condition: compare it" if truth else (
            "is a condition, not a number: choose by it, as in 1 if x > 0 else 0")  # fmt: skip
        raise InputError(f"{str(expr)!r} {said}")
    for part in () if isinstance(expr, sp.Indexed) else expr.args:
        if isinstance(part, ExprCondPair):
            check_kinds(part.expr)
            check_kinds(part.cond, truth=True)
        else:
            check_kinds(part, truth=isinstance(expr, BooleanFunction))


def built(node: ast.AST, *, index: bool = False) -> Any:
    """A node of Python's syntax as SymPy; names in an `index` are integers."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return sp.sympify(value) if isinstance(value, bool) else sp.Rational(str(value))
        case ast.Name(id="pi"):
            return sp.pi
        case ast.Name(id=name) if name not in FUNCTIONS:
            return sp.Symbol(name, integer=True) if index else sp.Symbol(name, real=True)
        case ast.BinOp(left=a, op=ast.Pow(), right=b):
            return bounded_power(built(a, index=index), built(b, index=index))
        case ast.BinOp(left=a, op=op, right=b) if type(op) in OPERATORS:
            return OPERATORS[type(op)](built(a, index=index), built(b, index=index))
        case ast.UnaryOp(op=op, operand=a) if type(op) in OPERATORS:
            return OPERATORS[type(op)](built(a, index=index))
        case ast.BoolOp(op=op, values=values):
            return OPERATORS[type(op)](*map(built, values))
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in OPERATORS:
            return OPERATORS[type(op)](built(a), built(b))
        case ast.IfExp(test=test, body=yes, orelse=no):
            return sp.Piecewise((built(yes), built(test)), (built(no), True))
        case ast.Tuple(elts=parts):
            return tuple(map(built, parts))
        case ast.Constant(value=value) if value is ... and index:
            return sp.Symbol(REST, integer=True)
        case ast.Slice(lower=None, upper=None, step=None) if index:
            return sp.Symbol(WHOLE, integer=True)
        case ast.Starred(value=ast.Name() as name) if index:
            return built(name, index=True)
        case ast.Subscript(value=ast.Name(id=name), slice=inner):
            places = [built(place, index=True) for place in flattened(inner)]
            return sp.Indexed(name, *places) if places else built(ast.Name(name))
        case ast.Call(func=ast.Name(id="sum" | "Sum" | "mean" as how), args=[term, *over],
                      keywords=[]) if over:  # fmt: skip
            names = (i.elts[0] if isinstance(i, ast.Tuple) else i for i in over)
            total = Mean if how == "mean" else Total
            return total(built(term), *(built(name, index=True) for name in names))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            if name not in FUNCTIONS:
                raise InputError(f"no function {name!r} is known.{closest(name, FUNCTIONS)}")
            return FUNCTIONS[name](*map(built, args))
    raise InputError(f"{ast.unparse(node)!r} is not allowed: write numbers, names, + - * / **, "
                     "comparisons, functions, x[i, j] and sum(..., i)")  # fmt: skip


def flattened(inner: ast.AST) -> list[ast.AST]:
    """The indices between brackets, also those that share an axis: x[n, (i, j)]."""
    if not isinstance(inner, ast.Tuple):
        return [inner]
    return [place for part in inner.elts for place in flattened(part)]


def bounded_power(base: Any, exponent: Any) -> Any:
    """base ** exponent; no number with thousands of digits."""
    if base.is_number and exponent.is_number and not abs(exponent) <= EXPANDED_POWER:
        raise InputError(f"{base}**({exponent}) is too large: at most the power {EXPANDED_POWER}")
    return base**exponent


# -- stable forms ----------------------------------------------------------------------------------


def stable(expr: sp.Expr) -> sp.Expr:
    """The expression with exponentials that may overflow as σ and softplus.

    >>> stable(parse("log(exp(x) + exp(y))")), stable(parse("exp(x)/(1 + exp(x))"))
    (x + softplus(-x + y), sigmoid(x))
    """
    expr = expr.replace(sp.log, logarithm)
    expr = expr.replace(
        lambda e: e.is_Pow and e.exp.is_negative and ones(e.base) is not None,
        lambda e: reciprocal_sum(*(ones(e.base) or ())) ** -e.exp,
    )
    if expr.has(sp.exp):
        expr = expr.replace(lambda e: e.is_Mul, join_exponentials)
    if expr.has(sigmoid) and expr.has(sp.exp):
        apart = sp.expand(expr).replace(lambda e: e.is_Mul, join_exponentials)
        expr = expr if apart.has(sp.exp) else apart
    return expr


def join_exponentials(product: sp.Expr) -> sp.Expr:
    """A product with one exponential, and σ(u) for eᵘ σ(-u)."""
    powers = [e for e in product.args if isinstance(e, sp.exp)]
    if len(powers) > 1:
        rest = product.xreplace(dict.fromkeys(powers, sp.S.One))
        product = rest * sp.exp(sum(e.exp for e in powers))
    below = {e.exp: e for e in product.args if isinstance(e, sp.exp)}
    for s, times in (factor.as_base_exp() for factor in product.args):
        if isinstance(s, sigmoid) and -s.args[0] in below and times.is_positive:
            return product / below[-s.args[0]] / s * sigmoid(-s.args[0])
    return product


def logarithm(a: sp.Expr) -> sp.Expr:
    """log a, by softplus for a sum of exponentials, cosh u and σ(u)."""
    if isinstance(a, sigmoid):
        return -softplus(-a.args[0])
    if len((1 - a).args) == 1 and isinstance(1 - a, sigmoid):
        return -softplus((1 - a).args[0])
    powers = exponents(a.replace(sp.cosh, lambda u: (sp.exp(u) + sp.exp(-u)) / 2))
    return sp.log(a) if powers is None else reduce(lambda u, v: u + softplus(v - u), powers)


def reciprocal_sum(a: sp.Expr, b: sp.Expr) -> sp.Expr:
    """1 / (eᵃ + eᵇ)."""
    return sp.exp(-a) * sigmoid(a - b)


def exponents(expr: sp.Expr) -> list[sp.Expr] | None:
    """a, b, … for eᵃ + eᵇ + …, where a number c > 0 is e^log c."""
    if not expr.is_Add or not expr.has(sp.exp):
        return None
    found = []
    for c, e in (term.as_coeff_Mul() for term in expr.args):
        if not c > 0 or not (e == 1 or isinstance(e, sp.exp)):
            return None
        found.append(sp.log(c) + (e.exp if e != 1 else 0))
    return found


def ones(expr: sp.Expr) -> list[sp.Expr] | None:
    """(a, b) for eᵃ + eᵇ."""
    found = exponents(expr)
    return found if found and len(found) == 2 and not any(a.has(sp.log) for a in found) else None


def derive(
    expr: sp.Expr, variable: str, output: sp.Symbol | None = OUTPUT, *, shortest: bool = False
) -> sp.Expr:
    """∂ expr / ∂ variable in a stable form, with the output Y, if that is at hand, where it occurs.

    Of the forms that SymPy finds, the shortest is taken that keeps its digits, also in the tails
    where the slope vanishes; if none does, the shortest that keeps them at large arguments. For
    reading, it is the `shortest` of all.

    >>> derive(parse("exp(-x)"), "x"), derive(parse("x/(1 + Abs(x))"), "x")
    (-Y, (Abs(x) + 1)**(-2))
    >>> derive(parse("tanh(x)"), "x"), derive(parse("log(1 + exp(x))"), "x")
    (4*sigmoid(-2*x)*sigmoid(2*x), sigmoid(x))
    >>> derive(parse("tanh(x)"), "x", shortest=True)
    1 - Y**2
    """
    expr = stable(expr)
    if expr.is_Piecewise:
        return sp.Piecewise(*((derive(e, variable, output, shortest=shortest), c)
                              for e, c in expr.args))  # fmt: skip
    x = sp.Symbol(variable, real=True)
    if x not in expr.free_symbols:
        return sp.S.Zero
    slope = steady(expr, lambda e: sp.diff(e, x))
    whole = {abs(u) * sp.sign(u): u for u in (a.args[0] for a in slope.atoms(sp.Abs))}
    forms = found = [stable(slope.subs(whole)), stable(factored(slope))]
    if output is not None:
        found = [name_output(f, expr, output) for f in forms]
    found.sort(key=sp.count_ops)
    if output in found[0].free_symbols and found[0].has(sp.exp):
        found += forms  # Y e^u may be 0 · ∞
    found = list(dict.fromkeys([*found, *map(tails, forms)]))
    if len(found) == 1 or shortest:
        return found[0]
    return next((f for least in (0, 1) for f in found if not unstable(f, expr, variable, least)),
                found[0])  # fmt: skip


def steady(expr: sp.Expr, change: Callable[[sp.Expr], sp.Expr]) -> sp.Expr:
    """An expression changed with ⌊u⌋, ⌈u⌉ and sign u as constants, which they are piecewise."""
    held = {e: sp.Dummy(real=True) for e in expr.atoms(sp.floor, sp.ceiling, sp.sign)}
    return change(expr.xreplace(held)).xreplace({name: e for e, name in held.items()})


def factored(slope: sp.Expr) -> sp.Expr:
    """Over one denominator, with u sign u = |u|."""
    signs = {sp.sign(a.args[0]): a / a.args[0] for a in slope.atoms(sp.Abs)}
    return sp.factor(sp.together(slope.subs(signs)))


def name_output(slope: sp.Expr, expr: sp.Expr, output: sp.Symbol) -> sp.Expr:
    """The slope with Y for expr, but no root of Y: |x|^½ is not Y^⅓ for Y = |x|^1.5."""
    found = slope.subs(expr, output)
    roots = any(p.base == output and not p.exp.is_integer for p in found.atoms(sp.Pow))
    return slope.xreplace({expr: output}) if roots else found


def tails(slope: sp.Expr) -> sp.Expr:
    """The slope without a difference from 1 that rounds to 0 where tanh u rounds to ±1.

    >>> tails(parse("1 - tanh(x)**2"))
    4*sigmoid(-2*x)*sigmoid(2*x)
    """
    u = sp.Wild("u")
    return slope.replace(1 - sp.tanh(u) ** 2, 4 * sigmoid(2 * u) * sigmoid(-2 * u))


GRID = (-800.0, -30.0, -1.5, -1e-8, 0.0, 1e-8, 0.7, 30.0, 800.0)
TOLERANCE, TINY = 1e-11, 1e-300


def unstable(
    found: sp.Expr, expr: sp.Expr, variable: str = "", least: float = 1.0,
    kinks: tuple[float, ...] = (),
) -> str:  # fmt: skip
    """Where double precision loses the value of a form of ∂ expr / ∂ variable, or of expr itself.

    The truth is computed in many digits; points without a finite value are passed over. Errors are
    relative to |truth| + `least`.
    """
    inputs = sorted(expr.free_symbols, key=str)
    x = sp.Symbol(variable, real=True) if variable else None
    truth = steady(write_out(expr), lambda e: e.diff(x)) if x else write_out(expr)
    exact, level = (numeric(inputs, e) for e in (truth, write_out(expr)))
    for point in points([s.name for s in inputs], (*kinks, *GRID)):
        try:
            made = [DIGITS.convert(f(*map(DIGITS.mpf, point))) for f in (exact, level)]
        except (ZeroDivisionError, ValueError, OverflowError, TypeError):
            continue
        if not all(isinstance(v, DIGITS.mpf) and abs(v) < 1e250 for v in made):
            continue
        right, y = map(float, made)
        values = dict(zip(map(str, inputs), map(np.float64, point), strict=True))
        held = {n: np.asarray(v) for n, v in (values | {OUTPUT.name: y}).items()}
        value = float(evaluate_tree(numbers, expression_tree(found), held, np.dtype(np.float64)))
        if not abs(value - right) <= TOLERANCE * (least + abs(right)) + TINY:
            at = ", ".join(f"{n} = {v:g}" for n, v in values.items())
            digits = 6 if f"{value:.6g}" != f"{right:.6g}" else 17
            return f"{value:.{digits}g} instead of {right:.{digits}g} at {at}"
    return ""


def points(names: list[str], grid: tuple[float, ...]) -> Iterator[tuple[float, ...]]:
    """Points of the grid, few for more than two inputs; attributes are positive."""
    sides = [grid[-3:-2] if name in ATTRIBUTES else grid for name in names]
    if sum(len(side) > 1 for side in sides) <= 2:
        yield from product(*sides)
    else:
        for k in range(len(grid)):
            yield tuple(side[(k * (j + 1) + j) % len(side)] for j, side in enumerate(sides))


def exp_in_digits(x: Any) -> Any:
    """exp in many digits; far beyond doubles it is not worked out."""
    if x > 1e6:
        raise OverflowError
    return DIGITS.exp(x) if x > -1e6 else DIGITS.zero


DIGITS = MPContext()
"""Arithmetic with 900 digits; mpmath's global context is untouched."""
DIGITS.dps = 900

EXACT = {n: getattr(DIGITS, n) for n in dir(DIGITS) if n[0] != "_"} | {"exp": exp_in_digits}


def numeric(names: list[sp.Symbol], exprs: Any) -> Callable[..., Any]:
    """Expressions as a function in many digits; what occurs twice is computed once."""
    printer = MpmathPrinter({"fully_qualified_modules": False, "inline": True})
    return sp.lambdify(names, exprs, [EXACT], printer, cse=True)


def write_out(expr: sp.Expr) -> sp.Expr:
    """The expression with σ and softplus written out."""
    expr = expr.replace(sigmoid, lambda z: 1 / (1 + sp.exp(-z)))
    return expr.replace(softplus, lambda z: sp.log(1 + sp.exp(z)))


# -- the vocabulary --------------------------------------------------------------------------------


def expression_tree(expr: Any) -> Tree:
    """An expression as vocabulary calls.

    >>> expression_tree(parse("1 - Y**2"))
    ('Sub', 1.0, ('Mul', 'Y', 'Y'))
    >>> expression_tree(parse("Piecewise((1, x > 0), (0, True))"))
    ('CastLike', ('Greater', 'x', 0.0), 1.0)
    """
    if expr.is_Symbol:
        return str(expr.name)
    if expr.is_number:
        return float(expr)
    if expr.is_Add:
        return _sum(expr)
    if expr.is_Mul:
        return _product(expr)
    if expr.is_Pow:
        return _power(expr)
    if expr.is_Piecewise:
        return _cases(list(expr.args))
    if isinstance(expr, sp.ITE):  # a condition by cases: of a maximum in a minimum
        return expression_tree(expr.to_nnf())
    return (CALLS[expr.func], *map(expression_tree, expr.args))


def _sum(expr: sp.Expr) -> Tree:
    terms = sorted(expr.args, key=lambda t: t.could_extract_minus_sign())
    total = expression_tree(terms[0])
    for term in terms[1:]:
        negative = term.could_extract_minus_sign()
        total = (
            ("Sub", total, expression_tree(-term))
            if negative
            else ("Add", total, expression_tree(term))
        )
    return total


def _product(expr: sp.Expr) -> Tree:
    number, varying = expr.as_independent(*expr.free_symbols)  # all numbers are one
    if number == -1:
        return ("Neg", expression_tree(varying))
    factors = sp.Mul.make_args(varying)
    below = [f for f in factors if f.is_Pow and f.exp.could_extract_minus_sign()]
    above = [number] * (number != 1) + [f for f in factors if f not in below]
    return reduce(_divided, below, _fold(above) if above else 1.0)


def _divided(top: Tree, below: sp.Expr) -> Tree:
    """A quotient: by u twice for u⁻², since u² may overflow."""
    base, exponent = below.as_base_exp()
    times, u = (-int(exponent), base) if exponent in (-2, -3) else (1, 1 / below)
    return reduce(lambda a, b: ("Div", a, b), [expression_tree(u)] * times, top)


def _fold(factors: list[sp.Expr]) -> Tree:
    return reduce(lambda a, b: ("Mul", a, b), map(expression_tree, factors))


def _power(expr: sp.Expr) -> Tree:
    base, exponent = expr.as_base_exp()
    if exponent.could_extract_minus_sign():
        return _divided(1.0, expr)
    if exponent == sp.Rational(1, 2):
        return ("Sqrt", expression_tree(base))
    if exponent.is_Integer and exponent <= 4:
        return _fold([base] * int(exponent))
    return ("Pow", expression_tree(base), expression_tree(exponent))


def _cases(pairs: list[Any]) -> Tree:
    (value, condition), *others = pairs
    if condition == True or not others:  # noqa: E712  (SymPy's own truth)
        return expression_tree(value)
    chosen, rest = expression_tree(value), _cases(others)
    if (chosen, rest) == (1.0, 0.0):  # to choose among two numbers takes ten times as long
        return ("CastLike", expression_tree(condition), 1.0)
    if (chosen, rest) == (0.0, 1.0):
        return ("CastLike", ("Not", expression_tree(condition)), 1.0)
    return ("Where", expression_tree(condition), chosen, rest)
