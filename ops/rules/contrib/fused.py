"""Fused operators: products with an activation, normalisations of a sum, and gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Array, Contraction, Op, dtype_of, shape_of
from ....jacobians.errors import UnsupportedOp
from ....jacobians.symint import Number
from ...conventions import ACTIVATIONS, BALL, ON_LINE, PARTS, ZERO_NORM, kinks, marked
from ...indexed import declare_indexed
from ...node import Node
from ...numbers.table import single_precision
from ...numbers.windows import AUTO_PADS
from ...registry import Blocks, Count, declare, defines, jacobian
from ..elementwise import FORMULAS, Elementwise, declare_range
from ..indexing import unique as unique_blocks
from ..normalization import ROOT_MEAN_SQUARE
from ..recurrent import END, add_bias
from ..reductions import minors

INT64 = int(ir.DataType.INT64)


def refuse(node: Node, inputs: dict[int, str], **resting: Any) -> None:
    """Raises `UnsupportedOp` for these inputs, and for attributes other than the given defaults."""
    given = [name for i, name in inputs.items() if node.input(i) is not None]
    given += [name for name, rest in resting.items() if (getattr(node, name) or rest) != rest]
    if given:
        raise UnsupportedOp(f"no derivative is known with {', '.join(given)}: leave it out, or "
                            "export the model without fused attention")  # fmt: skip


def declare_formula(op_type: str, formula: str, **defaults: float) -> None:
    """An operator of ONNX Runtime by its formula, which also gives its values."""
    rule = Elementwise(formula, defaults=defaults)
    declare([f"com.microsoft::{op_type}"], rule, definition=rule.define)


declare_formula("Gelu", FORMULAS["Gelu"].text)
declare_formula("QuickGelu", "x*sigmoid(alpha*x)", alpha=single_precision(1.702))
declare_formula("SampleOp", "x")


@defines("com.microsoft::BiasGelu", "com.microsoft::FastGelu")
def gelu(op: Op, node: Node) -> tuple[Array]:
    """y = z Φ(z) with z = x + b; FastGelu approximates it by tanh."""
    approximate = "tanh" if node.step.op_type == "FastGelu" else "none"
    return (op.Gelu(add_bias(op, node.x, node.input(1)), approximate=approximate),)


@defines("com.microsoft::ScaledSiLU")
def scaled_silu(op: Op, node: Node) -> tuple[Array]:
    """y = z σ(z) with z = αx, or the scale in the second input times x."""
    given = node.input(1)
    alpha = 1.0 if node.alpha is None else node.alpha
    z = op.Mul(node.x, alpha if given is None else op.CastLike(given, node.x))
    return (op.Mul(z, op.Sigmoid(z)),)


def arithmetic_range(op: Op, node: Node) -> tuple[Array]:
    """ONNX's Range, whose numbers may have one axis and whose step is 1 if it is left out."""
    step = np.ones((), dtype_of(node.x)) if node.input(2) is None else node.inputs[2]
    return (op.Range(*(op.Reshape(x, ()) for x in (*node.inputs[:2], step))),)


declare_range("com.microsoft::Range", definition=arithmetic_range)


@defines("com.microsoft::Unique")
def unique(op: Op, node: Node) -> tuple[Array, ...]:
    """(different entries in their order in x, the position of each entry among them, counts)."""
    y, _, positions, counts = op.Unique(node.x, sorted=0)
    return y, positions, counts


@jacobian("com.microsoft::Unique")
def first_of_each(op: Op, node: Node) -> Blocks:
    """As for ONNX's Unique, from x and y alone."""
    hidden = replace(node.step, outputs=node.step.outputs[:1])
    return unique_blocks(op, Node(hidden, node.inputs, node.outputs[:1]))


def activated(op: Op, y: Array, name: str | None, parameters: tuple[float, ...]) -> Array:
    """f(y) for the activation that a fused operator names."""
    if not name:
        return y
    if name == "Clip":
        return op.Clip(y, *(np.asarray(bound, dtype_of(y)) for bound in parameters))
    return getattr(op, name)(y, **dict(zip(("alpha", "beta"), parameters, strict=False)))


def without_activation(node: Node) -> dict[str, Any]:
    """The attributes that do not belong to the activation."""
    return {k: v for k, v in node.step.attrs.items() if not k.startswith("activation")}


@defines("com.microsoft::FusedMatMul", "com.microsoft::TransposeMatMul",
         "com.microsoft::SparseToDenseMatMul")  # fmt: skip
def fused_matmul(op: Op, node: Node) -> tuple[Array]:
    """y = α A' B', both operands transposed where the flags say so."""
    a = swap_axes(op, node.x, node.transA, node.transBatchA)
    b = swap_axes(op, node.inputs[1], node.transB, node.transBatchB)
    y = op.MatMul(a, b)
    return (y if node.alpha is None else op.Mul(y, node.alpha),)


def swap_axes(op: Op, x: Array, matrix: int | None, batch: int | None) -> Array:
    """x with its first axis moved behind the batch axes, then its last two axes swapped."""
    rank = len(shape_of(x))
    order = list(range(rank))
    if batch and rank > 2:
        order = [*order[1:-1], 0, rank - 1]
    if matrix and rank > 1:
        order[-2:] = order[:-3:-1]
    return op.Transpose(x, perm=tuple(order))


def swapped(op: Op, x: Array) -> Array:
    """x with its last two axes swapped."""
    return swap_axes(op, x, 1, 0)


@defines("com.microsoft::Inverse")
def inverse(op: Op, node: Node) -> tuple[Array]:
    """Y = cofactors(X)ᵀ / det X."""
    adjugate = swapped(op, minors(op, node.x, node.x_shape[-1]))
    return (op.Div(adjugate, op.Unsqueeze(op.Det(node.x), (-2, -1))),)


@jacobian("com.microsoft::Inverse")
def inverse_blocks(op: Op, node: Node) -> Blocks:
    """dY = -Y dX Y."""
    labels = "abcdefgh"[: len(node.x_shape) - 2]
    n = node.x_shape[-1]
    sizes = {**dict(zip(labels, node.x_shape, strict=False)), **dict.fromkeys("ijkl", n)}
    factors = ((op.Neg(node.y), f"{labels}ik"), (node.y, f"{labels}lj"))
    return {(0, 0): Contraction(factors, f"{labels}kl", f"{labels}ij", sizes)}


def cdist(op: Op, node: Node) -> tuple[Array]:
    """yᵢⱼ = ‖aᵢ - bⱼ‖, or its square."""
    pairs = op.Sub(op.Unsqueeze(node.x, (1,)), op.Unsqueeze(node.inputs[1], (0,)))
    squares = op.ReduceSum(op.Mul(pairs, pairs), (2,), keepdims=0)
    return (squares if node.metric == "sqeuclidean" else op.Sqrt(squares),)


SQUARES = "sum((a[i, k] - b[j, k])**2, k)"
DISTANCES = {"euclidean": f"y[i, j] = sqrt({SQUARES})", "sqeuclidean": f"y[i, j] = {SQUARES}"}

declare_indexed(
    "com.microsoft::CDist",
    DISTANCES,
    by=lambda node: node.metric or "sqeuclidean",
    definition=cdist,
    values={"metric": tuple(DISTANCES)},
)


@kinks("com.microsoft::CDist", where=f"for euclidean, between equal rows, {ZERO_NORM}",
       given=BALL)  # fmt: skip
def equal_rows(node: Node) -> Count:
    """Distances that are 0."""
    return marked((node.y == 0) & (node.metric == "euclidean"))


kinks("com.microsoft::GridSample", "com.microsoft::CropAndResize", where=ON_LINE, given=PARTS)


@defines("com.microsoft::GridSample", mode=("bilinear", "nearest", "bicubic"))
def grid_sample(op: Op, node: Node) -> tuple[Array]:
    """ONNX's GridSample, whose modes once had the names of images."""
    mode = {"nearest": "nearest", "bicubic": "cubic"}.get(node.mode, "linear")
    (x, grid), padding, corners = node.inputs, node.padding_mode or "zeros", node.align_corners or 0
    return (op.GridSample(x, grid, mode=mode, padding_mode=padding, align_corners=corners),)


@defines("com.microsoft::CropAndResize", mode=("bilinear", "nearest"))
def crop_and_resize(op: Op, node: Node) -> tuple[Array]:
    """Each box of its image, at a grid of points from corner to corner; constant outside."""
    boxes, shape, places, inside = node.inputs[1], node.fixed(3) or (), [], None
    for a, n in enumerate(shape):
        low, high = (op.Gather(boxes, np.array([k]), axis=1) for k in (a, a + 2))
        share = np.arange(n) / (n - 1) if n > 1 else np.full(1, 0.5)
        t = op.Add(low, op.Mul(op.Sub(high, low), op.CastLike(share, boxes)))
        last = op.CastLike(node.x_shape[2 + a] - 1, boxes)
        at = op.Mul(t, last)
        within = op.And(op.GreaterOrEqual(at, op.CastLike(0, at)), op.LessOrEqual(at, last))
        if node.mode == "nearest":
            t = op.Div(op.Floor(op.Add(at, 0.5)), op.Max(last, op.CastLike(1, last)))
        t, within = (op.Unsqueeze(x, (2 - a,)) for x in (op.Sub(op.Mul(t, 2.0), 1.0), within))
        places.append(op.Unsqueeze(op.Expand(t, (shape_of(boxes)[0], *shape)), (3,)))
        inside = within if inside is None else op.And(inside, within)
    images = op.Gather(node.x, node.inputs[2], axis=0)
    grid = op.Concat(*reversed(places), axis=3)
    y = op.GridSample(images, grid, mode="linear", padding_mode="border", align_corners=1)
    return (op.Where(op.Unsqueeze(inside, (1,)), y, op.CastLike(node.extrapolation_value or 0, y)),)


@defines("com.microsoft::ConvTransposeWithDynamicPads", auto_pad=AUTO_PADS)
def conv_transpose_with_dynamic_pads(op: Op, node: Node) -> tuple[Array]:
    """ONNX's ConvTranspose, whose pads are an input."""
    pads: dict[str, Any] = {} if node.input(2) is None else {"pads": node.fixed(2)}
    x, w = node.inputs[:2]
    return (op.ConvTranspose(x, w, node.input(3), **node.step.attrs, **pads),)


@defines(
    "com.microsoft::CausalConvWithState", activation=("silu", "swish", "none"), ndim=(1,),
    state_update_capacity=(0,), state_channels_last=(-1,), input_channel_offset=(0,),
)  # fmt: skip
def causal_conv_with_state(op: Op, node: Node) -> tuple[Array, Array]:
    """(f(w ∗ x + b), the last inputs), channel by channel, with the past in front of x."""
    refuse(node, {}, state_window=0, state_length=0, input_channels=0)
    weight, step, shape = node.inputs[1], node.dilation or 1, node.x_shape
    channels, room = shape_of(weight)[0], (shape_of(weight)[2] - 1) * step
    x, past = (series(op, node, a, channels) for a in (node.x, node.input(3)))
    x = op.Pad(x, (room, 0), None, (2,)) if past is None else op.Concat(past, x, axis=2)
    y = op.Conv(x, weight, node.input(2), group=channels, dilations=(step,))
    if (node.activation or "none") != "none":
        y = op.Mul(y, op.Sigmoid(y))
    state = op.Slice(x, (shape_of(x)[2] - room,), (END,), (2,))
    if node.channels_last:
        y, state = (op.Reshape(op.Transpose(z, perm=(0, 2, 1)), (shape[0], n, *shape[2:]))
                    for z, n in ((y, shape[1]), (state, room)))  # fmt: skip
    return y, state


def series(op: Op, node: Node, x: Array | None, channels: Number) -> Array | None:
    """x, (batch, channels, time)."""
    if x is None or not node.channels_last:
        return x
    return op.Transpose(op.Reshape(x, (*shape_of(x)[:2], channels)), perm=(0, 2, 1))


@defines("com.microsoft::ExpandDims")
def expand_dims(op: Op, node: Node) -> tuple[Array]:
    """x with an axis of length 1."""
    return (op.Unsqueeze(node.x, node.fixed(1)),)


kinks("com.microsoft::FusedGemm", "com.microsoft::FusedConv", where=ACTIVATIONS, given=PARTS)


@defines("com.microsoft::FusedGemm")
def fused_gemm(op: Op, node: Node) -> tuple[Array]:
    """y = f(α A' B' + β C)."""
    y = op.Gemm(*node.inputs, **without_activation(node))
    given = (node.activation_alpha, node.activation_beta)
    return (activated(op, y, node.activation, tuple(v for v in given if v is not None)),)


@defines("com.microsoft::MatMulNBits", weight_prepacked=(0,))
def matmul_nbits(op: Op, node: Node) -> tuple[Array]:
    """y = A Ŵᵀ + b, with Ŵ = (q - zero) scale in blocks along its rows, or in the given groups."""
    a, packed, scales = node.inputs[:3]
    rows, blocks = shape_of(packed)[:2]
    q = op.Reshape(unpack_bits(op, packed, node.bits), (rows, -1))
    zero = node.input(3)
    if zero is not None and dtype_of(zero).kind == "u":
        if node.input(4) is not None:
            raise UnsupportedOp("ONNX Runtime ignores zero points in bytes beside g_idx: store "
                                "them as floats")  # fmt: skip
        zero = unpack_bits(op, zero, node.bits)
    if node.input(4) is None:
        w = op.Slice(in_blocks(op, q, zero, scales, blocks, node.bits), (0,), (node.K,), (1,))
    else:
        w = in_groups(op, op.Slice(q, (0,), (node.K,), (1,)), zero, scales, node)
    return (add_bias(op, op.MatMul(a, swapped(op, w)), node.input(5)),)


def in_blocks(
    op: Op, q: Array, zero: Array | None, scale: Array, blocks: Number, bits: int
) -> Array:
    """(q - zero) scale in equal blocks along the last axis; zero is 2ᵇⁱᵗˢ / 2 if it is omitted.

    The zero points may be followed by others, which fill their last byte.
    """
    split = (*shape_of(q)[:-1], blocks)
    if zero is None:
        zero = np.full((), 2 ** (bits - 1), dtype_of(scale))
    else:
        rows = op.Reshape(op.CastLike(zero, scale), (*split[:-1], -1))
        zero = op.Unsqueeze(op.Slice(rows, (0,), (blocks,), (-1,)), (-1,))
    entries = op.CastLike(op.Reshape(q, (*split, -1)), scale)
    scaled = op.Mul(op.Sub(entries, zero), op.Reshape(scale, (*split, 1)))
    return op.Reshape(scaled, shape_of(q))


def in_groups(op: Op, q: Array, zero: Array | None, scale: Array, node: Node) -> Array:
    """(q - zero) scale, where every column has the zero point and scale of its group."""
    rows, group = shape_of(q)[0], op.Slice(node.inputs[4], (0,), (node.K,), (0,))

    def by_column(x: Array) -> Array:
        return op.Gather(op.CastLike(op.Reshape(x, (rows, -1)), scale), group, axis=1)

    middle = np.full((), 2 ** (node.bits - 1), dtype_of(scale))
    centred = op.Sub(op.CastLike(q, scale), middle if zero is None else by_column(zero))
    return op.Mul(centred, by_column(scale))


def unpack_bits(op: Op, packed: Array, bits: int) -> Array:
    """Unsigned numbers of a few bits from bytes, the lowest bits first, along the last axis."""
    *axes, width = shape_of(packed)
    parts = np.array([2**k for k in range(0, 8, bits)])
    moved = op.Div(op.Unsqueeze(op.Cast(packed, to=INT64), (-1,)), parts)
    return op.Reshape(op.Mod(moved, 2**bits), (*axes, width * len(parts)))


@defines("com.microsoft::EmbedLayerNormalization")
def embed_layer_normalization(op: Op, node: Node) -> tuple[Array, ...]:
    """(layer norm of s, lengths, s), with s the sum of word, position and segment embeddings."""
    return embedded(op, node, node.inputs[2:7], node.input(8))


def embedded(op: Op, node: Node, held: Sequence[Array], at: Array | None) -> tuple[Array, ...]:
    """The same by the tables of words, positions and segments, γ and β, at these positions."""
    ids, segments = node.inputs[:2]
    words, positions, kinds, gamma, beta = held
    batch, time = shape_of(ids)
    at = op.Range(np.array(0), time, np.array(1)) if at is None else at
    s = op.Add(op.Gather(words, ids, axis=0), op.Gather(positions, at, axis=0))
    s = add_bias(op, s, None if kinds is None else op.Gather(kinds, segments, axis=0))
    epsilon = 1e-12 if node.epsilon is None else node.epsilon
    y = op.LayerNormalization(s, gamma, beta, axis=-1, epsilon=epsilon)
    lengths = op.Expand(np.array(0, np.int32), (batch,))
    if node.input(7) is not None:
        lengths = op.ReduceSum(node.inputs[7], (1,), keepdims=0)
    return y, lengths, s


@defines("com.microsoft::FusedConv", auto_pad=AUTO_PADS)
def fused_conv(op: Op, node: Node) -> tuple[Array]:
    """y = f(w ∗ x + b + z)."""
    y = add_bias(op, op.Conv(*node.inputs[:3], **without_activation(node)), node.input(3))
    return (activated(op, y, node.activation, node.activation_params or ()),)


@defines("com.microsoft::SkipLayerNormalization")
def skip_layer_normalization(op: Op, node: Node) -> tuple[Array | None, ...]:
    """y = layer norm of s = x + skip + bias; s is the fourth output."""
    s = add_bias(op, op.Add(*node.inputs[:2]), node.input(4))
    epsilon = 1e-12 if node.epsilon is None else node.epsilon
    affine = [x for x in node.inputs[2:4] if x is not None]
    y, mean, inverse = op.LayerNormalization(s, *affine, axis=-1, epsilon=epsilon, outputs=3)
    return y, mean, inverse, s


@defines("com.microsoft::SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(op: Op, node: Node) -> tuple[Array | None, ...]:
    """y = s / rms(s) · γ with s = x + skip + bias; s is the fourth output."""
    s = add_bias(op, op.Add(*node.inputs[:2]), node.input(3))
    y, inverse = root_mean_square(op, s, node.inputs[2], (-1,), node.epsilon, 1e-12)
    return y, None, inverse, s


def simplified_layer_normalization(op: Op, node: Node) -> tuple[Array, ...]:
    """y = x / rms(x) · γ over the axes from `axis` on."""
    return root_mean_square(op, node.x, node.inputs[1], axes_from(node), node.epsilon, 1e-5)


def axes_from(node: Node) -> tuple[int, ...]:
    """The axes from `axis` on, by default the last one."""
    rank = len(node.x_shape)
    return tuple(range((-1 if node.axis is None else node.axis) % rank, rank))


declare_indexed(
    "com.microsoft::SimplifiedLayerNormalization",
    ROOT_MEAN_SQUARE,
    outputs="yi",
    axes=lambda node: {"s": axes_from(node)},
    defaults={"epsilon": 1e-5},
    definition=simplified_layer_normalization,
)


def root_mean_square(
    op: Op, x: Array, gain: Array, axes: tuple[int, ...], epsilon: float | None, default: float
) -> tuple[Array, Array]:
    """(x γ / √(mean x² + ε), 1 / √(mean x² + ε))."""
    mean = op.ReduceMean(op.Mul(x, x), axes, keepdims=1)
    inverse = op.Reciprocal(op.Sqrt(op.Add(mean, default if epsilon is None else epsilon)))
    return op.Mul(op.Mul(x, inverse), gain), inverse


@defines("com.microsoft::GatedAdd")
def gated_add(op: Op, node: Node) -> tuple[Array]:
    """x + y ∘ gate."""
    refuse(node, {3: "gate_weight"})
    return (op.Add(node.x, op.Mul(node.inputs[1], node.inputs[2])),)


@defines("com.microsoft::GatedRMSNorm", activation=("silu", "swish", "sigmoid"))
def gated_rms_norm(op: Op, node: Node) -> tuple[Array]:
    """y = x / rms(x) · γ · f(z), with the mean over as many features as γ has."""
    gain, z = node.inputs[1:3]
    rows = op.Reshape(node.x, (*node.x_shape[:-1], -1, *shape_of(gain)))
    y, _ = root_mean_square(op, rows, gain, (-1,), node.epsilon, 1e-5)
    gate = op.Sigmoid(z)
    gate = gate if node.activation == "sigmoid" else op.Mul(z, gate)
    return (op.Mul(op.Reshape(y, node.x_shape), gate),)


@defines("com.microsoft::BranchwiseRMSNorm")
def branchwise_rms_norm(op: Op, node: Node) -> tuple[Array]:
    """y = x / rms(x) · γ, branch by branch."""
    x = branches(op, node)
    gain = 1.0 if node.input(1) is None else per_branch(op, node.inputs[1], x, 2)
    y, _ = root_mean_square(op, x, gain, (-1,), node.epsilon, 1e-5)
    return (op.Reshape(y, node.x_shape),)


@defines("com.microsoft::HyperConnectionPreMix")
def hyper_connection_pre_mix(op: Op, node: Node) -> tuple[Array]:
    """y = scale Σ x ∘ mix over the branches."""
    x = branches(op, node)
    mix = per_branch(op, node.inputs[1], x, len(shape_of(x)))
    y = op.ReduceSum(op.Mul(x, mix), (-2,), keepdims=0)
    return (y if node.reduction_scale is None else op.Mul(y, node.reduction_scale),)


@defines("com.microsoft::HyperConnectionPostMix")
def hyper_connection_post_mix(op: Op, node: Node) -> tuple[Array]:
    """y = Mᵀ x + mix ∘ block, with M = 1 where it is omitted; every branch takes the block."""
    x, stream_mix = branches(op, node), node.input(3)
    rank = len(shape_of(x))
    mix = per_branch(op, node.inputs[2], x, rank)
    if stream_mix is not None:
        x = op.MatMul(op.CastLike(swapped(op, stream_mix), x), x)
    y = op.Add(x, op.Mul(mix, op.Unsqueeze(node.inputs[1], (-2,))))
    return (op.Reshape(y, node.x_shape),)


def branches(op: Op, node: Node) -> Array:
    """The first input, (..., branches, features)."""
    if not node.num_branches:
        return node.x
    return op.Reshape(node.x, (*node.x_shape[:-1], node.num_branches, -1))


def per_branch(op: Op, factor: Array, x: Array, rank: int) -> Array:
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
def engram_gate(op: Op, node: Node) -> tuple[Array, ...]:
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
def linear_attention_gate(op: Op, node: Node) -> tuple[Array, ...]:
    """(scale ∘ softplus(a + bias), σ(b))."""
    bias, scale = node.inputs[1:3]
    decay = op.Mul(scale, op.Softplus(op.Add(op.CastLike(node.x, bias), bias)))
    decay = op.CastLike(decay, node.x)
    return (decay,) if node.input(3) is None else (decay, op.Sigmoid(node.inputs[3]))
