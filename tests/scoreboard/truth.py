"""Derivatives along a curve from values alone, in many digits: by no rule and no derivative."""

import operator
from functools import cache
from math import factorial

import numpy as np
from sympy.core.relational import Relational

from onnxjac.modes.verify.definition import exprs_of
from onnxjac.ops.formulas import DIGITS as MP
from onnxjac.ops.formulas import numeric

STEP = MP.mpf(10) ** -40


def derivatives(function, order, places=()):
    """d⁰f … dᴷf at 0 of a function of one number with several values, by interpolation.

    The error is of the order of the step, 1e-40, as long as f has a few derivatives more. `places`
    are where f is evaluated, in steps; by default on both sides of 0.
    """
    places = places or (0, *(sign * k for k in range(1, order // 2 + 2) for sign in (1, -1)))
    found = interpolation(places) * MP.matrix([function(STEP * j) for j in places])
    return np.array([[float(MP.re(found[k, i]) * factorial(k) / STEP**k)
                      for i in range(found.cols)] for k in range(order + 1)])  # fmt: skip


@cache
def interpolation(places):
    """Values at places ↦ the coefficients of the polynomial through them."""
    return MP.matrix([[MP.mpf(j) ** b for b in range(len(places))] for j in places]) ** -1


def along_curve(check, point, series):
    """The derivatives of the outputs of a case, by its definition in ONNX, along curves by name.

    `series` has x⁽¹⁾ … x⁽ᴷ⁾ of each floating input.
    """
    outputs = [e for n in check.of for e in exprs_of(check.definition.outputs[n], check.op).ravel()]
    symbols = [number.expr for n in check.wrt for number in check.symbols[n].entries.ravel()]
    start = np.concatenate([np.ravel(point[n]) for n in check.wrt])
    order = len(series[check.wrt[0]])
    rows = np.concatenate([series[n].reshape(order, -1) for n in check.wrt], 1)
    function = numeric(symbols, outputs)

    def values(t):
        powers = [t ** (k + 1) / factorial(k + 1) for k in range(order)]
        steps = (sum(map(operator.mul, map(MP.mpf, column), powers)) for column in rows.T.tolist())
        return function(*map(operator.add, map(MP.mpf, start.tolist()), steps))

    return derivatives(values, order)[1:]


def along_line(check, point, direction, of, order):
    """The derivatives of an output of a case along a line, (order, entries), or None on a kink, or
    where the output is not real.

    `direction` has v by the names of the floating inputs.
    """
    if any(on_boundary(condition, check.point) for condition in check.specified):
        return None
    outputs = [*exprs_of(check.definition.outputs[of], check.op).ravel()]
    symbols = [number.expr for n in check.wrt for number in check.symbols[n].entries.ravel()]
    start, v = (np.concatenate([np.ravel(held[n]) for n in check.wrt]).tolist()
                for held in (point, direction))  # fmt: skip
    function = numeric(symbols, outputs)

    @cache  # the places on both sides are among the places on one
    def values(t):
        return function(*(MP.mpf(x) + MP.mpf(w) * t for x, w in zip(start, v, strict=True)))

    if any(MP.im(y) for y in values(0)):
        return None
    sides = [derivatives(values, order, (*(sign * k for k in range(1, order + 5)),))[1:]
             for sign in (1, -1)]  # fmt: skip
    whole = derivatives(values, order)[1:]
    same = all(np.allclose(whole, side, rtol=1e-9, atol=1e-9) for side in sides)
    return whole if same and np.isfinite(whole).all() else None


def on_boundary(condition, point):
    """Whether a condition by which a definition decides holds as an equality at a point."""
    return any((atom.lhs - atom.rhs).subs(dict(point)).equals(0)
               for atom in condition.atoms(Relational))  # fmt: skip
