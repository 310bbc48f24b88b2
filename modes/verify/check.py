"""Check: the rule of a node against SymPy's derivative of its definition, entry by entry."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache, reduce
from itertools import islice, product
from typing import Any

import numpy as np
import sympy as sp
from sympy.polys.fields import field
from sympy.polys.groebnertools import groebner
from sympy.polys.rings import ring

from ...jacobians import Dag, Jacobian
from ...jacobians.errors import OnnxJacError
from ...jacobians.threads import cached_property
from ...ops.formulas import DIGITS as MP
from ...ops.formulas import numeric
from ...ops.registry import find, traits_of
from ...ops.symbols import SymbolReading, Tensor
from ...ops.symbols.number import nearby_closed_form
from ..model.loading.load import load
from ..model.primal.evaluate import evaluate
from ..recording.derive import vjp_graph
from .case import Case
from .definition import (
    STATED,
    SymbolicTensors,
    block_slices,
    defined,
    exprs_of,
    run_symbolically,
    symbolic_matrix,
)
from .differences import mismatch

Pair = tuple[str, str]


@dataclass(frozen=True)
class Verdict:
    """The outcome for one block of the Jacobian, and the entry that failed."""

    pair: Pair
    shape: tuple[int, int]
    outcome: str
    failure: str = ""

    def __bool__(self) -> bool:
        return self.outcome != REFUTED

    def __str__(self) -> str:
        m, n = self.shape
        return f"∂{self.pair[0]}/∂{self.pair[1]}, {m}×{n}: {self.outcome}{self.failure}"


class CaseCheck:
    """A case over symbols, and its derivative in two ways: by the rules, and by SymPy."""

    def __init__(self, case: Case) -> None:
        self.case, self.op = case, SymbolReading()
        self.wrt = case.floating(case.wrt)
        self.symbols = {name: self.op.variables(name, case.point[name], **case.assumed(name))
                        for name in self.wrt}  # fmt: skip
        self.definition = defined(case, self.symbols, self.op)
        self.specified = self.op.conditions  # rules add others
        tensors = self.definition.outputs
        self.of = tuple(n for n in case.chosen if isinstance(tensors.get(n), Tensor))

    @property
    def is_circular(self) -> bool:
        """Whether definition and rule are one: other operators, by which we compute an operator."""
        declared = find(self.case.op_type, self.case.domain)
        return bool(declared and declared.is_composed and self.definition.source == STATED)

    def against_runtime(self) -> str:
        """The outcome of the values of a definition against ONNX Runtime's kernel: no proof."""
        narrow = {n: x.astype(np.float32) if x.dtype.kind == "f" else x
                  for n, x in self.case.point.items()}  # fmt: skip
        single = replace(self.case, inputs=tuple(narrow.get(n) for n in self.case.names))
        try:
            found = evaluate(load(single.proto), narrow, self.of, engine="onnxruntime")
        except OnnxJacError:  # it has no kernel for this case, or is not installed
            return UNPROVED
        tensors = self.definition.outputs
        errors = (mismatch(y.astype(float), tensors[n].values, 1.0) for n, y in found.items())
        return AGREES if max(errors) < SINGLE_ERROR else REFUTED

    @cached_property
    def reading(self) -> SymbolicTensors:
        """The model over symbols; where it is a single step, the definition gives its outputs."""
        model = self.case.model
        given = self.definition.outputs if len(model.steps) == 1 else {}
        if given and traits_of(model.steps[0]).random:  # its rule, not the constants that it drew
            values = {**model.constants, **self.case.point, **self.symbols, **given}
            return SymbolicTensors(self.op, model, values)
        return run_symbolically(
            model, self.case.point, self.case.results, self.symbols, self.op, given
        )

    @cached_property
    def dag(self) -> Dag:
        """The derivative by the rules."""
        return self.reading.dag(self.wrt, self.of)

    @cached_property
    def matrix(self) -> sp.Matrix:
        """The derivative by the rules, entry by entry."""
        return symbolic_matrix(self.dag, self.op)

    @cached_property
    def truth(self) -> sp.Matrix:
        """The derivative of the definition, by SymPy."""
        outputs = self.definition.outputs
        rows = [y for name in self.of for y in exprs_of(outputs[name], self.op).ravel()]
        return differentiate_rows(rows, [x for name in self.wrt for x in self.reading.exprs(name)])

    @cached_property
    def point(self) -> tuple[tuple[sp.Symbol, sp.Expr], ...]:
        """The symbols with their values."""
        return tuple(
            (number.expr, nearby_closed_form(float(number.at)))
            for tensor in self.symbols.values() for number in tensor.entries.ravel()
        )  # fmt: skip

    def compare(self, found: sp.Matrix, truth: sp.Matrix, places: Any) -> list[Verdict]:
        """Block by block, whether two matrices are identically equal."""
        return [self._block(pair, found[rows, columns], truth[rows, columns])
                for pair, (rows, columns) in places.items()]  # fmt: skip

    def _block(self, pair: Pair, found: sp.Matrix, truth: sp.Matrix) -> Verdict:
        worst = EXACT
        for k, (a, b) in enumerate(zip(found, truth, strict=True)):
            outcome = verdict(a - b, self.op.conditions, self.point)
            if outcome == REFUTED and agree_numerically(a, b, self.op.conditions, dict(self.point)):
                outcome = ROUNDED
            if outcome == REFUTED:
                place = divmod(k, found.shape[1])
                return Verdict(pair, found.shape, REFUTED, f" at {place}: {a}, not {b}")
            worst = max(worst, outcome, key=OUTCOMES.index)
        return Verdict(pair, found.shape, worst)

    def first(self) -> list[Verdict]:
        """Verdicts on the Jacobian, here and across each condition that only the rule has."""
        declared, found = find(self.case.op_type, self.case.domain), self.here()
        most = FEWER if declared is None or declared.is_composed else MANY
        beyond = (v for other in islice(self.across(), most) for v in CaseCheck(other).here())
        return found + [v for v in beyond if not v]

    def across(self) -> Iterator[Case]:
        """The case on the other side of each condition of the rule that its definition lacks."""
        point, known = dict(self.point), boundaries(self.specified)
        for boundary in boundaries(self.op.conditions):
            for moved in sorted(boundary.free_symbols & point.keys(), key=str):
                asked = [c for c in self.specified if moved in c.free_symbols]
                sides = () if boundary in known else sides_of(boundary, moved, point)
                held = [at for at in sides if all(c.subs(at) == True for c in asked)]  # noqa: E712
                yield from (replace(self.case, inputs=tuple(inputs_at(self, at))) for at in held)
                if held:
                    break

    def here(self) -> list[Verdict]:
        """Verdicts on the Jacobian, and on its transpose, which is a separate operator."""
        adjoint = symbolic_matrix(self.dag.T, self.op).T
        places = block_slices(self.reading.values, self.of, self.wrt)
        found = self.compare(self.matrix, self.truth, places)
        mirrored = self.compare(adjoint, self.matrix, places)
        return [w if v and not w else v for v, w in zip(found, mirrored, strict=True)]

    def second(self) -> list[Verdict]:
        """The recorded VJP as a model: Jᵀu and its derivative, against SymPy's."""
        case = self.case
        model = vjp_graph(case.model, case.point, self.of, self.wrt, "numpy").model("vjp")
        names = tuple(f"{name}_cotangent" for name in self.of)
        seeds = {n: self.op.variables(f"u{k or ''}", ones_like(self.reading.values[o]))
                 for k, (n, o) in enumerate(zip(names, self.of, strict=True))}  # fmt: skip
        point = {**case.point, **{n: t.values for n, t in seeds.items()}}
        slopes_of = tuple(f"{name}_cotangent" for name in self.wrt)
        again = run_symbolically(model, point, slopes_of, {**self.symbols, **seeds}, self.op)
        u = sp.Matrix([x for n in names for x in again.exprs(n)])
        pulled = self.truth.T * u
        variables = [x for name in self.wrt for x in again.exprs(name)]
        whole = sp.Matrix([x for n in slopes_of for x in again.exprs(n)])
        column = {("Jᵀu", "".join(self.wrt)): (slice(None), slice(None))}
        found = self.compare(whole, pulled, column)
        hessian = symbolic_matrix(again.dag(self.wrt, slopes_of), self.op)
        places = block_slices(again.values, slopes_of, self.wrt)
        return found + self.compare(hessian, differentiate_rows(list(pulled), variables), places)


NEAR = np.arange(-2048, 2049) / 512
"""The steps of an entry among which a boundary is looked for."""


def boundaries(conditions: Any) -> tuple[sp.Expr, ...]:
    """The expressions that are 0 where a condition changes, unique up to constant factors."""
    relations = {r for c in conditions for r in c.atoms(sp.core.relational.Relational)}
    sides = (
        (r.lhs.args[0], r.rhs.args[0]) if r.lhs.func == r.rhs.func == sp.tanh else (r.lhs, r.rhs)
        for r in relations
    )
    found = {rational_factor(left - right)[1] for left, right in sides}
    found = {-d if d.could_extract_minus_sign() else d for d in found}
    return tuple(sorted((d for d in found if d.free_symbols), key=str))


def sides_of(boundary: sp.Expr, moved: sp.Symbol, point: Point) -> Iterator[Point]:
    """The points on both sides of the nearest boundary, with one entry moved."""
    line = sp.lambdify(moved, boundary.subs({s: x for s, x in point.items() if s != moved}))
    with np.errstate(all="ignore"):
        side = np.sign(np.broadcast_to(line(float(point[moved]) + NEAR), NEAR.shape))
    if len(changes := 1 + np.flatnonzero(side[1:-2] * side[2:-1] <= 0)):
        k = min(changes, key=lambda k: abs(NEAR[k]))
        for step in NEAR[k - 1], NEAR[k + 2]:
            yield {**point, moved: point[moved] + sp.Rational(step)}


def inputs_at(check: CaseCheck, at: Point) -> Iterator[np.ndarray | None]:
    """The inputs of the case, with the entries of another point."""
    for name, x in zip(check.case.names, check.case.inputs, strict=True):
        if x is None or name not in check.symbols:
            yield x
            continue
        entries = check.symbols[name].exprs.ravel()
        yield np.array([float(at[s]) for s in entries]).reshape(x.shape).astype(x.dtype)


def differentiate_rows(rows: list[Any], variables: list[Any]) -> sp.Matrix:
    """∂rows/∂variables."""
    return sp.Matrix(len(rows), len(variables), [sp.diff(y, x) for y in rows for x in variables])


def ones_like(value: Any) -> np.ndarray:
    """Cotangents without special values."""
    return 1 + np.arange(value.entries.size).reshape(value.shape) / 8


def operators(check: CaseCheck) -> dict[Pair, Jacobian]:
    """(output, input) -> the structured operator that the rule gives for this block."""
    edges = {}
    for o, i in product(check.of, check.wrt):
        one = check.reading.dag((i,), (o,))
        if len(one.edges) == 1:
            edges[o, i] = one.edges[0].operator
    return edges


OUTCOMES = EXACT, DIGITS, ROUNDED, AGREES, UNPROVED, REFUTED = (
    "exact", "30 digits", "14 digits", "agrees with the runtime", "not compared", "refuted"
)  # fmt: skip
"""From the best to the worst."""

EXACT_DENOMINATOR = 10**6
"""A fraction with a greater denominator was computed in double precision."""

FEWER, MANY = 2, 32
"""The most points across conditions, of a composition, and of a rule."""

SINGLE_ERROR = 1e-5
"""The relative error of a kernel in single precision."""

FRACTION_OPERATIONS, POLYNOMIAL_OPERATIONS = 1500, 12000
"""Operations in an expression beyond which fractions, or even polynomials, take too long."""

DENOMINATOR_DEGREE = 4
"""The degree of a denominator up to which the consequences of denominators are worked out."""

FRACTION_SYMBOLS = 8
"""Below this number of symbols, even a huge expression becomes one fraction in little time."""

Point = dict[sp.Symbol, sp.Rational]


@cache
def verdict(expr: sp.Expr, conditions: tuple[Any, ...] = (), point: Any = ()) -> str:
    """EXACT where SymPy shows that expr = 0; else DIGITS where |expr| < 10⁻³⁰ at random rational
    points; else REFUTED.

    >>> x = sp.Symbol("x", real=True)
    >>> verdict(sp.cosh(x) ** 2 - sp.sinh(x) ** 2 - 1), verdict(sp.cos(x) - 1)
    ('exact', 'refuted')
    """
    expr = without_powers(unsigned(expr, dict(point)))
    operations = subexpressions(expr)[expr]
    small = operations < FRACTION_OPERATIONS
    if operations < POLYNOMIAL_OPERATIONS and is_zero_polynomial(expr):
        return EXACT
    if (small and is_zero_expr(expr)) or (
        len(occurring(expr)) < FRACTION_SYMBOLS and vanishes(expr)
    ):
        return EXACT
    if not vanishes_near(expr, dict(point), conditions):
        return REFUTED
    if small and (sp.simplify(expr) == 0 or expr.equals(0) is True):
        return EXACT
    return DIGITS


@lru_cache(64)
def subexpressions(expr: sp.Basic) -> dict[sp.Basic, int]:
    """Each subexpression once, with the number of operations in it, written out.

    An expression is a graph, whose paths SymPy's own walks follow one by one.

    >>> x = sp.Symbol("x")
    >>> subexpressions(sp.exp(x) + 2 * sp.exp(x) ** 2)[sp.exp(2 * x)]
    2
    """
    found: dict[sp.Basic, int] = {}

    def visit(e: sp.Basic) -> int:
        if e not in found:
            own = max(len(e.args) - 1, 1) if e.args else 0
            found[e] = own + sum(map(visit, e.args))
        return found[e]

    visit(expr)
    return found


def subexpressions_of(expr: sp.Expr, *kinds: type) -> list[Any]:
    """The subexpressions of some kinds."""
    return [e for e in subexpressions(expr) if isinstance(e, kinds)]


def unsigned(expr: sp.Expr, point: Point) -> sp.Expr:
    """|e| as ±e and δ(e) as 0, by the sign of e at the point, and therefore near the point."""
    for part in subexpressions_of(expr, sp.Abs, sp.sign, sp.DiracDelta):
        inner = part.args[0]
        side = sp.sign(sp.N(inner.subs(point), 20))
        if side in (1, -1):
            near = {sp.Abs: side * inner, sp.sign: side, sp.DiracDelta: sp.Integer(0)}
            expr = expr.subs(part, near[part.func])
    return expr


def without_powers(expr: sp.Expr) -> sp.Expr:
    """exp(2 k u) as ((1 + t) / (1 - t))ᵏ, where t = tanh u occurs as well."""
    for t in subexpressions_of(expr, sp.tanh):
        c, u = expanded_factor(t.args[0])
        signs = {u: 1, -u: -1}
        ratios = ((e, *expanded_factor(e.exp)) for e in subexpressions_of(expr, sp.exp))
        powers = {e: signs[v] * d / (2 * c) for e, d, v in ratios if v in signs}
        whole = {e: k for e, k in powers.items() if k.is_Integer and abs(k) <= 4}
        if whole:
            expr = expr.xreplace({e: ((1 + t) / (1 - t)) ** k for e, k in whole.items()})
    return expr


@cache
def expanded_factor(exponent: sp.Expr) -> tuple[Any, sp.Expr]:
    """A rational factor of an exponent that is expanded, and the rest."""
    return rational_factor(sp.expand(exponent))


def vanishes_near(expr: sp.Expr, point: Point, conditions: tuple[Any, ...]) -> bool:
    """Whether |expr| < 10⁻³⁰ at three random rational points where the conditions hold."""
    return all(abs(value) <= 1e-30 for value, in evaluate_exprs((expr,), point, conditions))


def agree_numerically(a: sp.Expr, b: sp.Expr, conditions: tuple[Any, ...], point: Point) -> bool:
    """Whether |a - b| < 10⁻¹⁴ max(1, |b|) at three points, where a constant is a rounded number.

    A flat model has constants in double precision that a definition computes, as 1 / √(2 + ε).
    """
    if all(n.q < EXACT_DENOMINATOR for n in (a - b).atoms(sp.Rational)):
        return False
    pairs = evaluate_exprs((a, b), point, conditions)
    return all(abs(one - other) <= 1e-14 * max(1, abs(other)) for one, other in pairs)


def evaluate_exprs(
    exprs: tuple[sp.Expr, ...], point: Point, conditions: tuple[Any, ...]
) -> Iterator[list[Any]]:
    """Expressions in many digits at three points by `draw_points`; NaN where one has no value."""
    names = occurring(*exprs, *conditions)
    values = numeric(names, exprs)
    for at in draw_points(names, point, conditions):
        try:
            yield values(*(MP.convert(at[s]._to_mpmath(MP.prec)) for s in names))
        except (ArithmeticError, ValueError):
            yield [MP.nan for _ in exprs]


def draw_points(
    names: list[sp.Symbol], point: Point, conditions: tuple[Any, ...]
) -> Iterator[Point]:
    """Three times random fractions near the point, or near 1, closer until the conditions hold."""
    rng = random.Random(0)
    for _ in range(3):
        width = sp.Rational(1, 4)
        for _ in range(12):
            near = {s: point.get(s, 1) + width * rng.randint(-97, 97) / 100 for s in names}
            if all(c.subs(near) == True for c in conditions):  # noqa: E712  (SymPy's own truth)
                break
            width /= 4
        yield near


# Algebra: rational functions of entries, exponentials and roots are compared as polynomials.


def is_zero_expr(expr: sp.Expr) -> bool:
    """Whether algebra shows that an expression vanishes; False where algebra cannot tell.

    Functions become unknowns, and √s an unknown r with r² = s.

    >>> a, b = sp.symbols("a b", positive=True)
    >>> is_zero_expr(1 / (sp.sqrt(a) + sp.sqrt(b)) - (sp.sqrt(a) - sp.sqrt(b)) / (a - b))
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
    return sorted({s for e in exprs for s in subexpressions(e) if s.is_Symbol}, key=str)


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
        self.replaced: dict[sp.Expr, Any] = {}

    def name(self, expr: sp.Expr, kind: str) -> sp.Symbol:
        """One name for equal expressions."""
        if expr not in self.names:
            self.names[expr] = sp.Dummy(f"{kind}{len(self.names)}")
        return self.names[expr]

    def replace(self, expr: sp.Expr) -> sp.Expr:
        """The expression with names in place of functions and roots."""
        if expr not in self.replaced:
            self.replaced[expr] = self._replace(expr)
        return self.replaced[expr]

    def _replace(self, expr: sp.Expr) -> sp.Expr:
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
        content, rest = rational_factor(exponent)
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
    >>> is_zero_polynomial(y + y.subs(x, -x) - 1)
    True
    """
    unknowns = Reciprocals(expr)
    plain = unknowns.replace(expr)
    names = occurring(plain, *unknowns.relations)
    if not names:
        return bool(plain == 0)
    polynomials = ring(names, sp.QQ)[0]
    relations = [polynomials.from_expr(r) for r in unknowns.relations]
    if (rest := polynomials.from_expr(plain).rem(relations)) == 0:
        return True
    own = {*unknowns.names.values()}  # 1 / (1 + eᵘ) + 1 / (1 + e⁻ᵘ) = 1 follows from these alone
    tied = [r for r, e in zip(relations, unknowns.relations, strict=True)
            if e.free_symbols <= own and sum(r.LM) <= DENOMINATOR_DEGREE]  # fmt: skip
    return bool(rest.rem(groebner(tied, polynomials)) == 0)


class Reciprocals(Unknowns):
    """Names for denominators as well; functions of equal polynomials share a name."""

    def __init__(self, expr: sp.Expr) -> None:
        super().__init__(expr, lambda e: sp.expand(self.replace(e)))
        self.relations: list[sp.Expr] = []

    def _replace(self, expr: sp.Expr) -> sp.Expr:
        if expr.is_Pow and expr.exp.is_Integer:
            return self._whole(self.replace(expr.base), expr.exp)
        return super()._replace(expr)

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


def rational_factor(exponent: sp.Expr) -> tuple[Any, sp.Expr]:
    """A rational factor of an exponent, and the rest."""
    parts: tuple[Any, sp.Expr] = (
        exponent.primitive() if exponent.is_Add else exponent.as_coeff_Mul()
    )
    return parts if parts[0].is_Rational else (sp.S.One, exponent)


def units_of(expr: sp.Expr) -> dict[sp.Expr, int]:
    """For each exponent without its factor, the n for which its factors are multiples of 1/n."""
    units: dict[sp.Expr, int] = {}
    for power in subexpressions_of(expr, sp.exp):
        content, rest = rational_factor(power.exp)
        units[rest] = sp.ilcm(units.get(rest, 1), content.q)
    return units
