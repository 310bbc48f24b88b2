"""Convolutions: a LeNet-like network with pooling, a ResNet-18-like one, and a ResNet-50."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from .workload import Tensors, Workload, weights

STAGES = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))
"""Channels and stride of the eight blocks of a ResNet-18."""


def lenet(dtype: str = "float32", batch: int = 64) -> Workload:
    """Two convolutions of 5×5 with pooling, three dense layers, tanh, 64 images of 28×28."""
    shapes = {
        "k0": (16, 1, 5, 5), "k1": (32, 16, 5, 5),
        "w0": (512, 120), "b0": (120,), "w1": (120, 84), "b1": (84,), "w2": (84, 10), "b2": (10,),
    }  # fmt: skip
    t = weights(5, dtype, shapes)
    x, labels = images(dtype, (batch, 1, 28, 28))
    products = ("jvp", "vjp", "ggn", "hvp")
    return Workload({"x": x, **t}, small, tuple(t), products, labels, narrow=True)


def small(nn: Any, t: Tensors) -> Any:
    """The forward pass of the LeNet-like network."""
    x = nn.max_pool(nn.tanh(nn.conv(t["x"], t["k0"])))
    x = nn.max_pool(nn.tanh(nn.conv(x, t["k1"]))).reshape((-1, 512))
    for i in range(3):
        x = x @ t[f"w{i}"] + t[f"b{i}"]
        x = nn.tanh(x) if i < 2 else x
    return x


def images(dtype: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Random images and their labels, out of ten."""
    rng = np.random.default_rng(6)
    return rng.standard_normal(shape).astype(dtype), rng.integers(0, 10, shape[0])


def resnet(
    dtype: str = "float32", batch: int = 16, stages: tuple[tuple[int, int], ...] = STAGES
) -> Workload:
    """A ResNet-18 for 32×32 images, with fixed statistics, wrt kernels and the dense layer."""
    channels = stages[0][0]
    shapes = {"stem": (channels, 3, 3, 3), "fc": (stages[-1][0], 10), "bias": (10,)}
    for i, (width, stride) in enumerate(stages):
        shapes |= {f"a{i}": (width, channels, 3, 3), f"b{i}": (width, width, 3, 3)}
        shapes |= {f"s{i}": (width, channels, 1, 1)} if stride == 2 else {}
        channels = width
    t = weights(7, dtype, shapes)
    norms = normalisations(t, dtype)
    x, labels = images(dtype, (batch, 3, 32, 32))
    products = ("jvp", "vjp", "ggn", "hvp")
    forward = partial(residual, [stride for _, stride in stages])
    settings = {"narrow": True, "kinks": True}
    return Workload({"x": x, **t, **norms}, forward, tuple(t), products, labels, **settings)


def deep(
    dtype: str = "float32", batch: int = 2, size: int = 224,
    depths: tuple[int, ...] = (3, 4, 6, 3), width: int = 64,
) -> Workload:  # fmt: skip
    """A ResNet-50 with fixed statistics, its first pool 2×2, wrt kernels and the dense layer."""
    shapes: dict[str, tuple[int, ...]] = {"stem": (width, 3, 7, 7)}
    channels, strides = width, {}
    for stage, depth in enumerate(depths):
        inner = width * 2**stage
        for name in (f"{stage}.{k}" for k in range(depth)):
            first = name.endswith(".0")
            shapes |= {f"a{name}": (inner, channels, 1, 1), f"b{name}": (inner, inner, 3, 3)}
            shapes |= {f"c{name}": (4 * inner, inner, 1, 1)}
            shapes |= {f"s{name}": (4 * inner, channels, 1, 1)} if first else {}
            strides[name], channels = 2 if first and stage else 1, 4 * inner
    t = weights(7, dtype, shapes | {"fc": (channels, 10), "bias": (10,)})
    x, labels = images(dtype, (batch, 3, size, size))
    tensors = {"x": x, **t, **normalisations(t, dtype)}
    products, forward = ("jvp", "vjp", "hvp"), partial(bottlenecks, strides)
    return Workload(tensors, forward, tuple(t), products, labels, narrow=True, kinks=True)


def bottlenecks(strides: Mapping[str, int], nn: Any, t: Tensors) -> Any:
    """The forward pass, per block: relu(norm(c relu(norm(b relu(norm(a x))))) + shortcut(x))."""
    normed = partial(normalised, nn, t)
    x = nn.max_pool(nn.relu(normed(t["x"], "stem", 2, 3)))
    for name, stride in strides.items():
        y = nn.relu(normed(x, f"a{name}", 1, 0))
        y = normed(nn.relu(normed(y, f"b{name}", stride)), f"c{name}", 1, 0)
        x = nn.relu(y + (normed(x, f"s{name}", stride, 0) if f"s{name}" in t else x))
    return nn.mean(x, (2, 3)) @ t["fc"] + t["bias"]


def normalised(
    nn: Any, t: Tensors, x: Any, name: str, stride: int = 1, padding: int = 1
) -> Any:
    """BN(conv(x))."""
    parts = (t[f"{name}.{part}"] for part in ("gamma", "beta", "mu", "var"))
    return nn.batch_norm(nn.conv(x, t[name], stride, padding), *parts)


def normalisations(t: Tensors, dtype: str) -> dict[str, np.ndarray]:
    """The normalisation parameters after every convolution."""
    return {f"{name}.{part}": p for name, k in t.items() if k.ndim == 4
            for part, p in statistics(k.shape[0], dtype).items()}  # fmt: skip


def statistics(channels: int, dtype: str) -> dict[str, np.ndarray]:
    """γ, β, μ and σ² of a normalisation."""
    rng = np.random.default_rng(channels)
    draws = {"gamma": rng.uniform(0.8, 1.2, channels), "beta": rng.normal(0, 0.1, channels)}
    draws |= {"mu": rng.normal(0, 0.1, channels), "var": rng.uniform(0.8, 1.2, channels)}
    return {name: array.astype(dtype) for name, array in draws.items()}


def residual(strides: list[int], nn: Any, t: Tensors) -> Any:
    """The forward pass: relu(BN(conv(relu(BN(conv(x))))) + shortcut(x)), for each stride."""
    normed = partial(normalised, nn, t)
    x = nn.relu(normed(t["x"], "stem"))
    for i, stride in enumerate(strides):
        y = normed(nn.relu(normed(x, f"a{i}", stride)), f"b{i}")
        x = nn.relu(y + (normed(x, f"s{i}", stride, 0) if f"s{i}" in t else x))
    return nn.mean(x, (2, 3)) @ t["fc"] + t["bias"]
