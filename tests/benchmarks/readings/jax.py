"""The vocabulary of the workloads in JAX, idiomatic: built-in kernels, nothing unrolled."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import relu, sigmoid

EPSILON = 1e-5

tanh, pad, swapped = jnp.tanh, jnp.pad, jnp.transpose

__all__ = [
    "attention", "batch_norm", "branch", "conv", "cross_entropy", "gelu", "layer_norm", "looped",
    "lstm", "max_pool", "mean", "pad", "positive", "relu", "swapped", "tanh",
]  # fmt: skip


def gelu(x):
    """x Φ(x)."""
    return jax.nn.gelu(x, approximate=False)


def mean(x, axes):
    """The mean over some axes, which are removed."""
    return jnp.mean(x, axis=axes)


def conv(x, w, stride=1, padding=0):
    """The correlation of images (n, c, h, w) with kernels."""
    sides = [(padding, padding)] * 2
    return lax.conv_general_dilated(x, w, (stride, stride), sides)


def max_pool(x):
    """The maximum of every 2×2 block."""
    window = (1, 1, 2, 2)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


def batch_norm(x, gamma, beta, mu, var):
    """γ (x − μ) / √(σ² + ε) + β per channel, with the statistics given."""
    scale = gamma * lax.rsqrt(var + EPSILON)
    return x * scale[:, None, None] + (beta - mu * scale)[:, None, None]


def layer_norm(x, gamma, beta):
    """γ (x − mean) / √(var + ε) + β over the last axis."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    var = jnp.mean(centred * centred, -1, keepdims=True)
    return centred * lax.rsqrt(var + EPSILON) * gamma + beta


def attention(q, k, v, width, mask=None):
    """softmax(q kᵀ / √width + mask) v, the axes being (batch, heads, tokens, width)."""
    scores = q @ jnp.swapaxes(k, -1, -2) * width**-0.5
    scores = scores if mask is None else scores + mask
    return jax.nn.softmax(scores, -1) @ v


def cross_entropy(logits, labels):
    """−mean log softmax(logits) at the labels."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[:, None], -1)
    return -jnp.mean(chosen)


def lstm(x, w, r, b, width):
    """The states of an LSTM, (length, batch, width), gates in the order i, o, f, c."""
    inside = x @ w.T + b
    start = jnp.zeros((x.shape[1], width), x.dtype)

    def step(carry, z):
        h, c = carry
        i, o, f, g = jnp.split(z + h @ r.T, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
        h = sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (start, start), inside)[1]


def positive(x):
    """Whether the mean of a matrix is positive."""
    return jnp.mean(x) > 0


def branch(test, x, first, second):
    """first(x) if the test holds, else second(x)."""
    return lax.cond(test, first, second, x)


def looped(x, w, turns):
    """h after `turns` iterations of h ← tanh(h w + x) from 0."""
    return lax.scan(lambda h, _: (tanh(h @ w + x), None), jnp.zeros_like(x), length=turns)[0]
