"""ONNX Runtime's own operators (`com.microsoft`), by the text of its documentation.

Arguments are arrays of expressions or of numbers, and carry no annotations.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import sympy as sp

from ....ops.symbols.number import KERNELS
from ....ops.symbols.placing import ints as counts
from . import TRANSCRIPTIONS, tabulate, transcription
from .case import SIDES, case, ints, numbers, script
from .standard import axes, entrywise, taps

MS = "com.microsoft::"


def gelu(x):
    """x Φ(x)."""
    return x * (1 + (x / sp.sqrt(2)).erf()) / 2


def fast_gelu(x):
    """x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2."""
    return x * (1 + ((x + x * x * x * 0.044715) * sp.sqrt(2 / sp.pi)).tanh()) / 2


def silu(x, alpha=1.0):
    """x / (1 + exp(-αx))."""
    return x / (1 + np.exp(-(x * alpha)))


def scaled_silu(x, scale=None, *, alpha=1.0):
    """silu(z) with z = αx, or the scale times x."""
    return silu(x * (alpha if scale is None else scale))


entrywise(f"{MS}SampleOp", lambda x: x)
entrywise(f"{MS}ScaledSiLU", scaled_silu)
entrywise(f"{MS}Gelu", gelu)
entrywise(f"{MS}BiasGelu", lambda x, b: gelu(x + b))
entrywise(f"{MS}FastGelu", lambda x, b=0: fast_gelu(x + b))
entrywise(f"{MS}QuickGelu", lambda x, alpha=1.702: silu(x, alpha))
entrywise(f"{MS}GatedAdd", lambda x, y, gate: x + y * gate)


# Products of matrices, of quantised ones too.


@transcription(f"{MS}SparseToDenseMatMul")
@transcription(f"{MS}TransposeMatMul")
@transcription(f"{MS}FusedMatMul")
def fused_matmul(a, b, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    """α A' B'; transBatch moves the first axis to second to last, trans swaps the last two."""

    def view(x, batch, matrix):
        moved = np.moveaxis(x, 0, -2) if batch else x
        return np.swapaxes(moved, -1, -2) if matrix else moved

    return view(a, transBatchA, transA) @ view(b, transBatchB, transB) * alpha


@transcription(f"{MS}FusedGemm")
def fused_gemm(
    a, b, c=None, *, activation="", activation_alpha=None, activation_beta=None,
    activation_gamma=None, **how,
):  # fmt: skip
    """f(α A B + β C)."""
    y, given = TRANSCRIPTIONS["Gemm"](a, b, c, **how), (activation_alpha, activation_beta)
    return activated(y, activation, [v for v in given if v is not None])


@transcription(f"{MS}FusedConv")
def fused_conv(x, w, b=None, z=None, *, activation="", activation_params=(), **how):
    """f(w ∗ x + b + z)."""
    y = summed(TRANSCRIPTIONS["Conv"](x, w, b, **how), z)
    return activated(y, activation, list(activation_params))


def activated(y, name, parameters):
    """f(y); the parameters of Clip are its bounds."""
    if name == "Clip":
        low, high = parameters
        return tabulate(y.shape, lambda i: min(max(y[i], low), high))
    return KERNELS[name](y, **dict(zip(("alpha", "beta"), parameters, strict=False))) if name else y


def summed(x, *others):
    """x plus tensors that are broadcast to it, or left out."""
    return sum((y for y in others if y is not None), start=x)


@transcription(f"{MS}Inverse")
def inverse(x):
    """The matrix of the solutions of X Y = 1, by Cramer's rule."""
    n = x.shape[-1]

    def entry(index):
        *row, i, j = index
        matrix = x[tuple(row)]
        unit = matrix.copy()
        unit[:, i] = [0 * v + int(k == j) for k, v in enumerate(matrix[:, i])]
        return KERNELS["Det"](unit) / KERNELS["Det"](matrix)

    return tabulate((*x.shape[:-2], n, n), entry)


@transcription(f"{MS}CDist")
def cdist(a, b, *, metric):
    """√Σₖ (aᵢₖ - bⱼₖ)², or its square."""
    squares = ((a[:, None] - b) ** 2).sum(-1)
    return squares if metric == "sqeuclidean" else np.sqrt(squares)


def dequantized(q, scale, zero=None):
    """(q - zero) scale, for the whole tensor or per index of the last axis."""
    return (q.astype(int) - (0 if zero is None else zero.astype(int))) * scale


def unpacked(packed, bits):
    """The numbers in the bytes of each row, the lowest bits first.

    >>> unpacked(np.array([[0x21, 0xC3]]), 4).tolist()
    [[1, 2, 3, 12]]
    """
    shifted = packed[..., None].astype(int) >> bits * np.arange(8 // bits)
    return (shifted & 2**bits - 1).reshape(*packed.shape[:-1], -1)


@transcription(f"{MS}MatMulIntegerToFloat")
def matmul_integer_to_float(a, b, a_scale, b_scale, a_zero=None, b_zero=None, bias=None):
    """Σₖ aᵢₖ bₖⱼ + biasⱼ, dequantised."""
    return summed(dequantized(a, a_scale, a_zero) @ dequantized(b, b_scale, b_zero), bias)


@transcription(f"{MS}DynamicQuantizeMatMul")
def dynamic_quantize_matmul(a, b, b_scale, b_zero=None, bias=None):
    """(round(aᵢₖ / s) s) Bₖⱼ + biasⱼ, with 255 s = max(a, 0) - min(a, 0)."""
    step = (max(0, *a.flat) - min(0, *a.flat)) / 255
    return summed((np.rint(a / step) * step) @ dequantized(b, b_scale, b_zero), bias)


@transcription(f"{MS}QGemm")
def qgemm(a, a_scale, a_zero, b, b_scale, b_zero, c=None, *, transA=0, transB=0, alpha=1.0):
    """α scaleᵃ scaleᵇⱼ (Σₖ (aᵢₖ - zeroᵃ) (bₖⱼ - zeroᵇⱼ) + cⱼ)."""
    a, b = (x.T if turned else x for x, turned in ((a, transA), (b, transB)))
    y = dequantized(a, a_scale, a_zero) @ dequantized(b, b_scale, b_zero)
    return alpha * summed(y, None if c is None else c * a_scale * b_scale)


@transcription(f"{MS}MatMulNBits")
def matmul_nbits(a, packed, scales, zero=None, g_idx=None, bias=None, *, K, N, bits=4, block_size):
    """Σₖ a[..., k] (q[n, k] - zero[n, g]) scale[n, g] + bias[n], with g the group of k."""
    blocks, middle = packed.shape[1], np.array([[2 ** (bits - 1)]])
    zeros = middle if zero is None else unpacked(zero.reshape(N, -1), bits)[:, :blocks]
    group = np.arange(K) // block_size if g_idx is None else counts(g_idx)
    zeros = zeros if zero is None else zeros[:, group]
    w = (unpacked(packed, bits).reshape(N, -1)[:, :K] - zeros) * scales.reshape(N, blocks)[:, group]
    return summed(a @ w.T, bias)


@transcription(f"{MS}MatMulBnb4")
def matmul_bnb4(a, packed, scales, *, K, N, block_size, quant_type, transB=1):
    """Σₖ a[..., k] code[q[n, k]] scale[(n K + k) // block], the first number in the upper half."""
    third = sp.Rational(1, 3)
    codes = [0, third / 64, 2 * third, 1, third, third / 2 * 3, third / 2, third / 4 * 3]
    q = unpacked(packed.reshape(-1, 1), 4)[:, ::-1].ravel()[: N * K]
    code = np.array([*codes, *(-v for v in codes)], object)[q]
    w = (np.repeat(scales, block_size)[: N * K] * code).reshape(N, K)
    return a @ (w.T if transB else w)


@transcription(f"{MS}MatMulFpQ4")
def matmul_fp_q4(a, packed, shape, *, blk_quant_type=1):
    """Σₖ a[i, k] (q[k, j] - zero) scale, in blocks of 32 entries of a column.

    A block has a float32 scale, with type 1 a zero point, and 16 bytes.
    """
    rows, columns = counts(shape)
    blocks = packed.reshape(columns, -1, 20 + blk_quant_type)
    w = np.zeros((rows, columns))
    for k, j in np.ndindex(rows, columns):
        block, place = blocks[j, k // 32], k % 32
        byte = int(block[-16 + place % 16])
        q, zero = byte >> 4 if place > 15 else byte & 15, int(block[4]) if blk_quant_type else 8
        w[k, j] = (q - zero) * np.frombuffer(block[:4].tobytes(), "<f4")[0]
    return a @ w


@transcription(f"{MS}GatherBlockQuantized")
def gather_block_quantized(data, indices, scales, zero=None, *, block_size=128):
    """(q[i, j] - zero[i, j // block]) scale[i, j // block] for rows of halves of bytes."""
    q = unpacked(data, 4)
    block = np.arange(q.shape[1]) // block_size
    w = (q - (8 if zero is None else unpacked(zero, 4)[:, block])) * scales[:, block]
    inside = (indices >= -len(data)) & (indices < len(data))
    return w[np.where(inside, indices, 0)] * inside[..., None].astype(int)


# Normalisations.


def standardised(x, epsilon):
    """((x - μ) / √(σ² + ε), μ, 1 / √(σ² + ε)), with μ and σ² along the last axis."""
    centre = x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt(((x - centre) ** 2).mean(-1, keepdims=True) + epsilon)
    return (x - centre) * scale, centre, scale


@transcription(f"{MS}SkipLayerNormalization")
def skip_layer_normalization(x, skip, gamma, beta=None, bias=None, *, epsilon=1e-12):
    """((s - μ) / √(σ² + ε) γ + β, μ, 1 / √(σ² + ε), s), with μ and σ² along the last axis."""
    s = summed(x, skip, bias)
    y, centre, scale = standardised(s, epsilon)
    return summed(y * gamma, beta), centre, scale, s


@transcription(f"{MS}EmbedLayerNormalization")
def embed_layer_normalization(
    ids, segments, words, positions, kinds, gamma, beta, mask=None, at=None, *, epsilon=1e-12,
    mask_index_type=0,
):  # fmt: skip
    """(LayerNormalization of the embeddings of words, positions and segments, lengths, sum)."""
    batch, time = np.shape(ids)
    s = words[ids] + positions[np.arange(time) if at is None else at]
    s = s if kinds is None else s + kinds[segments]
    lengths = np.zeros(batch, np.int32) if mask is None else np.sum(mask, 1, np.int32)
    return standardised(s, epsilon)[0] * gamma + beta, lengths, s


@transcription(f"{MS}QEmbedLayerNormalization")
def qembed_layer_normalization(ids, segments, *given, epsilon=1e-12):
    """EmbedLayerNormalization of dequantised tables and factors."""
    tables, mask, scales, zeros = given[:5], given[5], given[6:11], given[11:16]
    held = [None if q is None else dequantized(q, s, z)
            for q, s, z in zip(tables, scales, zeros, strict=True)]  # fmt: skip
    return embed_layer_normalization(ids, segments, *held, mask, epsilon=epsilon)[:2]


def by_root(x, epsilon, start=-1):
    """x / √(mean x² + ε), with the mean over the axes from `start` on."""
    axes = tuple(range(start % x.ndim, x.ndim))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon)


@transcription(f"{MS}SimplifiedLayerNormalization")
def simplified_layer_normalization(x, gamma, *, axis=-1, epsilon=1e-5, stash_type=1):
    """x / √(mean x² + ε) γ, with the mean over the axes from `axis` on."""
    return by_root(x, epsilon, axis) * gamma


@transcription(f"{MS}SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(x, skip, gamma, bias=None, *, epsilon=1e-12):
    """SimplifiedLayerNormalization of x + skip + bias, along the last axis."""
    return by_root(summed(x, skip, bias), epsilon) * gamma


@transcription(f"{MS}GatedRMSNorm")
def gated_rms_norm(x, scale, gate, *, epsilon=1e-5, activation="silu"):
    """x / √(mean x² + ε) · scale · f(gate), with the mean of as many entries as scale has."""
    y = by_root(x.reshape(*x.shape[:-1], -1, len(scale)), epsilon) * scale
    return y.reshape(x.shape) * (1 / (1 + np.exp(-gate)) if activation == "sigmoid" else silu(gate))


def branch(x, count):
    """x, (..., branches, features)."""
    return x.reshape(*x.shape[:-1], count, -1) if count else x


@transcription(f"{MS}BranchwiseRMSNorm")
def branchwise_rms_norm(x, scale=None, *, num_branches=0, epsilon=1e-5):
    """SimplifiedLayerNormalization of every branch."""
    y = by_root(branch(x, num_branches), epsilon)
    return (y if scale is None else y * scale.reshape(-1, y.shape[-1])).reshape(x.shape)


@transcription(f"{MS}HyperConnectionPreMix")
def hyper_connection_pre_mix(x, mix, *, reduction_scale=1.0, num_branches=0):
    """scale Σ_c x[..., c, h] mix[..., c, h]."""
    x = branch(x, num_branches)
    return reduction_scale * (x * mix.reshape(*x.shape[:-1], -1)).sum(-2)


@transcription(f"{MS}HyperConnectionPostMix")
def hyper_connection_post_mix(x, block, post, mix=None, *, num_branches=0):
    """Σ_c mix[..., c, k] x[..., c, h] + post[..., k, h] block[..., h]."""
    shape, x = x.shape, branch(x, num_branches)
    mixed = x if mix is None else np.swapaxes(mix, -1, -2) @ x
    return (mixed + post.reshape(*x.shape[:-1], -1) * block[..., None, :]).reshape(shape)


# Mixtures of experts.


def best(x, k):
    """The places of the k largest entries of a vector."""
    return sorted(range(len(x)), key=lambda i: x[i], reverse=True)[:k]


def softmax(x):
    """eˣ / Σ eˣ along the last axis."""
    powers = np.exp(x)
    return powers / powers.sum(-1, keepdims=True)


ACTIVATIONS = {"relu": lambda z: max(z, 0 * z), "gelu": fast_gelu, "silu": silu,
               "identity": lambda z: z}  # fmt: skip


@transcription(f"{MS}MoE")
def mixture(
    x, router, w1, b1, w2, b2=None, *, k=1, activation_type="relu", normalize_routing_weights=0
):
    """y[n] = Σₑ pₑ (W₂ₑ f(W₁ₑ x[n] + b₁ₑ) + b₂ₑ) over the k largest of p = softmax(router[n])."""
    shares, y, acted = softmax(router), 0 * x, ACTIVATIONS[activation_type]
    for n in range(len(x)):
        chosen = best(shares[n], k)
        total = sum(shares[n, e] for e in chosen) if normalize_routing_weights else 1
        for e in chosen:
            hidden = map(acted, summed(w1[e] @ x[n], None if b1 is None else b1[e]))
            out = summed(w2[e] @ np.array([*hidden]), None if b2 is None else b2[e])
            y[n] = y[n] + out * (shares[n, e] / total)
    return y


@transcription(f"{MS}QMoE")
def quantized_mixture(x, router, w1, s1, b1, w2, s2, b2=None, *, expert_weight_bits=4, **how):
    """MoE of W = (q - 2ᵇⁱᵗˢ / 2) scale by row; the weights of a token's experts sum to 1."""
    middle = 2 ** (expert_weight_bits - 1)
    w1, w2 = ((unpacked(w, expert_weight_bits) - middle) * s[..., None]
              for w, s in ((w1, s1), (w2, s2)))  # fmt: skip
    return mixture(x, router, w1, b1, w2, b2, normalize_routing_weights=1, **how)


@transcription(f"{MS}MoEGroupRouter")
def group_router(
    x, bias, *, top_k, n_group=1, topk_group=1, group_topk=2, router_sentinel=-10000.0
):
    """(log σ(x) of the top experts of the top groups, else the sentinel; σ(x) + bias; σ(x))."""
    s = 1 / (1 + np.exp(-x))
    score, y = s + bias, 0 * s + router_sentinel
    for n, row in enumerate(score):
        groups = np.split(np.arange(len(row)), n_group)
        sums = [sum(row[g[best(row[g], group_topk)]]) for g in groups]
        allowed = np.concatenate([groups[g] for g in best(sums, topk_group)])
        for e in allowed[best(row[allowed], top_k)]:
            y[n, e] = s[n, e].log()
    return y, score, s


# Attention.

LOWEST = float(np.finfo(np.float64).min)
"""The score of a masked key."""


def heads(x, count):
    """y[n, h, t, d] = x[n, t, h D + d]: the heads of x."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def flat(y):
    """y[n, t, h D + d]: the heads concatenated."""
    n, _, time, _ = y.shape
    return y.transpose(0, 2, 1, 3).reshape(n, time, -1)


def rotated(x, cos, sin, apart):
    """(u, v) -> (u cos - v sin, u sin + v cos), for pairs half a width apart or side by side.

    cos and sin have the shape (batch, time, pairs).
    """
    cos, sin, half = cos[:, None], sin[:, None], cos.shape[-1]
    pairs, rest = x[..., : 2 * half], x[..., 2 * half :]
    u, v = (pairs[..., :half], pairs[..., half:]) if apart else (pairs[..., ::2], pairs[..., 1::2])
    turned = np.stack([u * cos - v * sin, u * sin + v * cos], -2 if apart else -1)
    return np.concatenate([turned.reshape(pairs.shape), rest], -1)


@transcription(f"{MS}RotaryEmbedding")
def rotary_embedding(x, positions, cos, sin, *, interleaved=0, num_heads=0, rotary_embedding_dim=0):
    """Every pair of features of a head, rotated by the angle of its position."""
    whole = x.ndim == 4
    width = rotary_embedding_dim or 2 * cos.shape[1]
    y = x if whole else heads(x, num_heads or x.shape[2] // width)
    at = np.asarray(positions)
    at = at.reshape(1, 1) + np.arange(y.shape[2]) if at.size == 1 else at
    y = rotated(y, cos[at], sin[at], not interleaved)
    return y if whole else flat(y)


@transcription(f"{MS}MRotaryEmbedding")
def mrotary_embedding(
    x, positions, cos, sin, *, mrope_section, interleaved=0, mrope_layout=0, scale=1.0
):
    """RotaryEmbedding, in which angle k of a token has the position of its section."""
    first, second, third = mrope_section

    def section(k):
        if mrope_layout:
            return k % 3 if k < 3 * (0, second, third)[k % 3] else 0
        return int(k >= first) + int(k >= first + second)

    angles = np.arange(cos.shape[1])
    at = np.moveaxis(positions[[section(k) for k in angles]], 0, -1)
    return rotated(x, cos[at, angles], sin[at, angles], not interleaved) * scale


def scores(q, k, scale):
    """scale · q[n, h, t] · k[n, h', j] with the group h' of h; the default scale is 1/√D."""
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    return q @ np.swapaxes(k, 2, 3) * (scale or 1 / sp.sqrt(q.shape[3]))


def masked(score, seen):
    """The scores, with the lowest one where a key is not seen."""
    return np.where(seen, score, 0 * score + LOWEST)


def attended(score, v, rest=0):
    """y[n, t, h D + d] = Σⱼ eˢ v[n, h', j, d] / (Σⱼ eˢ + rest) with s = score[n, h, t, j]."""
    powers, v = np.exp(score), np.repeat(v, score.shape[1] // v.shape[1], axis=1)
    return flat(powers @ v / (powers.sum(-1, keepdims=True) + rest))


@transcription(f"{MS}MultiHeadAttention")
def multi_head_attention(
    query, key, value, bias=None, mask=None, added=None, past_key=None, past_value=None, *,
    num_heads, scale=None, unidirectional=0, mask_filter_value=-10000.0,
):  # fmt: skip
    """(y, keys, values): softmax(q kᵀ scale + added + mask) v."""
    width = query.shape[2]
    parts = (None,) * 3 if bias is None else np.split(bias, [width, 2 * width])
    given = zip((query, key, value), parts, strict=True)
    q, k, v = (heads(summed(x, b), num_heads) for x, b in given)
    k, v = (x if past is None else np.concatenate([past, x], axis=2)
            for past, x in ((past_key, k), (past_value, v)))  # fmt: skip
    time, total = q.shape[2], k.shape[2]
    score = summed(scores(q, k, scale), added)
    if mask is not None:  # flags or lengths
        kept = mask if mask.ndim == 2 else np.arange(total) < mask[:, None]
        score = score + np.where(kept, 0, mask_filter_value)[:, None, None]
    if unidirectional:
        score = masked(score, np.tri(time, total, total - time, dtype=bool))
    return attended(score, v), k, v


@transcription(f"{MS}DecoderMaskedMultiHeadAttention")
def decoder_masked_multi_head_attention(
    query, key, value, mask=None, added=None, past_key=None, past_value=None, count=None,
    width=None, beams=None, bias=None, *, past_present_share_buffer=0, **how,
):  # fmt: skip
    """MultiHeadAttention of one query behind the first keys of a buffer, and the buffers with it.

    Keys with heads, of another sequence, have no past.
    """
    if past_key is None:
        q, k, v = heads(query, how["num_heads"]), key, value
        return attended(scores(q, k, how.get("scale")), v), k, v
    (n,) = counts(count)
    pasts = past_key[:, :, :n], past_value[:, :, :n]
    y, *held = multi_head_attention(query, key, value, bias, mask, added, *pasts, **how)
    filled = (np.concatenate([x, old[:, :, n + 1 :]], axis=2)
              for x, old in zip(held, (past_key, past_value), strict=True))  # fmt: skip
    return y, *filled


@transcription(f"{MS}Attention")
def attention(
    x, weights, bias=None, mask=None, past=None, added=None, *, num_heads, qkv_hidden_sizes=None,
    **how,
):  # fmt: skip
    """(MultiHeadAttention of the parts of x W + b, keys and values)."""
    widths = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    parts = np.split(summed(x @ weights, bias), np.cumsum(widths)[:2], axis=-1)
    before = (None, None) if past is None else (past[0], past[1])
    y, k, v = multi_head_attention(*parts, None, mask, added, *before, num_heads=num_heads, **how)
    return (y, np.stack([k, v])) if k.shape == v.shape else (y,)


@transcription(f"{MS}QAttention")
def qattention(
    x, weights, bias, x_scale, w_scale, mask=None, x_zero=None, w_zero=None, past=None, **how
):
    """Attention of dequantised x and W."""
    x, weights = dequantized(x, x_scale, x_zero), dequantized(weights, w_scale, w_zero)
    return attention(x, weights, bias, mask, past, **how)


@transcription(f"{MS}GroupQueryAttention")
def group_query_attention(
    query, key, value, past_key, past_value, ends, total, cos=None, sin=None, positions=None,
    added=None, sink=None, *others, num_heads, kv_num_heads, scale=None, do_rotary=0,
    rotary_interleaved=0, softcap=0.0, local_window_size=-1, smooth_softmax=0,
    sliding_window_cache=0,
):  # fmt: skip
    """(y, keys, values): causal attention in which a group of heads shares keys and values.

    A sequence has ends[n] + 1 keys: first the cached ones, then the new ones, of which the last of
    all inputs says how many there are; y is 0 at others. A sink is a score without a key; for the
    smooth softmax, the score is 0. From a sliding window, keys leave C - W + 1 at a time.
    """
    q, k, v = (heads(x, c) for x, c in ((query, num_heads), (key, kv_num_heads),
                                        (value, kv_num_heads)))  # fmt: skip
    time, (whole,) = q.shape[2], counts(total)
    new = counts(others[4]) if others else [time] * len(q)
    past = [0 if whole == time and not others else e + 1 - c
            for e, c in zip(counts(ends), new, strict=True)]  # fmt: skip
    at = np.add.outer(past, np.arange(time))
    if do_rotary:
        q, k = (rotated(x, cos[at], sin[at], not rotary_interleaved) for x in (q, k))

    room = 0 if past_key is None else past_key.shape[2]

    def gone(count):
        """How many of so many entries are no longer in a cache."""
        step = room - local_window_size + 1
        return max(0, -(-(count - room) // step) * step) if sliding_window_cache else 0

    def joined(cache, x):
        """The entries of each sequence, at their places; 0 elsewhere."""
        every = 0 * x[:, :, [0] * max(room, whole)]
        for n, (p, c) in enumerate(zip(past, new, strict=True)):
            if p:
                every[n, :, gone(p) : p] = cache[n, :, : p - gone(p)]
            every[n, :, p : p + c] = x[n, :, :c]
        return every

    def present(every):
        """The entries of each sequence that are still in its cache."""
        if not sliding_window_cache:
            return every
        longer = np.concatenate([every, 0 * every], axis=2)
        return np.stack([longer[n, :, gone(e + 1) :][:, :room] for n, e in enumerate(counts(ends))])

    k, v = joined(past_key, k), joined(past_value, v)
    held, k, v = (present(k), present(v)), k[:, :, :whole], v[:, :, :whole]
    score, last, j = scores(q, k, scale), at[:, None, :, None], np.arange(whole)
    score = np.tanh(score / softcap) * softcap if softcap else score
    window = local_window_size if local_window_size > 0 else whole + time
    rest = smooth_softmax if sink is None else np.exp(sink)[:, None, None]
    y = attended(masked(score, (j <= last) & (j > last - window)), v, rest)
    return y * (np.arange(time) < np.array(new)[:, None])[:, :, None], *held


@transcription(f"{MS}LinearAttentionGate")
def linear_attention_gate(a, bias, scale, b=None):
    """(scale log(1 + exp(a + bias)), 1 / (1 + exp(-b)))."""
    decay = scale * np.log(1 + np.exp(a + bias))
    return (decay,) if b is None else (decay, 1 / (1 + np.exp(-b)))


@transcription(f"{MS}LinearAttention")
def linear_attention(
    q, k, v, state=None, decay=None, beta=None, *, q_num_heads, kv_num_heads, scale=0.0,
    update_rule="gated_delta",
):  # fmt: skip
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


@transcription(f"{MS}CausalConvWithState")
def causal_conv_with_state(
    x, w, b=None, past=None, *, dilation=1, activation="none", channels_last=0
):
    """(Σ_j w[c, 0, j] x[n, c, t - (K - 1 - j) dilation] + b[c], the last inputs)."""
    turned = (0, 2, 1) if channels_last else (0, 1, 2)
    x, taps = x.transpose(turned), w.shape[2]
    time, room = x.shape[2], (taps - 1) * dilation
    past = 0 * x[:, :, [0] * room] if past is None else past.transpose(turned)
    every = np.concatenate([past, x], axis=2)
    y = sum(w[:, 0, j, None] * every[:, :, j * dilation : j * dilation + time] for j in range(taps))
    y = summed(y, None if b is None else b[:, None])
    y = y if activation == "none" else silu(y)
    return y.transpose(turned), every[:, :, time:].transpose(turned)


@transcription(f"{MS}VarlenCausalConvWithState")
def packed_causal_conv(x, w, ends, b, state, *, dilation=1, activation="none"):
    """(CausalConvWithState of every sequence of tokens, the last inputs of each)."""
    results = []
    for start, stop, past in zip(counts(ends)[:-1], counts(ends)[1:], state, strict=True):
        one = x[start:stop].T[None]
        y, last = causal_conv_with_state(one, w, b, past[None], dilation=dilation,
                                         activation=activation)  # fmt: skip
        results.append((y[0].T, last[0]))
    rows, states = zip(*results, strict=True)
    return np.concatenate(rows), np.stack(states)


# Others.


@transcription(f"{MS}NGramRepeatBlock")
def ngram_repeat_block(ids, scores, *, ngram_size):
    """The scores, and -∞ for a token that was seen behind the last n - 1 tokens."""
    n, y = ngram_size, scores.copy()
    for b, row in enumerate(ids.tolist()):
        for start in range(len(row) - n + 1):
            if row[start : start + n - 1] == row[len(row) - n + 1 :]:
                y[b, row[start + n - 1]] = 0 * y[b, row[start + n - 1]] - sp.oo
    return y


@transcription(f"{MS}MaxpoolWithMask")
def max_pool_with_mask(x, mask, *, kernel_shape, **how):
    """The greatest entry of each window of which no masked entry lies before it on its line."""
    space = axes(x.shape[2:], kernel_shape, **how)

    def entry(index):
        n, c, *window = index
        met, stopped = [], set()
        for tap, place in taps(space, tuple(window)):
            corner = len(place) > 1 and not any(place)
            if not mask[(0, 0, *place)] and not corner:
                stopped.add(tap[:-1])
            if tap[:-1] not in stopped:
                met.append(x[(n, c, *place)])
        return max(met)

    return tabulate((*x.shape[:2], *(a.count for a in space)), entry)


@transcription(f"{MS}WordConvEmbedding")
def word_conv_embedding(words, w, b, table):
    """y[n, m] = the maximum of tanh(Σₖ Σ_d w[m, 0, k, d] C[word[n, t + k], d] + b[m]) over t."""
    wide = w.shape[2]

    def entry(index):
        n, m = index
        last = max(np.count_nonzero(words[n]), wide) - wide
        sums = ((table[words[n, t : t + wide]] * w[m, 0]).sum() + b[m] for t in range(last + 1))
        return max(z.tanh() for z in sums)

    return tabulate((len(words), len(w)), entry)


@transcription(f"{MS}CropAndResize")
def crop_and_resize(x, boxes, images, size, *, mode="bilinear", extrapolation_value=0.0):
    """y[r, c, i, j] at the point i and j of a grid from corner to corner of box r, bilinear."""
    count = counts(size)

    def entry(index):
        r, c, *place = index
        y = x[counts(images)[r], c]
        for a, i in reversed(list(enumerate(place))):
            low, high, last = boxes[r, a], boxes[r, a + 2], x.shape[2 + a] - 1
            share = sp.Rational(i, count[a] - 1) if count[a] > 1 else sp.Rational(1, 2)
            at = (low + (high - low) * share) * last
            if at < 0 or at > last:
                return 0 * low + extrapolation_value
            k = next(k for k in range(last + 1) if at < k + 1 or k == last)
            upper = y[..., min(k + 1, last)]
            y = y[..., k] + (upper - y[..., k]) * (at - k)
        return y

    return tabulate((len(boxes), x.shape[1], *count), entry)


@transcription(f"{MS}ConvTransposeWithDynamicPads")
def conv_transpose_with_dynamic_pads(x, w, pads, b=None, **how):
    """ConvTranspose with these pads."""
    return TRANSCRIPTIONS["ConvTranspose"](x, w, b, pads=counts(pads), **how)


@transcription(f"{MS}UnfoldTensor")
def unfold(x, *, size, dim=-1, step=1):
    """y[..., i, ..., k] = x[..., i step + k, ...]."""
    axis = dim % x.ndim
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    return windows.take(range(0, windows.shape[axis], step), axis)


@transcription(f"{MS}ExpandDims")
def expand_dims(x, axis):
    """x with an axis of length 1."""
    return np.expand_dims(x, int(axis))


@transcription(f"{MS}GridSample")
def grid_sample(x, grid, *, mode):
    """ONNX's GridSample, in which the mode bilinear is named linear."""
    return KERNELS["GridSample"](x, grid, mode={"bilinear": "linear"}[mode])


# -- cases -----------------------------------------------------------------------------------------

ort = partial(case, domain="com.microsoft")

ort("Gelu", SIDES, torch="F.gelu({0})")
ort("FastGelu", SIDES, torch="F.gelu({0}, approximate='tanh')")
ort("BiasGelu", (2, 2), (2,), torch="F.gelu({0} + {1})")
ort("FastGelu", (2, 2), (2,))
ort("QuickGelu", SIDES, torch="{0} * torch.sigmoid(1.702 * {0})")
ort("QuickGelu", SIDES, alpha=1.5)
ort("SampleOp", (2,), torch="{0}.clone()")
ort("ScaledSiLU", SIDES, alpha=1.5)
ort("ScaledSiLU", (2, 1), np.array(0.5), torch="F.silu({1} * {0})")

ort("FusedMatMul", (2, 3), (3, 1), torch="{0} @ {1}")
ort("TransposeMatMul", (2, 2), (1, 2), transA=1, transB=1, alpha=0.5, torch="0.5 * {0}.mT @ {1}.mT")
ort("ExpandDims", (2,), np.array(0, np.int32), torch="{0}.unsqueeze(0)")
ort("UnfoldTensor", (2, 5, 1), dim=1, size=3, step=2, torch="{0}.unfold(1, 3, 2)")
ort("UnfoldTensor", (3,), size=2)
ort("CDist", (2, 2), (1, 2), metric="sqeuclidean", torch="torch.cdist({0}, {1}) ** 2")
ort("CDist", (1, 2), (2, 2), metric="euclidean")
ort("GridSample", (1, 1, 3, 2), numbers(0.25, -0.375).reshape(1, 1, 1, 2), mode="bilinear",
    torch="F.grid_sample({0}, {1}, align_corners=False)")  # fmt: skip
ort("FusedMatMul", (2, 2), (1, 2), transA=1, transB=1, alpha=0.5)
ort("FusedMatMul", (2, 1, 2), (1, 2, 2), transBatchA=1)
ort("FusedMatMul", (1, 2, 2), (2, 1, 2), transBatchB=1, transB=1)
ort("FusedGemm", (2, 2), (2, 2), (2,), transA=1, alpha=0.5,
    torch="torch.addmm({2}, {0}.mT, {1}, alpha=0.5)")  # fmt: skip
ort("FusedGemm", (1, 2), (2, 2), (2,), activation="LeakyRelu", activation_alpha=0.25)
ort("FusedConv", (1, 1, 2, 3), (2, 1, 1, 2), (2,), activation="Relu",
    torch="torch.relu(torch.conv2d({all}))")  # fmt: skip
ort("FusedConv", (1, 1, 1, 3), (1, 1, 1, 2), (1,), (1, 1, 1, 2), activation="Clip",
    activation_params=[-0.5, 2.0])  # fmt: skip

NEAR = {"epsilon": 0.125}
ort("SkipLayerNormalization", *[(1, 1, 2)] * 2, *[(2,)] * 3, second=False, **NEAR,
    torch="F.layer_norm({0} + {1} + {4}, (2,), {2}, {3}, 0.125)")  # fmt: skip
ort("SkipLayerNormalization", (1, 2, 2), (1, 2, 2), (2,), outputs=4, of=(0, 3), **NEAR)
ort("SkipSimplifiedLayerNormalization", (1, 1, 2), (1, 1, 2), (2,), (2,), **NEAR,
    torch="F.rms_norm({0} + {1} + {3}, (2,), {2}, 0.125)")  # fmt: skip
ort("SimplifiedLayerNormalization", (2, 2), (2,), **NEAR, torch="F.rms_norm({0}, (2,), {1}, 0.125)")
ort("SimplifiedLayerNormalization", (1, 2, 1), (2, 1), axis=1, **NEAR)

FOUR = {"K": 3, "N": 2, "bits": 4, "block_size": 2}
BYTES = np.array([[[0x21], [0xC3]], [[0xF8], [0x05]]], np.uint8)
ort("MatMulNBits", (1, 3), BYTES, (2, 2), **FOUR,
    torch="{0} @ ((torch.tensor([[1, 2, 3], [8, 15, 5]]).double() - 8) "
          "* {2}.repeat_interleave(2, 1)[:, :3]).mT")  # fmt: skip
ort("MatMulNBits", (2, 3), BYTES, (2, 2), np.array([[0x35], [0x80]], np.uint8), None, (2,), **FOUR)
ort("MatMulNBits", (1, 3), BYTES, (2, 2), None, np.array([1, 0, 1], np.int32), **FOUR)
ort("MatMulNBits", (1, 2), np.array([[[3, 200]]], np.uint8), (1, 1), K=2, N=1, bits=8, block_size=2)
WORDS = np.array([[1, 0]], np.int32)
ort("EmbedLayerNormalization", WORDS, WORDS, *[(2, 2)] * 3, (2,), (2,), second=False, **NEAR,
    torch="F.layer_norm({2}[{0}] + {3}[:2] + {4}[{1}], (2,), {5}, {6}, 0.125)")  # fmt: skip
ort("EmbedLayerNormalization", WORDS, None, (2, 2), (3, 2), None, (2,), (2,), None, WORDS + 1,
    outputs=3, of=(2,), **NEAR)  # fmt: skip

TURN = ((2, 1), (2, 1))
ort("RotaryEmbedding", (1, 2, 2), ints(0), *TURN)
ort("RotaryEmbedding", (1, 1, 2, 2), ints([1, 0]), *TURN, interleaved=1)
ort("RotaryEmbedding", (1, 1, 6), ints([1]), *TURN, rotary_embedding_dim=2, num_heads=2)

FEW = {"num_heads": 2, "second": False}
ort("Attention", (1, 2, 1), (1, 6), (6,), **FEW)
ort("Attention", (1, 2, 1), (1, 3), num_heads=1)
ort("Attention", (1, 2, 2), (2, 5), None, np.array([[1, 0]], np.int32), unidirectional=1,
    qkv_hidden_sizes=[2, 2, 1], num_heads=1, second=False)  # fmt: skip
ort("MultiHeadAttention", (1, 1, 2), (1, 2, 2), (1, 2, 2), (6,), **FEW)
ort("MultiHeadAttention", (1, 1, 1), (1, 2, 1), (1, 2, 1), None,
    np.array([[1, 0]], np.int32), (1, 1, 1, 2), num_heads=1, scale=0.5)  # fmt: skip
ort("MultiHeadAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), num_heads=1, unidirectional=1,
    second=False)  # fmt: skip
ort("MultiHeadAttention", (1, 1, 1), (1, 1, 1), (1, 1, 1), None, None, None, (1, 1, 1, 1),
    (1, 1, 1, 1), num_heads=1, outputs=3, second=False)  # fmt: skip

LENGTHS = {n: (np.array([n - 1], np.int32), np.array(n, np.int32)) for n in (2, 3)}
GROUP = {"num_heads": 2, "kv_num_heads": 1}
ort("GroupQueryAttention", (1, 2, 2), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2], **GROUP)
ort("GroupQueryAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1),
    *LENGTHS[3], outputs=3, **GROUP)  # fmt: skip
ort("GroupQueryAttention", (1, 2, 2), (1, 2, 2), (1, 2, 2), None, None, *LENGTHS[2],
    *TURN, num_heads=1, kv_num_heads=1, do_rotary=1, second=False)  # fmt: skip
ort("GroupQueryAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2],
    num_heads=1, kv_num_heads=1, softcap=2.0, local_window_size=1)  # fmt: skip
ort("GroupQueryAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1),
    *LENGTHS[3], None, None, None, None, (2,), second=False, **GROUP)  # fmt: skip
ort("GroupQueryAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), None, None, *LENGTHS[2],
    num_heads=1, kv_num_heads=1, smooth_softmax=1, second=False)  # fmt: skip
ort("GroupQueryAttention", (1, 2, 1), (1, 2, 1), (1, 2, 1), (1, 1, 3, 1), (1, 1, 3, 1), *LENGTHS[2],
    *[None] * 9, np.array([1], np.int32), num_heads=1, kv_num_heads=1, outputs=3,
    second=False)  # fmt: skip
ort("GroupQueryAttention", (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1),
    *LENGTHS[3], num_heads=1, kv_num_heads=1, outputs=3, sliding_window_cache=1,
    local_window_size=2, second=False)  # fmt: skip
ort("Attention", (1, 1, 1), (1, 3), None, None, (2, 1, 1, 1, 1), num_heads=1, outputs=2)

BYTE = {n: np.arange(7, 7 + 29 * np.prod(n), 29).astype(np.uint8).reshape(n)
        for n in ((1,), (2,), (1, 1, 2), (1, 2), (2, 1), (2, 2), (2, 3), (2, 6))}  # fmt: skip
ZERO, UNIT = np.array(40, np.uint8), np.array(0.25)
ort("MatMulIntegerToFloat", BYTE[2, 2], BYTE[2, 2], UNIT, (2,), ZERO, BYTE[(2,)], (2,),
    torch="(({0}.double() - {4}) * {2}) @ (({1}.double() - {5}) * {3}) + {6}")  # fmt: skip
ort("MatMulIntegerToFloat", BYTE[2, 2], BYTE[2, 1], UNIT, UNIT)
ort("DynamicQuantizeMatMul", (2, 2), BYTE[2, 2], (2,), BYTE[(2,)], (2,))
ort("QGemm", BYTE[1, 2], UNIT, ZERO, BYTE[2, 2], UNIT, ZERO, np.array([3, -4], np.int32), alpha=0.5)
ort("QGemm", BYTE[2, 1], UNIT, ZERO, BYTE[2, 2], (2,), BYTE[(2,)], transA=1, transB=1)
ort("QAttention", BYTE[1, 1, 2], BYTE[2, 3], (3,), UNIT / 64, UNIT / 32, None, ZERO, ZERO,
    num_heads=1)  # fmt: skip
ort("QAttention", BYTE[1, 1, 2], BYTE[2, 3], (3,), UNIT / 64, UNIT / 32, None, ZERO, ZERO,
    (2, 1, 1, 1, 1), num_heads=1, unidirectional=1, outputs=2, second=False)  # fmt: skip
ort("QEmbedLayerNormalization", WORDS, WORDS, *[BYTE[2, 2]] * 3, BYTE[(2,)], BYTE[(2,)], None,
    *[UNIT] * 5, *[ZERO] * 5, outputs=2, of=(0,), wrt=(8, 11), **NEAR)  # fmt: skip

ort("GatedAdd", (2, 2), (2, 2), (2, 1), torch="{0} + {1} * {2}")
ort("GatedRMSNorm", (1, 4), (2,), (1, 4), second=False, **NEAR,
    torch="F.rms_norm({0}.view(1, 2, 2), (2,), {1}, 0.125).view(1, 4) * F.silu({2})")  # fmt: skip
ort("GatedRMSNorm", (1, 2), (2,), (1, 2), activation="sigmoid", **NEAR)
ort("BranchwiseRMSNorm", (1, 2, 2), (2,), **NEAR, torch="F.rms_norm({0}, (2,), {1}, 0.125)")
ort("BranchwiseRMSNorm", (1, 4), (4,), num_branches=2, **NEAR)
ort("HyperConnectionPreMix", (1, 2, 2), (1, 2), reduction_scale=0.5,
    torch="0.5 * ({0} * {1}.unsqueeze(-1)).sum(-2)")  # fmt: skip
ort("HyperConnectionPreMix", (1, 4), (1, 4), num_branches=2)
ort("HyperConnectionPostMix", (1, 2, 2), (1, 2), (1, 2), (1, 2, 2),
    torch="{3}.mT @ {0} + {2}.unsqueeze(-1) * {1}.unsqueeze(-2)")  # fmt: skip
ort("HyperConnectionPostMix", (1, 4), (1, 2), (1, 2, 2), num_branches=2)
ort("LinearAttentionGate", (1, 2, 2), (2,), (2,), (1, 2, 2), outputs=2,
    torch="{2} * F.softplus({0} + {1})")  # fmt: skip
RULE = {"outputs": 2, "q_num_heads": 1, "kv_num_heads": 1}
ort("LinearAttention", *[(1, 2, 1)] * 3, (1, 1, 1, 1), *[(1, 2, 1)] * 2, **RULE)
ort("LinearAttention", (1, 2, 2), (1, 2, 2), (1, 2, 1), update_rule="linear", **RULE)
ort("LinearAttention", (1, 1, 2), (1, 1, 1), (1, 1, 1), None, (1, 1, 1), update_rule="gated",
    scale=0.5, outputs=2, q_num_heads=2, kv_num_heads=1)  # fmt: skip
ort("LinearAttention", *[(1, 2, 1)] * 3, None, None, (1, 2, 1), update_rule="delta", **RULE)
ort("CausalConvWithState", (1, 1, 3), (1, 1, 2), (1,), (1, 1, 2), dilation=2, outputs=2,
    torch="F.conv1d(torch.cat(({3}, {0}), 2), {1}, {2}, dilation=2)")  # fmt: skip
ort("CausalConvWithState", (1, 2, 2), (2, 1, 2), outputs=2, channels_last=1, activation="silu")
ort("Inverse", (2, 2), torch="torch.linalg.inv({0})")
ort("Inverse", (1, 1, 1))
SECTIONS = np.array([[[1]], [[0]], [[1]]])
ort("MRotaryEmbedding", (1, 1, 1, 6), SECTIONS, (2, 3), (2, 3), mrope_section=[1, 1, 1], scale=2.0)
ort("MRotaryEmbedding", (1, 1, 1, 6), SECTIONS, (2, 3), (2, 3), mrope_section=[1, 1, 1],
    mrope_layout=1, interleaved=1)  # fmt: skip
QUARTER = {"K": 3, "N": 2, "block_size": 4, "quant_type": 0}
ort("MatMulBnb4", (1, 3), np.array([0x21, 0x0B, 0x01], np.uint8), (2,), **QUARTER)
ort("MatMulBnb4", (1, 2), np.array([0x21, 0x0B, 0x01], np.uint8), (2,), transB=0, **QUARTER)
ort("ConvTransposeWithDynamicPads", (1, 1, 2, 1), (1, 1, 2, 1), ints(1, 0, 0, 0), (1,),
    strides=[2, 1], torch="F.conv_transpose2d({0}, {1}, {3}, (2, 1))[:, :, 1:]")  # fmt: skip
ort("GatherBlockQuantized", BYTE[2, 2], ints(1, -1, 5), (2, 2), BYTE[2, 1], block_size=2)
ort("GatherBlockQuantized", BYTE[2, 2], ints([0]), (2, 1), block_size=16)

ort("SparseToDenseMatMul", (2, 2), (2, 1), alpha=0.5, torch="0.5 * {0} @ {1}")
Q4 = np.concatenate([np.array([0.25], np.float32).view(np.uint8),
                     np.arange(17, dtype=np.uint8) * 15])  # fmt: skip
ort("MatMulFpQ4", (1, 18), Q4, ints(18, 1))
ort("MatMulFpQ4", (1, 2), np.delete(Q4, 4), ints(2, 1), blk_quant_type=0)
ort("NGramRepeatBlock", np.array([[1, 2, 3, 1, 2], [0, 0, 1, 2, 3]]), (2, 4), ngram_size=9)
ort("MaxpoolWithMask", (1, 1, 5), np.array([[[1, 1, 0, 1, 1]]], np.int32), kernel_shape=[2],
    pads=[1, 0], strides=[2])  # fmt: skip
ort("MaxpoolWithMask", numbers(3, -1, 2, 0.5, 1, -2).reshape(1, 1, 2, 3),
    np.array([[[[0, 1, 1], [0, 1, 1]]]], np.int32), kernel_shape=[2, 2])  # fmt: skip
ort("WordConvEmbedding", np.array([[1, 2, 1, 0], [2, 0, 0, 0]], np.int32), (1, 1, 2, 1), (1,),
    (3, 1))  # fmt: skip
CORNERS = numbers(0.125, 0.25, 0.875, 0.75).reshape(1, 4)
ort("CropAndResize", (1, 1, 3, 2), CORNERS, np.array([0], np.int32), np.array([2, 1], np.int32))
ort("VarlenCausalConvWithState", (3, 1), (1, 1, 2), np.array([0, 2, 3], np.int32), (1,),
    (2, 1, 1), outputs=2)  # fmt: skip
ort("VarlenCausalConvWithState", (2, 1), (1, 1, 2), np.array([0, 2], np.int32), (1,),
    (1, 1, 2), dilation=2, activation="silu", outputs=2, second=False)  # fmt: skip
ort("DecoderMaskedMultiHeadAttention", (1, 1, 1), (1, 1, 1), (1, 1, 1), None, None,
    (1, 1, 3, 1), (1, 1, 3, 1), np.array([1], np.int32), num_heads=1, past_present_share_buffer=1,
    outputs=3, second=False)  # fmt: skip
ort("DecoderMaskedMultiHeadAttention", (1, 1, 1), (1, 1, 2, 1), (1, 1, 2, 1), num_heads=1)
ort("MoE", (1, 1), (1, 2), (2, 1, 1), (2, 1), (2, 1, 1), (2, 1), k=1, activation_type="silu",
    second=False)  # fmt: skip
ort("MoE", (1, 2), (1, 2), (2, 1, 2), None, (2, 2, 1), k=2, normalize_routing_weights=1,
    second=False)  # fmt: skip
ort("MoE", (1, 1), (1, 2), (2, 1, 1), None, (2, 1, 1), k=1)
ort("QMoE", (1, 2), (1, 2), BYTE[2, 2].reshape(2, 2, 1), (2, 2), None,
    BYTE[2, 2].reshape(2, 2, 1)[::-1], (2, 2))  # fmt: skip
ort("QMoE", (1, 2), (1, 2), BYTE[2, 2].reshape(2, 2, 1), (2, 2), (2, 2), BYTE[2, 2].reshape(2, 2,
    1)[::-1], (2, 2), k=2, activation_type="identity", second=False)  # fmt: skip
ort("MoEGroupRouter", (1, 4), (4,), top_k=1, n_group=2, topk_group=1, group_topk=2, outputs=3)

script(MS + "Attention",
       "F.scaled_dot_product_attention(*({0} @ {1}).split(2, -1))", (1, 2, 3), (3, 6),
       num_heads=1)  # fmt: skip
script(MS + "MultiHeadAttention", "F.scaled_dot_product_attention({0}, {1}, {2})",
       (1, 2, 2), (1, 3, 2), (1, 3, 2), num_heads=1)  # fmt: skip
script(MS + "GroupQueryAttention",
       "F.scaled_dot_product_attention({0}, {1}, {2}, is_causal=True)", (1, 2, 2), (1, 2, 2),
       (1, 2, 2), None, None, ints(1).astype(np.int32), np.array(2, np.int32), num_heads=1,
       kv_num_heads=1)  # fmt: skip
script(MS + "MaxpoolWithMask", "F.max_pool1d({0}, 2)", (1, 1, 4), np.ones((1, 1, 4), np.int32),
       kernel_shape=[2], strides=[2])  # fmt: skip
script(MS + "DecoderMaskedMultiHeadAttention",
       "F.scaled_dot_product_attention({0}, {1}[0], {2}[0])", (1, 1, 2), (1, 1, 3, 2),
       (1, 1, 3, 2), num_heads=1)  # fmt: skip
script(MS + "WordConvEmbedding",
       "torch.tanh(F.conv2d({3}[{0}].unsqueeze(1), {1}, {2})).amax((2, 3))",
       np.array([[1, 2, 1]], np.int32), (1, 1, 2, 1), (1,), (3, 1))  # fmt: skip
script(MS + "VarlenCausalConvWithState",
       "F.conv1d(torch.cat(({4}, {0}.T.unsqueeze(0)), 2), {1}, {3})[0].T", (3, 1), (1, 1, 2),
       np.array([0, 3], np.int32), (1,), (1, 1, 1), outputs=2, of=(0,))  # fmt: skip
