"""y = f(x, ...), entry by entry: arithmetic, logic, comparisons, activations, casts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..numbers.constants import numpy_dtype
from ..numbers.table import single_precision
from .table import DTYPES, SAME, Kernel, Tensor, common, host, is_tensor, kernel, tensor

PLAIN: dict[str, Kernel] = {
    name: getattr(torch, name.lower()) for name in (
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Exp", "Floor",
        "IsNaN", "Log", "Reciprocal", "Round", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
    )
} | {
    "Abs": torch.abs,
    "BitwiseNot": torch.bitwise_not,
    "Erf": torch.erf,
    "Identity": lambda x: x,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Sign": lambda x: torch.where(x != x, x, torch.sign(x)),  # torch's sign of NaN is 0
}  # fmt: skip
"""Functions of one tensor."""

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: a | b if is_bool(a) else a + b,
    "And": torch.logical_and,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
    "Equal": lambda a, b: a == b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Mul": lambda a, b: a * b,
    "Or": torch.logical_or,
    "Sub": lambda a, b: a - b,
    "Xor": torch.logical_xor,
}
"""Functions of two tensors of one dtype, or of a tensor and a number."""


def is_bool(x: Any) -> bool:
    """Whether x is a tensor of booleans."""
    return is_tensor(x) and x.dtype == torch.bool


def filled(*operands: Any) -> tuple[Any, ...]:
    """Tensors of one dtype; numbers become tensors of it."""
    operands = common(*operands)
    like = next(x for x in operands if is_tensor(x))
    return tuple(x if is_tensor(x) else torch.as_tensor(x, dtype=like.dtype, device=like.device)
                 for x in operands)  # fmt: skip


for name, function in PLAIN.items():
    kernel(name)(function)
for name, pair in BINARY.items():
    kernel(name)(lambda a, b, pair=pair: pair(*common(a, b)))
SAME |= {"Add": torch.add, "Div": torch.div, "Mul": torch.mul, "Sub": torch.sub}


@kernel("Div")
def div(a: Any, b: Any) -> Tensor:
    """A / B, rounded towards zero for integers."""
    a, b = common(a, b)
    whole = not next(x for x in (a, b) if is_tensor(x)).dtype.is_floating_point
    return torch.div(a, b, rounding_mode="trunc" if whole else None)


@kernel("Mod")
def mod(a: Any, b: Any, *, fmod: int = 0) -> Tensor:
    """The remainder with the sign of B, or of A with `fmod`."""
    a, b = filled(a, b)
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@kernel("Pow")
def power(x: Tensor, y: Any) -> Tensor:
    """x ** y in the dtype of x."""
    if not is_tensor(x):
        return torch.pow(x, y)
    if x.dtype.is_floating_point or not is_tensor(y):
        return torch.pow(x, y).to(x.dtype)
    exact = torch.int64 if not y.dtype.is_floating_point and bool((y >= 0).all()) else torch.float64
    return torch.pow(x.to(exact), y.to(exact)).to(x.dtype)


@kernel("Where")
def where(condition: Tensor, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y."""
    if not is_tensor(condition):
        return x if condition else y
    if not is_tensor(x) and not is_tensor(y):
        return tensor(np.where(host(condition), x, y), condition.device)
    return torch.where(condition, *filled(x, y))


@kernel("Clip")
def clip(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """min(max(x, low), high)."""
    above = x if low is None else torch.maximum(*filled(x, low))
    return above if high is None else torch.minimum(*filled(above, high))


@kernel("IsInf")
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Whether x is infinite, with a sign that is to be detected."""
    nothing = torch.zeros_like(x, dtype=torch.bool)
    below = torch.isneginf(x) if detect_negative else nothing
    return below | torch.isposinf(x) if detect_positive else below


@kernel("Cast")
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """x in another dtype; on the host in one that torch does not have."""
    return converted(x, numpy_dtype(to))


@kernel("CastLike", hosted=True)
def cast_like(x: Any, target: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    """x in the dtype of the target, which may be an array on the host."""
    if not is_tensor(x):
        return torch.as_tensor(x, dtype=target.dtype, device=target.device)
    return x.to(target.dtype) if is_tensor(target) else converted(x, target.dtype)


def converted(x: Tensor, dtype: np.dtype) -> Tensor:
    """x in a dtype that torch has."""
    known = DTYPES.get(dtype)
    if known is None:
        raise NotImplementedError(f"torch does not compute with {dtype}")
    return x.to(known)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), where exp cannot overflow."""
    return torch.relu(x) + torch.log1p(torch.exp(-torch.abs(x)))


def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """x for x ≥ 0, α(exp(x) − 1) below."""
    return torch.where(x < 0, alpha * torch.expm1(x), x)


def hard_sigmoid(x: Tensor, *, alpha: float = single_precision(0.2), beta: float = 0.5) -> Tensor:
    """min(max(αx + β, 0), 1)."""
    return torch.clamp(alpha * x + beta, 0, 1)


def leaky_relu(x: Tensor, *, alpha: float = single_precision(0.01)) -> Tensor:
    """x for x ≥ 0, αx below."""
    return torch.where(x < 0, alpha * x, x)


def selu(
    x: Tensor, *, alpha: float = single_precision(1.6732631921768188),
    gamma: float = single_precision(1.0507010221481323),
) -> Tensor:  # fmt: skip
    """γ · elu(x, α)."""
    return gamma * elu(x, alpha=alpha)


def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """x + bias for x < −λ, x − bias for x > λ, 0 between."""
    inside = torch.where(x > lambd, (x - bias).to(x.dtype), torch.zeros_like(x))
    return torch.where(x < -lambd, (x + bias).to(x.dtype), inside)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x Φ(x) with the normal distribution Φ, or its approximation by tanh."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def folded(pair: Kernel) -> Kernel:
    """The function of two tensors applied to any number of them."""
    return lambda *data: functools.reduce(pair, filled(*data))


kernel("Max")(folded(torch.maximum))
kernel("Min")(folded(torch.minimum))
kernel("PRelu")(lambda x, slope: torch.where(x < 0, slope * x, x))

WIDE: dict[str, Kernel] = {
    "Celu": lambda x, *, alpha=1.0: torch.relu(x)
    + torch.clamp(alpha * torch.expm1(x / alpha), max=0),
    "Elu": elu,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": lambda x: x * hard_sigmoid(x, alpha=1 / 6),
    "LeakyRelu": leaky_relu,
    "Mean": lambda *data: folded(torch.add)(*data) / len(data),
    "Mish": lambda x: x * torch.tanh(softplus(x)),
    "Selu": selu,
    "Shrink": shrink,
    "Softplus": softplus,
    "Softsign": lambda x: x / (1 + torch.abs(x)),
    "Sum": folded(torch.add),
    "Swish": lambda x, *, alpha=1.0: x * torch.sigmoid(alpha * x),
    "ThresholdedRelu": lambda x, *, alpha=1.0: torch.where(x > alpha, x, torch.zeros_like(x)),
}
for name, formula in WIDE.items():
    kernel(name, wide=True)(formula)
