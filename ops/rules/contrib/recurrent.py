"""Operators along a sequence: an LSTM with attention to a memory, linear attention, windows.

Linear attention updates a matrix S of keys and values at every step:
S' = eᵍ S + k ⊗ β (v - eᵍ Sᵀ k) and y = scale S'ᵀ q; some rules leave out g, or Sᵀ k and β.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ....jacobians import Array, Op, dtype_of, shape_of
from ....jacobians.errors import UnsupportedOp
from ....jacobians.symint import Number
from ...conventions import ORDER, PARTS, kinks
from ...graphs import scan
from ...indices import count_up
from ...node import Node, node_of
from ...numbers.windows import AUTO_PADS, GEOMETRY, given_attributes, windows
from ...registry import defines
from ..recurrent import (
    DIRECTIONS,
    Cell,
    Direction,
    Form,
    Lengths,
    lstm_cell,
    run_direction,
    stack_directions,
)
from .attention import only
from .fused import INT64, refuse, swapped


@defines("com.microsoft::AttnLSTM", direction=DIRECTIONS)
def attn_lstm(op: Op, node: Node) -> tuple[Array, ...]:
    """LSTM of (x, a), with a = (h, context) A, or the context, after the step before."""
    plain = node_of("LSTM", node.inputs[:8], node.step.attrs)
    lengths, found = Lengths(op, plain, node.x_shape[0]), []
    for k in range(2 if node.direction == "bidirectional" else 1):
        d = Direction(op, plain, k, node.x, lengths, Form(4, (5, 6), 4))
        d.cell = with_memory(node, d)
        found.append(run_direction(d))
    ys, lasts = zip(*found, strict=True)
    h, c, _ = (stack_directions(op, parts) for parts in zip(*lasts, strict=True))
    return op.Concat(*(op.Unsqueeze(y, (1,)) for y in ys), axis=1), h, c


def with_memory(node: Node, d: Direction) -> Cell:
    """The cell of (h, c, a): context = softmax(v · tanh(M K + h Q)) M over the valid entries of M.

    The direction takes the columns of W for x, and a = 0 at first.
    """
    op, (values, ends) = d.op, (node.inputs[11], node.input(12))
    query, key, v, mix = (
        None if node.input(i) is None else op.Gather(node.inputs[i], d.d, axis=0)
        for i in (8, 9, 10, 13)
    )
    batch, steps, _ = shape_of(values)
    at = count_up(op, steps)
    ends = op.Add(at, 1) if ends is None else op.Unsqueeze(op.CastLike(ends, at), (1,))
    seen = op.Less(at, ends)
    keys, width = op.MatMul(values, key), shape_of(d.w)[-1] - node.x_shape[-1]
    d.w, given = op.Split(d.w, (node.x_shape[-1], width), axis=1, outputs=2)
    given, cell = op.Transpose(given, perm=(1, 0)), lstm_cell(d)
    d.initial = (*d.initial, op.Expand(np.zeros((), dtype_of(values)), (batch, width)))

    def turn(x: Array, s: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
        a = states[-1]
        h, c = cell(op.Add(x, op.MatMul(a, given)), s, states[:-1])
        inner = op.Tanh(op.Add(keys, op.Unsqueeze(op.MatMul(h, query), (1,))))
        scores = op.ReduceSum(op.Mul(inner, v), (2,), keepdims=0)
        shares = op.Softmax(only(op, scores, seen), axis=-1)
        context = op.ReduceSum(op.Mul(op.Unsqueeze(shares, (2,)), values), (1,), keepdims=0)
        a = context if mix is None else op.MatMul(op.Concat(h, context, axis=1), mix)
        return h, c, a

    return turn


RULES = ("linear", "gated", "delta", "gated_delta")


@defines("com.microsoft::LinearAttention", update_rule=RULES)
def linear_attention(op: Op, node: Node) -> tuple[Array, Array]:
    """(y, S) for inputs (batch, time, heads · features)."""
    refuse(node, {}, state_window=0)
    keys, features = node.kv_num_heads, node.x_shape[-1] // node.q_num_heads

    def per_head(x: Array | None, count: Number) -> Array | None:
        return None if x is None else op.Reshape(x, (*shape_of(x)[:2], count, -1))

    k, v = node.inputs[1:3]
    decay, beta = node.input(4), node.input(5)
    series = (
        per_head(node.x, node.q_num_heads), per_head(k, shape_of(k)[-1] // features),
        per_head(v, keys), per_head(decay, keys),
        None if beta is None else op.Unsqueeze(beta, (3,)),
    )  # fmt: skip
    state = node.input(3)
    if state is None:
        state = nought(op, node.x, (node.x_shape[0], keys, features, shape_of(series[2])[-1]))
    y, state = recurrence(op, node, series, state)
    return op.Reshape(y, (*node.x_shape[:2], -1)), state


@defines(
    "com.microsoft::GatedDeltaNet", update_rule=RULES, beta_activation=("none", "sigmoid"),
    gate_activation=("none", "softplus", "qwen", "sigmoid", "kda"),
)  # fmt: skip
def gated_delta_net(op: Op, node: Node) -> tuple[Array, Array]:
    """(y, Sᵀ), where the tokens of all sequences follow one another."""
    refuse(node, {}, state_update_capacity=0)
    q, k, v = tokens(op, node)
    state, leading, (heads, width) = node.input(6), shape_of(v)[:-2], shape_of(v)[-2:]
    cuts = None if node.input(3) is None else node.fixed(3)
    if state is None:
        state = nought(op, v, (len(cuts or (0,)) - 1, heads, width, shape_of(q)[-1]))
    if node.qk_l2_norm:
        q, k = normalize_rows(op, q), normalize_rows(op, k)
    parts = (q, k, v, decay_of(op, node, v), rate_of(op, node))
    flat = [None if x is None else op.Reshape(op.CastLike(x, state), (-1, *shape_of(x)[-2:]))
            for x in parts]  # fmt: skip
    s = swapped(op, state)
    if cuts is None:
        y, s = run_sequences(op, node, flat, s)
    else:
        each = [
            run_sequences(
                op, node, [slice_rows(op, x, *ends) for x in flat], slice_rows(op, s, b, b + 1)
            )
            for b, ends in enumerate(pairwise(cuts))
        ]
        y, s = (op.Concat(*column, axis=0) for column in zip(*each, strict=True))
    y = op.Reshape(op.CastLike(y, node.x), (*leading, -1, width))
    return y, swapped(op, s)


def tokens(op: Op, node: Node) -> list[Array]:
    """q, k and v, (..., heads, features), split if they are packed."""
    if node.input(1) is not None:
        return list(node.inputs[:3])
    heads, width, features = shape_of(node.inputs[6])[1:]
    shared = (node.x_shape[-1] - heads * width) // 2
    sizes = np.array([shared, shared, heads * width])
    cuts = op.Split(node.x, sizes, axis=-1, outputs=3)
    return [op.Reshape(x, (*node.x_shape[:-1], -1, n))
            for x, n in zip(cuts, (features, features, width), strict=True)]  # fmt: skip


def normalize_rows(op: Op, x: Array) -> Array:
    """x / ‖x‖ along the last axis."""
    squares = op.ReduceSum(op.Mul(x, x), (-1,), keepdims=1)
    return op.Div(x, op.Sqrt(op.Add(squares, op.CastLike(1e-12, x))))


def decay_of(op: Op, node: Node, v: Array) -> Array | None:
    """g, (..., heads, features or 1): the input, or a function of it and two parameters."""
    g, log_a, bias = (node.input(i) for i in (4, 7, 8))
    if g is None:
        return None
    g = g if len(shape_of(g)) == len(shape_of(v)) else op.Unsqueeze(g, (-1,))
    if (node.gate_activation or "none") == "none":
        return g
    rate = op.Exp(op.Unsqueeze(log_a, (-1,)))
    g = op.CastLike(g, rate)
    g = g if bias is None else op.Add(g, op.Reshape(bias, (shape_of(v)[-2], -1)))
    if node.gate_activation in ("softplus", "qwen"):
        return op.Neg(op.Mul(rate, op.Softplus(g)))
    bound = -5.0 if node.gate_lower_bound is None else node.gate_lower_bound
    return op.Mul(op.Sigmoid(op.Mul(rate, g)), bound)


def rate_of(op: Op, node: Node) -> Array | None:
    """β, (..., heads, 1)."""
    beta = node.input(5)
    if beta is None:
        return None
    return op.Unsqueeze(op.Sigmoid(beta) if node.beta_activation == "sigmoid" else beta, (-1,))


def slice_rows(op: Op, x: Array | None, start: int, stop: int) -> Array | None:
    """Entries of the first axis."""
    return None if x is None else op.Slice(x, (start,), (stop,), (0,))


def run_sequences(op: Op, node: Node, flat: list[Any], state: Array) -> tuple[Array, Array]:
    """The recurrence of sequences of equal length, one after another; y as tokens."""
    shape = (shape_of(state)[0], -1)
    series = [None if x is None else op.Reshape(x, (*shape, *shape_of(x)[1:])) for x in flat]
    y, state = recurrence(op, node, series, state)
    return op.Reshape(y, (-1, *shape_of(y)[2:])), state


def recurrence(op: Op, node: Node, series: Sequence[Any], state: Array) -> tuple[Array, Array]:
    """y and the last S from q, k, v, g and β, each (batch, time, heads, features or 1)."""
    rule, heads = node.update_rule or "gated_delta", shape_of(state)[1]
    q, k, v, g, beta = series
    features, (b, t) = shape_of(q)[-1], shape_of(q)[:2]
    q, k = (repeat_heads(op, x, heads) for x in (q, k))
    rows = [op.Reshape(q, (b, t, heads, -1, features)), *(op.Unsqueeze(x, (3,)) for x in (k, v))]
    rows += [op.Exp(op.Unsqueeze(g, (4,)))] if "gated" in rule else []
    rows += [op.Unsqueeze(beta, (3,))] if "delta" in rule else []

    def turn(states: tuple[Array, ...], row: tuple[Array, ...]) -> tuple[tuple[Array], Array]:
        (s,), (q, k, v, *rest) = states, row
        s = op.Mul(s, rest[0]) if "gated" in rule else s
        v = op.Mul(op.Sub(v, op.MatMul(k, s)), rest[-1]) if "delta" in rule else v
        s = op.Add(s, op.Mul(swapped(op, k), v))
        return (s,), op.MatMul(q, s)

    steps = tuple(op.Transpose(x, perm=(1, 0, 2, 3, 4)) for x in rows)
    (state,), y = scan(op, turn, (state,), steps, backward=False)
    y = op.Reshape(op.Transpose(y, perm=(1, 0, 2, 3, 4)), (b, t, -1, shape_of(state)[-1]))
    scale = op.CastLike(node.scale or features, y)
    return op.Mul(y, scale) if node.scale else op.Div(y, op.Sqrt(scale)), state


def repeat_heads(op: Op, x: Array, heads: Number) -> Array:
    """(batch, time, heads, features) with each head repeated where there are fewer."""
    count = shape_of(x)[2]
    if count >= heads:
        return x
    return op.Gather(x, op.Div(count_up(op, heads), heads // count), axis=2)


def nought(op: Op, x: Array, shape: tuple[Number, ...]) -> Array:
    """Zeros of the type of x."""
    return op.Expand(np.zeros((), dtype_of(x)), shape)


# -- windows along a sequence or over an image: unfolded, compared, convolved, pooled --------------


def starts(op: Op, count: Number, width: int, step: int = 1) -> Array:
    """Positions of the entries of windows, (count, width)."""
    first = op.Mul(op.Reshape(count_up(op, count), (count, 1)), step)
    return op.Add(first, np.arange(width))


@defines("com.microsoft::UnfoldTensor")
def unfold(op: Op, node: Node) -> tuple[Array]:
    """The windows of an axis, one for every `step` entries, each along a new last axis."""
    rank, step = len(node.x_shape), node.step.attrs.get("step", 1)
    axis = (-1 if node.dim is None else node.dim) % rank
    count = (node.x_shape[axis] - node.size) // step + 1
    y = op.Gather(node.x, starts(op, count, node.size, step), axis=axis)
    order = (*(a for a in range(rank + 1) if a != axis + 1), axis + 1)
    return (op.Transpose(y, perm=order),)


@defines("com.microsoft::NGramRepeatBlock")
def ngram_repeat_block(op: Op, node: Node) -> tuple[Array]:
    """Scores, with -∞ for a token that would repeat n tokens of the row of ids."""
    ids, scores, n = node.x, node.inputs[1], node.ngram_size
    length = node.x_shape[1]
    if length < n:
        return (op.Identity(scores),)
    grams = op.Gather(ids, starts(op, length - n + 1, n), axis=1)
    ending = op.Unsqueeze(op.Slice(ids, (length - n + 1,), (length,), (1,)), (1,))
    differs = op.Cast(op.Not(op.Equal(op.Slice(grams, (0,), (n - 1,), (2,)), ending)), to=INT64)
    again = op.Equal(op.ReduceSum(differs, (2,), keepdims=1), 0)
    token = op.Equal(op.Slice(grams, (n - 1,), (n,), (2,)), count_up(op, shape_of(scores)[1]))
    found = op.ReduceSum(op.Cast(op.And(again, token), to=INT64), (1,), keepdims=0)
    return (op.Where(op.Greater(found, 0), np.asarray(-np.inf, dtype_of(scores)), scores),)


@defines("com.microsoft::VarlenCausalConvWithState", activation=("none", "silu", "swish"))
def packed_causal_conv(op: Op, node: Node) -> tuple[Array, ...]:
    """yₜ = f(Σⱼ wⱼ x at t - (K - 1 - j) d + b) in each of several sequences, one behind another.

    The state stands for the entries before a sequence; the new state holds its last ones.
    """
    refuse(node, {6: "kernel_delta", 7: "previous_mask"})
    x, w, ends, bias, state = node.inputs[:5]
    tokens, channels = node.x_shape
    batch, _, past = shape_of(state)
    ends = op.Cast(ends, to=INT64)
    first, last = op.Slice(ends, (0,), (batch,), (0,)), op.Slice(ends, (1,), (batch + 1,), (0,))
    before = op.Reshape(op.Transpose(state, perm=(0, 2, 1)), (batch * past, channels))
    both = op.Concat(x, before, axis=0)

    def entries(sequence: Array, place: Array) -> Array:
        held = op.Add(op.Add(op.Mul(sequence, past), tokens + past), place)
        inside = op.Add(op.Gather(first, sequence, axis=0), place)
        return op.Gather(both, op.Where(op.Less(place, 0), held, inside), axis=0)

    t = count_up(op, tokens)
    passed = op.Cast(op.LessOrEqual(op.Unsqueeze(last, (1,)), t), to=INT64)
    sequence = op.ReduceSum(passed, (0,), keepdims=0)
    place, taps = op.Sub(t, op.Gather(first, sequence, axis=0)), shape_of(w)[2]
    y = bias
    for j in range(taps):
        lag = (taps - 1 - j) * (node.dilation or 1)
        tap = op.Reshape(op.Slice(w, (j,), (j + 1,), (2,)), (channels,))
        term = op.Mul(entries(sequence, op.Sub(place, lag)), tap)
        y = term if y is None else op.Add(y, term)
    y = y if (node.activation or "none") == "none" else op.Mul(y, op.Sigmoid(y))
    rows, length = op.Reshape(count_up(op, batch), (batch, 1)), op.Sub(last, first)
    length = op.Unsqueeze(length, (1,))
    state = entries(rows, op.Add(op.Sub(length, past), count_up(op, past)))
    state = op.Transpose(state, perm=(0, 2, 1))
    if not node.state_update_capacity:
        return y, state
    slot = np.arange(node.state_update_capacity)
    kept = op.Less(slot, op.Min(op.Unsqueeze(op.Cast(node.inputs[5], to=INT64), (1,)), length))
    update = entries(rows, op.Min(slot, op.Sub(length, 1)))
    nought = np.zeros((), dtype_of(x))
    return y, state, op.Where(op.Unsqueeze(kept, (2,)), update, nought)


kinks("com.microsoft::MaxpoolWithMask", where=ORDER, given=PARTS)


@defines("com.microsoft::MaxpoolWithMask", auto_pad=AUTO_PADS)
def max_pool_with_mask(op: Op, node: Node) -> tuple[Array]:
    """The maximum of each window, in whose lines nothing counts from the first masked entry on.

    The mask is one plane for all channels; an image's entry in the corner counts always.
    """
    mask, inner = node.inputs[1], node.x_shape[2:]
    if shape_of(mask) != (1, 1, *inner):
        raise UnsupportedOp(f"the mask has the shape {shape_of(mask)}, and ONNX Runtime reads "
                            "several planes from places within the first one: use "
                            f"{(1, 1, *inner)}")  # fmt: skip
    grid = windows(inner, node.kernel_shape, **given_attributes(node.step.attrs, *GEOMETRY))
    corner = np.zeros(inner, bool)
    corner[(0,) * len(inner)] = len(inner) > 1
    low = np.asarray(np.finfo(np.float32).min, dtype_of(node.x))
    pads = np.array((0, 0, *grid.begins, 0, 0, *grid.ends))
    x = op.Pad(node.x, pads, low)
    seen = op.Cast(op.Or(op.Not(op.Equal(mask, 0)), corner), to=INT64)
    seen = op.Greater(op.Pad(seen, pads, np.array(1)), 0)
    axes, ends = tuple(range(2, 2 + len(inner))), zip(grid.count, grid.strides, strict=True)
    spans, line, terms = tuple((n - 1) * s + 1 for n, s in ends), seen, []
    for start in np.ndindex(*grid.kernel):
        stop = tuple(map(sum, zip(start, spans, strict=True)))
        here, entries = (op.Slice(a, start, stop, axes, grid.strides) for a in (seen, x))
        line = op.And(line, here) if start[-1] else here
        terms.append(op.Where(line, entries, low))
    return (op.Max(*terms),)


kinks("com.microsoft::WordConvEmbedding", where="where two windows attain the maximum", given=PARTS)


@defines("com.microsoft::WordConvEmbedding")
def word_conv_embedding(op: Op, node: Node) -> tuple[Array]:
    """yₙ = the maximum of tanh(W ∗ C[word n] + b) over the windows inside the word.

    Characters are positive numbers; words are padded with zeros. An empty word has one window.
    """
    word, w, b, table = node.inputs
    length, width = node.x_shape[1], shape_of(w)[2]
    letters = op.Unsqueeze(op.Gather(table, word, axis=0), (1,))
    y = op.Squeeze(op.Tanh(op.Conv(letters, w, b)), (3,))
    size = op.ReduceSum(op.Cast(op.Greater(word, 0), to=INT64), (1,), keepdims=1)
    last = op.Unsqueeze(op.Sub(op.Max(size, width), width), (1,))
    inside = op.LessOrEqual(count_up(op, length - width + 1), last)
    low = np.asarray(-1e12, dtype_of(y))
    return (op.ReduceMax(op.Where(inside, y, low), (2,), keepdims=0),)
