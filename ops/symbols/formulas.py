"""SymPy's side of the formulas: parse, differentiate, translate to the vocabulary."""

from __future__ import annotations

from functools import reduce
from typing import Any

import sympy as sp

from ..trees import INPUTS, Tree

OUTPUT = sp.Symbol("Y", real=True)
ATTRIBUTES = ("alpha", "beta", "gamma", "lambd", "bias")

NAMES: dict[str, Any] = {name: sp.Symbol(name, real=True) for name in (*INPUTS, *ATTRIBUTES)}


class sigmoid(sp.Function):
    """1 / (1 + exp(-z)), kept whole so that its derivative is σ(1 - σ), finite everywhere."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return self * (1 - self)

    def _eval_rewrite(self, rule: Any, args: Any, **hints: Any) -> sp.Expr:
        return 1 / (1 + sp.exp(-self.args[0]))


class softplus(sp.Function):
    """log(1 + exp(z)), kept whole so that its derivative is σ(z)."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sigmoid(self.args[0])

    def _eval_rewrite(self, rule: Any, args: Any, **hints: Any) -> sp.Expr:
        return sp.log(1 + sp.exp(self.args[0]))


NAMES |= {"Y": OUTPUT, "sigmoid": sigmoid, "softplus": softplus}

CALLS: dict[Any, str] = {
    sp.exp: "Exp", sp.log: "Log", sp.sin: "Sin", sp.cos: "Cos", sp.tan: "Tan", sp.sinh: "Sinh",
    sp.cosh: "Cosh", sp.tanh: "Tanh", sp.asin: "Asin", sp.acos: "Acos", sp.atan: "Atan",
    sp.asinh: "Asinh", sp.acosh: "Acosh", sp.atanh: "Atanh", sp.erf: "Erf", sp.Abs: "Abs",
    sp.sign: "Sign", sp.floor: "Floor", sp.ceiling: "Ceil", sigmoid: "Sigmoid",
    softplus: "Softplus", sp.Gt: "Greater", sp.Lt: "Less", sp.Ge: "GreaterOrEqual",
    sp.Le: "LessOrEqual", sp.Eq: "Equal", sp.And: "And", sp.Or: "Or", sp.Not: "Not",
}  # fmt: skip


def parse(text: str) -> sp.Expr:
    """A formula as a SymPy expression over real symbols."""
    return sp.sympify(text, locals=NAMES, rational=True)


def derive(expr: sp.Expr, variable: str) -> sp.Expr:
    """d expr / d variable, with the output substituted where it occurs.

    >>> derive(parse("tanh(x)"), "x")
    1 - Y**2
    """
    return sp.diff(expr, NAMES[variable]).subs(expr, OUTPUT)


def tree(expr: Any) -> Tree:
    """An expression as vocabulary calls.

    >>> tree(parse("1 - Y**2"))
    ('Sub', 1.0, ('Mul', 'Y', 'Y'))
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
    return (CALLS[expr.func], *map(tree, expr.args))


def _sum(expr: sp.Expr) -> Tree:
    terms = sorted(expr.args, key=lambda t: t.could_extract_minus_sign())
    total = tree(terms[0])
    for term in terms[1:]:
        negative = term.could_extract_minus_sign()
        total = ("Sub", total, tree(-term)) if negative else ("Add", total, tree(term))
    return total


def _product(expr: sp.Expr) -> Tree:
    below = [f for f in expr.args if f.is_Pow and f.exp.could_extract_minus_sign()]
    above = [f for f in expr.args if f not in below]
    if above and above[0] == -1:
        return ("Neg", tree(-expr))
    top = _fold(above) if above else 1.0
    return ("Div", top, _fold([1 / f for f in below])) if below else top


def _fold(factors: list[sp.Expr]) -> Tree:
    return reduce(lambda a, b: ("Mul", a, b), map(tree, factors))


def _power(expr: sp.Expr) -> Tree:
    base, exponent = expr.as_base_exp()
    if exponent.could_extract_minus_sign():
        return ("Div", 1.0, tree(base**-exponent))
    if exponent == sp.Rational(1, 2):
        return ("Sqrt", tree(base))
    if exponent.is_Integer and exponent <= 4:
        return _fold([base] * int(exponent))
    return ("Pow", tree(base), tree(exponent))


def _cases(pairs: list[Any]) -> Tree:
    (value, condition), *others = pairs
    if condition == True or not others:  # noqa: E712  (SymPy's own truth)
        return tree(value)
    return ("Where", tree(condition), tree(value), _cases(others))
