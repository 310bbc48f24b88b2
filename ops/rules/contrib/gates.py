"""Gates, and root-mean-square norms of the branches that they mix."""

from __future__ import annotations

from typing import Any

from ....jacobians import Array, shape_of
from ...node import Node
from ...registry import defines
from .fused import refuse, root_mean_square, swapped


@defines("com.microsoft::GatedAdd")
def gated_add(op: Any, node: Node) -> tuple[Array]:
    """x + y ∘ gate."""
    refuse(node, {3: "gate_weight"})
    return (op.Add(node.x, op.Mul(node.inputs[1], node.inputs[2])),)


@defines("com.microsoft::GatedRMSNorm", activation=("silu", "swish", "sigmoid"))
def gated_rms_norm(op: Any, node: Node) -> tuple[Array]:
    """y = x / rms(x) · γ · f(z), with the mean over as many features as γ has."""
    gain, z = node.inputs[1:3]
    rows = op.Reshape(node.x, (*node.x_shape[:-1], -1, *shape_of(gain)))
    y, _ = root_mean_square(op, rows, gain, (-1,), node.epsilon, 1e-5)
    gate = op.Sigmoid(z)
    gate = gate if node.activation == "sigmoid" else op.Mul(z, gate)
    return (op.Mul(op.Reshape(y, node.x_shape), gate),)


@defines("com.microsoft::BranchwiseRMSNorm")
def branchwise_rms_norm(op: Any, node: Node) -> tuple[Array]:
    """y = x / rms(x) · γ, branch by branch."""
    x = branches(op, node)
    gain = 1.0 if node.input(1) is None else per_branch(op, node.inputs[1], x, 2)
    y, _ = root_mean_square(op, x, gain, (-1,), node.epsilon, 1e-5)
    return (op.Reshape(y, node.x_shape),)


@defines("com.microsoft::HyperConnectionPreMix")
def hyper_connection_pre_mix(op: Any, node: Node) -> tuple[Array]:
    """y = scale Σ x ∘ mix over the branches."""
    x = branches(op, node)
    mix = per_branch(op, node.inputs[1], x, len(shape_of(x)))
    y = op.ReduceSum(op.Mul(x, mix), (-2,), keepdims=0)
    return (y if node.reduction_scale is None else op.Mul(y, node.reduction_scale),)


@defines("com.microsoft::HyperConnectionPostMix")
def hyper_connection_post_mix(op: Any, node: Node) -> tuple[Array]:
    """y = Mᵀ x + mix ∘ block, with M = 1 where it is omitted; every branch takes the block."""
    x, stream_mix = branches(op, node), node.input(3)
    rank = len(shape_of(x))
    mix = per_branch(op, node.inputs[2], x, rank)
    if stream_mix is not None:
        x = op.MatMul(op.CastLike(swapped(op, stream_mix), x), x)
    y = op.Add(x, op.Mul(mix, op.Unsqueeze(node.inputs[1], (-2,))))
    return (op.Reshape(y, node.x_shape),)


def branches(op: Any, node: Node) -> Array:
    """The first input, (..., branches, features)."""
    if not node.num_branches:
        return node.x
    return op.Reshape(node.x, (*node.x_shape[:-1], node.num_branches, -1))


def per_branch(op: Any, factor: Array, x: Array, rank: int) -> Array:
    """A factor of every branch, feature or both, such that x ∘ factor is right.

    With all axes, it has this rank.
    """
    factor, shape = op.CastLike(factor, x), shape_of(factor)
    (c, h), given = shape_of(x)[-2:], shape[-1]
    if len(shape) == rank or (rank == 2 and given == h):
        return factor
    if given == c and rank != 2:
        return op.Unsqueeze(factor, (-1,))
    return op.Reshape(factor, (*shape[:-1], c, h))


@defines("com.microsoft::EngramGate")
def engram_gate(op: Any, node: Node) -> tuple[Array, ...]:
    """(y, y / rms(y) · γ), y = v σ(sign(s) √max(|s|, 10⁻⁶)), s the mean product of normed k and q,
    times √features.
    """
    k, q = (root_mean_square(op, node.inputs[i], node.inputs[i + 3], (-1,), node.epsilon, 1e-5)[0]
            for i in range(2))  # fmt: skip
    s = op.ReduceSum(op.Mul(k, q), (-1,), keepdims=1)
    s = op.Div(s, op.Sqrt(op.CastLike(node.x_shape[-1], s)))
    root = op.Sqrt(op.Max(op.Abs(s), op.CastLike(1e-6, s)))
    y = op.Mul(op.Sigmoid(op.Mul(op.Sign(s), root)), op.Unsqueeze(node.inputs[2], (2,)))
    if node.input(5) is None:
        return (y,)
    return y, root_mean_square(op, y, node.inputs[5], (-1,), node.epsilon, 1e-5)[0]


@defines("com.microsoft::LinearAttentionGate")
def linear_attention_gate(op: Any, node: Node) -> tuple[Array, ...]:
    """(scale ∘ softplus(a + bias), σ(b))."""
    bias, scale = node.inputs[1:3]
    decay = op.Mul(scale, op.Softplus(op.Add(op.CastLike(node.x, bias), bias)))
    decay = op.CastLike(decay, node.x)
    return (decay,) if node.input(3) is None else (decay, op.Sigmoid(node.inputs[3]))
