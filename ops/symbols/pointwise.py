"""Plain formulas: pointwise, products, exponentials, transforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
import sympy as sp
from sympy.printing.lambdarepr import LambdaPrinter

from ..formulas import parse, write_out
from ..node import schema_defaults
from ..rules import elementwise
from ..rules.elementwise import Elementwise
from .number import KERNELS, METHODS, Number, entrywise, kernel, nearby_closed_form


def _mod(x: Any, y: Any, fmod: int = 0) -> Any:
    ratio = x / y
    return x - y * (ratio.ceil() if fmod and ratio < 0 else ratio.floor())


FORMULAS: dict[str, Any] = {
    "Erf": lambda x: x.erf(),
    "Sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "Pow": lambda x, y: x**y,
    "Sign": lambda x: (x > 0) - (x < 0),
    "Mod": _mod,
}
"""op_type -> the entrywise formula in ONNX's documentation, for operators without a body."""

for _name, _function in FORMULAS.items():
    entrywise(_name, _function)


def by_entries(rule: Elementwise, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """f(x, y, z) entry by entry: the text of a rule as it is written, and no code of the rule."""
    known = {n: nearby_closed_form(v) for n, v in attrs.items() if isinstance(v, int | float)}
    names = [sp.Symbol(name, real=True) for name in (*rule.variables, *known)]
    text = rule.formulas[attrs[rule.by] if rule.by else ""]
    function = exactly(names, parse(text))

    def entry(*xs: Any) -> Any:
        held = (x if isinstance(x, Number) else nearby_closed_form(x) for x in xs)
        return function(*held, *known.values())

    return np.asarray(np.frompyfunc(entry, len(inputs), 1)(*inputs), object)


class Fractions(LambdaPrinter):
    """An expression in Python, in which 1/2 is no float."""

    def _print_Rational(self, expr: Any) -> str:
        return f"Rational({expr.p}, {expr.q})"


def exactly(names: Sequence[sp.Symbol], expr: sp.Expr) -> Any:
    """An expression as a function of symbolic numbers and fractions."""
    printer = Fractions({"fully_qualified_modules": False, "allow_unknown_functions": True})
    return sp.lambdify(names, write_out(expr), [METHODS], printer=printer)


def activation(name: str, *inputs: Any, **given: Any) -> Any:
    """An operator by its declared formula."""
    defaults = schema_defaults(name, "", onnx.defs.onnx_opset_version())
    return by_entries(elementwise.FORMULAS[name], inputs, {**defaults, **given})


ACTIVATIONS = (
    "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu", "Selu",
    "Shrink", "Softplus", "Softsign", "Swish", "ThresholdedRelu",
)  # fmt: skip
"""Operators that run their declared formula; proofs compare their rules with ONNX's body."""

for _name in ACTIVATIONS:
    KERNELS[_name] = partial(activation, _name)


@kernel("Clip")
def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """min(max(x, low), high)."""
    above = x if low is None else np.maximum(x, low)
    return above if high is None else np.minimum(above, high)


@kernel("Cast", "CastLike")
def cast(x: Any, like: Any = None, *, to: Any = None, **_: Any) -> Any:
    """Floats stay expressions; integers and truth values become their values at the point."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(to) if like is None else like.dtype
    if dtype.kind in "fO" or dtype.name == "bfloat16":
        return np.asarray(x, object)
    plain = np.asarray(x)
    return plain.astype(np.float64).astype(dtype) if plain.dtype == object else plain.astype(dtype)


@kernel("IsNaN", "IsInf")
def never(x: Any, **_: Any) -> Any:
    """An expression is a finite number where it is defined."""
    return np.zeros(np.shape(x), bool)


@kernel("MatMul")
def matmul(a: Any, b: Any) -> Any:
    """Σₖ a[…, i, k] b[…, k, j]."""
    return np.matmul(np.asarray(a, object), np.asarray(b, object))


@kernel("Einsum")
def einsum(*inputs: Any, equation: str) -> Any:
    """The sum over products of entries."""
    return np.asarray(np.einsum(equation, *(np.asarray(x, object) for x in inputs)), object)


@kernel("Softmax")
def softmax(x: Any, *, axis: int = -1) -> Any:
    """exp(x) / Σ exp(x)."""
    powers = np.exp(x)
    return powers / powers.sum(axis=axis, keepdims=True)


@kernel("LogSoftmax")
def log_softmax(x: Any, *, axis: int = -1) -> Any:
    """x - log Σ exp(x)."""
    return x - np.log(np.exp(x).sum(axis=axis, keepdims=True))


@kernel("ReduceLogSumExp")
def log_sum_exp(
    x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Any:
    """log Σ exp(x)."""
    given = () if axes is None else tuple(np.ravel(axes).tolist())
    if not given and noop_with_empty_axes:
        return x
    return np.log(np.asarray(np.exp(x).sum(axis=given or None, keepdims=bool(keepdims)), object))


@kernel("Det")
def det(x: Any) -> Any:
    """Laplace's expansion along the first row."""
    n = x.shape[-1]
    if n == 1:
        return x[..., 0, 0]
    rest = [np.delete(x[..., 1:, :], j, axis=-1) for j in range(n)]
    return sum(x[..., 0, j] * np.asarray(det(rest[j]), object) * (-1) ** j for j in range(n))


@kernel("DFT")
def dft(
    x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> Any:
    """y[k] = Σ x[j] exp(∓2πi jk/n), / n if inverse; the last axis is (re, im)."""
    axis = -2 if axis is None else int(np.ravel(axis)[0])
    axis = axis % x.ndim
    half = bool(onesided and inverse)
    n = int(np.ravel(length)[0]) if length is not None else x.shape[axis]
    n = n if length is not None or not half else 2 * (n - 1)
    rows = np.moveaxis(x, axis, 0)
    real = rows[..., 0]
    imaginary = rows[..., 1] if rows.shape[-1] == 2 else 0 * real
    if half:
        real, imaginary = mirrored(real, n), mirrored(imaginary, n, -1)
    real, imaginary = fitted(real, n), fitted(imaginary, n)
    c, s = roots_of_unity(n)
    s = s if inverse else -s
    y_real = np.tensordot(c, real, 1) - np.tensordot(s, imaginary, 1)
    y_imaginary = np.tensordot(c, imaginary, 1) + np.tensordot(s, real, 1)
    if inverse:
        y_real, y_imaginary = y_real / n, y_imaginary / n
    y = np.stack([y_real] if half else [y_real, y_imaginary], axis=-1)
    y = y[: n // 2 + 1] if onesided and not inverse else y
    return np.moveaxis(y, 0, axis)


def roots_of_unity(n: int) -> tuple[Any, Any]:
    """cos and sin of 2π jk/n."""
    angles = np.empty((n, n), object), np.empty((n, n), object)
    for j, k in np.ndindex(n, n):
        angle = 2 * sp.pi * sp.Rational(j * k % n, n)
        angles[0][j, k], angles[1][j, k] = sp.cos(angle), sp.sin(angle)
    return angles


def fitted(x: Any, n: int) -> Any:
    """The first n rows, zero-padded if there are fewer."""
    return np.concatenate([x[:n], np.zeros((max(n - len(x), 0), *x.shape[1:]), object)])


def mirrored(x: Any, n: int, sign: int = 1) -> Any:
    """A half spectrum and its mirror image."""
    rows = [
        x[k] if k < len(x) else sign * x[n - k] if n - k < len(x) else 0 * x[0] for k in range(n)
    ]
    return np.stack(rows)


@kernel("STFT")
def stft(x: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int = 1) -> Any:
    """The Fourier transforms of frames of the signal, weighted by the window."""
    n = len(window) if window is not None else int(np.ravel(length)[0])
    starts = range(0, x.shape[1] - n + 1, int(np.ravel(step)[0]))
    frames = np.stack([x[:, s : s + n] for s in starts], axis=1)
    if window is not None:
        frames = frames * window.reshape(n, 1)
    return dft(frames, axis=2, onesided=onesided)
