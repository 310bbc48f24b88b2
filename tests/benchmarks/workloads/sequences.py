"""Sequences: a transformer in primitive operators, an LSTM, and a loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from .workload import Tensors, Workload, weights

WIDTH, HEADS, TOKENS, BATCH, LAYERS = 256, 4, 128, 4, 4


def transformer(
    dtype: str = "float32", *, pooled: bool = False, labelled: bool = False
) -> Workload:
    """Four encoder layers, normalised before, GELU; all states, or ten logits of their mean."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(LAYERS):
        shapes |= {f"{i}.{name}": shape for name, shape in layer().items()}
    if pooled:
        shapes |= {"head": (WIDTH, 10), "head.bias": (10,)}
    t = weights(8, dtype, shapes)
    t |= {name: 1 + array for name, array in t.items() if name.endswith("gamma")}
    x = np.random.default_rng(9).standard_normal((BATCH, TOKENS, WIDTH)).astype(dtype)
    forward = classified if pooled else encoded
    labels = np.arange(BATCH) if labelled else None
    return Workload({"x": x, **t}, forward, tuple(t), ("jvp", "vjp"), labels, narrow=pooled)


def layer() -> dict[str, tuple[int, ...]]:
    """The shapes of the weights of one layer."""
    square = dict.fromkeys(("q", "k", "v", "o"), (WIDTH, WIDTH))
    norms = {f"{n}.{p}": (WIDTH,) for n in ("norm1", "norm2") for p in ("gamma", "beta")}
    biases = {f"{name}.bias": (WIDTH,) for name in (*square, "down")}
    return {**square, "up": (WIDTH, 4 * WIDTH), "up.bias": (4 * WIDTH,),
            "down": (4 * WIDTH, WIDTH), **biases, **norms}  # fmt: skip


def encoded(nn: Any, t: Tensors) -> Any:
    """The states after all layers."""
    x = t["x"]
    for i in range(LAYERS):
        x = encode(nn, x, {name[2:]: a for name, a in t.items() if name.startswith(f"{i}.")})
    return x


def classified(nn: Any, t: Tensors) -> Any:
    """Ten logits from the mean of the states."""
    return nn.mean(encoded(nn, t), (1,)) @ t["head"] + t["head.bias"]


def encode(nn: Any, x: Any, t: Tensors) -> Any:
    """x + attention(norm x), then x + W₂ gelu(W₁ norm x)."""

    def linear(y: Any, name: str) -> Any:
        return y @ t[name] + t[f"{name}.bias"]

    def normed(y: Any, name: str) -> Any:
        return nn.layer_norm(y, t[f"{name}.gamma"], t[f"{name}.beta"])

    y, shape = normed(x, "norm1"), (BATCH, TOKENS, HEADS, WIDTH // HEADS)
    q, k, v = (nn.swapped(linear(y, name).reshape(shape), (0, 2, 1, 3)) for name in "qkv")
    joined = nn.swapped(nn.attention(q, k, v, WIDTH // HEADS), (0, 2, 1, 3))
    x = x + linear(joined.reshape((BATCH, TOKENS, WIDTH)), "o")
    return x + linear(nn.gelu(linear(normed(x, "norm2"), "up")), "down")


def lstm(dtype: str = "float32", length: int = 32, batch: int = 32, width: int = 128) -> Workload:
    """All states of one LSTM over 32 steps, in its weights."""
    shapes = {"w": (4 * width, width), "r": (4 * width, width), "b": (4 * width,)}
    t = weights(10, dtype, shapes)
    x = np.random.default_rng(11).standard_normal((length, batch, width)).astype(dtype)

    def forward(nn: Any, t: Tensors) -> Any:
        return nn.lstm(t["x"], t["w"], t["r"], t["b"], width)

    return Workload({"x": x, **t}, forward, tuple(t), ("jvp", "vjp"))


def classifier(base: Workload, *, pooled: bool = False) -> Workload:
    """Ten logits of the last states, or of the mean of all, and their cross-entropy."""
    *_, batch, width = base.tensors["x"].shape
    t = {**base.tensors, **weights(14, str(base.dtype), {"head": (width, 10)})}

    def forward(nn: Any, t: Tensors) -> Any:
        states = base.forward(nn, t)
        return (nn.mean(states, (0,)) if pooled else states) @ t["head"]

    labels, wrt = np.arange(batch) % 10, tuple(name for name in base.wrt if name != base.input)
    return Workload(t, forward, (*wrt, "head"), ("jvp", "vjp"), labels, narrow=True)


def loop(dtype: str = "float32", turns: int = 3000, batch: int = 16, width: int = 64) -> Workload:
    """h ← tanh(h w + x), so many times, in x and w."""
    t = weights(12, dtype, {"w": (width, width)})
    x = np.random.default_rng(13).standard_normal((batch, width)).astype(dtype)

    def forward(nn: Any, t: Tensors) -> Any:
        return nn.looped(t["x"], t["w"], turns)

    return Workload({"x": x, **t}, forward, ("x", "w"), ("jvp", "vjp"))
