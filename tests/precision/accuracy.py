"""The accuracy of every operator: value, slope and second derivative, over the range of a float.

The truth is SymPy's derivative of the formula in ONNX's documentation, worked out by mpmath in 900
digits. An error is counted in units: one is the last place of the truth, or what one unit in the
last place of x changes in it where that is more; below the normal range the last place is the
smallest subnormal number. A result that is not a number counts as infinitely wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from check_rule import one_node
from onnxjac.modes.hessian import hessian
from onnxjac.modes.linearize import linearize
from onnxjac.modes.model.loading.load import load
from onnxjac.ops.formulas import NAMES, parse, plain
from onnxjac.ops.node import schema_defaults
from onnxjac.ops.rules.elementwise import FORMULAS

ORDERS = ("value", "slope", "second derivative")
DTYPES = ("float32", "float64")
X = NAMES["x"]
DIGITS = 900


@dataclass(frozen=True)
class Unary:
    """An operator of one tensor, entry by entry, with some attributes."""

    op: str
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    text: str = ""

    @property
    def formula(self) -> sp.Expr:
        """The formula with its attributes as numbers, which ONNX holds in single precision."""
        if self.text:
            return plain(parse(self.text))
        held = schema_defaults(self.op, "", self.opset) | self.attrs
        values = {NAMES[k]: sp.Rational(float(np.float32(v)))
                  for k, v in held.items() if k in NAMES}  # fmt: skip
        rule = FORMULAS[self.op]
        return plain(parse(rule.formulas[held[rule.by] if rule.by else ""])).subs(values)

    def __str__(self) -> str:
        return self.op + "".join(f" {k}={v}" for k, v in self.attrs.items())


def points(dtype: str, kinks: Sequence[float], count: int, seed: int = 0) -> np.ndarray:
    """Numbers of both signs: over all exponents, of moderate size, and around kinks."""
    info, rng = np.finfo(dtype), np.random.default_rng(seed)
    low, high = math.log2(info.smallest_subnormal), math.log2(info.max) - 2
    bands = [np.linspace(low, high, count), np.linspace(-12, 11, count)]
    sizes = 2.0 ** np.concatenate([b + rng.uniform(-1, 0, count) for b in bands])
    ends = [float(info.smallest_subnormal), float(info.tiny), float(info.max) / 4]
    near = [k + s * h * max(abs(k), 1) for k in (0.0, *kinks) for s in (1, -1)
            for h in (4 * float(info.eps), 1e-3, 0.3)]  # fmt: skip
    found = np.concatenate([sizes, ends, -sizes, [-x for x in ends], near])
    return np.unique(found.astype(dtype))


@cache
def function(formula: sp.Expr, order: int) -> Any:
    """f⁽ᵏ⁾ for mpmath; |x| and sign x have no derivative more, away from 0."""
    slope = sp.diff(formula.replace(sp.Abs, lambda u: u * sp.sign(u)) if order else formula, X, order)
    slope = slope.replace(sp.DiracDelta, lambda *_: sp.S.Zero)
    return sp.lambdify(X, slope, "mpmath", cse=True)


def truths(formula: sp.Expr, order: int, xs: np.ndarray) -> list[Any]:
    """f⁽ᵏ⁾ at the points in many digits; NaN where there is none."""
    with mpmath.workdps(DIGITS):
        return [exactly(function(formula, order), x) for x in xs]


def exactly(f: Any, x: Any) -> Any:
    try:
        value = mpmath.mpmathify(f(mpmath.mpf(float(x))))
    except (ZeroDivisionError, ValueError, OverflowError):
        return mpmath.nan
    return value if isinstance(value, mpmath.mpf) and mpmath.isfinite(value) else mpmath.nan


def units(found: np.ndarray, xs: np.ndarray, truth: np.ndarray, steeper: np.ndarray) -> np.ndarray:
    """The errors in units; 0 where there is no truth, or it overflows and so does the result."""
    info = np.finfo(xs.dtype)
    with mpmath.workdps(DIGITS):
        return np.array([unit(*each, info) for each in zip(found, xs, truth, steeper, strict=True)])


def unit(y: Any, x: Any, t: Any, s: Any, info: Any) -> float:
    if mpmath.isnan(t) or (abs(t) > float(info.max) * (1 - 2e-3) and not np.isnan(y)):
        return 0.0
    if not np.isfinite(y):
        return math.inf
    size = abs(t) + (0 if mpmath.isnan(s) else abs(mpmath.mpf(float(x)) * s))
    last = max(size * float(info.eps), mpmath.mpf(float(info.smallest_subnormal)))
    return float(abs(mpmath.mpf(float(y)) - t) / last)


def measured(case: Unary, dtype: str, count: int, kinks: Sequence[float] = ()) -> Iterator[Any]:
    """(order, points, errors, results, truths) of a case, by NumPy."""
    xs, formula = points(dtype, kinks, count), case.formula
    told = [truths(formula, order, xs) for order in range(4)]
    keep = ~np.array([mpmath.isnan(t) for t in told[0]])
    xs, told = xs[keep], [np.array(t, object)[keep] for t in told]
    model = load(one_node(case.op, [xs], case.attrs, 1, case.opset))
    feeds = {"x0": xs}
    with np.errstate(all="ignore"):
        value = model.run(feeds, engine="numpy")["y0"]
        J = linearize(model, feeds, engine="numpy")
        H = hessian(model, feeds, weights=np.ones_like(xs), engine="numpy")
        found = value, np.asarray(J.diagonal()), np.asarray(H.diagonal())
    for order, result in enumerate(found):
        yield order, xs, units(result, xs, told[order], told[order + 1]), result, told[order]
