"""y = f(x, ...), entry by entry, with broadcasting: arithmetic, logic, comparisons, activations."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import numpy as np
from scipy import special

from ...jacobians.arrays import Array
from ...jacobians.errors import OnnxJacError, first_line
from ...jacobians.readings import library_of, module_of
from ...jacobians.text import clipped
from .table import Kernel, as_type, kernel, single_precision

UFUNCS: dict[str, Kernel] = {
    **{name: getattr(np, name.lower()) for name in (
        "Abs", "Add", "Ceil", "Cos", "Cosh", "Equal", "Exp", "Floor", "Greater", "IsNaN", "Less",
        "Log", "Reciprocal", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
    )},
    **{f"A{name}": getattr(np, f"arc{name}") for name in ("cos", "cosh", "sin", "sinh", "tan",
                                                          "tanh")},
    **{name: getattr(np, f"logical_{name.lower()}") for name in ("And", "Not", "Or", "Xor")},
    **{f"Bitwise{name}": getattr(np, f"bitwise_{name.lower()}") for name in ("And", "Not", "Or",
                                                                             "Xor")},
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Round": np.rint,
    "Sub": np.subtract,
}  # fmt: skip
for name, ufunc in UFUNCS.items():
    kernel(name)(ufunc)


def first_dtype(*values: Any) -> np.dtype:
    """The dtype of the first array; Python numbers adopt it."""
    return next((v.dtype for v in values if hasattr(v, "dtype")), np.result_type(*values))


@kernel("Div")
def div(a: Array, b: Array) -> Array:
    """A / B, rounded towards zero for integers."""
    if first_dtype(a, b).kind not in "iu":
        return np.true_divide(a, b)
    return np.floor_divide(a - np.fmod(a, b), b)


@kernel("Pow")
def power(x: Array, y: Array) -> Array:
    """x ** y in the dtype of x."""
    if first_dtype(x).kind in "iu" and first_dtype(y).kind == "i" and np.less(y, 0).any():
        y = np.asarray(y, np.float64)  # NumPy refuses negative integer powers of integers
    return np.power(x, y).astype(first_dtype(x), copy=False)


@kernel("Where")
def where(condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y."""
    chosen: Array = np.where(condition, x, y)
    return chosen if chosen.dtype.kind in "OU" else chosen.astype(first_dtype(x, y), copy=False)


@kernel("Clip")
def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """min(max(x, low), high)."""
    above = x if low is None else np.maximum(x, low)
    return above if high is None else np.minimum(above, high)


@kernel("IsInf", tensors=True)
def is_inf(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Whether x is infinite, with a sign that is to be detected."""
    if detect_negative and detect_positive:
        return module_of(x).isinf(x)
    below, above = module_of(x).isneginf(x), module_of(x).isposinf(x)
    return (detect_negative == 1) & below | (detect_positive == 1) & above


def leaky_relu(x: Array, *, alpha: float = single_precision(0.01)) -> Array:
    """x for x ≥ 0, αx below."""
    return module_of(x).where(x < 0, alpha * x, x)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), where exp cannot overflow."""
    return np.exp(np.minimum(x, 0)) / (1 + np.exp(-abs(x)))


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), where exp cannot overflow."""
    return x.clip(0, None) + module_of(x).log1p(module_of(x).exp(-abs(x)))


def elu(x: Array, *, alpha: float = 1.0) -> Array:
    """x for x ≥ 0, α(exp(x) − 1) below."""
    return module_of(x).where(x < 0, alpha * module_of(x).expm1(x), x)


def hard_sigmoid(x: Array, *, alpha: float = single_precision(0.2), beta: float = 0.5) -> Array:
    """min(max(αx + β, 0), 1)."""
    return (alpha * x + beta).clip(0, 1)


def gelu(x: Array, *, approximate: str = "none") -> Array:
    """x Φ(x) with the normal distribution Φ, or its approximation by tanh."""
    if approximate == "tanh":
        return x * library_of(x).special.expit(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))
    return x * library_of(x).special.ndtr(x)


def selu(
    x: Array, *, alpha: float = single_precision(1.6732631921768188),
    gamma: float = single_precision(1.0507010221481323),
) -> Array:  # fmt: skip
    """γ · elu(x, α)."""
    return gamma * elu(x, alpha=alpha)


def shrink(x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """x + bias for x < −λ, x − bias for x > λ, 0 between."""
    where = module_of(x).where
    y = where(x < -lambd, x + bias, where(x > lambd, x - bias, 0))
    return as_type(y, library_of(x).dtype(x))


kernel("PRelu", tensors=True)(lambda x, slope: module_of(x).where(x < 0, slope * x, x))

EXACT: dict[str, Kernel] = {
    "Max": lambda *data: functools.reduce(np.maximum, data),
    "Min": lambda *data: functools.reduce(np.minimum, data),
    "Mod": lambda a, b, *, fmod=0: np.fmod(a, b) if fmod else np.mod(a, b),
    "Relu": lambda x: np.maximum(x, 0),
}
"""Formulas that round at most once, also in half precision."""

WIDE: dict[str, Kernel] = {
    "Erf": special.erf,
    "Mean": lambda *data: functools.reduce(np.add, data) / len(data),
    "Sigmoid": sigmoid,
    "Sum": lambda *data: functools.reduce(np.add, data),
}

TENSORS: dict[str, Kernel] = {
    "Celu": lambda x, *, alpha=1.0: (
        x.clip(0, None) + (alpha * module_of(x).expm1(x / alpha)).clip(None, 0)
    ),
    "Elu": elu,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": lambda x: x * hard_sigmoid(x, alpha=1 / 6),
    "LeakyRelu": leaky_relu,
    "Mish": lambda x: x * module_of(x).tanh(softplus(x)),
    "Selu": selu,
    "Shrink": shrink,
    "Softplus": softplus,
    "Softsign": lambda x: x / (1 + abs(x)),
    "Swish": lambda x, *, alpha=1.0: x * library_of(x).special.expit(alpha * x),
    "ThresholdedRelu": lambda x, *, alpha=1.0: module_of(x).where(x > alpha, x, 0),
}
"""Formulas that take arrays of other libraries too."""

for name, formula in EXACT.items():
    kernel(name)(formula)
for name, formula in (WIDE | TENSORS).items():
    kernel(name, wide=True, tensors=name in TENSORS)(formula)


MATCHED_LETTERS = 10**8
"""The most characters that a match may examine: about a second."""

TOKEN = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:P?<\w+>|[a-zA-Z-]*:))?|\{\d*,?\d*\}|.", re.DOTALL
)
"""An escape, a character class, the beginning of a group, a count, or one character."""

UNKNOWN = re.compile(r"\(\?(?:[=!(#>]|<[=!]|P=)|\\[1-9]")
"""Python patterns that RE2 lacks: lookahead, lookbehind, backreferences, conditionals."""


@kernel("RegexFullMatch")
def regex_full_match(x: Array, *, pattern: str | None = None) -> Array:
    """Whether the pattern matches the whole string, for every string of x.

    Python backtracks, so that a pattern with too many ways to match is refused.
    """
    if pattern is None:
        raise OnnxJacError("there is no pattern to match: set the attribute 'pattern'")
    if UNKNOWN.search(pattern):
        raise OnnxJacError(f"the pattern {pattern!r} has what RE2 does not know")
    strings = [str(text) for text in x.flat]
    longest = max(map(len, strings), default=0)
    if count_matches(pattern, longest) * (longest + len(pattern)) * len(strings) > MATCHED_LETTERS:
        raise OnnxJacError(
            f"the pattern {pattern!r} could match strings of {longest} characters in too many "
            "ways: write it without repetitions inside repetitions, and with fewer of them"
        )
    try:
        matches, why = re.compile(pattern).fullmatch, ""
    except (re.error, RecursionError, OverflowError) as error:
        why = first_line(error)  # without thousands of frames of its traceback
    if why:
        raise OnnxJacError(
            f"the pattern {clipped(pattern, 80)!r} cannot be read: {why}. Write it with fewer "
            "groups inside groups, or try engine='onnxruntime'"
        )
    return np.array([matches(text) is not None for text in strings], bool).reshape(x.shape)


def count_matches(pattern: str, length: int) -> int:
    """An upper bound on the number of ways to match a string, capped above `MATCHED_LETTERS`.

    >>> count_matches("a+b", 10), count_matches("(yes|no)?", 10)
    (11, 3)
    >>> count_matches("(a|a)*b", 40) > MATCHED_LETTERS
    True
    """
    outer: list[tuple[int, int]] = []
    others, made, last = 0, 1, 1  # alternatives before this one, parts before the last, the last
    for token in TOKEN.findall(pattern):
        if token[0] == "(":
            outer.append((others, made * last))
            others, made, last = 0, 1, 1
        elif token == ")" and outer:
            last = others + made * last
            others, made = outer.pop()
        elif token == "|":
            others, made, last = others + made * last, 1, 1
        elif token in "*+?" or token[0] == "{":
            turns = most(token, length)
            last = turns + 1 if last == 1 else last ** min(turns, 64) + turns
        else:
            made, last = made * last, 1
        made, last = min(made, 2 * MATCHED_LETTERS), min(last, 2 * MATCHED_LETTERS)
    return others + made * last


def most(token: str, length: int) -> int:
    """The most iterations of a repetition, each of them nonempty."""
    if token in ("*", "+"):
        return length
    counts = token.strip("{}").split(",")
    return 1 if token == "?" else min(int(counts[-1] or length), length)

