"""The accuracy of operators: values, slopes and second derivatives over the range of a float.

The truth is SymPy's derivative of the formula in ONNX's documentation, worked out by mpmath in 900
digits. Errors count in units: one is ε times the largest of the truth, of what a relative change
of the inputs by 1 changes in it, and, for operators on rows, of the entries of its row; in the
subnormal range it is the smallest subnormal number. NaN counts as infinitely wrong. The points are
all exponents up to a quarter of the largest number, both signs, and both sides of every kink.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

import mpmath
import numpy as np
import sympy as sp

from models.one_node import one_node
from onnxjac.modes.hessian import hessian
from onnxjac.modes.linearize import linearize
from onnxjac.modes.model.loading.load import load
from onnxjac.ops.formulas import NAMES, parse, write_out
from onnxjac.ops.kinks import kinks
from onnxjac.ops.node import schema_defaults
from onnxjac.ops.rules.elementwise import FORMULAS, variables

ORDERS = ("value", "slope", "second derivative")
DTYPES = ("float32", "float64")
BOUND = 16
"""The promise, in units."""

DIGITS = {"float32": 200, "float64": 900}
"""Enough for 1 - tanh² and the like down to the subnormal numbers."""

OPSETS = {"Swish": 24, "Celu": 28}

class Error(NamedTuple):
    """The largest error in units, and where: the inputs, the result and the truth."""

    units: float
    at: tuple[float, ...] = ()
    found: float = 0.0
    truth: str = ""


@dataclass(frozen=True)
class Case:
    """An operator entry by entry, y = f(x, y), by the formula in ONNX's documentation.

    A `text` is the formula of an operator whose rule is no formula.
    """

    op: str
    attrs: dict[str, Any] = field(default_factory=dict, hash=False)
    text: str = ""

    def __str__(self) -> str:
        return " ".join([self.op.rpartition(":")[2], *map(str, self.attrs.values())])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs in the formula."""
        return variables(self.text) if self.text else FORMULAS[self.op].variables

    @property
    def opset(self) -> int:
        return OPSETS.get(self.op, 21)

    @cached_property
    def values(self) -> dict[str, Any]:
        """The attributes, which ONNX holds in single precision."""
        held = {} if self.text else schema_defaults(self.op, "", self.opset)
        return held | self.attrs

    @cached_property
    def formula(self) -> sp.Expr:
        """The formula with numbers for its attributes; |x| is x sign x, which has derivatives."""
        rule = FORMULAS.get(self.op)
        text = self.text or rule.formulas[self.values[rule.by] if rule.by else ""]
        held = {NAMES[k]: sp.Rational(float(np.float32(v)))
                for k, v in self.values.items() if k in NAMES}  # fmt: skip
        return write_out(parse(text)).subs(held).replace(sp.Abs, lambda u: u * sp.sign(u))

    @property
    def kinks(self) -> tuple[float, ...]:
        """The kinks in x."""
        held = {NAMES[k]: v for k, v in self.values.items() if k in NAMES}
        found = () if self.text else kinks(self.op)
        found = ((k.x - k.where).subs(held) for k in found if not k.whole)
        return tuple(float(x) for x in found if x.is_number)

    def points(self, dtype: str, count: int) -> list[np.ndarray]:
        """The inputs, a column each."""
        xs = numbers(dtype, self.kinks, count)
        if len(self.names) == 1:
            return [xs]
        some = np.random.default_rng(1).choice(xs, 12 * count)
        return [some, np.random.default_rng(2).permutation(some)]

    def measured(self, dtype: str, count: int) -> Iterator[Error]:
        """The largest errors of value, slopes and second derivatives."""
        names, columns = self.names, self.points(dtype, count)
        given = list(zip(*columns, strict=True))
        known = [truth(self.formula, names, (), at, dtype) is not None for at in given]
        columns = [c[known] for c in columns]
        given = [at for at, kept in zip(given, known, strict=True) if kept]
        model = load(one_node(self.op, columns, self.attrs, 1, self.opset))
        feeds = {f"x{i}": x for i, x in enumerate(columns)}
        with np.errstate(all="ignore"):
            value = model.run(feeds, engine="numpy")["y0"]
            J = linearize(model, feeds, engine="numpy")
            H = hessian(model, feeds, weights=np.ones_like(value), engine="numpy")
            wrt = range(len(names))
            slopes = {(names[i],): J["y0", f"x{i}"].diagonal() for i in wrt}
            bends = {(names[i], names[j]): H[f"x{i}", f"x{j}"].diagonal()
                     for i, j in product(wrt, wrt) if i <= j}  # fmt: skip
        for results in ({(): value}, slopes, bends):
            yield worst(error(self.formula, names, by, at, y, dtype)
                        for by, ys in results.items() for at, y in zip(given, ys, strict=True)
                        if kept(self, by, at, dtype))  # fmt: skip


MODERATE = (0.1, 1.7, 3.3, 5.1, 8.9, 13.0, 20.5, 40.2, 86.0, 350.0, 700.0)
"""Where exponentials vanish, and where they have vanished."""


def numbers(dtype: str, kinks: Sequence[float], count: int, seed: int = 0) -> np.ndarray:
    """Numbers of both signs: over all exponents, of moderate size, and around kinks."""
    info, rng = np.finfo(dtype), np.random.default_rng(seed)
    low, high = math.log2(info.smallest_subnormal), math.log2(info.max) - 2
    bands = [np.linspace(low + 1, high, count), np.linspace(-12, 11, count)]
    sizes = 2.0 ** np.concatenate([b + rng.uniform(-1, 0, count) for b in bands])
    ends = np.array([info.smallest_subnormal, info.tiny, info.max / 4, *MODERATE], float)
    near = [k + s * h * max(abs(k), 1) for k in (0.0, *kinks) for s in (1, -1)
            for h in (4 * float(info.eps), 1e-3, 0.3)]  # fmt: skip
    found = np.concatenate([sizes, ends, -sizes, -ends, near])
    return np.unique(found.astype(dtype))


# -- the truth -------------------------------------------------------------------------------------


@cache
def function(formula: sp.Expr, names: tuple[str, ...], by: tuple[str, ...]) -> Any:
    """∂formula/∂by for mpmath; away from its jumps, a sign has the derivative 0."""
    slope = sp.diff(formula, *(NAMES[name] for name in by)) if by else formula
    slope = slope.replace(sp.DiracDelta, lambda *_: sp.S.Zero)
    slope = slope.replace(lambda e: isinstance(e, sp.Derivative | sp.Subs), lambda e: sp.S.Zero)
    return sp.lambdify([NAMES[name] for name in names], slope, "mpmath", cse=True)


@cache
def truth(
    formula: sp.Expr, names: tuple[str, ...], by: tuple[str, ...], at: Any, dtype: str
) -> Any:
    """∂formula/∂by at a point in many digits; None where it is no real number."""
    with mpmath.workdps(DIGITS[dtype]):
        try:
            value = mpmath.mpmathify(function(formula, names, by)(*map(mpmath.mpf, map(float, at))))
        except (ZeroDivisionError, ValueError, OverflowError):
            return None
        return value if isinstance(value, mpmath.mpf) and mpmath.isfinite(value) else None


def error(
    formula: sp.Expr, names: tuple[str, ...], by: tuple[str, ...], at: Any, y: Any, dtype: str,
    scale: Any = 0,
) -> Error:  # fmt: skip
    """The error of a result; where the truth overflows, there is no promise."""
    exact, info = truth(formula, names, by, at, dtype), np.finfo(dtype)
    if exact is None or abs(exact) > float(info.max) * (1 - 2e-3):
        return Error(0.0)
    with mpmath.workdps(DIGITS[dtype]):
        moved = [abs(float(x) * (truth(formula, names, (*by, name), at, dtype) or 0))
                 for name, x in zip(names, at, strict=True)]  # fmt: skip
        last = max(max(abs(exact), scale, *moved) * float(info.eps),
                   mpmath.mpf(float(info.smallest_subnormal)))  # fmt: skip
        wrong = float(abs(mpmath.mpf(float(y)) - exact) / last) if np.isfinite(y) else math.inf
        return Error(wrong, tuple(map(float, at)), float(y), mpmath.nstr(exact, 6))


def worst(errors: Iterable[Error]) -> Error:
    """The largest error."""
    return max(errors, key=lambda e: e.units, default=Error(0.0))


# -- operators on rows of three entries ------------------------------------------------------------

ROW = tuple(sp.Symbol(f"x{i}", real=True) for i in range(3))
NAMES.update({x.name: x for x in ROW})


@dataclass(frozen=True)
class Rows:
    """An operator on rows of three entries: the formula of each entry of a row of y.

    `more` are further inputs for a number of rows; `shape` is the shape of a row.
    """

    op: str
    formulas: tuple[sp.Expr, ...]
    attrs: dict[str, Any] = field(default_factory=dict, hash=False)
    more: Any = None
    shape: tuple[int, ...] = (3,)

    def __str__(self) -> str:
        return " ".join([self.op, *(f"p = {v}" for k, v in self.attrs.items() if k == "p")])

    def measured(self, dtype: str, count: int) -> Iterator[Error]:
        """The largest errors of value, slopes and second derivatives."""
        x, names = rows(dtype, count), tuple(s.name for s in ROW)
        if self.op == "ReduceLogSum":
            x = abs(x)
        n, m = len(x), len(self.formulas)
        inputs = [x.reshape(n, *self.shape), *(self.more(n, dtype) if self.more else ())]
        model = load(one_node(self.op, inputs, self.attrs, 1, 23))
        feeds = {f"x{i}": a for i, a in enumerate(inputs)}
        with np.errstate(all="ignore"):
            y = model.run(feeds, engine="numpy")["y0"]
            J = linearize(model, feeds, wrt="x0", engine="numpy").toarray()
            seeds = np.eye(m, dtype=dtype)[:, None].repeat(n, 1).reshape(m, *y.shape)
            H = [hessian(model, feeds, wrt="x0", weights=w, engine="numpy").toarray()
                 for w in seeds]  # fmt: skip
        values, slopes = y.reshape(n, m), J.reshape(n, m, n, 3)
        bends = [h.reshape(n, 3, n, 3) for h in H]
        pairs = [(i, j) for i in range(3) for j in range(i, 3)]
        found: dict[int, list[Any]] = {order: [] for order in range(3)}
        for k, o in product(range(n), range(m)):
            found[0].append((k, o, (), values[k, o]))
            found[1] += [(k, o, (i,), slopes[k, o, k, i]) for i in range(3)]
            found[2] += [(k, o, (i, j), bends[o][k, i, k, j]) for i, j in pairs]
        for results in found.values():
            keyed = [(k, self.formulas[o], tuple(names[i] for i in by), z)
                     for k, o, by, z in results]  # fmt: skip
            largest: dict[int, Any] = {}
            for k, f, by, _ in keyed:
                size = abs(truth(f, names, by, tuple(x[k]), dtype) or 0)
                largest[k] = max(largest.get(k, 0), size)
            yield worst(error(f, names, by, tuple(x[k]), z, dtype, largest[k])
                        for k, f, by, z in keyed if kept(self, by, x[k], dtype))  # fmt: skip


def rows(dtype: str, count: int) -> np.ndarray:
    """Rows of three numbers, with gaps and scales up to the limits of the type."""
    info, rng = np.finfo(dtype), np.random.default_rng(0)
    scales = 2.0 ** np.linspace(math.log2(info.tiny), math.log2(info.max) - 3, count)
    steady = np.array([[1, 2, -3], [0.5, 0.25, 20], [45, 0, 3], [-45, 0.5, 1], [700, 1, -700],
                       [1e6, 1e6 + 1, 1e6 - 2], [1, 1, 2]])  # fmt: skip
    return np.concatenate([steady, rng.uniform(0.5, 2, (count, 3)) * [1, -1, 1] * scales[:, None]]
                          ).astype(dtype)  # fmt: skip


def shares() -> list[sp.Expr]:
    """Softmax."""
    return [sp.exp(x) / sum(map(sp.exp, ROW)) for x in ROW]


def standardised(epsilon: float, *, centred: bool = True) -> tuple[sp.Expr, ...]:
    """(x - μ) / √(σ² + ε), with ε in single precision."""
    mean = sum(ROW) / 3 if centred else 0
    width = sum((x - mean) ** 2 for x in ROW) / 3 + sp.Rational(float(np.float32(epsilon)))
    return tuple((x - mean) / sp.sqrt(width) for x in ROW)


def scale(n: int, dtype: str) -> list[np.ndarray]:
    return [np.ones(3, dtype)]


def scale_and_shift(n: int, dtype: str) -> list[np.ndarray]:
    return [np.ones(1, dtype), np.zeros(1, dtype)]


def labels(n: int, dtype: str) -> list[np.ndarray]:
    return [np.ones(n, np.int64)]


def axes(n: int, dtype: str) -> list[np.ndarray]:
    return [np.array([1])]


SUM, SQUARES_SUM = sum(map(sp.exp, ROW)), sum(x**2 for x in ROW)
LENGTHS = {1: sum(x * sp.sign(x) for x in ROW), 2: sp.sqrt(SQUARES_SUM)}
NONE = {"reduction": "none"}

ON_ROWS = [
    Rows("Softmax", tuple(shares())),
    Rows("LogSoftmax", tuple(x - sp.log(SUM) for x in ROW)),
    Rows("ReduceLogSumExp", (sp.log(SUM),), more=axes),
    Rows("ReduceLogSum", (sp.log(sum(ROW)),), more=axes),
    Rows("ReduceL1", (LENGTHS[1],), more=axes),
    Rows("ReduceL2", (LENGTHS[2],), more=axes),
    Rows("ReduceSumSquare", (SQUARES_SUM,), more=axes),
    *(Rows("LpNormalization", tuple(x / norm for x in ROW), {"p": p})
      for p, norm in LENGTHS.items()),
    Rows("SoftmaxCrossEntropyLoss", (sp.log(SUM) - ROW[1],), NONE, labels),
    Rows("NegativeLogLikelihoodLoss", (-ROW[1],), NONE, labels),
    Rows("LayerNormalization", standardised(1e-5), more=scale),
    Rows("RMSNormalization", standardised(1e-5, centred=False), {"epsilon": 1e-5}, scale),
    Rows("InstanceNormalization", standardised(1e-5), more=scale_and_shift, shape=(1, 3)),
]  # fmt: skip

VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "Gelu": ({"approximate": "none"}, {"approximate": "tanh"}),
    "Mod": ({"fmod": 1},),
}
"""Attributes by operator where the defaults are not enough."""

QUICK = repr(float(np.float32(1.702)))
CASES = [
    *(Case(op, attrs) for op in FORMULAS for attrs in VARIANTS.get(op, ({},))),
    Case("Pow", {}, "x**y if x > 0 else log(-1 - x**2)"),
    Case("com.microsoft::QuickGelu", {}, f"x*sigmoid({QUICK}*x)"),
    Case("com.microsoft::ScaledSiLU", {}, "x*sigmoid(x)"),
    Case("com.microsoft::FastGelu", {}, FORMULAS["Gelu"].formulas["tanh"]),
    Case("com.microsoft::Gelu", {}, FORMULAS["Gelu"].formulas["none"]),
    *ON_ROWS,
]


# -- where there is no promise ---------------------------------------------------------------------


class Exception_(NamedTuple):
    """Where an operator keeps no promise, in words and as a function of the inputs, and why."""

    where: str
    why: str
    holds: Callable[[Any, Any], bool]


def share(x: Any, _: Any) -> bool:
    powers = np.exp(np.asarray(x, float) - max(map(float, x)))
    return bool(powers.max() / powers.sum() > 15 / 16)


def wide(x: Any, info: Any) -> bool:
    """Whether squares leave the range, or the width vanishes beside x."""
    x = np.asarray(x, float)
    return bool(np.abs(x).max() > float(info.max) ** 0.5 / 4)


def quotient(x: Any, info: Any) -> bool:
    return abs(float(x[0]) / float(x[1])) < float(info.tiny) / float(info.eps)


def power(x: Any, info: Any) -> bool:
    b, e = map(float, x)
    size = math.log2(abs(b)) if b else 0.0
    least, most = math.log2(float(info.tiny)), math.log2(float(info.max))
    return not all(least < (e - k) * size < most for k in range(3))


def vanishing(x: Any, info: Any) -> bool:
    return -1.702 * abs(float(x[0])) < math.log(float(info.tiny) / float(info.eps))


def whole(x: Any, info: Any) -> bool:
    ratio = float(x[0]) / float(x[1])
    return math.isinf(ratio) or abs(ratio - round(ratio)) <= 4 * float(info.eps) * abs(ratio)


ERFC = Exception_("x < -2", "ONNX has erf but not 1 - erf: 1 + erf(x/√2) has the rounding of 1",
                  lambda x, _: x[0] < -2)  # fmt: skip
CUBE = Exception_("|x| > 10⁶", "x³ may overflow", lambda x, _: abs(x[0]) > 1e6)
SHARE = Exception_("one share above 15/16", "1 - y has the rounding of y", share)
WIDE = Exception_("|x| > √(largest number) / 4", "(x - μ)² overflows", wide)

EXCEPTIONS: dict[tuple[str, int], Exception_] = {
    ("Mod 1", 1): Exception_("x/y next to a whole number", "x/y rounds to it", whole),
    ("Gelu none", 1): ERFC,
    ("Gelu", 1): ERFC,
    ("Gelu tanh", 2): CUBE,
    ("FastGelu", 2): CUBE,
    ("Sigmoid", 2): Exception_("|x| < 1/4", "σ(x) - 1/2 has the rounding of 1/2: ε/16",
                               lambda x, _: abs(x[0]) < 1 / 4),
    **{(name, k): Exception_("exp(-∣αx∣) near the subnormal numbers", "it is a factor", vanishing)
       for name in ("Swish", "Mish", "ScaledSiLU", "QuickGelu") for k in range(3)},
    **{("Div", k): Exception_("x/y near the subnormal numbers", "y is reused", quotient)
       for k in (1, 2)},
    **{("Pow", k): Exception_("xʸ, xʸ⁻¹ or xʸ⁻² out of range", "it is a factor", power)
       for k in (1, 2)},
    ("Softmax", 1): SHARE, ("Softmax", 2): SHARE, ("LogSoftmax", 2): SHARE,
    ("ReduceLogSumExp", 2): SHARE, ("SoftmaxCrossEntropyLoss", 1): SHARE,
    ("SoftmaxCrossEntropyLoss", 2): SHARE,
    **{(f"{name}Normalization", k): WIDE for name in ("Layer", "RMS", "Instance")
       for k in range(3)},
}  # fmt: skip
"""(operator, order) -> where the promise is not kept."""


def kept(case: Any, by: Sequence[Any], at: Any, dtype: str) -> bool:
    """Whether there is a promise for this order at these inputs."""
    found = EXCEPTIONS.get((str(case), len(by)))
    return found is None or not found.holds(at, np.finfo(dtype))
