"""Dense layers: the MLP with respect to weights or inputs, and wide and narrow chains."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from .workload import Tensors, Workload, weights

WIDTHS = (784, 512, 512, 10)


def layers(widths: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights and biases of dense layers."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (n, m) in enumerate(pairwise(widths)):
        shapes |= {f"w{i}": (n, m), f"b{i}": (m,)}
    return shapes


def perceptron(nn: Any, t: Tensors) -> Any:
    """x W₀ + b₀, tanh, x W₁ + b₁, tanh, …"""
    depth = sum(name.startswith("w") for name in t)
    x = t["x"]
    for i in range(depth):
        x = x @ t[f"w{i}"] + t[f"b{i}"]
        x = nn.tanh(x) if i < depth - 1 else x
    return x


def mlp(
    dtype: str = "float32",
    *,
    batch: int = 256,
    widths: tuple[int, ...] = WIDTHS,
    products: tuple[str, ...] = ("jvp", "vjp", "ggn", "hvp", "jvp×16"),
) -> Workload:
    """Dense layers 784-512-512-10, tanh, cross-entropy, 256 samples, wrt all weights and biases."""
    t = weights(1, dtype, layers(widths))
    rng = np.random.default_rng(2)
    x = rng.standard_normal((batch, widths[0])).astype(dtype)
    labels = rng.integers(0, widths[-1], batch)
    return Workload({"x": x, **t}, perceptron, tuple(t), products, labels, narrow=True)


def branching(dtype: str = "float32", **sizes: Any) -> Workload:
    """The MLP with an If around its middle layer: tanh or max(·, 0), by the mean of states."""
    return replace(mlp(dtype, **sizes), forward=decided)


def decided(nn: Any, t: Tensors) -> Any:
    """The forward pass of the MLP with a branch."""

    def middle(activation: Any, x: Any) -> Any:
        return activation(x @ t["w1"] + t["b1"])

    x = nn.tanh(t["x"] @ t["w0"] + t["b0"])
    x = nn.branch(nn.positive(x), x, partial(middle, nn.tanh), partial(middle, nn.relu))
    return x @ t["w2"] + t["b2"]


def inputs(dtype: str = "float32") -> Workload:
    """∂logits/∂x of the MLP, 64 samples: J is 64 dense blocks of 10×784."""
    base = mlp(dtype, batch=64)
    kept = 64 * WIDTHS[0] * WIDTHS[-1]
    return Workload(base.tensors, perceptron, ("x",), ("jvp", "vjp"), blocks=True, kept=kept)


def svds(dtype: str = "float32") -> Workload:
    """The five largest singular values of the MLP's Jacobian with respect to its weights."""
    return mlp(dtype, products=("svds",))


def chain(nn: Any, t: Tensors) -> Any:
    """Tanh between matrix products, for one vector."""
    x = t["x"]
    for i in range(len(t) - 1):
        x = nn.tanh(x @ t[f"w{i}"])
    return x


def narrowing(widths: tuple[int, ...], dtype: str = "float32") -> Workload:
    """A chain of dense matrices whose widths vary by orders of magnitude, wrt its input."""
    shapes = {f"w{i}": pair for i, pair in enumerate(pairwise(widths))}
    x = np.random.default_rng(3).standard_normal((1, widths[0])).astype(dtype)
    tensors = {"x": x, **weights(4, dtype, shapes)}
    m, n = widths[-1], widths[0]
    kept = min(m * n, (m + n) * min(widths))
    return Workload(tensors, chain, ("x",), ("jvp", "toarray"), blocks=True, kept=kept)
