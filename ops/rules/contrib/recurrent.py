"""An LSTM with attention to a memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....jacobians import Array, dtype_of, shape_of
from ...node import Node, node_of
from ...registry import defines
from ..indexing import counted
from ..recurrent import (
    DIRECTIONS,
    Arrays,
    Cell,
    Direction,
    Form,
    Lengths,
    computed,
    lstm_cell,
    together,
)
from .attention import only


@defines("com.microsoft::AttnLSTM", direction=DIRECTIONS)
def attn_lstm(op: Any, node: Node) -> tuple[Array, ...]:
    """LSTM of (x, a), with a = (h, context) A, or the context, after the step before."""
    plain = node_of("LSTM", node.inputs[:8], node.step.attrs)
    lengths, found = Lengths(op, plain, node.x_shape[0]), []
    for k in range(2 if node.direction == "bidirectional" else 1):
        d = Direction(op, plain, k, node.x, lengths, Form(4, (5, 6), 4))
        d.cell = with_memory(node, d)
        found.append(computed(d))
    ys, lasts = zip(*found, strict=True)
    h, c, _ = (together(op, parts) for parts in zip(*lasts, strict=True))
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
    at = counted(op, steps)
    ends = op.Add(at, 1) if ends is None else op.Unsqueeze(op.CastLike(ends, at), (1,))
    seen = op.Less(at, ends)
    keys, width = op.MatMul(values, key), shape_of(d.w)[-1] - node.x_shape[-1]
    d.w, given = op.Split(d.w, (node.x_shape[-1], width), axis=1, outputs=2)
    given, cell = op.Transpose(given, perm=(1, 0)), lstm_cell(d)
    d.initial = (*d.initial, op.Expand(np.zeros((), dtype_of(values)), (batch, width)))

    def turn(x: Array, s: Array, states: Arrays) -> Arrays:
        a = states[-1]
        h, c = cell(op.Add(x, op.MatMul(a, given)), s, states[:-1])
        inner = op.Tanh(op.Add(keys, op.Unsqueeze(op.MatMul(h, query), (1,))))
        scores = op.ReduceSum(op.Mul(inner, v), (2,), keepdims=0)
        shares = op.Softmax(only(op, scores, seen), axis=-1)
        context = op.ReduceSum(op.Mul(op.Unsqueeze(shares, (2,)), values), (1,), keepdims=0)
        a = context if mix is None else op.MatMul(op.Concat(h, context, axis=1), mix)
        return h, c, a

    return turn
