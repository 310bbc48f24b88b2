"""Tables of weights in blocks of a few bits, each with its scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....jacobians import Array, dtype_of, shape_of
from ....jacobians.errors import UnsupportedOp
from ...node import Node
from ...registry import defines
from ..indexing import counted
from .fused import swapped, unpacked

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
def matmul_bnb4(op: Any, node: Node) -> tuple[Array]:
    """y = A Ŵᵀ, or A Ŵ: Ŵ = code[q] scale, with a scale for each block of its flattened rows."""
    a, packed, scales = node.inputs[:3]
    rows, columns = node.N, node.K
    pairs = op.Reshape(unpacked(op, packed, 4), (-1, 2))
    q = op.Reshape(op.Gather(pairs, np.array([1, 0]), axis=1), (-1,))
    q = op.Slice(q, (0,), (rows * columns,), (0,))
    blocks = np.arange(rows * columns) // node.block_size
    w = op.Mul(op.Gather(np.array(CODES[node.quant_type], dtype_of(a)), q, axis=0),
               op.Gather(scales, blocks, axis=0))  # fmt: skip
    w = op.Reshape(w, (rows, columns))
    return (op.MatMul(a, w if node.transB == 0 else swapped(op, w)),)


@defines("com.microsoft::MatMulFpQ4")
def matmul_fp_q4(op: Any, node: Node) -> tuple[Array]:
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
def gather_block_quantized(op: Any, node: Node) -> tuple[Array]:
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
        return op.CastLike(unpacked(op, x, bits) if bits < 8 else x, scales)

    q = gathered(data, at)
    place = along + (len(shape_of(index)) - 1 if axis < along else 0)
    size = 128 if node.block_size is None else node.block_size or shape_of(q)[place]
    block = op.Div(at, size) if axis == along else op.Mod(at, shape_of(scales)[axis])
    each = op.Div(counted(op, shape_of(q)[place]), size)

    def spread(x: Array) -> Array:
        return x if axis == along else op.Gather(x, each, axis=place)

    if zero is not None:
        q = op.Sub(q, spread(gathered(zero, block)))
    elif is_bytes:
        q = op.Sub(q, op.CastLike(2 ** (bits - 1), q))
    y = op.Mul(q, spread(op.Gather(scales, block, axis=axis)))
    kept = op.Reshape(inside, (*shape_of(index), *(1,) * (rank - axis - 1)))
    return (op.Where(kept, y, op.CastLike(0, y)),)
