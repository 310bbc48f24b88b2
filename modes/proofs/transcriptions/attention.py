"""ONNX Runtime's rotary embedding and attentions, by the text of its documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from ....ops.symbols.placing import ints
from .contrib import HOME
from .table import Index, tabulate, transcription

LOWEST = float(np.finfo(np.float64).min)
"""The score of what is not seen."""


def heads(x: Any, count: int, first: int = 0, bias: Any = None) -> Any:
    """y[n, h, t, d] = x[n, t, first + h D + d] (+ bias), a tensor per head."""
    n, time, features = x.shape
    width = features // count

    def entry(index: Index) -> Any:
        b, h, t, d = index
        place = h * width + d
        return x[b, t, place] + (0 if bias is None else bias[first + place])

    return tabulate((n, count, time, width), entry)


def flat(y: Any) -> Any:
    """y[n, t, h D + d]: the heads one behind the other."""
    n, count, time, width = y.shape
    return tabulate((n, time, count * width),
                    lambda i: y[i[0], i[2] // width, i[1], i[2] % width])  # fmt: skip


def turned(x: Any, position: Callable[[int, int], int], cos: Any, sin: Any, apart: bool) -> Any:
    """(u, v) -> (u cos - v sin, u sin + v cos), of pairs that lie apart by half or side by side."""
    half = cos.shape[1]

    def entry(index: Index) -> Any:
        n, h, t, d = index
        if d >= 2 * half:
            return x[index]
        k, second = (d % half, d >= half) if apart else (d // 2, d % 2 == 1)
        u, v = (x[n, h, t, at] for at in ((k, k + half) if apart else (2 * k, 2 * k + 1)))
        c, s = (table[position(n, t), k] for table in (cos, sin))
        return u * s + v * c if second else u * c - v * s

    return tabulate(x.shape, entry)


@transcription(f"{HOME}RotaryEmbedding")
def rotary_embedding(
    x: Any, positions: Any, cos: Any, sin: Any, *, interleaved: int = 0, num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Any:  # fmt: skip
    """Every pair of features of a head turned by the angle of its position."""
    whole = x.ndim == 4
    width = rotary_embedding_dim or 2 * cos.shape[1]
    y = x if whole else heads(x, num_heads or x.shape[2] // width)
    given = np.asarray(positions)

    def position(n: int, t: int) -> int:
        return int(given.flat[0]) + t if given.size == 1 else int(given[n, t])

    y = turned(y, position, cos, sin, not interleaved)
    return y if whole else flat(y)


def attended(q: Any, k: Any, v: Any, score: Callable[..., Any]) -> Any:
    """y[n, h, t] = Σⱼ eˢ v[n, h', j] / Σⱼ eˢ with s = score(n, h, t, j); h' is the group of h."""
    n, count, time, _ = q.shape
    share, total = count // k.shape[1], k.shape[2]

    def entry(index: Index) -> Any:
        b, h, t, d = index
        powers = [score(b, h, t, j).exp() for j in range(total)]
        return sum(p * v[b, h // share, j, d] for j, p in enumerate(powers)) / sum(powers)

    return tabulate((n, count, time, v.shape[3]), entry)


def product_of(q: Any, k: Any, scale: Any) -> Callable[..., Any]:
    """s = scale · q[n, h, t] · k[n, h', j]; the scale is 1/√D where none is given."""
    factor, share = scale or 1 / sp.sqrt(q.shape[3]), q.shape[1] // k.shape[1]
    return lambda b, h, t, j: sum(a * c for a, c in zip(q[b, h, t], k[b, h // share, j])) * factor  # noqa: B905


@transcription(f"{HOME}MultiHeadAttention")
def multi_head_attention(
    query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, added: Any = None,
    past_key: Any = None, past_value: Any = None, *, num_heads: int, scale: Any = None,
    unidirectional: int = 0, mask_filter_value: float = -10000.0,
) -> Any:  # fmt: skip
    """(y, keys, values): softmax(q kᵀ scale + what is added + the filler of masked keys) v."""
    widths = (query.shape[2], query.shape[2])
    q = heads(query, num_heads, 0, bias)
    k, v = heads(key, num_heads, widths[0], bias), heads(value, num_heads, sum(widths), bias)
    k, v = (x if past is None else np.concatenate([past, x], axis=2)
            for past, x in ((past_key, k), (past_value, v)))  # fmt: skip
    plain, ahead = product_of(q, k, scale), k.shape[2] - q.shape[2]

    def score(b: int, h: int, t: int, j: int) -> Any:
        if unidirectional and j > t + ahead:
            return 0 * q[b, h, t, 0] + LOWEST
        extra = 0 if added is None else added[b % len(added), h % added.shape[1], t, j]
        return plain(b, h, t, j) + extra + (0 if seen(mask, b, j) else mask_filter_value)

    return flat(attended(q, k, v, score)), k, v


def seen(mask: Any, b: int, j: int) -> bool:
    """Whether key j of a sequence counts: a flag for each, or how many there are."""
    if mask is None:
        return True
    return bool(mask[b, j]) if np.ndim(mask) == 2 else j < int(mask[b])


@transcription(f"{HOME}GroupQueryAttention")
def group_query_attention(
    query: Any, key: Any, value: Any, past_key: Any, past_value: Any, ends: Any, total: Any,
    cos: Any = None, sin: Any = None, *, num_heads: int, kv_num_heads: int, scale: Any = None,
    do_rotary: int = 0, rotary_interleaved: int = 0, softcap: float = 0.0,
    local_window_size: int = -1,
) -> Any:  # fmt: skip
    """(y, keys, values): a query sees what came up to its position; a group shares key and value.

    A sequence has ends[n] + 1 keys, the last of them new; the cache is in front.
    """
    q, k, v = (heads(x, c) for x, c in ((query, num_heads), (key, kv_num_heads),
                                        (value, kv_num_heads)))  # fmt: skip
    time, (whole,) = q.shape[2], ints(total)
    past = [0 if whole == time else e + 1 - time for e in ints(ends)]
    if do_rotary:
        how = (lambda n, t: past[n] + t, cos, sin, not rotary_interleaved)
        q, k = turned(q, *how), turned(k, *how)
    k, v = joined(past_key, k, past, whole), joined(past_value, v, past, whole)
    plain = product_of(q, k, scale)

    def score(b: int, h: int, t: int, j: int) -> Any:
        last = past[b] + t
        if j > last or (local_window_size > 0 and j <= last - local_window_size):
            return 0 * q[b, h, t, 0] + LOWEST
        s = plain(b, h, t, j)
        return (s / softcap).tanh() * softcap if softcap else s

    return flat(attended(q, k, v, score)), k, v


def joined(cache: Any, x: Any, past: list[int], total: int) -> Any:
    """The entries of the cache that a sequence has, then the new ones."""

    def entry(index: Index) -> Any:
        b, h, j, d = index
        return cache[index] if j < past[b] else x[b, h, j - past[b], d]

    return tabulate((x.shape[0], x.shape[1], total, x.shape[3]), entry)
