"""Windows along a sequence or over an image: unfolded, compared, convolved, pooled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....jacobians import Array, dtype_of, shape_of
from ....jacobians.errors import UnsupportedOp
from ....jacobians.symint import Number
from ...conventions import ORDER, PARTS, kinks
from ...node import Node
from ...numbers.windows import AUTO_PADS, GEOMETRY, said, windows
from ...registry import defines
from ..indexing import counted
from .fused import INT64, refuse


def starts(op: Any, count: Number, width: int, step: int = 1) -> Array:
    """Positions of the entries of windows, (count, width)."""
    first = op.Mul(op.Reshape(counted(op, count), (count, 1)), step)
    return op.Add(first, np.arange(width))


@defines("com.microsoft::UnfoldTensor")
def unfold(op: Any, node: Node) -> tuple[Array]:
    """The windows of an axis, one for every `step` entries, each along a new last axis."""
    rank, step = len(node.x_shape), node.step.attrs.get("step", 1)
    axis = (-1 if node.dim is None else node.dim) % rank
    count = (node.x_shape[axis] - node.size) // step + 1
    y = op.Gather(node.x, starts(op, count, node.size, step), axis=axis)
    order = (*(a for a in range(rank + 1) if a != axis + 1), axis + 1)
    return (op.Transpose(y, perm=order),)


@defines("com.microsoft::NGramRepeatBlock")
def ngram_repeat_block(op: Any, node: Node) -> tuple[Array]:
    """Scores, with -∞ for a token that would repeat n tokens of the row of ids."""
    ids, scores, n = node.x, node.inputs[1], node.ngram_size
    length = node.x_shape[1]
    if length < n:
        return (op.Identity(scores),)
    grams = op.Gather(ids, starts(op, length - n + 1, n), axis=1)
    ending = op.Unsqueeze(op.Slice(ids, (length - n + 1,), (length,), (1,)), (1,))
    differs = op.Cast(op.Not(op.Equal(op.Slice(grams, (0,), (n - 1,), (2,)), ending)), to=INT64)
    again = op.Equal(op.ReduceSum(differs, (2,), keepdims=1), 0)
    token = op.Equal(op.Slice(grams, (n - 1,), (n,), (2,)), counted(op, shape_of(scores)[1]))
    found = op.ReduceSum(op.Cast(op.And(again, token), to=INT64), (1,), keepdims=0)
    return (op.Where(op.Greater(found, 0), np.asarray(-np.inf, dtype_of(scores)), scores),)


@defines("com.microsoft::VarlenCausalConvWithState", activation=("none", "silu", "swish"))
def packed_causal_conv(op: Any, node: Node) -> tuple[Array, ...]:
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

    t = counted(op, tokens)
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
    rows, length = op.Reshape(counted(op, batch), (batch, 1)), op.Sub(last, first)
    length = op.Unsqueeze(length, (1,))
    state = entries(rows, op.Add(op.Sub(length, past), counted(op, past)))
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
def max_pool_with_mask(op: Any, node: Node) -> tuple[Array]:
    """The maximum of each window, in whose lines nothing counts from the first masked entry on.

    The mask is one plane for all channels; an image's entry in the corner counts always.
    """
    mask, inner = node.inputs[1], node.x_shape[2:]
    if shape_of(mask) != (1, 1, *inner):
        raise UnsupportedOp(f"the mask has the shape {shape_of(mask)}, and ONNX Runtime reads "
                            "several planes from places within the first one: use "
                            f"{(1, 1, *inner)}")  # fmt: skip
    grid = windows(inner, node.kernel_shape, **said(node.step.attrs, *GEOMETRY))
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
def word_conv_embedding(op: Any, node: Node) -> tuple[Array]:
    """yₙ = the maximum of tanh(W ∗ C[word n] + b) over the windows inside the word.

    Characters are positive numbers; words are padded with zeros. An empty word has one window.
    """
    word, w, b, table = node.inputs
    length, width = node.x_shape[1], shape_of(w)[2]
    letters = op.Unsqueeze(op.Gather(table, word, axis=0), (1,))
    y = op.Squeeze(op.Tanh(op.Conv(letters, w, b)), (3,))
    size = op.ReduceSum(op.Cast(op.Greater(word, 0), to=INT64), (1,), keepdims=1)
    last = op.Unsqueeze(op.Sub(op.Max(size, width), width), (1,))
    inside = op.LessOrEqual(counted(op, length - width + 1), last)
    low = np.asarray(-1e12, dtype_of(y))
    return (op.ReduceMax(op.Where(inside, y, low), (2,), keepdims=0),)
