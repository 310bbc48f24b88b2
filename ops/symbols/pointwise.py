"""Plain formulas for operators that the numbers reading computes in a stable way; and casts."""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy as sp

from .table import entrywise, kernel


def _exp(x: Any) -> Any:
    return x.exp()


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + _exp(-x))


def _softplus(x: Any) -> Any:
    return (1 + _exp(x)).log()


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "none":
        return x * (1 + (x / sp.sqrt(2)).erf()) / 2
    return x * (1 + ((x + x**3 * sp.Rational(8943, 200000)) * sp.sqrt(2 / sp.pi)).tanh()) / 2


def _selu(
    x: Any, alpha: Any = 1.67326319217681884765625, gamma: Any = 1.05070102214813232421875
) -> Any:
    return gamma * x if x > 0 else gamma * alpha * (_exp(x) - 1)


def _shrink(x: Any, bias: Any = 0.0, lambd: Any = 0.5) -> Any:
    if x < -lambd:
        return x + bias
    return x - bias if x > lambd else 0 * x


def _mod(x: Any, y: Any, fmod: int = 0) -> Any:
    ratio = x / y
    return x - y * (ratio.ceil() if fmod and ratio < 0 else ratio.floor())


FORMULAS: dict[str, Any] = {
    "Erf": lambda x: x.erf(),
    "Sigmoid": _sigmoid,
    "Softplus": _softplus,
    "Softsign": lambda x: x / (1 + abs(x)),
    "Swish": lambda x, alpha=1.0: x * _sigmoid(alpha * x),
    "Mish": lambda x: x * _softplus(x).tanh(),
    "Gelu": _gelu,
    "Relu": lambda x: x if x > 0 else 0 * x,
    "LeakyRelu": lambda x, alpha=0.01: x if x > 0 else alpha * x,
    "PRelu": lambda x, slope: x if x > 0 else slope * x,
    "ThresholdedRelu": lambda x, alpha=1.0: x if x > alpha else 0 * x,
    "Elu": lambda x, alpha=1.0: x if x > 0 else alpha * (_exp(x) - 1),
    "Celu": lambda x, alpha=1.0: x if x > 0 else alpha * (_exp(x / alpha) - 1),
    "Selu": _selu,
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: min(max(alpha * x + beta, 0), 1),
    "HardSwish": lambda x: x * min(max(x / 6 + sp.Rational(1, 2), 0), 1),
    "Shrink": _shrink,
    "Pow": lambda x, y: x**y,
    "Sign": lambda x: (x > 0) - (x < 0),
    "Mod": _mod,
}  # fmt: skip
"""op_type -> the entrywise formula in ONNX's documentation."""

for _name, _function in FORMULAS.items():
    entrywise(_name, _function)


@kernel("Clip")
def clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """min(max(x, low), high)."""
    above = x if low is None else np.maximum(x, low)
    return above if high is None else np.minimum(above, high)


@kernel("Cast", "CastLike")
def cast(x: Any, like: Any = None, *, to: Any = None, **_: Any) -> Any:
    """Floats stay expressions; integers and truth values become their values at the point."""
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(to) if like is None else like.dtype
    if dtype.kind in "fO" or dtype.name == "bfloat16":
        return np.asarray(x, object)
    plain = np.asarray(x)
    return plain.astype(np.float64).astype(dtype) if plain.dtype == object else plain.astype(dtype)


@kernel("IsNaN", "IsInf")
def never(x: Any, **_: Any) -> Any:
    """An expression is a finite number where it is defined."""
    return np.zeros(np.shape(x), bool)
