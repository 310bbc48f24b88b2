"""Sequences: transformers in primitive operators, an LSTM, and a loop."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .workload import Tensors, Workload, weights


class Size(NamedTuple):
    """The sizes of a transformer."""

    batch: int = 4
    tokens: int = 128
    width: int = 256
    heads: int = 4
    layers: int = 4


def transformer(
    dtype: str = "float32", *, batch: int = 4, pooled: bool = False, labelled: bool = False
) -> Workload:
    """Four pre-norm encoder layers of width 256, GELU, 4×128 tokens; all states, or ten logits."""
    size = Size(batch)
    t = layers(size, dtype, {"head": (size.width, 10), "head.bias": (10,)} if pooled else {})
    forward = partial(classified if pooled else encoded, size)
    labels = np.arange(size.batch) % 10 if labelled else None
    x = states(size, dtype)
    return Workload({"x": x, **t}, forward, tuple(t), ("jvp", "vjp"), labels, narrow=pooled)


def generative(
    dtype: str = "float32", depth: int = 12, width: int = 768, heads: int = 12,
    tokens: int = 128, words: int = 6144,
) -> Workload:  # fmt: skip
    """A decoder with the shapes of GPT-2, 90 M weights, from embedded tokens to the next words."""
    size = Size(1, tokens, width, heads, depth)
    t = layers(size, dtype, {"head": (width, words)})
    mask = np.triu(np.full((tokens, tokens), -1e4, dtype), 1)
    labels = np.random.default_rng(15).integers(0, words, tokens)
    tensors, products = {"x": states(size, dtype), "mask": mask, **t}, ("jvp", "vjp", "hvp")
    return Workload(tensors, partial(continued, size), tuple(t), products, labels)


def layers(size: Size, dtype: str, more: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The weights of all layers, and those of the shapes in `more`."""
    shapes = {f"{i}.{name}": shape for i in range(size.layers)
              for name, shape in layer(size.width).items()}  # fmt: skip
    t = weights(8, dtype, shapes | more)
    return t | {name: 1 + array for name, array in t.items() if name.endswith("gamma")}


def layer(width: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of one layer."""
    square = dict.fromkeys(("q", "k", "v", "o"), (width, width))
    norms = {f"{n}.{p}": (width,) for n in ("norm1", "norm2") for p in ("gamma", "beta")}
    biases = {f"{name}.bias": (width,) for name in (*square, "down")}
    return {**square, "up": (width, 4 * width), "up.bias": (4 * width,),
            "down": (4 * width, width), **biases, **norms}  # fmt: skip


def states(size: Size, dtype: str) -> np.ndarray:
    """The embedded tokens."""
    shape = size.batch, size.tokens, size.width
    return np.random.default_rng(9).standard_normal(shape).astype(dtype)


def encoded(size: Size, nn: Any, t: Tensors) -> Any:
    """The states after all layers."""
    x = t["x"]
    for i in range(size.layers):
        mine = {name.removeprefix(f"{i}."): a for name, a in t.items()}
        x = encode(size, nn, x, mine)
    return x


def classified(size: Size, nn: Any, t: Tensors) -> Any:
    """Ten logits from the mean of the states."""
    return nn.mean(encoded(size, nn, t), (1,)) @ t["head"] + t["head.bias"]


def continued(size: Size, nn: Any, t: Tensors) -> Any:
    """The logits of the next word after each token."""
    return encoded(size, nn, t).reshape((-1, size.width)) @ t["head"]


def encode(size: Size, nn: Any, x: Any, t: Tensors) -> Any:
    """x + attention(norm x), then x + W₂ gelu(W₁ norm x)."""
    batch, tokens, width, heads, _ = size

    def linear(y: Any, name: str) -> Any:
        return y @ t[name] + t[f"{name}.bias"]

    def normed(y: Any, name: str) -> Any:
        return nn.layer_norm(y, t[f"{name}.gamma"], t[f"{name}.beta"])

    y, apart = normed(x, "norm1"), (batch, tokens, heads, width // heads)
    q, k, v = (nn.swapped(linear(y, name).reshape(apart), (0, 2, 1, 3)) for name in "qkv")
    joined = nn.swapped(nn.attention(q, k, v, width // heads, t.get("mask")), (0, 2, 1, 3))
    x = x + linear(joined.reshape((batch, tokens, width)), "o")
    return x + linear(nn.gelu(linear(normed(x, "norm2"), "up")), "down")


def lstm(dtype: str = "float32", length: int = 32, batch: int = 32, width: int = 128) -> Workload:
    """All states of an LSTM of 128 units, 32 steps of 32 samples, with respect to its weights."""
    shapes = {"w": (4 * width, width), "r": (4 * width, width), "b": (4 * width,)}
    t = weights(10, dtype, shapes)
    x = np.random.default_rng(11).standard_normal((length, batch, width)).astype(dtype)

    def forward(nn: Any, t: Tensors) -> Any:
        return nn.lstm(t["x"], t["w"], t["r"], t["b"], width)

    return Workload({"x": x, **t}, forward, tuple(t), ("jvp", "vjp"))


def classifier(base: Workload, *, pooled: bool = False) -> Workload:
    """Ten logits of the last state, or of the mean state, and their cross-entropy."""
    *_, batch, width = base.tensors["x"].shape
    t = {**base.tensors, **weights(14, str(base.dtype), {"head": (width, 10)})}

    def forward(nn: Any, t: Tensors) -> Any:
        states = base.forward(nn, t)
        return (nn.mean(states, (0,)) if pooled else states) @ t["head"]

    labels, wrt = np.arange(batch) % 10, tuple(name for name in base.wrt if name != base.input)
    return Workload(t, forward, (*wrt, "head"), ("jvp", "vjp"), labels, narrow=True)


def loop(dtype: str = "float32", turns: int = 3000, batch: int = 16, width: int = 64) -> Workload:
    """h ← tanh(h w + x), 16×64, 3,000 times unless said otherwise, with respect to x and w."""
    t = weights(12, dtype, {"w": (width, width)})
    x = np.random.default_rng(13).standard_normal((batch, width)).astype(dtype)

    def forward(nn: Any, t: Tensors) -> Any:
        return nn.looped(t["x"], t["w"], turns)

    return Workload({"x": x, **t}, forward, ("x", "w"), ("jvp", "vjp"))
