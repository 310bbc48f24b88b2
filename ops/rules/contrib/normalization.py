"""Normalisations of a sum: the residual connections of transformers."""

from __future__ import annotations

from typing import Any

from ....jacobians import Array
from ...node import Node
from ...registry import defines


@defines("com.microsoft::SkipLayerNormalization")
def skip_layer_normalization(op: Any, node: Node) -> tuple[Array | None, ...]:
    """y = layer norm of s = x + skip + bias; s is the fourth output."""
    s = total(op, node, 4)
    epsilon = 1e-12 if node.epsilon is None else node.epsilon
    affine = [x for x in node.inputs[2:4] if x is not None]
    y, mean, inverse = op.LayerNormalization(s, *affine, axis=-1, epsilon=epsilon, outputs=3)
    return y, mean, inverse, s


@defines("com.microsoft::SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(op: Any, node: Node) -> tuple[Array | None, ...]:
    """y = s / rms(s) · γ of s = x + skip + bias; s is the fourth output."""
    s = total(op, node, 3)
    y, inverse = root_mean_square(op, s, node.inputs[2], (-1,), node.epsilon, 1e-12)
    return y, None, inverse, s


@defines("com.microsoft::SimplifiedLayerNormalization")
def simplified_layer_normalization(op: Any, node: Node) -> tuple[Array, ...]:
    """y = x / rms(x) · γ over the axes from `axis` on."""
    rank = len(node.x_shape)
    axes = tuple(range((-1 if node.axis is None else node.axis) % rank, rank))
    return root_mean_square(op, node.x, node.inputs[1], axes, node.epsilon, 1e-5)


def total(op: Any, node: Node, bias: int) -> Array:
    """Input + skip + bias."""
    s = op.Add(node.x, node.inputs[1])
    return s if node.input(bias) is None else op.Add(s, node.inputs[bias])


def root_mean_square(
    op: Any, x: Array, gain: Array, axes: tuple[int, ...], epsilon: float | None, default: float
) -> tuple[Array, Array]:
    """(x γ / √(mean x² + ε), 1 / √(mean x² + ε))."""
    mean = op.ReduceMean(op.Mul(x, x), axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(mean, default if epsilon is None else epsilon)))
    return op.Mul(op.Mul(x, inverse), gain), inverse
