"""The vocabulary of the workloads in PyTorch: built-in kernels if they support both modes."""

import torch
from torch import relu, tanh
from torch.nn import functional as F
from torch.nn.functional import cross_entropy, gelu

EPSILON = 1e-5

__all__ = [
    "attention", "batch_norm", "branch", "conv", "cross_entropy", "gelu", "layer_norm", "looped",
    "lstm", "max_pool", "mean", "pad", "positive", "relu", "swapped", "tanh",
]  # fmt: skip


def pad(x, width):
    """Zeros around all axes."""
    return F.pad(x, (width,) * (2 * x.ndim))


def swapped(x, order):
    """The axes in another order."""
    return x.permute(order)


def mean(x, axes):
    """The mean over some axes, which are removed."""
    return x.mean(dim=axes)


def conv(x, w, stride=1, padding=0):
    """The correlation of images (n, c, h, w) with kernels."""
    return F.conv2d(x, w, stride=stride, padding=padding)


def max_pool(x):
    """The maximum of every 2×2 block."""
    return F.max_pool2d(x, 2)


def batch_norm(x, gamma, beta, mu, var):
    """γ (x − μ) / √(σ² + ε) + β per channel, with the statistics given."""
    scale = gamma * torch.rsqrt(var + EPSILON)
    return x * scale[:, None, None] + (beta - mu * scale)[:, None, None]


def layer_norm(x, gamma, beta):
    """γ (x − mean) / √(var + ε) + β over the last axis."""
    return F.layer_norm(x, x.shape[-1:], gamma, beta, EPSILON)


def attention(q, k, v, width, mask=None):
    """softmax(q kᵀ / √width + mask) v, the axes being (batch, heads, tokens, width)."""
    scores = q @ k.transpose(-1, -2) * width**-0.5
    scores = scores if mask is None else scores + mask
    return torch.softmax(scores, -1) @ v


def lstm(x, w, r, b, width):
    """The states of an LSTM, (length, batch, width), gates in the order i, o, f, c."""
    inside = x @ w.T + b
    h = c = x.new_zeros(x.shape[1], width)
    states = []
    for z in inside.unbind(0):
        i, o, f, g = (z + h @ r.T).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states)


def positive(x):
    """Whether the mean of a matrix is positive."""
    return x.mean() > 0


def branch(test, x, first, second):
    """first(x) if the test holds, else second(x)."""
    return first(x) if test else second(x)


def looped(x, w, turns):
    """h after `turns` iterations of h ← tanh(h w + x) from 0."""
    h = torch.zeros_like(x)
    for _ in range(turns):
        h = torch.tanh(h @ w + x)
    return h
