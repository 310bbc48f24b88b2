"""ONNX Runtime's own operators (`com.microsoft`), by the text of its documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

from ....ops.symbols.placing import ints
from ....ops.symbols.table import KERNELS
from . import TRANSCRIPTIONS, Index, stretched, tabulate, transcription
from .arithmetic import entrywise, gemm, mean, moments
from .windows import conv

HOME = "com.microsoft::"


def gelu(x: Any) -> Any:
    """x Φ(x)."""
    return x * (1 + (x / sp.sqrt(2)).erf()) / 2


def fast_gelu(x: Any) -> Any:
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    return x * (1 + ((x + x * x * x * 0.044715) * sp.sqrt(2 / sp.pi)).tanh()) / 2


def quick_gelu(x: Any, *, alpha: float = 1.702) -> Any:
    """x / (1 + exp(-αx))."""
    return x / (1 + (-(x * alpha)).exp())


def scaled_silu(x: Any, scale: Any = None, *, alpha: float = 1.0) -> Any:
    """z / (1 + exp(-z)) with z = αx, or the scale times x."""
    z = x * (alpha if scale is None else scale)
    return z / (1 + (-z).exp())


entrywise(f"{HOME}SampleOp", lambda x: x)
entrywise(f"{HOME}ScaledSiLU", scaled_silu)
entrywise(f"{HOME}Gelu", gelu)
entrywise(f"{HOME}BiasGelu", lambda x, b: gelu(x + b))
entrywise(f"{HOME}FastGelu", lambda x, b=0: fast_gelu(x + b))
entrywise(f"{HOME}QuickGelu", quick_gelu)


@transcription(f"{HOME}TransposeMatMul")
@transcription(f"{HOME}FusedMatMul")
def fused_matmul(
    a: Any, b: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
    transBatchA: int = 0, transBatchB: int = 0,
) -> Any:  # fmt: skip
    """α A' B'; transBatch moves the first axis to second to last, trans swaps the last two."""
    a, b = view(a, transBatchA, transA), view(b, transBatchB, transB)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])

    def entry(index: Index) -> Any:
        *k, i, j = index
        terms = (stretched(a[..., i, t], tuple(k)) * stretched(b[..., t, j], tuple(k))
                 for t in range(a.shape[-1]))  # fmt: skip
        return sum(terms) * alpha

    return tabulate((*batch, a.shape[-2], b.shape[-1]), entry)


def view(x: Any, batch: int, matrix: int) -> Any:
    """An operand with its axes in another order."""
    moved = np.moveaxis(x, 0, -2) if batch else x
    return np.swapaxes(moved, -1, -2) if matrix else moved


@transcription(f"{HOME}FusedGemm")
def fused_gemm(
    a: Any, b: Any, c: Any = None, *, activation: str = "", activation_alpha: Any = None,
    activation_beta: Any = None, activation_gamma: Any = None, **how: Any,
) -> Any:  # fmt: skip
    """f(α A B + β C)."""
    given = (activation_alpha, activation_beta)
    return activated(gemm(a, b, c, **how), activation, [v for v in given if v is not None])


@transcription(f"{HOME}FusedConv")
def fused_conv(
    x: Any, w: Any, b: Any = None, z: Any = None, *, activation: str = "",
    activation_params: Any = (), **how: Any,
) -> Any:  # fmt: skip
    """f(w ∗ x + b + z)."""
    return activated(summed(conv(x, w, b, **how), z), activation, list(activation_params))


def activated(y: Any, name: str, parameters: list[float]) -> Any:
    """f(y); the parameters of Clip are its bounds."""
    if name == "Clip":
        low, high = parameters
        return tabulate(y.shape, lambda i: min(max(y[i], low), high))
    return KERNELS[name](y, **dict(zip(("alpha", "beta"), parameters, strict=False))) if name else y


def summed(x: Any, *others: Any) -> Any:
    """x plus tensors that are broadcast to it, or left out."""
    given = [y for y in others if y is not None]
    return tabulate(x.shape, lambda i: sum((stretched(y, i) for y in given), start=x[i]))


@transcription(f"{HOME}MatMulNBits")
def matmul_nbits(
    a: Any, packed: Any, scales: Any, zero: Any = None, g_idx: Any = None, bias: Any = None, *,
    K: int, N: int, bits: int = 4, block_size: int,
) -> Any:  # fmt: skip
    """Σₖ a[..., k] (q[n, k] - zero[n, k // block]) scale[n, k // block] + bias[n]."""
    blocks, byte = len(packed[0]), 8 // bits
    scales = np.reshape(scales, (N, blocks))

    def bits_of(row: Any, k: int) -> int:
        return int(np.ravel(row)[k // byte]) >> bits * (k % byte) & 2**bits - 1

    def weight(n: int, k: int) -> Any:
        block, inside = divmod(k, block_size)
        middle = 2 ** (bits - 1) if zero is None else bits_of(np.reshape(zero, (N, -1))[n], block)
        return scales[n, block] * (bits_of(packed[n, block], inside) - middle)

    def entry(index: Index) -> Any:
        *row, n = index
        start = 0 if bias is None else bias[n]
        return sum((a[(*row, k)] * weight(n, k) for k in range(K)), start=start)

    return tabulate((*a.shape[:-1], N), entry)


@transcription(f"{HOME}EmbedLayerNormalization")
def embed_layer_normalization(
    ids: Any, segments: Any, words: Any, positions: Any, kinds: Any, gamma: Any, beta: Any,
    mask: Any = None, at: Any = None, *, epsilon: float = 1e-12, mask_index_type: int = 0,
) -> Any:  # fmt: skip
    """(SkipLayerNormalization of the embeddings of words, positions and segments, lengths, sum)."""
    batch, time = np.shape(ids)

    def entry(index: Index) -> Any:
        b, t, d = index
        place = t if at is None else int(at[b % len(at), t])
        s = words[int(ids[b, t]), d] + positions[place, d]
        return s if kinds is None else s + kinds[int(segments[b, t]), d]

    s = tabulate((batch, time, words.shape[1]), entry)
    y = skip_layer_normalization(s, s * 0, gamma, beta, epsilon=epsilon)[0]
    lengths = np.zeros(batch, np.int32) if mask is None else np.sum(mask, 1, np.int32)
    return y, lengths, s


@transcription(f"{HOME}SkipLayerNormalization")
def skip_layer_normalization(
    x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, *, epsilon: float = 1e-12,
) -> Any:  # fmt: skip
    """((s - μ) / √(σ² + ε) γ + β, μ, 1 / √(σ² + ε), s), with μ and σ² along the last axis."""
    s = summed(x, skip, bias)
    rows = (*s.shape[:-1], 1)
    centre = tabulate(rows, lambda i: moments(list(s[i[:-1]]))[0])
    scale = tabulate(rows, lambda i: 1 / (moments(list(s[i[:-1]]))[1] + epsilon).sqrt())

    def entry(index: Index) -> Any:
        row, j = (*index[:-1], 0), index[-1]
        y = (s[index] - centre[row]) * scale[row] * gamma[j]
        return y if beta is None else y + beta[j]

    return tabulate(s.shape, entry), centre, scale, s


@transcription(f"{HOME}SimplifiedLayerNormalization")
def simplified_layer_normalization(
    x: Any, gamma: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """x / √(mean x² + ε) γ, with the mean over the axes from `axis` on."""
    start = axis % x.ndim

    def entry(index: Index) -> Any:
        square = mean([v * v for v in x[index[:start]].flat])
        return x[index] * gamma[index[start:]] / (square + epsilon).sqrt()

    return tabulate(x.shape, entry)


@transcription(f"{HOME}SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    """SimplifiedLayerNormalization of x + skip + bias, along the last axis."""
    return simplified_layer_normalization(summed(x, skip, bias), gamma, epsilon=epsilon)


LOWEST = float(np.finfo(np.float64).min)
"""The score of a masked key."""


def heads(x: Any, count: int, first: int = 0, bias: Any = None) -> Any:
    """y[n, h, t, d] = x[n, t, h D + d] + bias[first + h D + d]: the heads of x."""
    n, time, features = x.shape
    width = features // count

    def entry(index: Index) -> Any:
        b, h, t, d = index
        place = h * width + d
        return x[b, t, place] + (0 if bias is None else bias[first + place])

    return tabulate((n, count, time, width), entry)


def flat(y: Any) -> Any:
    """y[n, t, h D + d]: the heads concatenated."""
    n, count, time, width = y.shape
    return tabulate((n, time, count * width),
                    lambda i: y[i[0], i[2] // width, i[1], i[2] % width])  # fmt: skip


def rotated(x: Any, position: Callable[[int, int], int], cos: Any, sin: Any, apart: bool) -> Any:
    """(u, v) -> (u cos - v sin, u sin + v cos), for pairs half a width apart or side by side."""
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
    """Every pair of features of a head, rotated by the angle of its position."""
    whole = x.ndim == 4
    width = rotary_embedding_dim or 2 * cos.shape[1]
    y = x if whole else heads(x, num_heads or x.shape[2] // width)
    given = np.asarray(positions)

    def position(n: int, t: int) -> int:
        return int(given.flat[0]) + t if given.size == 1 else int(given[n, t])

    y = rotated(y, position, cos, sin, not interleaved)
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
    """s = scale · q[n, h, t] · k[n, h', j]; the default scale is 1/√D."""
    factor, share = scale or 1 / sp.sqrt(q.shape[3]), q.shape[1] // k.shape[1]
    return lambda b, h, t, j: sum(a * c for a, c in zip(q[b, h, t], k[b, h // share, j])) * factor  # noqa: B905


@transcription(f"{HOME}MultiHeadAttention")
def multi_head_attention(
    query: Any, key: Any, value: Any, bias: Any = None, mask: Any = None, added: Any = None,
    past_key: Any = None, past_value: Any = None, *, num_heads: int, scale: Any = None,
    unidirectional: int = 0, mask_filter_value: float = -10000.0,
) -> Any:  # fmt: skip
    """(y, keys, values): softmax(q kᵀ scale + added + mask) v."""
    width = query.shape[2]
    q, k, v = (heads(x, num_heads, n * width, bias) for n, x in enumerate((query, key, value)))
    k, v = (x if past is None else np.concatenate([past, x], axis=2)
            for past, x in ((past_key, k), (past_value, v)))  # fmt: skip
    plain, ahead = product_of(q, k, scale), k.shape[2] - q.shape[2]

    def score(b: int, h: int, t: int, j: int) -> Any:
        if unidirectional and j > t + ahead:
            return 0 * q[b, h, t, 0] + LOWEST
        extra = 0 if added is None else added[b % len(added), h % added.shape[1], t, j]
        return plain(b, h, t, j) + extra + (0 if seen(mask, b, j) else mask_filter_value)

    return flat(attended(q, k, v, score)), k, v


@transcription(f"{HOME}Attention")
def attention(
    x: Any, weights: Any, bias: Any = None, mask: Any = None, past: Any = None, added: Any = None,
    *, num_heads: int, qkv_hidden_sizes: Any = None, **how: Any,
) -> Any:  # fmt: skip
    """(MultiHeadAttention of the parts of x W + b, keys and values)."""
    widths = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    cuts = [0, widths[0], widths[0] + widths[1]]

    def part(first: int, width: int) -> Any:
        def entry(index: Index) -> Any:
            b, t, d = index
            start = 0 if bias is None else bias[first + d]
            return sum((x[b, t, k] * weights[k, first + d] for k in range(x.shape[2])), start=start)

        return tabulate((*x.shape[:2], width), entry)

    query, key, value = (part(first, n) for first, n in zip(cuts, widths, strict=True))
    before = (None, None) if past is None else (past[0], past[1])
    y, k, v = multi_head_attention(query, key, value, None, mask, added, *before,
                                   num_heads=num_heads, **how)  # fmt: skip
    return (y, np.stack([k, v])) if k.shape == v.shape else (y,)


def seen(mask: Any, b: int, j: int) -> bool:
    """Whether a mask, of flags or of lengths, keeps key j of sequence b."""
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
    """(y, keys, values): causal attention in which a group of heads shares keys and values.

    A sequence has ends[n] + 1 keys: first the cached ones, then the new ones.
    """
    q, k, v = (heads(x, c) for x, c in ((query, num_heads), (key, kv_num_heads),
                                        (value, kv_num_heads)))  # fmt: skip
    time, (whole,) = q.shape[2], ints(total)
    past = [0 if whole == time else e + 1 - time for e in ints(ends)]
    if do_rotary:
        how = (lambda n, t: past[n] + t, cos, sin, not rotary_interleaved)
        q, k = rotated(q, *how), rotated(k, *how)
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
    """The cached entries of each sequence, then its new ones."""

    def entry(index: Index) -> Any:
        b, h, j, d = index
        return cache[index] if j < past[b] else x[b, h, j - past[b], d]

    return tabulate((x.shape[0], x.shape[1], total, x.shape[3]), entry)


def dequantized(q: Any, scale: Any, zero: Any = None, axis: int = -1) -> Any:
    """(q - zero) scale, for the whole tensor or per index of an axis."""

    def at(x: Any, index: Index) -> Any:
        return np.ravel(x)[index[axis] if np.size(x) > 1 else 0]

    return tabulate(np.shape(q), lambda i: at(scale, i) * (
        int(q[i]) - (0 if zero is None else int(at(zero, i)))))  # fmt: skip


@transcription(f"{HOME}MatMulIntegerToFloat")
def matmul_integer_to_float(
    a: Any, b: Any, a_scale: Any, b_scale: Any, a_zero: Any = None, b_zero: Any = None,
    bias: Any = None,
) -> Any:  # fmt: skip
    """Σₖ aᵢₖ bₖⱼ + biasⱼ."""
    a, b = dequantized(a, a_scale, a_zero), dequantized(b, b_scale, b_zero)
    return affine(a, b, bias)


def affine(a: Any, b: Any, bias: Any = None) -> Any:
    """Σₖ aᵢₖ bₖⱼ + biasⱼ."""

    def entry(index: Index) -> Any:
        *row, j = index
        start = 0 if bias is None else bias[j]
        return sum((a[(*row, k)] * b[k, j] for k in range(len(b))), start=start)

    return tabulate((*a.shape[:-1], b.shape[1]), entry)


@transcription(f"{HOME}QGemm")
def qgemm(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, c: Any = None, *,
    transA: int = 0, transB: int = 0, alpha: float = 1.0,
) -> Any:  # fmt: skip
    """α scaleᵃ scaleᵇⱼ (Σₖ (aᵢₖ - zeroᵃ) (bₖⱼ - zeroᵇⱼ) + cⱼ)."""
    a, b = (np.swapaxes(x, 0, 1) if turned else x for x, turned in ((a, transA), (b, transB)))
    units = dequantized(np.ones((1, b.shape[1]), int), b_scale)
    y = affine(dequantized(a, a_scale, a_zero), dequantized(b, b_scale, b_zero))

    def entry(index: Index) -> Any:
        extra = 0 if c is None else int(np.ravel(c)[index[1]])
        return alpha * (y[index] + units[0, index[1]] * np.ravel(a_scale)[0] * extra)

    return tabulate(y.shape, entry)


@transcription(f"{HOME}UnfoldTensor")
def unfold(x: Any, *, size: int, dim: int = -1, step: int = 1) -> Any:
    """y[..., i, ..., k] = x[..., i step + k, ...]."""
    axis = dim % x.ndim
    shape = [*x.shape, size]
    shape[axis] = (x.shape[axis] - size) // step + 1
    return tabulate(shape, lambda i: x[(*i[:axis], i[axis] * step + i[-1], *i[axis + 1 : -1])])


@transcription(f"{HOME}ExpandDims")
def expand_dims(x: Any, axis: Any) -> Any:
    """x with an axis of length 1."""
    return np.expand_dims(x, int(axis))


@transcription(f"{HOME}CDist")
def cdist(a: Any, b: Any, *, metric: str) -> Any:
    """√Σₖ (aᵢₖ - bⱼₖ)², or its square."""

    def entry(index: Index) -> Any:
        i, j = index
        squares = sum((a[i, k] - b[j, k]) ** 2 for k in range(a.shape[1]))
        return squares if metric == "sqeuclidean" else squares.sqrt()

    return tabulate((len(a), len(b)), entry)


@transcription(f"{HOME}GridSample")
def grid_sample(x: Any, grid: Any, *, mode: str) -> Any:
    """ONNX's GridSample, in which the mode bilinear is named linear."""
    return KERNELS["GridSample"](x, grid, mode={"bilinear": "linear"}[mode])


@transcription(f"{HOME}DynamicQuantizeMatMul")
def dynamic_quantize_matmul(
    a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None
) -> Any:
    """(round(aᵢₖ / s) s) Bₖⱼ + biasⱼ, with 255 s = max(a, 0) - min(a, 0)."""
    high, low = max(0, *a.flat), min(0, *a.flat)
    step = (high - low) / 255
    steps = tabulate(a.shape, lambda i: (a[i] / step).rint() * step)
    return affine(steps, dequantized(b, b_scale, b_zero), bias)


@transcription(f"{HOME}QAttention")
def qattention(
    x: Any, weights: Any, bias: Any, x_scale: Any, w_scale: Any, mask: Any = None,
    x_zero: Any = None, w_zero: Any = None, past: Any = None, **how: Any,
) -> Any:  # fmt: skip
    """Attention of dequantised x and W."""
    x, weights = dequantized(x, x_scale, x_zero), dequantized(weights, w_scale, w_zero)
    return attention(x, weights, bias, mask, past, **how)


@transcription(f"{HOME}QEmbedLayerNormalization")
def qembed_layer_normalization(
    ids: Any, segments: Any, *given: Any, epsilon: float = 1e-12
) -> Any:
    """EmbedLayerNormalization of dequantised tables and factors."""
    tables, mask, scales, zeros = given[:5], given[5], given[6:11], given[11:16]
    held = [None if q is None else dequantized(q, s, z)
            for q, s, z in zip(tables, scales, zeros, strict=True)]  # fmt: skip
    return embed_layer_normalization(ids, segments, *held, mask, epsilon=epsilon)[:2]


entrywise(f"{HOME}GatedAdd", lambda x, y, gate: x + y * gate)


@transcription(f"{HOME}GatedRMSNorm")
def gated_rms_norm(
    x: Any, scale: Any, gate: Any, *, epsilon: float = 1e-5, activation: str = "silu"
) -> Any:
    """x / √(mean x² + ε) · scale · f(gate), with the mean of as many entries as scale has."""
    n = len(scale)

    def entry(index: Index) -> Any:
        *row, j = index
        squares = [v * v for v in x[(*row, slice(j - j % n, j - j % n + n))]]
        z = gate[index]
        f = (1 if activation == "sigmoid" else z) / (1 + (-z).exp())
        return x[index] * scale[j % n] * f / (mean(squares) + epsilon).sqrt()

    return tabulate(x.shape, entry)


def branch(x: Any, count: int) -> Any:
    """x, (..., branches, features)."""
    return np.reshape(x, (*x.shape[:-1], count, -1)) if count else x


@transcription(f"{HOME}BranchwiseRMSNorm")
def branchwise_rms_norm(
    x: Any, scale: Any = None, *, num_branches: int = 0, epsilon: float = 1e-5
) -> Any:
    """SimplifiedLayerNormalization of every branch."""
    parts = branch(x, num_branches)
    c, h = parts.shape[-2:]
    gain = np.ones(h, int) if scale is None else scale
    gain = np.broadcast_to(gain if gain.shape == (h,) else gain.reshape(c, h), (c, h))
    rows = [simplified_layer_normalization(parts[..., k, :], gain[k], epsilon=epsilon)
            for k in range(c)]  # fmt: skip
    return np.stack(rows, axis=-2).reshape(x.shape)


@transcription(f"{HOME}HyperConnectionPreMix")
def hyper_connection_pre_mix(
    x: Any, mix: Any, *, reduction_scale: float = 1.0, num_branches: int = 0
) -> Any:
    """scale Σ_c x[..., c, h] mix[..., c, h]."""
    x = branch(x, num_branches)
    c, h = x.shape[-2:]
    mix = mix.reshape(*x.shape[:-2], c, -1)

    def entry(index: Index) -> Any:
        *row, j = index
        return reduction_scale * sum(x[(*row, k, j)] * mix[(*row, k, j % mix.shape[-1])]
                                     for k in range(c))  # fmt: skip

    return tabulate((*x.shape[:-2], h), entry)


@transcription(f"{HOME}HyperConnectionPostMix")
def hyper_connection_post_mix(
    x: Any, block: Any, post: Any, mix: Any = None, *, num_branches: int = 0
) -> Any:
    """Σ_c mix[..., c, k] x[..., c, h] + post[..., k, h] block[..., h]."""
    shape, x = x.shape, branch(x, num_branches)
    c = x.shape[-2]
    post = post.reshape(*x.shape[:-2], c, -1)

    def entry(index: Index) -> Any:
        *row, k, j = index
        terms = (x[(*row, a, j)] * (int(a == k) if mix is None else mix[(*row, a, k)])
                 for a in range(c))  # fmt: skip
        return sum(terms) + post[(*row, k, j % post.shape[-1])] * block[(*row, j)]

    return tabulate(x.shape, entry).reshape(shape)


@transcription(f"{HOME}LinearAttentionGate")
def linear_attention_gate(a: Any, bias: Any, scale: Any, b: Any = None) -> Any:
    """(scale log(1 + exp(a + bias)), 1 / (1 + exp(-b)))."""
    decay = tabulate(a.shape, lambda i: scale[i[-1]] * (1 + (a[i] + bias[i[-1]]).exp()).log())
    return (decay,) if b is None else (decay, tabulate(b.shape, lambda i: 1 / (1 + (-b[i]).exp())))


@transcription(f"{HOME}LinearAttention")
def linear_attention(
    q: Any, k: Any, v: Any, state: Any = None, decay: Any = None, beta: Any = None, *,
    q_num_heads: int, kv_num_heads: int, scale: float = 0.0, update_rule: str = "gated_delta",
) -> Any:  # fmt: skip
    """S ← eᵍ S + β k ⊗ (v - Sᵀ k eᵍ); o = scale · q S, step by step."""
    width = q.shape[2] // q_num_heads
    q, k, v = heads(q, q_num_heads), heads(k, k.shape[2] // width), heads(v, kv_num_heads)
    most, (b, _, time, depth) = max(q_num_heads, kv_num_heads), v.shape
    s = np.zeros((b, kv_num_heads, width, depth), int) if state is None else state
    y = np.empty((b, most, time, depth), object)
    factor = scale or 1 / sp.sqrt(width)
    for t in range(time):
        s = s.copy().astype(object)
        for n, h in np.ndindex(b, kv_num_heads):
            key = k[n, h * k.shape[1] // kv_num_heads, t]
            if "gated" in update_rule:
                rates = [g.exp() for g in decay[n, t].reshape(kv_num_heads, -1)[h]]
                s[n, h] = s[n, h] * np.array(rates, object)[:, None]
            seen = key @ s[n, h] if "delta" in update_rule else 0
            rate = beta[n, t, h % beta.shape[2]] if "delta" in update_rule else 1
            s[n, h] = s[n, h] + np.multiply.outer(key, (v[n, h, t] - seen) * rate)
        for n, h in np.ndindex(b, most):
            y[n, h, t] = q[n, h * q_num_heads // most, t] @ s[n, h * kv_num_heads // most] * factor
    return flat(y), s


@transcription(f"{HOME}CausalConvWithState")
def causal_conv_with_state(
    x: Any, w: Any, b: Any = None, past: Any = None, *, dilation: int = 1,
    activation: str = "none", channels_last: int = 0,
) -> Any:  # fmt: skip
    """(Σ_j w[c, 0, j] x[n, c, t - (K - 1 - j) dilation] + b[c], the last inputs)."""
    turned = (0, 2, 1) if channels_last else (0, 1, 2)
    x, taps = x.transpose(turned), w.shape[2]
    room = (taps - 1) * dilation
    past = 0 * x[:, :, [0] * room] if past is None else past.transpose(turned)
    every = np.concatenate([past, x], axis=2)

    def entry(index: Index) -> Any:
        n, c, t = index
        y = sum((w[c, 0, j] * every[n, c, t + j * dilation] for j in range(taps)),
                start=0 if b is None else b[c])  # fmt: skip
        return y if activation == "none" else y / (1 + (-y).exp())

    state = every[:, :, every.shape[2] - room :]
    return tabulate(x.shape, entry).transpose(turned), state.transpose(turned)


@transcription(f"{HOME}Inverse")
def inverse(x: Any) -> Any:
    """The matrix of the solutions of X Y = 1, by Cramer's rule."""
    n = x.shape[-1]

    def entry(index: Index) -> Any:
        *row, i, j = index
        matrix = x[tuple(row)]
        unit = matrix.copy()
        unit[:, i] = [0 * v + int(k == j) for k, v in enumerate(matrix[:, i])]
        return KERNELS["Det"](unit) / KERNELS["Det"](matrix)

    return tabulate((*x.shape[:-2], n, n), entry)


@transcription(f"{HOME}MRotaryEmbedding")
def mrotary_embedding(
    x: Any, positions: Any, cos: Any, sin: Any, *, mrope_section: Any, interleaved: int = 0,
    mrope_layout: int = 0, scale: float = 1.0,
) -> Any:  # fmt: skip
    """RotaryEmbedding, in which angle k of a token has the position of its section."""
    first, second, third = mrope_section

    def section(k: int) -> int:
        if mrope_layout:
            return k % 3 if k < 3 * (0, second, third)[k % 3] else 0
        return int(k >= first) + int(k >= first + second)

    def turned(table: Any, n: int) -> Any:
        shape = (x.shape[2], cos.shape[1])
        return tabulate(shape, lambda i: table[int(positions[section(i[1]), n, i[0]]), i[1]])

    rows = [rotated(x[n : n + 1], lambda _, t: t, turned(cos, n), turned(sin, n), not interleaved)
            for n in range(len(x))]  # fmt: skip
    return np.concatenate(rows) * scale


@transcription(f"{HOME}MatMulBnb4")
def matmul_bnb4(
    a: Any, packed: Any, scales: Any, *, K: int, N: int, block_size: int, quant_type: int,
    transB: int = 1,
) -> Any:  # fmt: skip
    """Σₖ a[..., k] code[q[n, k]] scale[(n K + k) // block], the first number in the upper half."""
    third, bits = sp.Rational(1, 3), packed.ravel()
    codes = [0, third / 64, 2 * third, 1, third, third * 1.5, third / 2, third * 0.75]

    def weight(n: int, k: int) -> Any:
        q = int(bits[(n * K + k) // 2]) >> 4 * (1 - (n * K + k) % 2) & 15
        return scales[(n * K + k) // block_size] * codes[q % 8] * (-1 if q > 7 else 1)

    w = tabulate((K, N), lambda i: weight(i[1], i[0]))
    return affine(a, w if transB else w.T)


@transcription(f"{HOME}ConvTransposeWithDynamicPads")
def conv_transpose_with_dynamic_pads(x: Any, w: Any, pads: Any, b: Any = None, **how: Any) -> Any:
    """ConvTranspose with these pads."""
    return TRANSCRIPTIONS["ConvTranspose"](x, w, b, pads=ints(pads), **how)


@transcription(f"{HOME}GatherBlockQuantized")
def gather_block_quantized(
    data: Any, indices: Any, scales: Any, zero: Any = None, *, block_size: int = 128
) -> Any:
    """(q[i, j] - zero[i, j // block]) scale[i, j // block] for rows of halves of bytes."""

    def half(row: Any, j: int) -> int:
        return int(row[j // 2]) >> 4 * (j % 2) & 15

    def entry(index: Index) -> Any:
        *place, j = index
        i, block = int(indices[tuple(place)]), j // block_size
        if not -len(data) <= i < len(data):
            return 0 * scales[0, 0]
        return scales[i, block] * (half(data[i], j) - (8 if zero is None else half(zero[i], block)))

    return tabulate((*np.shape(indices), 2 * data.shape[1]), entry)
