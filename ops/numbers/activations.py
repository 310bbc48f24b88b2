"""y = f(x) of neural networks: the error function, the sigmoid and all that bends at 0."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ...jacobians.arrays import Array
from .pointwise import clip
from .table import kernel, single_precision, wide


@kernel("Erf")
@wide
def erf(x: Array) -> Array:
    """2/√π ∫₀ˣ exp(−t²) dt."""
    return special.erf(x).astype(x.dtype, copy=False)


@kernel("Sigmoid")
@wide
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(−x))."""
    return special.expit(x)


@kernel("Softplus")
@wide
def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@kernel("Softsign")
@wide
def softsign(x: Array) -> Array:
    """x / (1 + |x|)."""
    return x / (1 + np.abs(x))


@kernel("Relu")
def relu(x: Array) -> Array:
    """max(x, 0)."""
    return np.maximum(x, 0)


@kernel("LeakyRelu")
@wide
def leaky_relu(x: Array, *, alpha: float = single_precision(0.01)) -> Array:
    """x for x ≥ 0, αx below."""
    return np.where(x < 0, alpha * x, x)


@kernel("PRelu")
def prelu(x: Array, slope: Array) -> Array:
    """x for x ≥ 0, slope · x below."""
    return np.where(x < 0, slope * x, x)


@kernel("ThresholdedRelu")
@wide
def thresholded_relu(x: Array, *, alpha: float = 1.0) -> Array:
    """x for x > α, 0 up to there."""
    return np.where(x > alpha, x, 0)


@kernel("Elu")
@wide
def elu(x: Array, *, alpha: float = 1.0) -> Array:
    """x for x ≥ 0, α(exp(x) − 1) below."""
    return np.where(x < 0, alpha * np.expm1(x), x)


@kernel("Selu")
@wide
def selu(
    x: Array,
    *,
    alpha: float = single_precision(1.6732631921768188),
    gamma: float = single_precision(1.0507010221481323),
) -> Array:
    """Γ · elu(x, α)."""
    return gamma * elu(x, alpha=alpha)


@kernel("Celu")
@wide
def celu(x: Array, *, alpha: float = 1.0) -> Array:
    """max(0, x) + min(0, α(exp(x / α) − 1))."""
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))


@kernel("HardSigmoid")
@wide
def hard_sigmoid(x: Array, *, alpha: float = single_precision(0.2), beta: float = 0.5) -> Array:
    """min(max(αx + β, 0), 1)."""
    return clip(alpha * x + beta, 0, 1)


@kernel("HardSwish")
@wide
def hard_swish(x: Array) -> Array:
    """x · min(max(x / 6 + 1/2, 0), 1)."""
    return x * hard_sigmoid(x, alpha=1 / 6)


@kernel("Swish")
@wide
def swish(x: Array, *, alpha: float = 1.0) -> Array:
    """x · sigmoid(αx)."""
    return x * sigmoid(alpha * x)


@kernel("Mish")
@wide
def mish(x: Array) -> Array:
    """x · tanh(softplus(x))."""
    return x * np.tanh(softplus(x))


@kernel("Gelu")
@wide
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """x Φ(x) with the normal distribution Φ, or its approximation by tanh."""
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


@kernel("Shrink")
@wide
def shrink(x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """X + bias for x < −λ, x − bias for x > λ, 0 between."""
    outside = np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))
    return outside.astype(x.dtype, copy=False)
