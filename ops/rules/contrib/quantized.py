"""Quantised operators: an operator of real numbers between dequantised operands or weights.

Where the result is rounded to integers its derivative is zero, and the definition gives the values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....jacobians import Array, Op, dtype_of, shape_of
from ....jacobians.errors import UnsupportedOp
from ...conventions import ORDER, PARTS, kinks
from ...indices import count_up
from ...node import Node, node_of
from ...numbers.windows import AUTO_PADS
from ...registry import Definition, defines, zero
from ..quantization import ROUNDED, exact, kernel_and_bias, real, stored
from ..recurrent import DIRECTIONS, add_bias, lstm
from ..zeros import NO_FLOATS
from .attention import self_attention
from .fused import embedded, swapped, unpack_bits

HOME = "com.microsoft::QLinear"


def declare_rounded(
    *names: str, why: str = ROUNDED, **values: Any
) -> Callable[[Definition], Definition]:
    """Declare the definition of operators whose result is rounded."""

    def register(function: Definition) -> Definition:
        zero(why, *names, definition=function, **values)
        return function

    return register


@declare_rounded(f"{HOME}Add", f"{HOME}Mul")
def qlinear_pair(op: Op, node: Node) -> tuple[Array]:
    """y = round((a + b) / scale) + zero, or with a b."""
    combine = getattr(op, node.step.op_type.removeprefix("QLinear"))
    return stored(op, node, combine(real(op, node, 0), real(op, node, 3)), 6, node.x)


@declare_rounded(f"{HOME}Where")
def qlinear_where(op: Op, node: Node) -> tuple[Array]:
    """y = round((a or b) / scale) + zero."""
    chosen = op.Where(node.x, real(op, node, 1), real(op, node, 4))
    return stored(op, node, chosen, 7, node.inputs[1])


def qlinear(
    name: str, said: str, function: Callable[[Op, Node, Array], Array], **values: Any
) -> None:
    """Declare y = round(f(x) / scale) + zero, and what is said of f."""

    def definition(op: Op, node: Node) -> tuple[Array]:
        return stored(op, node, function(op, node, real(op, node, 0)), 3, node.x)

    definition.__doc__ = f"y = round(f(x) / scale) + zero, where f is {said}."
    declare_rounded(f"{HOME}{name}", **values)(definition)


def softmax(op: Op, node: Node, x: Array) -> Array:
    axis = -1 if node.axis is None else node.axis
    if node.step.attrs["opset"] >= 13:
        return op.Softmax(x, axis=axis)
    rows = op.Reshape(x, (*node.x_shape[: axis % len(node.x_shape)], -1))
    return op.Reshape(op.Softmax(rows, axis=-1), node.x_shape)


def mean_of_pixels(op: Op, node: Node, x: Array) -> Array:
    rank = len(node.x_shape)
    axes = tuple(range(1, rank - 1) if node.channels_last else range(2, rank))
    return op.ReduceMean(x, axes, keepdims=1)


qlinear("Sigmoid", "the sigmoid", lambda op, node, x: op.Sigmoid(x))
qlinear("LeakyRelu", "max(x, αx), for α below 1", lambda op, node, x: op.LeakyRelu(
    x, alpha=0.01 if node.alpha is None else node.alpha))  # fmt: skip
qlinear("Softmax", "softmax, before opset 13 over all axes from `axis` on", softmax)
qlinear("GlobalAveragePool", "the mean over the pixels of each channel", mean_of_pixels)
qlinear("AveragePool", "the mean over windows", lambda op, node, x: over_pixels(
    op, node, op.AveragePool, x, node.channels_last), auto_pad=AUTO_PADS)  # fmt: skip


def over_pixels(
    op: Op, node: Node, made: Callable[..., Array], x: Array, last: int | None, *more: Any
) -> Array:
    """made(x, *more) with channels before pixels, also where the node has them behind."""
    attrs = {k: v for k, v in node.step.attrs.items() if k != "channels_last"}
    if not last:
        return made(x, *more, **attrs)
    inner = range(1, len(node.x_shape) - 1)
    y = made(op.Transpose(x, perm=(0, inner[-1] + 1, *inner)), *more, **attrs)
    return op.Transpose(y, perm=(0, *(a + 1 for a in inner), 1))


@declare_rounded(f"{HOME}Conv", auto_pad=AUTO_PADS)
def qlinear_conv(op: Op, node: Node) -> tuple[Array]:
    """y = round((x ∗ w + b) / scale) + zero; b counts in units of both scales."""
    x, last, both = real(op, node, 0), node.channels_last, kernel_and_bias(op, node)
    return stored(op, node, over_pixels(op, node, op.Conv, x, last, *both), 6, node.x)


@declare_rounded("com.microsoft::NhwcMaxPool", why=NO_FLOATS, auto_pad=AUTO_PADS)
def nhwc_max_pool(op: Op, node: Node) -> tuple[Array]:
    """The maxima of windows of pixels, with the channels last."""
    return (over_pixels(op, node, op.MaxPool, node.x, 1),)


@declare_rounded(f"{HOME}Concat")
def qlinear_concat(op: Op, node: Node) -> tuple[Array]:
    """y = round(concatenation / scale) + zero, of inputs with their own scales."""
    parts = (real(op, node, i) for i in range(2, len(node.inputs), 3))
    return stored(op, node, op.Concat(*parts, axis=node.axis), 0, node.inputs[1])


@defines("com.microsoft::QGemm")
def qgemm(op: Op, node: Node) -> tuple[Array]:
    """y = α (A' B' + C), rounded where a scale of y is given; C counts in units of both scales."""
    a = real(op, node, 0)
    b = real(op, node, 3, -2 if node.transB else -1)
    alpha = 1.0 if node.alpha is None else node.alpha
    y = op.Gemm(a, b, None, transA=node.transA or 0, transB=node.transB or 0, alpha=alpha)
    if node.input(6) is not None:
        unit = op.Mul(op.Mul(node.inputs[1], node.inputs[4]), alpha)
        y = op.Add(y, op.Mul(op.CastLike(node.inputs[6], y), unit))
    return (y,) if node.input(7) is None else stored(op, node, y, 7, node.x)


@defines("com.microsoft::MatMulIntegerToFloat")
def matmul_integer_to_float(op: Op, node: Node) -> tuple[Array]:
    """y = A B + b, with A = (q - zero) scale and likewise B, a scale for each of its columns."""
    a = exact(op, node.x, node.inputs[2], node.input(4), -2)
    b = exact(op, node.inputs[1], node.inputs[3], node.input(5))
    return (add_bias(op, op.MatMul(a, b), node.input(6)),)


kinks("com.microsoft::DynamicQuantizeMatMul", where=ORDER, given=PARTS)


@defines("com.microsoft::DynamicQuantizeMatMul")
def dynamic_quantize_matmul(op: Op, node: Node) -> tuple[Array]:
    """y = A B + b, with A rounded to 256 numbers and B = (q - zero) scale."""
    b = exact(op, node.inputs[1], node.inputs[2], node.input(3))
    return (add_bias(op, op.MatMul(in_bytes(op, node.x), b), node.input(4)),)


def in_bytes(op: Op, x: Array, axes: tuple[int, ...] | None = None) -> Array:
    """s (q - z): x by its 256 steps s from its least to its largest entry, or 0.

    With `axes`, each slice along these axes has its own steps. As q and z are piecewise
    constant, the derivative is the derivative of s.
    """
    nought, keep = np.zeros((), dtype_of(x)), int(axes is not None)
    high = op.Max(op.ReduceMax(x, axes, keepdims=keep), nought)
    low = op.Min(op.ReduceMin(x, axes, keepdims=keep), nought)
    scale = op.Div(op.Sub(high, low), 255.0)
    scale = op.Where(op.Equal(high, low), np.ones((), dtype_of(x)), scale)
    start = op.Round(op.Div(low, scale))
    steps = op.Round(op.Div(x, scale))
    above = op.Relu(op.Sub(op.Sub(steps, start), 255.0))
    return op.Mul(op.Sub(steps, above), scale)


@defines("com.microsoft::DynamicQuantizeLSTM", direction=DIRECTIONS)
def dynamic_quantize_lstm(op: Op, node: Node) -> tuple[Array, ...]:
    """LSTM of x and of each row of h in 256 steps; W and R are (q - zero) scale.

    ONNX Runtime may round several rows of h together, as many as its threads take.
    """

    def weight(i: int) -> Array:
        w, scale, zero_point = (node.inputs[k] for k in (i, 2 * i + 6, 2 * i + 7))
        line = (shape_of(w)[0], 1, -1)
        w = exact(op, w, op.Reshape(scale, line), op.Reshape(zero_point, line))
        return swapped(op, w)

    inputs = (in_bytes(op, node.x), weight(1), weight(2), *node.inputs[3:8])
    plain = node_of("LSTM", inputs, node.step.attrs, outputs=len(node.step.outputs))
    return tuple(lstm(op, plain, lambda h: in_bytes(op, h, (-1,))))


@defines("com.microsoft::QAttention", past_present_share_buffer=(0,))
def qattention(op: Op, node: Node) -> tuple[Array, ...]:
    """Attention of x and W, both (q - zero) scale, and the bias."""
    x = exact(op, node.x, node.inputs[3], node.input(6))
    w = exact(op, node.inputs[1], node.inputs[4], node.input(7))
    packed = op.Add(op.MatMul(x, w), node.inputs[2])
    return self_attention(op, node, packed, node.input(5), node.input(8), None)


@defines("com.microsoft::QEmbedLayerNormalization")
def qembed_layer_normalization(op: Op, node: Node) -> tuple[Array, ...]:
    """EmbedLayerNormalization of tables and factors that are (q - zero) scale."""
    held = [None if node.input(i) is None else
            exact(op, node.inputs[i], node.inputs[i + 6], node.input(i + 11))
            for i in range(2, 7)]  # fmt: skip
    return embedded(op, node, held, None)[:2]


CODES = (
    (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4,
     0, -1 / 192, -2 / 3, -1, -1 / 3, -1 / 2, -1 / 6, -1 / 4),
    (-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
     -0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725,
     0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
     0.7229568362236023, 1),
)  # fmt: skip
"""The sixteen numbers of FP4, and of NF4: quantiles of the normal distribution."""


@defines("com.microsoft::MatMulBnb4", quant_type=(0, 1))
def matmul_bnb4(op: Op, node: Node) -> tuple[Array]:
    """y = A Ŵᵀ, or A Ŵ: Ŵ = code[q] scale, with a scale for each block of its flattened rows."""
    a, packed, scales = node.inputs[:3]
    rows, columns = node.N, node.K
    pairs = op.Reshape(unpack_bits(op, packed, 4), (-1, 2))
    q = op.Reshape(op.Gather(pairs, np.array([1, 0]), axis=1), (-1,))
    q = op.Slice(q, (0,), (rows * columns,), (0,))
    blocks = np.arange(rows * columns) // node.block_size
    w = op.Mul(op.Gather(np.array(CODES[node.quant_type], dtype_of(a)), q, axis=0),
               op.Gather(scales, blocks, axis=0))  # fmt: skip
    w = op.Reshape(w, (rows, columns))
    return (op.MatMul(a, w if node.transB == 0 else swapped(op, w)),)


@defines("com.microsoft::MatMulFpQ4")
def matmul_fp_q4(op: Op, node: Node) -> tuple[Array]:
    """y = A Ŵ, with Ŵ = (q - zero) scale in blocks of 32 along its columns.

    A block is a float32 scale, a zero point unless the type is 0, and 16 bytes: q₀ … q₁₅ in their
    lower halves, the others in their upper halves.
    """
    blob, shape, zoned = node.number(1), node.fixed(2), node.blk_quant_type != 0
    if blob is None or shape is None:
        raise UnsupportedOp("the weights of MatMulFpQ4 are bytes that must be constants")
    rows, columns = shape
    blocks = blob.reshape(columns, -1, 21 if zoned else 20)
    q = np.concatenate([blocks[..., -16:] & 15, blocks[..., -16:] >> 4], axis=2)
    zero = blocks[..., 4:5].astype(float) if zoned else 8.0
    w = (q - zero) * np.ascontiguousarray(blocks[..., :4]).view("<f4")
    w = w.reshape(columns, -1)[:, :rows].T.astype(dtype_of(node.x))
    return (op.MatMul(node.x, w),)


@defines("com.microsoft::GatherBlockQuantized", bits=(2, 4, 8))
def gather_block_quantized(op: Op, node: Node) -> tuple[Array]:
    """y = (q - zero) scale at the indices, with blocks along an axis; 0 where there is no entry."""
    data, index, scales, zero = (node.input(i) for i in range(4))
    rank, bits, is_bytes = len(shape_of(data)), node.bits or 4, dtype_of(data) == np.uint8
    axis = (node.gather_axis or 0) % rank
    along = (1 if node.quantize_axis is None else node.quantize_axis) % rank
    count = shape_of(data)[axis]
    inside = op.And(op.GreaterOrEqual(index, -count), op.Less(index, count))
    at = op.Mod(op.Where(inside, index, op.CastLike(0, index)), count)

    def gathered(x: Array, at: Array) -> Array:
        if not is_bytes:
            return op.Gather(op.CastLike(x, scales), at, axis=axis)
        x = op.Gather(x, at, axis=axis)
        return op.CastLike(unpack_bits(op, x, bits) if bits < 8 else x, scales)

    q = gathered(data, at)
    place = along + (len(shape_of(index)) - 1 if axis < along else 0)
    size = 128 if node.block_size is None else node.block_size or shape_of(q)[place]
    block = op.Div(at, size) if axis == along else op.Mod(at, shape_of(scales)[axis])
    each = op.Div(count_up(op, shape_of(q)[place]), size)

    def spread(x: Array) -> Array:
        return x if axis == along else op.Gather(x, each, axis=place)

    if zero is not None:
        q = op.Sub(q, spread(gathered(zero, block)))
    elif is_bytes:
        q = op.Sub(q, op.CastLike(2 ** (bits - 1), q))
    y = op.Mul(q, spread(op.Gather(scales, block, axis=axis)))
    kept = op.Reshape(inside, (*shape_of(index), *(1,) * (rank - axis - 1)))
    return (op.Where(kept, y, op.CastLike(0, y)),)
