"""y = f(x, ...), entry by entry: arithmetic, logic, comparisons, activations, casts."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..numbers.layout import numpy_dtype
from ..numbers.table import Kernel
from .table import DTYPES, OF_TRUTH, SAME, Tensor, host, kernel, promote, tensor

PLAIN: dict[str, Kernel] = {
    name: getattr(torch, name.lower()) for name in (
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf",
        "Exp", "Floor", "IsNaN", "Log", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sin",
        "Sinh", "Sqrt", "Tan", "Tanh",
    )
} | {
    "BitwiseNot": torch.bitwise_not,
    "Not": torch.logical_not,
    "Sign": lambda x: torch.where(x != x, x, torch.sign(x)),  # torch's sign of NaN is 0
}  # fmt: skip
"""Functions of one tensor."""

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(torch, f"logical_{name.lower()}") for name in ("And", "Or", "Xor")},
    "Add": lambda a, b: a | b if getattr(a, "dtype", None) == torch.bool else a + b,
    "BitwiseAnd": operator.and_, "BitwiseOr": operator.or_, "BitwiseXor": operator.xor,
    "Equal": operator.eq, "Greater": operator.gt, "GreaterOrEqual": operator.ge,
    "Less": operator.lt, "LessOrEqual": operator.le, "Mul": operator.mul, "Sub": operator.sub,
}  # fmt: skip
"""Functions of two tensors of one dtype, or of a tensor and a number."""


def filled(*operands: Any) -> tuple[Any, ...]:
    """Tensors of one dtype; numbers become tensors of it."""
    operands = promote(*operands)
    like = next(x for x in operands if isinstance(x, torch.Tensor))
    how = {"dtype": like.dtype, "device": like.device}
    return tuple(x if isinstance(x, torch.Tensor) else torch.as_tensor(x, **how) for x in operands)


for name, function in PLAIN.items():
    kernel(name)(function)
for name, pair in BINARY.items():
    kernel(name)(lambda a, b, pair=pair: pair(*promote(a, b)))
COMPARED = {"Equal": torch.eq, "Greater": torch.gt, "GreaterOrEqual": torch.ge, "Less": torch.lt,
            "LessOrEqual": torch.le}  # fmt: skip
"""Functions of two tensors of one dtype whose results are truth values."""

for name, pair in {"Add": torch.add, "Div": torch.div, "Mul": torch.mul, "Sub": torch.sub,
                   **COMPARED}.items():  # fmt: skip
    SAME[name] = lambda *shapes, pair=pair: pair


@kernel("Gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x Φ(x) with the normal distribution Φ, or its approximation by tanh."""
    return torch.nn.functional.gelu(x, approximate=approximate)


@kernel("Div")
def div(a: Any, b: Any) -> Tensor:
    """A / B, rounded towards zero for integers."""
    a, b = promote(a, b)
    whole = not next(x for x in (a, b) if isinstance(x, torch.Tensor)).dtype.is_floating_point
    return torch.div(a, b, rounding_mode="trunc" if whole else None)


@kernel("Mod")
def mod(a: Any, b: Any, *, fmod: int = 0) -> Tensor:
    """The remainder with the sign of B, or of A with `fmod`."""
    a, b = filled(a, b)
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


@kernel("Pow")
def power(x: Tensor, y: Any) -> Tensor:
    """x ** y in the dtype of x."""
    if not isinstance(x, torch.Tensor):
        return torch.pow(x, y)
    if x.dtype.is_floating_point or not isinstance(y, torch.Tensor):
        return torch.pow(x, y).to(x.dtype)
    exact = torch.int64 if not y.dtype.is_floating_point and bool((y >= 0).all()) else torch.float64
    return torch.pow(x.to(exact), y.to(exact)).to(x.dtype)


@kernel("Where")
def where(condition: Tensor, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y."""
    if not isinstance(condition, torch.Tensor):
        return x if condition else y
    if not isinstance(x, torch.Tensor) and not isinstance(y, torch.Tensor):
        return tensor(np.where(host(condition), x, y), condition.device)
    return torch.where(condition, *filled(x, y))


@kernel("Clip")
def clip(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """min(max(x, low), high)."""
    above = x if low is None else torch.maximum(*filled(x, low))
    return above if high is None else torch.minimum(*filled(above, high))


@kernel("Cast")
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """x in another dtype; on the host in one that torch does not have."""
    return converted(x, numpy_dtype(to))


@kernel("CastLike", hosted=True)
def cast_like(x: Any, target: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    """x in the dtype of the target, which may be an array on the host."""
    if not isinstance(x, torch.Tensor):
        return torch.as_tensor(x, dtype=target.dtype, device=target.device)
    return x.to(target.dtype) if isinstance(target, torch.Tensor) else converted(x, target.dtype)


def converted(x: Tensor, dtype: np.dtype) -> Tensor:
    """x in a dtype that torch has."""
    known = DTYPES.get(dtype)
    if known is None:
        raise NotImplementedError(f"torch does not compute with {dtype}")
    return x.to(known)


def cast_truth(*, to: int, **_: Any) -> Kernel | None:
    """The function of truth values that converts them; None for a dtype that torch lacks."""
    dtype = DTYPES.get(numpy_dtype(to))
    return dtype and (lambda x: x.to(dtype))


OF_TRUTH["Cast"] = cast_truth


def fold_pairwise(pair: Kernel) -> Kernel:
    """The function of two tensors applied to any number of them."""
    return lambda *data: functools.reduce(pair, filled(*data))


kernel("Max")(fold_pairwise(torch.maximum))
kernel("Min")(fold_pairwise(torch.minimum))
kernel("Sum", wide=True)(fold_pairwise(torch.add))
kernel("Mean", wide=True)(lambda *data: fold_pairwise(torch.add)(*data) / len(data))
