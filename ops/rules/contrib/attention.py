"""Fused attention operators of ONNX Runtime, with rotary embeddings."""

from __future__ import annotations

import numpy as np

from ....jacobians import Array, Op, dtype_of, shape_of
from ....jacobians.errors import UnsupportedOp
from ....jacobians.symint import Number, largest, same
from ...indices import count_up
from ...node import Node, node_of
from ...registry import defines
from ..recurrent import END, add_bias
from .fused import INT64, refuse, swapped


@defines("com.microsoft::MultiHeadAttention")
def multi_head_attention(op: Op, node: Node) -> tuple[Array, ...]:
    """y = softmax(q kᵀ scale + masks) v, with past keys and values in front of k and v.

    With a `past_sequence_length`, these are as many of the first ones of a buffer, in which the new
    ones replace those behind them.
    """
    q, k, v = (per_head(op, node, i) for i in range(3))
    count, buffers = node.ints(8), (node.input(6), node.input(7))
    pasts = [x if x is None or count is None else op.Slice(x, (0,), count, (2,)) for x in buffers]
    present = (ended(op, append_to_past(op, past, x), buffer, count)
               for x, past, buffer in zip((k, v), pasts, buffers, strict=True))  # fmt: skip
    k, v = (append_to_past(op, of_beams(op, past, node.input(9)), x)
            for x, past in zip((k, v), pasts, strict=True))  # fmt: skip
    scores = masked_scores(op, node, q, k, node.input(4), node.input(5))
    y = join_heads(op, op.MatMul(op.Softmax(scores, axis=-1), v))
    return y, *present, scores


def ended(op: Op, x: Array, buffer: Array | None, count: Array | None) -> Array:
    """x in place of the first entries of a buffer; without a count, x alone."""
    if buffer is None or count is None:
        return x
    return append_to_past(op, x, op.Slice(buffer, shape_of(x)[2:3], (END,), (2,)))


def of_beams(op: Op, past: Array | None, beams: Array | None) -> Array | None:
    """The past entries of each beam, each from the beam of its batch that is named for it."""
    if past is None or beams is None:
        return past
    rows, heads, length, width = shape_of(past)
    count = shape_of(beams)[1]
    named = op.Reshape(op.Slice(op.Cast(beams, to=INT64), (0,), (length,), (2,)), (rows, length))
    first = op.Mul(op.Div(count_up(op, rows), count), count)
    index = op.Unsqueeze(op.Add(named, op.Unsqueeze(first, (1,))), (1, 3))
    return op.GatherElements(past, op.Expand(index, (rows, heads, length, width)), axis=0)


@defines("com.microsoft::Attention", past_present_share_buffer=(0,))
def attention(op: Op, node: Node) -> tuple[Array, ...]:
    """y = softmax(q kᵀ scale + masks) v, where q, k and v are the parts of x W + b."""
    packed = add_bias(op, op.MatMul(node.x, node.inputs[1]), node.input(2))
    return self_attention(op, node, packed, node.input(3), node.input(4), node.input(5))


def self_attention(
    op: Op, node: Node, packed: Array, mask: Array | None, past: Array | None, added: Array | None
) -> tuple[Array, ...]:
    """The attention of the parts of a tensor, and its keys and values behind the past ones."""
    refuse(node, {}, do_rotary=0)
    widths = node.qkv_hidden_sizes or (shape_of(packed)[-1] // 3,) * 3
    cut = op.Split(packed, np.array(widths), axis=-1, outputs=3)
    q, k, v = (split_heads(op, part, node.num_heads) for part in cut)
    if past is not None:
        k, v = (append_to_past(op, op.Gather(past, i, axis=0), x) for i, x in enumerate((k, v)))
    scores = masked_scores(op, node, q, k, mask, added)
    y = join_heads(op, op.MatMul(op.Softmax(scores, axis=-1), v))
    if len(node.step.outputs) < 2:
        return (y,)
    return y, op.Concat(op.Unsqueeze(k, (0,)), op.Unsqueeze(v, (0,)), axis=0)


@defines("com.microsoft::DecoderMaskedMultiHeadAttention")
def decoder_masked_multi_head_attention(op: Op, node: Node) -> tuple[Array | None, ...]:
    """MultiHeadAttention of one query, with its inputs in another order."""
    q, k, v, mask, added, keys, values, count, _, beams, bias = (node.input(i) for i in range(11))
    inputs = (q, k, v, bias, mask, added, keys, values, count, beams)
    return tuple(multi_head_attention(op, node_of("MHA", inputs, node.step.attrs)))


def masked_scores(
    op: Op, node: Node, q: Array, k: Array, mask: Array | None, added: Array | None
) -> Array:
    """q kᵀ scale + added, with masks for padded and, if `unidirectional`, for later keys."""
    length, total = shape_of(q)[2], shape_of(k)[2]
    scores = add_bias(op, scaled_products(op, q, k, node.scale), added)
    scores = scores if mask is None else mask_scores(op, scores, mask, node.mask_filter_value)
    if node.unidirectional:
        last = op.Add(op.Reshape(count_up(op, length), (length, 1)), total - length)
        scores = only(op, scores, op.LessOrEqual(count_up(op, total), last))
    return scores


def per_head(op: Op, node: Node, i: int) -> Array:
    """Query, key or value i with its part of the bias, (batch, heads, time, features)."""
    x = node.inputs[i]
    if x is None or len(shape_of(x)) == 5:
        raise UnsupportedOp("query, key and value are packed: unpack them")
    if len(shape_of(x)) == 4:
        return x
    if node.input(3) is not None:
        start = i * shape_of(node.x)[-1]
        x = op.Add(x, op.Slice(node.inputs[3], (start,), (start + shape_of(x)[-1],), (0,)))
    return split_heads(op, x, node.num_heads)


def append_to_past(op: Op, past: Array | None, x: Array) -> Array:
    """The past entries, followed by x."""
    return x if past is None else op.Concat(past, x, axis=2)


def scaled_products(op: Op, q: Array, k: Array, scale: float | None) -> Array:
    """Scores q kᵀ times `scale`, by default 1/√features."""
    factor = op.CastLike(scale or 1 / shape_of(q)[-1], q)
    return op.Mul(op.MatMul(q, swapped(op, k)), factor if scale else op.Sqrt(factor))


def mask_scores(op: Op, scores: Array, kept: Array, filler: float | None) -> Array:
    """Scores with `filler` added for padded keys, given by a mask, or by ends and maybe starts."""
    batch, *_, total = shape_of(scores)
    if len(shape_of(kept)) == 1:
        ends, starts = (op.Unsqueeze(op.Slice(kept, (a * batch,), ((a + 1) * batch,), (0,)), (1,))
                        for a in (0, 1))  # fmt: skip
        t = op.CastLike(count_up(op, total), kept)
        inside = op.Less(t, ends)
        started = shape_of(kept)[0] == 2 * batch
        kept = op.And(inside, op.GreaterOrEqual(t, starts)) if started else inside
    else:
        kept = op.Not(op.Equal(kept, 0))
    kept = op.Unsqueeze(kept, tuple(range(1, 5 - len(shape_of(kept)))))
    lowered = -10000.0 if filler is None else filler
    zero, low = (np.full((), c, dtype_of(scores)) for c in (0, lowered))
    return op.Add(scores, op.Where(kept, zero, low))


def only(op: Op, scores: Array, seen: Array) -> Array:
    """The scores of visible keys, a large negative number elsewhere."""
    least = np.finfo(dtype_of(scores)).min if dtype_of(scores).kind == "f" else -1e30
    return op.Where(seen, scores, np.asarray(least, dtype_of(scores)))


@defines(
    "com.microsoft::GroupQueryAttention", causal=(0, 1), sliding_window_cache=(0, 1),
    kv_cache_bit_width=(0, 8),
)  # fmt: skip
def group_query_attention(op: Op, node: Node) -> tuple[Array, ...]:
    """Attention, causal by default, with key/value heads shared by query heads, and a cache.

    Of a sequence, the cache holds `past` entries, and with them `ends`. `query_seqlens` counts the
    new ones where others are padding, which has no part in anything. A cache in bytes is rounded,
    also its new entries, which then have no derivative. A window of a cache lacks the first ones.
    """
    refuse(node, {k: f"input {k}" for k in range(14, len(node.inputs)) if k != 16})
    cache, new = node.input(3), node.input(16)
    if node.input(12) is not None and cache is not None and dtype_of(cache) != np.int8:
        raise UnsupportedOp(f"a cache of {dtype_of(cache)} is not read, only one of int8")
    q, k, v = query_key_value(op, node)
    length, (total,) = shape_of(q)[2], node.ints(6) or ()
    ends, row = op.Add(column(op, node.inputs[5]), 1), count_up(op, length)
    zero = np.zeros((), dtype_of(q))
    if new is None:
        begins = op.Equal(total, length)
        past = op.Where(begins, 0, op.Sub(ends, length))
        now, stop = op.Add(past, row), op.Add(past, length)
        at, real = token_positions(op, node.input(9), now, begins), None
    else:
        if node.input(3) is None or node.causal == 0:
            raise UnsupportedOp("query_seqlens requires past_key and past_value, and causal=1")
        real = op.Less(row, column(op, new))
        past, stop = op.Sub(ends, column(op, new)), ends
        now = op.Add(past, row)
        at = op.Where(real, now if node.input(9) is None else node.inputs[9], 0)
        q = op.Where(op.Unsqueeze(real, (1, 3)), q, zero)
    q, k = (in_place(op, node, x, at, 7) for x in (q, k))
    scales = [in_heads(op, node.input(i), k) for i in (12, 13)]
    made = [x if s is None else
            op.CastLike(op.Clip(op.Round(op.Div(x, s)), -128.0, 127.0), np.int8(0))
            for x, s in zip((k, v), scales, strict=True)]  # fmt: skip
    held, placed = cached_entries(op, node, made, past, ends, stop, total)
    k, v = (x if s is None else op.Mul(op.CastLike(x, s), s)
            for x, s in zip(placed, scales, strict=True))  # fmt: skip
    scores = grouped_scores(op, node, q, k)
    if node.softcap:
        scores = op.Mul(op.Tanh(op.Div(scores, node.softcap)), node.softcap)
    if node.input(10) is not None:
        scores = op.Add(scores, group_heads(op, node.inputs[10], node.kv_num_heads))
    seen = window(op, node, now, ends, total)
    seen = seen if real is None else op.And(seen, op.Unsqueeze(real, (1, 2, 4)))
    weights = shares(op, scores, seen, sinks(op, node, q))
    weights = weights if real is None else op.Where(seen, weights, zero)
    y = join_heads(op, op.Reshape(op.MatMul(weights, op.Unsqueeze(v, (2,))), shape_of(q)))
    if not node.qk_output:
        return y, *held
    kept = weights if node.qk_output == 2 else op.Where(seen, scores, zero)
    return y, *held, op.Reshape(kept, (*shape_of(q)[:3], total))


def column(op: Op, counts: Array) -> Array:
    """A number for each sequence, as int64 of shape (batch, 1)."""
    return op.Reshape(op.CastLike(counts, np.zeros((), np.int64)), (-1, 1))


def cached_entries(
    op: Op, node: Node, new: list[Array], past: Array, ends: Array, stop: Array, total: Number
) -> tuple[list[Array], list[Array]]:
    """Keys and values as the present cache holds them, and by their places in a sequence."""
    pasts = [node.input(i) for i in (3, 4)]
    room = 0 if pasts[0] is None else shape_of(pasts[0])[2]
    window = (room, node.local_window_size or 0) if node.sliding_window_cache else None
    if window and not 0 < window[1] <= room:
        raise UnsupportedOp(f"sliding_window_cache requires 0 < local_window_size={window[1]} ≤ "
                            f"the length of past_key and past_value, {room}")  # fmt: skip
    gone = evicted(op, past, *window) if window else 0

    def at(t: Array) -> list[Array]:
        return [cached(op, cache, x, past, t, stop, gone)
                for cache, x in zip(pasts, new, strict=True)]  # fmt: skip

    placed, length = (
        at(count_up(op, total)),
        largest(room, total) if pasts[0] is not None else total,
    )
    if window:
        return at(op.Add(evicted(op, ends, *window), count_up(op, room))), placed
    return placed if same(length, total) else at(count_up(op, length)), placed


def evicted(op: Op, count: Array, room: Number, width: int) -> Array:
    """How many entries of a sequence left its cache, `room - width + 1` at a time."""
    step = room - width + 1
    over = op.Max(op.Sub(count, room), 0)
    return op.Mul(op.Div(op.Add(over, step - 1), step), step)


def in_heads(op: Op, scale: Array | None, x: Array) -> Array | None:
    """The scale of a cache, one for all entries or one for each feature of each head."""
    _, heads, _, width = shape_of(x)
    whole = scale is None or shape_of(scale) == (1,)
    return scale if whole else op.Reshape(scale, (1, heads, 1, width))


def token_positions(op: Op, given: Array | None, now: Array, begins: Array) -> Array:
    """The positions of queries and keys, which follow the first one given where a text begins."""
    if given is None:
        return now
    first = op.Reshape(op.Slice(given, (0, 0), (1, 1), (0, 1)), ())
    return op.Where(begins, op.Add(now, first), given)


def in_place(op: Op, node: Node, x: Array, now: Array, table: int) -> Array:
    """Queries or keys rotated by their positions, by the tables from an input on, if asked for."""
    if not node.do_rotary:
        return x
    cos, sin = node.inputs[table : table + 2]
    return rotate_pairs(op, x, now, cos, sin, bool(node.rotary_interleaved))


def grouped_scores(op: Op, node: Node, q: Array, k: Array) -> Array:
    """Scores (batch, key heads, query heads per key head, time, keys)."""
    queries = group_heads(op, q, node.kv_num_heads)
    return scaled_products(op, queries, op.Unsqueeze(k, (2,)), node.scale)


def sinks(op: Op, node: Node, q: Array) -> Array | None:
    """A score for no key at all, given by head, or 0 with `smooth_softmax`."""
    given = node.input(11)
    if given is None:
        return np.zeros((1, 1, 1, 1, 1), dtype_of(q)) if node.smooth_softmax == 1 else None
    return group_heads(op, op.Reshape(given, (1, node.num_heads, 1, 1)), node.kv_num_heads)


def shares(op: Op, scores: Array, seen: Array, sink: Array | None = None) -> Array:
    """softmax(scores of the visible keys), where a part of the sum may go to no key."""
    scores = only(op, scores, seen)
    if sink is None:
        return op.Softmax(scores, axis=-1)
    *axes, keys = shape_of(scores)
    both = op.Concat(scores, op.Expand(sink, (*axes, 1)), axis=-1)
    return op.Slice(op.Softmax(both, axis=-1), (0,), (keys,), (-1,))


def query_key_value(op: Op, node: Node) -> tuple[Array, Array, Array]:
    """Query, key and value per head, split if they are packed."""
    queries, keys = node.num_heads, node.kv_num_heads
    if node.input(1) is not None:
        held = zip(node.inputs[:3], (queries, keys, keys), strict=True)
        q, k, v = (split_heads(op, x, heads) for x, heads in held)
        return q, k, v
    sizes = np.array([queries, keys, keys])
    q, k, v = op.Split(split_heads(op, node.x, int(sizes.sum())), sizes, axis=1, outputs=3)
    return q, k, v


def group_heads(op: Op, x: Array, keys: int) -> Array:
    """(batch, heads, ...) with the heads split into one group per key head; 1 head stays 1."""
    b, heads, *rest = shape_of(x)
    groups = (keys, heads // keys) if heads > 1 else (1, 1)
    return op.Reshape(x, (b, *groups, *rest))


def cached(
    op: Op, cache: Array | None, x: Array, past: Array, t: Array, stop: Array, gone: Array = 0
) -> Array:
    """The entries at places t of each sequence: the `past` ones from a cache, which lacks the first
    ones that are `gone`, then x, and 0 from `stop` on.
    """
    b, heads, length, width = shape_of(x)
    room = 0 if cache is None else shape_of(cache)[2]
    both = x if cache is None else append_to_past(op, cache, x)
    behind_it = op.Min(op.Sub(op.Add(t, room), past), room + length - 1)
    index = op.Where(op.Less(t, past), op.Max(op.Sub(t, gone), 0), behind_it)
    index = op.Unsqueeze(index, (1, 3))
    held = op.GatherElements(both, op.Expand(index, (b, heads, shape_of(index)[2], width)), axis=2)
    filled = op.Unsqueeze(op.Less(t, stop), (1, 3))
    return op.Where(filled, held, np.zeros((), dtype_of(x)))


def window(op: Op, node: Node, now: Array, ends: Array, total: Number) -> Array:
    """A mask of the keys a query attends to: up to itself, if causal, or to the end, within the
    local window.
    """
    t, last = count_up(op, total), op.Max(ends, 1)
    stop = op.Unsqueeze(last if node.causal == 0 else op.Min(op.Add(now, 1), last), (1, 2, 4))
    seen = op.Less(t, stop)
    if node.local_window_size is not None and node.local_window_size > 0:
        seen = op.And(seen, op.GreaterOrEqual(t, op.Sub(stop, node.local_window_size)))
    return seen


@defines("com.microsoft::SparseAttention")
def sparse_attention(op: Op, node: Node) -> tuple[Array, ...]:
    """GroupQueryAttention to the keys in blocks of a mask, given by its rows and columns (CSR).

    The present keys and values are the past ones, a buffer, with the new ones written into it.
    """
    q, k, v = query_key_value(op, node)
    length, room, (total,) = shape_of(q)[2], shape_of(node.inputs[3])[2], node.ints(7) or ()
    past = op.Where(op.Equal(total, length), 0, op.Sub(column(op, node.inputs[8]), length))
    now, t = op.Add(past, count_up(op, length)), count_up(op, room)
    q, k = (in_place(op, node, x, now, 9) for x in (q, k))
    old = op.Unsqueeze(op.GreaterOrEqual(t, op.Add(past, length)), (1, 3))
    k, v = (op.Where(old, cache, cached(op, cache, x, past, t, op.Add(past, length)))
            for cache, x in zip(node.inputs[3:5], (k, v), strict=True))  # fmt: skip
    seen = op.And(blocks_seen(op, node, now, t), op.LessOrEqual(t, op.Unsqueeze(now, (1, 3))))
    weights = shares(op, grouped_scores(op, node, q, k), group_heads(op, seen, node.kv_num_heads))
    y = op.MatMul(weights, op.Unsqueeze(v, (2,)))
    return join_heads(op, op.Reshape(y, shape_of(q))), k, v


def blocks_seen(op: Op, node: Node, now: Array, t: Array) -> Array:
    """Whether the block mask has the blocks of a query and of a key t, for every head."""
    rows, columns = (op.Unsqueeze(op.CastLike(node.inputs[i], np.zeros((), np.int64)), (2,))
                     for i in (5, 6))  # fmt: skip
    layouts, edges, _ = shape_of(rows)
    entry = count_up(op, shape_of(columns)[1])
    inside = op.And(op.GreaterOrEqual(entry, op.Slice(rows, (0,), (edges - 1,), (1,))),
                    op.Less(entry, op.Slice(rows, (1,), (edges,), (1,))))  # fmt: skip
    held = op.Equal(columns, count_up(op, edges - 1))
    mask = op.MatMul(*(op.CastLike(x, np.zeros((), np.float32)) for x in (inside, held)))
    at, to = (op.Div(x, node.sparse_block_size) for x in (now, t))
    mask = op.Gather(op.Gather(op.Greater(mask, 0), at, axis=1), to, axis=3)
    heads = np.arange(node.num_heads) % layouts
    return op.Gather(op.Transpose(mask, perm=(1, 0, 2, 3)), heads, axis=1)


@defines("com.microsoft::RotaryEmbedding")
def rotary_embedding(op: Op, node: Node) -> tuple[Array]:
    """Rotated features of every head; x is (batch, time, heads · features), or has 4 axes."""
    x, flat = features_by_head(op, node)
    positions = node.inputs[1]
    if len(shape_of(positions)) < 2:
        positions = op.Add(op.Reshape(positions, (1, 1)), count_up(op, shape_of(x)[2]))
    y = rotate_pairs(op, x, positions, node.inputs[2], node.inputs[3], bool(node.interleaved))
    return (join_heads(op, y) if flat else y,)


@defines("com.microsoft::MRotaryEmbedding", mrope_layout=(0, 1))
def mrotary_embedding(op: Op, node: Node) -> tuple[Array]:
    """Rotated features, where every angle has one of three positions: of time, row or column."""
    x, flat = features_by_head(op, node)
    _, rows, columns = node.mrope_section
    half = shape_of(node.inputs[2])[1]
    kind = np.repeat(range(3), node.mrope_section)
    if node.mrope_layout:
        kind = np.zeros(half, int)
        kind[1 : 3 * rows : 3], kind[2 : 3 * columns : 3] = 1, 2
    at = op.Transpose(op.Gather(node.inputs[1], kind, axis=0), perm=(1, 2, 0))
    at = op.Add(op.Mul(at, half), count_up(op, half))
    cos, sin = (op.Gather(op.Reshape(x, (-1,)), at, axis=0) for x in node.inputs[2:4])
    y = rotate_by_angles(op, x, cos, sin, bool(node.interleaved))
    y = y if node.scale is None else op.Mul(y, node.scale)
    return (join_heads(op, y) if flat else y,)


def features_by_head(op: Op, node: Node) -> tuple[Array, bool]:
    """The first input as (batch, heads, time, features), and whether its heads were joined."""
    if len(node.x_shape) == 4:
        return node.x, False
    width = node.rotary_embedding_dim or 2 * shape_of(node.inputs[2])[1]
    return split_heads(op, node.x, node.num_heads or node.x_shape[2] // width), True


def split_heads(op: Op, x: Array, heads: int) -> Array:
    """(batch, time, heads · features) -> (batch, heads, time, features)."""
    b, t, n = shape_of(x)
    return op.Transpose(op.Reshape(x, (b, t, heads, n // heads)), perm=(0, 2, 1, 3))


def join_heads(op: Op, x: Array) -> Array:
    """(batch, heads, time, features) -> (batch, time, heads · features)."""
    b, h, t, n = shape_of(x)
    return op.Reshape(op.Transpose(x, perm=(0, 2, 1, 3)), (b, t, h * n))


def rotate_pairs(
    op: Op, x: Array, positions: Array, cos: Array, sin: Array, interleaved: bool
) -> Array:
    """(u, v) -> (u cos - v sin, u sin + v cos) for the first features of x, paired."""
    cos, sin = (op.Gather(table, positions, axis=0) for table in (cos, sin))
    return rotate_by_angles(op, x, cos, sin, interleaved)


def rotate_by_angles(op: Op, x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """The same by the angles (batch, time, half) of every token."""
    half = shape_of(cos)[-1]
    width = 2 * half
    cos, sin = (op.Unsqueeze(table, (1,)) for table in (cos, sin))
    starts, step = ((0, 1), 2) if interleaved else ((0, half), 1)
    u, v = (op.Slice(x, (s,), (s + step * (half - 1) + 1,), (-1,), (step,)) for s in starts)
    pair = op.Sub(op.Mul(u, cos), op.Mul(v, sin)), op.Add(op.Mul(u, sin), op.Mul(v, cos))
    if interleaved:
        y = op.Concat(*(op.Unsqueeze(part, (-1,)) for part in pair), axis=-1)
        y = op.Reshape(y, (*shape_of(x)[:-1], width))
    else:
        y = op.Concat(*pair, axis=-1)
    if width == shape_of(x)[-1]:
        return y
    return op.Concat(y, op.Slice(x, (width,), (shape_of(x)[-1],), (-1,)), axis=-1)
