"""ONNX Runtime's own operators by the text of its documentation: activations, norms, products."""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy as sp

from ....ops.symbols.table import KERNELS
from .convolution import conv
from .normalization import moments
from .products import gemm
from .table import Index, stretched, tabulate, transcription

HOME = "com.microsoft::"


def phi(x: Any) -> Any:
    """x Φ(x)."""
    return x * (1 + (x / sp.sqrt(2)).erf()) / 2


def phi_by_tanh(x: Any) -> Any:
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    inner = (x + x * x * x * 0.044715) * sp.sqrt(2 / sp.pi)
    return x * (1 + inner.tanh()) / 2


@transcription(f"{HOME}Gelu")
def gelu(x: Any) -> Any:
    """x Φ(x)."""
    return tabulate(x.shape, lambda i: phi(x[i]))


@transcription(f"{HOME}BiasGelu")
def bias_gelu(x: Any, b: Any) -> Any:
    """The same of x + b."""
    return tabulate(x.shape, lambda i: phi(x[i] + stretched(b, i)))


@transcription(f"{HOME}FastGelu")
def fast_gelu(x: Any, b: Any = None) -> Any:
    """The same, approximated by tanh; b may be left out."""
    return tabulate(x.shape, lambda i: phi_by_tanh(x[i] if b is None else x[i] + stretched(b, i)))


@transcription(f"{HOME}QuickGelu")
def quick_gelu(x: Any, *, alpha: float = 1.702) -> Any:
    """x / (1 + exp(-αx))."""
    return tabulate(x.shape, lambda i: x[i] / (1 + (-(x[i] * alpha)).exp()))


@transcription(f"{HOME}FusedMatMul")
def fused_matmul(
    a: Any, b: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Any:  # fmt: skip
    """α A' B', of operands whose first axis comes last but one, or whose last two are exchanged."""
    a, b = view(a, transBatchA, transA), view(b, transBatchB, transB)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])

    def entry(index: Index) -> Any:
        *k, i, j = index
        terms = (
            stretched(a[..., i, t], tuple(k)) * stretched(b[..., t, j], tuple(k))
            for t in range(a.shape[-1])
        )
        return sum(terms) * alpha

    return tabulate((*batch, a.shape[-2], b.shape[-1]), entry)


def view(x: Any, batch: int, matrix: int) -> Any:
    """An operand with its axes in another order."""
    moved = np.moveaxis(x, 0, -2) if batch else x
    return np.swapaxes(moved, -1, -2) if matrix else moved


@transcription(f"{HOME}FusedGemm")
def fused_gemm(
    a: Any, b: Any, c: Any = None, *, activation: str = "", activation_alpha: Any = None,
    activation_beta: Any = None, activation_gamma: Any = None, **how: Any,
) -> Any:  # fmt: skip
    """f(α A B + β C)."""
    given = (activation_alpha, activation_beta)
    return activated(gemm(a, b, c, **how), activation, [v for v in given if v is not None])


@transcription(f"{HOME}FusedConv")
def fused_conv(
    x: Any, w: Any, b: Any = None, z: Any = None, *, activation: str = "",
    activation_params: Any = (), **how: Any,
) -> Any:  # fmt: skip
    """f(w ∗ x + b + z)."""
    y = conv(x, w, b, **how)
    y = y if z is None else tabulate(y.shape, lambda i: y[i] + stretched(z, i))
    return activated(y, activation, list(activation_params))


def activated(y: Any, name: str, parameters: list[float]) -> Any:
    """f(y), by the formula of the activation; Clip has its bounds as parameters."""
    if name == "Clip":
        low, high = parameters
        return tabulate(y.shape, lambda i: min(max(y[i], low), high))
    return KERNELS[name](y, **dict(zip(("alpha", "beta"), parameters, strict=False))) if name else y


def summed(x: Any, skip: Any, bias: Any) -> Any:
    """s = x + skip + bias."""
    s = tabulate(x.shape, lambda i: x[i] + stretched(skip, i))
    return s if bias is None else tabulate(x.shape, lambda i: s[i] + bias[i[-1]])


@transcription(f"{HOME}SkipLayerNormalization")
def skip_layer_normalization(
    x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, *, epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    """((s - μ) / √(σ² + ε) γ + β, μ, 1 / √(σ² + ε), s), with μ and σ² along the last axis."""
    s = summed(x, skip, bias)
    rows = (*s.shape[:-1], 1)
    mean = tabulate(rows, lambda i: moments(list(s[i[:-1]]))[0])
    scale = tabulate(rows, lambda i: 1 / (moments(list(s[i[:-1]]))[1] + epsilon).sqrt())

    def entry(index: Index) -> Any:
        row, j = (*index[:-1], 0), index[-1]
        y = (s[index] - mean[row]) * scale[row] * gamma[j]
        return y if beta is None else y + beta[j]

    return tabulate(s.shape, entry), mean, scale, s


@transcription(f"{HOME}SimplifiedLayerNormalization")
def simplified_layer_normalization(
    x: Any, gamma: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """x / √(mean x² + ε) γ, with the mean over the axes from `axis` on."""
    start = axis % x.ndim

    def entry(index: Index) -> Any:
        row = list(x[index[:start]].flat)
        mean = sum(v * v for v in row) / len(row)
        return x[index] * gamma[index[start:]] / (mean + epsilon).sqrt()

    return tabulate(x.shape, entry)


@transcription(f"{HOME}SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    """The same of x + skip + bias, along the last axis."""
    return simplified_layer_normalization(summed(x, skip, bias), gamma, epsilon=epsilon)
