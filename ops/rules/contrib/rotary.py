"""Rotary embeddings: pairs of features turned by angles that grow with the position."""

from __future__ import annotations

from typing import Any

from ....jacobians import Array, shape_of
from ...node import Node
from ...registry import defines
from ..indexing import counted


@defines("com.microsoft::RotaryEmbedding")
def rotary_embedding(op: Any, node: Node) -> tuple[Array]:
    """The features of every head turned; (batch, time, heads · features) or with heads second."""
    width = node.rotary_embedding_dim or 2 * shape_of(node.inputs[2])[1]
    flat = len(node.x_shape) == 3
    heads = node.num_heads or (node.x_shape[2] // width if flat else node.x_shape[1])
    x = split_heads(op, node.x, heads) if flat else node.x
    positions = node.inputs[1]
    if len(shape_of(positions)) < 2:
        positions = op.Add(op.Reshape(positions, (1, 1)), counted(op, shape_of(x)[2]))
    y = rotated(op, x, positions, node.inputs[2], node.inputs[3], bool(node.interleaved))
    return (join_heads(op, y) if flat else y,)


def split_heads(op: Any, x: Array, heads: int) -> Array:
    """(batch, time, heads · features) -> (batch, heads, time, features)."""
    b, t, n = shape_of(x)
    return op.Transpose(op.Reshape(x, (b, t, heads, n // heads)), perm=(0, 2, 1, 3))


def join_heads(op: Any, x: Array) -> Array:
    """(batch, heads, time, features) -> (batch, time, heads · features)."""
    b, h, t, n = shape_of(x)
    return op.Reshape(op.Transpose(x, perm=(0, 2, 1, 3)), (b, t, h * n))


def rotated(
    op: Any, x: Array, positions: Array, cos: Array, sin: Array, interleaved: bool
) -> Array:
    """(u, v) -> (u cos - v sin, u sin + v cos) for the first features of x, paired."""
    half = shape_of(cos)[1]
    width = 2 * half
    cos, sin = (op.Unsqueeze(op.Gather(table, positions, axis=0), (1,)) for table in (cos, sin))
    starts, step = ((0, 1), 2) if interleaved else ((0, half), 1)
    u, v = (op.Slice(x, (s,), (s + step * (half - 1) + 1,), (-1,), (step,)) for s in starts)
    turned = op.Sub(op.Mul(u, cos), op.Mul(v, sin)), op.Add(op.Mul(u, sin), op.Mul(v, cos))
    if interleaved:
        y = op.Concat(*(op.Unsqueeze(part, (-1,)) for part in turned), axis=-1)
        y = op.Reshape(y, (*shape_of(x)[:-1], width))
    else:
        y = op.Concat(*turned, axis=-1)
    if width == shape_of(x)[-1]:
        return y
    return op.Concat(y, op.Slice(x, (width,), (shape_of(x)[-1],), (-1,)), axis=-1)
