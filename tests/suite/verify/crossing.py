"""Whether a branch in a definition is a kink: the definition evaluated on both of its sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import sympy as sp

from onnxjac.jacobians.errors import OnnxJacError
from onnxjac.modes.verify.case import Case
from onnxjac.modes.verify.check import CaseCheck, Point, boundaries, inputs_at
from onnxjac.modes.verify.definition import exprs_of

STEP = sp.Rational(1, 512)
"""The distance from the boundary at which its sides are evaluated."""

UNREADABLE = (OnnxJacError, ValueError)
"""Errors of undefined definitions: a negative scale, an empty region."""

T = sp.Symbol("t", positive=True)


@dataclass(frozen=True)
class Crossing:
    """A point with boundary = 0, reached by moving one entry, and the first derivative to differ.

    Order 0 is the value itself, 1 or 2 a derivative; None means that all of them agree.
    """

    case: Case
    boundary: sp.Expr
    moved: sp.Symbol
    at: Point
    order: int | None


def crossings(case: Case) -> Iterator[Crossing]:
    """Every boundary between two decisions of the definition, crossed once."""
    check = CaseCheck(case)
    point = dict(check.point)
    for boundary in boundaries(check.op.conditions):
        for moved, root in roots(boundary, point):
            at = {**point, moved: root}
            try:
                found = order(check, moved, at)
            except UNREADABLE:
                continue
            yield Crossing(case, boundary, moved, at, found)
            break


def order_at_origin(case: Case, name: str) -> int | None:
    """The order on a line through the point where an input is 0, for norms, which do not branch."""
    check = CaseCheck(case)
    try:
        sides = [ray(check, name, sign) for sign in (-1, 1)]
    except UNREADABLE:
        return None
    for k in range(3):
        left, right = ([(sign**k * sp.diff(y, T, k)).subs(T, 0) for y in side]
                       for sign, side in zip((-1, 1), sides, strict=True))  # fmt: skip
        if not all(value.is_real and value.is_finite for value in left + right):
            return None
        if differ(left, right):
            return k
    return None


def ray(check: CaseCheck, name: str, sign: int) -> list[sp.Expr]:
    """The outputs with an input scaled by ±t, t > 0."""
    point, entries = dict(check.point), check.symbols[name].exprs.ravel()
    near = {**point, **{s: sign * STEP * point[s] for s in entries}}
    along = {**point, **{s: sign * T * point[s] for s in entries}}
    made = [y.subs(along) for y in outputs(check, near)]
    return [sp.powdenest(y, force=True) if rooted(y) else y for y in made]


def rooted(expr: sp.Expr) -> bool:
    """Whether an expression has a fractional power with t in its base."""
    return any(not p.exp.is_Integer for p in expr.atoms(sp.Pow) if p.base.has(T))


def roots(boundary: sp.Expr, point: Point) -> Iterator[tuple[sp.Symbol, sp.Expr]]:
    """(entry, nearest value on the boundary), with all other entries fixed."""
    for symbol in sorted(boundary.free_symbols & point.keys(), key=str):
        rest = {s: value for s, value in point.items() if s != symbol}
        found = [r for r in sp.solve(boundary.subs(rest), symbol) if r.is_real]
        if found:
            yield symbol, min(found, key=lambda r: abs(float(r - point[symbol])))


def order(check: CaseCheck, moved: sp.Symbol, at: Point) -> int | None:
    """The lowest derivative along the entry that differs between the sides."""
    rest = {s: value for s, value in at.items() if s != moved}
    sides = [outputs(check, {**at, moved: at[moved] + h}) for h in (-STEP, STEP)]
    lines = [[y.subs(rest) for y in side] for side in sides]
    here = [y.subs(at) for y in outputs(check, at)]
    for k in range(3):
        left, right = ([sp.diff(y, moved, k).subs(moved, at[moved]) for y in line]
                       for line in lines)  # fmt: skip
        if differ(left, right) or (k == 0 and differ(left, here)):
            return k
    return None


def outputs(check: CaseCheck, at: Point) -> list[sp.Expr]:
    """The outputs evaluated at another point, all entries in one list."""
    moved = CaseCheck(replace(check.case, inputs=tuple(inputs_at(check, at))))
    made = (exprs_of(moved.definition.outputs[name], moved.op) for name in check.of)
    return [y.replace(hidden, lambda e: sp.S.Zero) for exprs in made for y in exprs.ravel()]


def hidden(expr: sp.Expr) -> bool:
    """Whether an expression is the exponential of a masked score, which is almost 0."""
    return isinstance(expr, sp.exp) and expr.exp.as_coeff_Add()[0] < -(10**300)


def differ(left: list[sp.Expr], right: list[sp.Expr]) -> bool:
    """Whether two lists of numbers differ."""
    if len(left) != len(right):
        return True
    gaps = (a - b for a, b in zip(left, right, strict=True))
    return any(gap != 0 and abs(sp.N(gap, 30)) > 1e-20 for gap in gaps)
