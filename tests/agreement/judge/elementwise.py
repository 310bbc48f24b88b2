"""Elementwise operators: arithmetic, comparisons, activations, casts; and reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto
from torch import Tensor

from .graphs import KERNELS, Node, NoKernel, dtype_of, integers, kernel

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin,
    "Asinh": torch.asinh, "Atan": torch.atan, "Atanh": torch.atanh, "Ceil": torch.ceil,
    "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp,
    "Floor": torch.floor, "IsNaN": torch.isnan, "Log": torch.log, "Neg": torch.neg,
    "Not": torch.logical_not, "Reciprocal": torch.reciprocal, "Relu": torch.relu,
    "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin,
    "Sinh": torch.sinh, "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh,
    "BitwiseNot": torch.bitwise_not, "Softplus": lambda x: softplus(x),
    "Softsign": lambda x: x / (1 + x.abs()), "Mish": lambda x: x * torch.tanh(softplus(x)),
    "HardSwish": lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1), "Det": lambda x: det(x),
}  # fmt: skip
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Less": torch.lt, "Greater": torch.gt,
    "LessOrEqual": torch.le, "GreaterOrEqual": torch.ge, "And": torch.logical_and,
    "Or": torch.logical_or, "Xor": torch.logical_xor, "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or, "BitwiseXor": torch.bitwise_xor,
}  # fmt: skip
VARIADIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Sum": torch.add, "Max": torch.maximum, "Min": torch.minimum,
}  # fmt: skip
WIDE = torch.uint16, torch.uint32, torch.uint64  # torch has little arithmetic for these


def det(x: Tensor) -> Tensor:
    """det x by cofactors: torch's own gradient is zero where a row is zero."""
    n = x.shape[-1]
    if n == 0 or n > 5:
        return torch.linalg.det(x)
    rest = [torch.cat([x[..., 1:, :k], x[..., 1:, k + 1 :]], -1) for k in range(n)]
    terms = [(-1) ** k * x[..., 0, k] * (det(rest[k]) if n > 1 else 1) for k in range(n)]
    return torch.stack(terms).sum(0)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)); torch's own version is linear from 20 on."""
    return -F.logsigmoid(-x)


def counted(f: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A wrapper of f that computes in int64 where the operands are wide unsigned integers."""

    def g(*xs: Tensor) -> Tensor:
        dtype = xs[0].dtype
        if dtype not in WIDE:
            return f(*xs)
        y = f(*(x.to(torch.int64) for x in xs))
        return y if y.dtype == torch.bool else y.to(dtype)

    return g


for name, f in UNARY.items():
    KERNELS[name] = lambda node, x, f=f: counted(f)(x)
for name, f in BINARY.items():
    KERNELS[name] = lambda node, a, b, f=f: counted(f)(a, b)
for name, f in VARIADIC.items():
    KERNELS[name] = lambda node, *xs, f=f: reduce(counted(f), xs)


@kernel("Mean")
def mean(node: Node, *xs: Tensor) -> Tensor:
    return reduce(torch.add, xs) / len(xs)


@kernel("Div")
def div(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.is_floating_point:
        return a / b
    return counted(lambda a, b: torch.div(a, b, rounding_mode="trunc"))(a, b)


@kernel("Mod")
def mod(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return counted(torch.fmod if node["fmod"] else torch.remainder)(a, b)


@kernel("Pow")
def power(node: Node, x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.is_floating_point:
        return torch.pow(x, y.to(x.dtype))
    if y.dtype.is_floating_point:
        return torch.pow(x.to(torch.float64), y).to(x.dtype)
    return torch.pow(x.to(torch.int64), y.to(torch.int64)).to(x.dtype)


@kernel("Equal", strings=True)
def equal(node: Node, a: Any, b: Any) -> Tensor:
    if isinstance(a, np.ndarray):
        return torch.from_numpy(np.asarray(a == b, dtype=bool))
    return counted(torch.eq)(a, b)


@kernel("Where", strings=True)
def where(node: Node, condition: Tensor, a: Any, b: Any) -> Any:
    # torch gives NaN where the branch not taken has an infinite derivative: 0 · ∞.
    if isinstance(a, np.ndarray):
        return np.where(condition.numpy(), a, b)
    return torch.where(condition, a, b)


@kernel("BitShift")
def bit_shift(node: Node, x: Tensor, by: Tensor) -> Tensor:
    shift = torch.bitwise_left_shift if node["direction"] == "LEFT" else torch.bitwise_right_shift
    return counted(shift)(x, by)


@kernel("IsInf")
def is_inf(node: Node, x: Tensor) -> Tensor:
    high = torch.isposinf(x) if node["detect_positive"] else torch.zeros_like(x, dtype=torch.bool)
    return high | torch.isneginf(x) if node["detect_negative"] else high


@kernel("Clip")
def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if node.opset < 11:
        low, high = (torch.tensor(node[name], dtype=x.dtype) for name in ("min", "max"))

    def clipped(x: Tensor, *bounds: Tensor) -> Tensor:
        rest = list(bounds)
        if low is not None:
            bound = rest.pop(0)
            x = torch.where(x < bound, bound, x)
        return torch.where(x > rest[0], rest[0], x) if rest else x

    bounds = [b.reshape(()) for b in (low, high) if b is not None]
    return counted(clipped)(x, *bounds)


@kernel("Identity", strings=True)
def identity(node: Node, x: Any) -> Any:
    return list(x) if isinstance(x, list) else x


@kernel("Cast", strings=True)
def cast(node: Node, x: Any) -> Any:
    return cast_to(x, node["to"])


@kernel("CastLike", strings=True)
def cast_like(node: Node, x: Any, like: Any) -> Any:
    if isinstance(like, np.ndarray):
        return cast_to(x, TensorProto.STRING)
    if like.dtype == torch.float64:
        return cast_to(x, TensorProto.DOUBLE)
    return cast_to(x, next(e for e in range(1, 17) if e in INTEGERS and dtype_of(e) == like.dtype))


INTEGERS = {*range(TensorProto.UINT8, TensorProto.INT64 + 1), TensorProto.BOOL,
            TensorProto.UINT32, TensorProto.UINT64}  # fmt: skip
NARROW = {TensorProto.FLOAT: torch.float32, TensorProto.FLOAT16: torch.float16,
          TensorProto.BFLOAT16: torch.bfloat16}  # fmt: skip


def cast_to(x: Any, element: int) -> Any:
    """The values cast to another type; rounding to a narrower float has derivative 1."""
    if element == TensorProto.STRING:
        if isinstance(x, np.ndarray):
            return x
        if x.dtype.is_floating_point:
            raise NoKernel("floats as strings")
        return x.numpy().astype(str).astype(object)
    dtype = dtype_of(element)
    if isinstance(x, np.ndarray):
        numbers = x.astype(str).astype(np.float64 if dtype == torch.float64 else np.int64)
        return cast_to(torch.from_numpy(np.asarray(numbers)), element)
    if element in NARROW and x.dtype == torch.float64:
        rounded = x.detach().to(NARROW[element]).to(torch.float64)
        finite = torch.where(torch.isfinite(rounded), rounded - x, 0.0).detach()
        return torch.where(torch.isfinite(rounded), x + finite, rounded)
    return x.to(dtype)


@kernel("BitCast")
def bit_cast(node: Node, x: Tensor) -> Tensor:
    if node["to"] in NARROW or x.dtype == torch.float64:
        raise NoKernel("BitCast of floats, whose width is not known here")
    return x.view(dtype_of(node["to"]))


@kernel("LeakyRelu")
def leaky_relu(node: Node, x: Tensor) -> Tensor:
    return F.leaky_relu(x, node["alpha"])


@kernel("PRelu")
def prelu(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    if node.opset < 7 and slope.numel() > 1:  # one slope per channel
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return torch.where(x > 0, x, slope * x)


@kernel("Elu")
def elu(node: Node, x: Tensor) -> Tensor:
    return F.elu(x, node["alpha"])


@kernel("Selu")
def selu(node: Node, x: Tensor) -> Tensor:
    return node["gamma"] * F.elu(x, node["alpha"])


@kernel("Celu")
def celu(node: Node, x: Tensor) -> Tensor:
    return F.celu(x, node["alpha"])


@kernel("HardSigmoid")
def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    return torch.clamp(node["alpha"] * x + node["beta"], 0, 1)


@kernel("ThresholdedRelu")
def thresholded_relu(node: Node, x: Tensor) -> Tensor:
    return torch.where(x > node["alpha"], x, torch.zeros_like(x))


@kernel("Shrink")
def shrink(node: Node, x: Tensor) -> Tensor:
    bias, bound = node["bias"], node["lambd"]
    inner = torch.where(x > bound, x - bias, torch.zeros_like(x))
    return torch.where(x < -bound, x + bias, inner)


@kernel("Gelu")
def gelu(node: Node, x: Tensor) -> Tensor:
    if node["approximate"] == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + torch.tanh(inner))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


@kernel("Swish")
def swish(node: Node, x: Tensor) -> Tensor:
    return x * torch.sigmoid(node["alpha"] * x)


@kernel("Dropout")
def dropout(
    node: Node, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    y = x.clone()
    if training is not None and bool(training):
        if ratio is None or float(ratio) != 0:
            raise NoKernel("Dropout that draws numbers")
        y = x / (1 - ratio)  # all entries stay, scaled: the ratio has a slope
    mask = torch.ones_like(x, dtype=torch.bool)
    return y, mask if node.opset >= 10 else mask.to(x.dtype)


# Reductions


def axes_of(node: Node, x: Tensor, axes: Tensor | None) -> tuple[int, ...]:
    """The axes of a reduction, by attribute or input; an empty list means all, or none."""
    listed = node["axes"] if axes is None and "axes" in node else integers(axes)
    if not listed:
        return () if node["noop_with_empty_axes"] else tuple(range(x.ndim))
    return tuple(sorted(k % x.ndim for k in listed))


def total(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """The sum along axes, of which there may be none."""
    return x.sum(axes, keep, dtype=x.dtype) if axes else x


def product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """The product along axes."""
    for axis in reversed(axes):
        x = x.prod(axis, keep, dtype=x.dtype)
    return x


def average(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """The mean along axes; for integers, truncated."""
    size = math.prod(x.shape[k] for k in axes)
    y = total(x, axes, keep)
    return y / size if x.dtype.is_floating_point else torch.div(y, size, rounding_mode="trunc")


def extreme(x: Tensor, axes: tuple[int, ...], keep: bool, sign: int) -> Tensor:
    """The greatest or least entry along axes."""
    if not axes:
        return x
    if any(x.shape[k] == 0 for k in axes):
        shape = [1 if k in axes else n for k, n in enumerate(x.shape)]
        shape = shape if keep else [n for k, n in enumerate(x.shape) if k not in axes]
        if x.dtype.is_floating_point:
            return torch.full(shape, -sign * math.inf, dtype=x.dtype)
        if x.dtype == torch.bool:
            return torch.full(shape, sign < 0)
        info = torch.iinfo(x.dtype)
        return torch.full(shape, info.min if sign > 0 else info.max, dtype=x.dtype)
    return x.amax(axes, keep) if sign > 0 else x.amin(axes, keep)


def root(x: Tensor) -> Tensor:
    """√x, with derivative 0 at 0, the least subgradient of a norm."""
    if not x.dtype.is_floating_point:
        return torch.sqrt(x.to(torch.float64)).to(x.dtype)
    zero = x == 0
    return torch.where(zero, torch.zeros_like(x), torch.sqrt(torch.where(zero, 1.0, x)))


def logarithm(x: Tensor) -> Tensor:
    """Log x, also for integers."""
    return torch.log(x) if x.dtype.is_floating_point else torch.log(x.double()).to(x.dtype)


def log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """Log Σ exp x, without overflow."""
    if not axes or x.numel() == 0 or not x.dtype.is_floating_point:
        return logarithm(total(torch.exp(x), axes, keep).to(x.dtype))
    return torch.logsumexp(x, axes, keep)


REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...], bool], Tensor]] = {
    "ReduceSum": total,
    "ReduceMean": average,
    "ReduceProd": product,
    "ReduceMax": lambda x, axes, keep: extreme(x, axes, keep, 1),
    "ReduceMin": lambda x, axes, keep: extreme(x, axes, keep, -1),
    "ReduceL1": lambda x, axes, keep: total(x.abs(), axes, keep),
    "ReduceL2": lambda x, axes, keep: root(total(x * x, axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: total(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: logarithm(total(x, axes, keep)),
    "ReduceLogSumExp": log_sum_exp,
}


def reduction(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """A reduction along the axes of its node."""
    return REDUCTIONS[node.op_type](x, axes_of(node, x, axes), bool(node["keepdims"]))


for name in REDUCTIONS:
    KERNELS[name] = reduction


@kernel("ArgMax", "ArgMin")
def arg_extreme(node: Node, x: Tensor) -> Tensor:
    axis, size = node["axis"] % max(x.ndim, 1), x.shape[node["axis"]] if x.ndim else 1
    last = bool(node["select_last_index"])
    x = (x.flip(axis) if last else x).detach()
    best = x.amax(axis, True) if node.op_type == "ArgMax" else x.amin(axis, True)
    top = (x == best).to(torch.int64).cumsum(axis).eq(0).sum(axis, True)
    top = size - 1 - top if last else top
    return top if node["keepdims"] else top.squeeze(axis)
