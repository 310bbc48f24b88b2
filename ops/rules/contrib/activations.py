"""Activations that ONNX Runtime fuses with what comes before them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....jacobians import Array, dtype_of
from ...node import Node
from ...registry import defines


@defines("com.microsoft::Gelu")
def gelu(op: Any, node: Node) -> tuple[Array]:
    """y = x Φ(x)."""
    return (op.Gelu(node.x),)


@defines("com.microsoft::BiasGelu")
def bias_gelu(op: Any, node: Node) -> tuple[Array]:
    """y = gelu(x + b)."""
    return (op.Gelu(op.Add(node.x, node.inputs[1])),)


@defines("com.microsoft::FastGelu")
def fast_gelu(op: Any, node: Node) -> tuple[Array]:
    """y = gelu(x + b), approximated by tanh."""
    bias = node.input(1)
    return (op.Gelu(node.x if bias is None else op.Add(node.x, bias), approximate="tanh"),)


@defines("com.microsoft::QuickGelu")
def quick_gelu(op: Any, node: Node) -> tuple[Array]:
    """y = x σ(αx)."""
    alpha = 1.702 if node.alpha is None else node.alpha
    return (op.Mul(node.x, op.Sigmoid(op.Mul(node.x, alpha))),)


def activated(op: Any, y: Array, name: str | None, parameters: tuple[float, ...]) -> Array:
    """f(y) for the activation that a fused operator names."""
    if not name:
        return y
    if name == "Clip":
        return op.Clip(y, *(np.asarray(bound, dtype_of(y)) for bound in parameters))
    return getattr(op, name)(y, **dict(zip(("alpha", "beta"), parameters, strict=False)))
