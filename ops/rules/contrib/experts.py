"""Mixtures of experts, each a network of two layers, and their router.

The weights of experts are a softmax, also with `use_sparse_mixer`, which ONNX Runtime's CPU kernels
ignore too.
"""

from __future__ import annotations

import numpy as np

from ....jacobians import Array, Op, dtype_of, shape_of
from ....jacobians.errors import UnsupportedOp
from ...conventions import PARTS, kinks
from ...node import Node
from ...registry import defines
from ..recurrent import add_bias
from .fused import in_blocks, refuse, swapped, unpack_bits

ACTIVATIONS = ("relu", "gelu", "silu", "swiglu", "identity")

kinks("com.microsoft::MoE", "com.microsoft::QMoE", given=PARTS,
      where="where the choice of experts changes, and at the kinks of the activations")  # fmt: skip


@defines("com.microsoft::MoE", activation_type=ACTIVATIONS)
def mixture(op: Op, node: Node) -> tuple[Array]:
    """y = Σₑ pₑ (W₂ₑ f(W₁ₑ x + b₁ₑ) + b₂ₑ), with p = softmax(router) at its k largest entries."""
    refuse(node, {6: "fc3_experts_weights", 7: "fc3_experts_bias"})
    p = op.Softmax(node.inputs[1], axis=-1)
    share = routed(op, node, p, p, bool(node.normalize_routing_weights))
    w1, b1, w2, b2 = (node.input(i) for i in range(2, 6))
    return mix_experts(op, node, share, w1, b1, w2, b2)


@defines("com.microsoft::QMoE", activation_type=ACTIVATIONS, weights_prepacked=(-1, 0))
def quantized_mixture(op: Op, node: Node) -> tuple[Array]:
    """A mixture of experts with W = (q - zero) scale; the weights of a token's experts sum to 1."""
    refuse(node, {i: f"input {i}" for i in (8, 9, 10, 13, *range(15, 21))}, quant_type="int")
    p = op.Softmax(node.inputs[1], axis=-1)
    given = node.input(14)
    normalized = given is None or bool(node.normalize_routing_weights)
    share = routed(op, node, p, p if given is None else given, normalized)
    bits = node.expert_weight_bits or 4
    w1 = dequantized(op, node, 2, 11, node.fc1_expert_weight_bits or bits)
    w2 = dequantized(op, node, 5, 12, node.fc2_expert_weight_bits or bits)
    return mix_experts(op, node, share, w1, node.input(4), w2, node.input(7))


def routed(op: Op, node: Node, score: Array, weight: Array, normalized: bool) -> Array:
    """The weights of the k experts with the best scores, 0 for the others, one row per token."""
    if node.use_sparse_mixer and node.k != 2:
        raise UnsupportedOp(f"use_sparse_mixer requires k=2, and k={node.k or 1} is given")
    _, best = op.TopK(score, np.array([node.k or 1]), axis=-1, outputs=2)
    held = op.GatherElements(weight, best, axis=-1)
    held = op.Div(held, op.ReduceSum(held, (-1,), keepdims=1)) if normalized else held
    nought = op.Expand(np.zeros((), dtype_of(weight)), shape_of(weight))
    return op.ScatterElements(nought, best, held, axis=-1)


def mix_experts(
    op: Op, node: Node, share: Array, w1: Array, b1: Array | None, w2: Array, b2: Array | None
) -> tuple[Array]:
    """The results of all experts, (experts, tokens, features), weighted and summed."""
    x = op.Reshape(node.x, (-1, node.x_shape[-1]))
    y = layer(op, acted(op, node, layer(op, x, w1, b1)), w2, b2)
    weighted = op.Mul(y, op.Unsqueeze(op.Transpose(share, perm=(1, 0)), (2,)))
    return (op.Reshape(op.ReduceSum(weighted, (0,), keepdims=0), node.x_shape),)


def layer(op: Op, x: Array, w: Array, b: Array | None) -> Array:
    """x Wᵀ + b for every expert."""
    return add_bias(op, op.MatMul(x, swapped(op, w)), None if b is None else op.Unsqueeze(b, (1,)))


def acted(op: Op, node: Node, h: Array) -> Array:
    """f(h); SwiGLU takes gates from the even and factors from the odd places, both clipped."""
    match node.activation_type or "relu":
        case "relu":
            return op.Relu(h)
        case "gelu":
            return op.Gelu(h, approximate="tanh")
        case "silu":
            return op.Mul(h, op.Sigmoid(h))
        case "identity":
            return h
    refuse(node, {}, swiglu_fusion=1, swiglu_limit_after_activation=0)
    gate, factor = (op.Slice(h, (k,), (2**62,), (-1,), (2,)) for k in range(2))
    if node.swiglu_limit is not None:
        top = np.asarray(node.swiglu_limit, dtype_of(h))
        gate, factor = op.Min(gate, top), op.Clip(factor, -top, top)
    alpha = 1.0 if node.activation_alpha is None else node.activation_alpha
    gate = op.Mul(gate, op.Sigmoid(op.Mul(gate, alpha)))
    return op.Mul(gate, op.Add(factor, node.activation_beta or 0.0))


def dequantized(op: Op, node: Node, i: int, zero_point: int, bits: int) -> Array:
    """(q - zero) scale in blocks along the last axis, of input i and of the scales behind it."""
    q, scale = unpack_bits(op, node.inputs[i], bits), node.inputs[i + 1]
    blocks = shape_of(scale)[2] if node.block_size else 1
    zero = node.input(zero_point)
    zero = zero if zero is None else unpack_bits(op, zero, bits)
    return in_blocks(op, q, zero, scale, blocks, bits)


@defines("com.microsoft::MoEGroupRouter")
def group_router(op: Op, node: Node) -> tuple[Array | None, ...]:
    """log σ(x) at the top experts of the top groups, `router_sentinel` elsewhere; σ(x) + b; σ(x).

    The best experts have the largest σ(x) + b, the best groups the largest sums of their best.
    """
    x = node.x
    if node.input(2) is not None:
        x = op.MatMul(x, op.Transpose(node.inputs[2], perm=(1, 0)))
    s = op.Sigmoid(op.Reshape(x, (-1, shape_of(x)[-1])))
    score = op.Add(s, node.inputs[1])
    if node.step.outputs[0] is None:
        return None, score, s
    tokens, experts = shape_of(s)
    groups = node.n_group or 1
    size = experts // groups
    grouped = op.Reshape(score, (tokens, groups, size))
    count = min(node.group_topk or 2, size)
    best, _ = op.TopK(grouped, np.array([count]), axis=-1, outputs=2)
    total = op.ReduceSum(best, (-1,), keepdims=0)
    allowed = op.Unsqueeze(among(op, total, node.topk_group or 1), (2,))
    low = np.asarray(-np.inf, dtype_of(score))
    kept = op.Reshape(op.Where(allowed, grouped, low), (tokens, experts))
    sentinel = -10000.0 if node.router_sentinel is None else node.router_sentinel
    log = op.Log(op.Max(s, np.asarray(1e-20, dtype_of(s))))
    return op.Where(among(op, kept, node.top_k), log, np.asarray(sentinel, dtype_of(s))), score, s


def among(op: Op, x: Array, k: int) -> Array:
    """Whether an entry is one of the k largest of its row."""
    _, best = op.TopK(x, np.array([k]), axis=-1, outputs=2)
    none = op.Expand(np.array(False), shape_of(x))
    return op.ScatterElements(none, best, op.Expand(np.array(True), shape_of(best)), axis=-1)
