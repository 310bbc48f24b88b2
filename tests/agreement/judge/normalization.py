"""Products of matrices, normalisations, softmax and its losses, attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .elementwise import root
from .graphs import Node, NoKernel, dtype_of, integers, kernel
from .indexing import wrapped


@kernel("MatMul")
def matmul(node: Node, a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


@kernel("Gemm")
def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a = a.T if node["transA"] else a
    b = b.T if node["transB"] else b
    y = scaled(a @ b, node["alpha"])
    return y if c is None else y + scaled(c, node["beta"])


def scaled(x: Tensor, factor: float) -> Tensor:
    """A tensor times an attribute, also where the tensor holds integers."""
    return (factor * x).to(x.dtype)


@kernel("Einsum")
def einsum(node: Node, *xs: Tensor) -> Tensor:
    return torch.einsum(node["equation"].replace(" ", ""), *xs)


@kernel("Softmax", "LogSoftmax")
def softmax(node: Node, x: Tensor) -> Tensor:
    f = torch.softmax if node.op_type == "Softmax" else torch.log_softmax
    axis = node["axis"]
    if node.opset >= 13:
        return f(x, axis)
    axis = axis % x.ndim  # before opset 13, x is flattened to a matrix at the axis
    flat = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
    return f(flat, 1).reshape(x.shape)


def channels(scale: Tensor, x: Tensor) -> Tensor:
    """A vector with one entry per channel, shaped to broadcast with axis 1 of x."""
    return scale.reshape(-1, *[1] * (x.ndim - 2))


@kernel("BatchNormalization")
def batch_normalization(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> tuple[Tensor, ...]:
    others: tuple[Tensor, ...] = ()
    if node["training_mode"]:
        axes = [k for k in range(x.ndim) if k != 1]
        now_mean, now_var = x.mean(axes), x.var(axes, correction=0)
        keep = node["momentum"]
        others = mean * keep + now_mean * (1 - keep), var * keep + now_var * (1 - keep)
        mean, var = now_mean, now_var
    elif node.opset < 14 and node.outputs > 1:
        raise NoKernel("BatchNormalization that trains, before opset 14")
    if node["spatial"] in (None, 1):
        scale, bias, mean, var = (channels(v, x) for v in (scale, bias, mean, var))
    return (x - mean) / torch.sqrt(var + node["epsilon"]) * scale + bias, *others


@kernel("InstanceNormalization")
def instance_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    axes = tuple(range(2, x.ndim))
    y, _, _ = standardized(x, axes, node["epsilon"])
    return y * channels(scale, x) + channels(bias, x)


def standardized(x: Tensor, axes: Any, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """x with mean 0 and variance 1 along axes; its mean; its inverse standard deviation."""
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    inverse = 1 / torch.sqrt((centred * centred).mean(axes, keepdim=True) + epsilon)
    return centred * inverse, mean, inverse


@kernel("LayerNormalization")
def layer_normalization(
    node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    axes = tuple(range(node["axis"] % x.ndim, x.ndim))
    y, mean, inverse = standardized(x, axes, node["epsilon"])
    y = y * scale
    return y if bias is None else y + bias, mean, inverse


@kernel("GroupNormalization")
def group_normalization(node: Node, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups = node["num_groups"]
    split = x.reshape(x.shape[0], groups, -1)
    y, _, _ = standardized(split, (2,), node["epsilon"])
    if node.opset < 21:  # one scale per group
        return (y * scale.reshape(-1, 1) + bias.reshape(-1, 1)).reshape(x.shape)
    return y.reshape(x.shape) * channels(scale, x) + channels(bias, x)


@kernel("RMSNormalization")
def rms_normalization(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    axes = tuple(range(node["axis"] % x.ndim, x.ndim))
    return x / torch.sqrt((x * x).mean(axes, keepdim=True) + node["epsilon"]) * scale


@kernel("LRN")
def lrn(node: Node, x: Tensor) -> Tensor:
    size = node["size"]
    c = x.shape[1]
    distance = torch.arange(c).unsqueeze(0) - torch.arange(c).unsqueeze(1)
    near = (distance >= -((size - 1) // 2)) & (distance <= math.ceil((size - 1) / 2))
    squares = torch.einsum("cd,nd...->nc...", near.to(x.dtype), x * x)
    return x / (node["bias"] + node["alpha"] / size * squares) ** node["beta"]


@kernel("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, x: Tensor) -> Tensor:
    axes = node["axes"] or [0, 2, 3]
    centred = x - x.mean(axes, keepdim=True)
    variance = (x * x).mean(axes, keepdim=True) - x.mean(axes, keepdim=True) ** 2
    return centred / (torch.sqrt(variance) + float(torch.tensor(1e-9)))


@kernel("LpNormalization")
def lp_normalization(node: Node, x: Tensor) -> Tensor:
    axis = node["axis"]
    if node["p"] == 1:
        norm = x.abs().sum(axis, keepdim=True)
    else:
        norm = root((x * x).sum(axis, keepdim=True))
    return torch.where(norm == 0, torch.zeros_like(x), x / torch.where(norm == 0, 1.0, norm))


def likelihood(
    node: Node, scores: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor:
    """The weighted negative scores of the targets, reduced as the node says."""
    ignored = torch.zeros_like(target, dtype=torch.bool)
    if "ignore_index" in node:
        ignored = target == node["ignore_index"]
    classes = scores.shape[1]
    index = torch.where(ignored, 0, wrapped(target, classes))
    picked = torch.gather(scores, 1, index.unsqueeze(1)).squeeze(1)
    factors = torch.ones_like(picked) if weight is None else weight[index]
    factors = torch.where(ignored, torch.zeros_like(factors), factors)
    loss = -picked * factors
    if node["reduction"] == "none":
        return loss
    return loss.sum() / factors.sum() if node["reduction"] == "mean" else loss.sum()


@kernel("NegativeLogLikelihoodLoss")
def nll_loss(node: Node, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    return likelihood(node, x, target, weight)


@kernel("SoftmaxCrossEntropyLoss")
def cross_entropy(
    node: Node, x: Tensor, target: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    logs = torch.log_softmax(x, 1)
    return likelihood(node, logs, target, weight), logs


@kernel("Attention")
def attention(
    node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    past_k: Tensor | None = None, past_v: Tensor | None = None, valid: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    flat = q.ndim == 3
    if flat:
        heads = node["q_num_heads"], node["kv_num_heads"], node["kv_num_heads"]
        q, k, v = (
            x.reshape(*x.shape[:2], h, -1).movedim(1, 2)
            for x, h in zip((q, k, v), heads, strict=True)
        )
    past = 0 if past_k is None else past_k.shape[2]
    if past_k is not None:
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    present = k, v
    repeats = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeats, 1) for x in (k, v))
    scale = node["scale"] if "scale" in node else 1 / math.sqrt(q.shape[-1])
    scores = [scale * (q @ k.mT)]
    cap = node["softcap"]
    scores.append(cap * torch.tanh(scores[0] / cap) if cap else scores[0])
    bias, off = masks(node, scores[0], mask, past, valid)
    scores.append(scores[1] + bias + torch.zeros_like(scores[1]).masked_fill(off, -math.inf))
    weights = torch.softmax(scores[2].masked_fill(off.all(-1, True), 0.0), -1)
    scores.append(weights.masked_fill(off.all(-1, True), 0.0))
    y = scores[3] @ v
    y = y.movedim(1, 2).flatten(2) if flat else y
    return y, *present, scores[node["qk_matmul_output_mode"]]


def masks(
    node: Node, scores: Tensor, mask: Tensor | None, past: int, valid: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The bias to add to the scores, and the mask of scores to ignore."""
    rows, columns = scores.shape[-2:]
    bias = torch.zeros((), dtype=scores.dtype)
    off = torch.zeros_like(scores, dtype=torch.bool)
    if mask is not None:
        missing = columns - mask.shape[-1]
        beyond = torch.arange(columns) >= mask.shape[-1]
        if mask.dtype == torch.bool:
            off = off | ~torch.nn.functional.pad(mask, (0, missing)) | beyond
        else:
            never = torch.isneginf(mask)
            bias = torch.nn.functional.pad(mask.masked_fill(never, 0.0), (0, missing))
            off = off | torch.nn.functional.pad(never, (0, missing)) | beyond
    offset = torch.tensor(past).reshape(1, 1, 1, 1)
    if valid is not None:
        off = off | (torch.arange(columns) >= valid.reshape(-1, 1, 1, 1))
        offset = valid.reshape(-1, 1, 1, 1) - rows
    at, key = torch.arange(rows).unsqueeze(1) + offset, torch.arange(columns)
    if node["is_causal"]:
        off = off | (key > at)
    for name, ahead in (("left_window_size", at - key), ("right_window_size", key - at)):
        if (node[name] if node[name] is not None else -1) >= 0:
            off = off | (ahead > node[name])
    return bias, off


@kernel("RotaryEmbedding")
def rotary_embedding(
    node: Node, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None
) -> Tensor:
    flat = x.ndim == 3
    heads = node["num_heads"]
    y = x.reshape(*x.shape[:2], heads, -1).movedim(1, 2) if flat else x
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # broadcast over the heads
    width = node["rotary_embedding_dim"] or y.shape[-1]
    turned, rest = y[..., :width], y[..., width:]
    if node["interleaved"]:
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    else:
        a, b = turned.chunk(2, -1)
        turned = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    y = torch.cat([turned, rest], -1)
    return y.movedim(1, 2).flatten(2) if flat else y


# Quantisation: values only; the derivative is 0 almost everywhere.


def along(scale: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point, per tensor, per axis or per block, that broadcasts with x."""
    if scale.numel() == 1 and scale.ndim < 2:
        return scale.reshape(())
    if block:
        return scale.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    return scale.reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])


@kernel("QuantizeLinear")
def quantize_linear(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    axis, block = node["axis"] or 0, node["block_size"] or 0
    if "axis" not in node and node.opset >= 13:
        axis = 1
    scale = along(scale, x, axis, block)
    dtype = torch.uint8 if zero is None else zero.dtype
    if zero is None and node["output_dtype"]:
        dtype = dtype_of(node["output_dtype"])
    info = torch.iinfo(dtype)
    shift = 0 if zero is None else along(zero, x, axis, block).to(torch.float64)
    return torch.clamp(torch.round(x / scale) + shift, info.min, info.max).detach().to(dtype)


@kernel("DequantizeLinear")
def dequantize_linear(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    axis, block = node["axis"] or 0, node["block_size"] or 0
    shift = 0 if zero is None else along(zero, x, axis, block).to(torch.float64)
    return (x.to(torch.float64) - shift) * along(scale, x, axis, block)


@kernel("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node, x: Tensor) -> tuple[Tensor, ...]:
    low, high = x.min().clamp(max=0), x.max().clamp(min=0)
    scale = (high - low) / 255
    zero = torch.clamp(torch.round(-low / scale), 0, 255).detach()
    y = torch.clamp(torch.round(x / scale) + zero, 0, 255).detach()
    return y.to(torch.uint8), scale, zero.to(torch.uint8)


@kernel("MatMulInteger")
def matmul_integer(
    node: Node, a: Tensor, b: Tensor, zero_a: Tensor | None = None, zero_b: Tensor | None = None
) -> Tensor:
    a, b = a.to(torch.int64), b.to(torch.int64)
    if zero_a is not None:
        a = a - (zero_a.to(torch.int64).unsqueeze(-1) if zero_a.ndim else zero_a.to(torch.int64))
    if zero_b is not None:
        b = b - zero_b.to(torch.int64)
    return torch.matmul(a, b).to(torch.int32)


@kernel("QLinearMatMul")
def qlinear_matmul(
    node: Node, a: Tensor, scale_a: Tensor, zero_a: Tensor, b: Tensor, scale_b: Tensor,
    zero_b: Tensor, scale_y: Tensor, zero_y: Tensor,
) -> Tensor:
    if max(scale_a.numel(), scale_b.numel(), scale_y.numel()) > 1:
        raise NoKernel("QLinearMatMul with a scale a row")
    a, b = ((x.to(torch.float64) - z.to(torch.float64)) for x, z in ((a, zero_a), (b, zero_b)))
    y = torch.matmul(a, b) * (scale_a * scale_b / scale_y)
    info = torch.iinfo(zero_y.dtype)
    y = torch.round(y) + zero_y.to(torch.float64)
    return torch.clamp(y, info.min, info.max).detach().to(zero_y.dtype)


@kernel("NonMaxSuppression")
def non_max_suppression(
    node: Node, boxes: Tensor, scores: Tensor, most: Tensor | None = None,
    overlap: Tensor | None = None, least: Tensor | None = None,
) -> Tensor:
    count = 0 if most is None else integers(most)[0]
    bound = 0.0 if overlap is None else float(overlap.reshape(()))
    floor = -math.inf if least is None else float(least.reshape(()))
    found = []
    corners = boxes.detach()
    if node["center_point_box"]:
        middle, half = corners[..., :2], corners[..., 2:] / 2
        corners = torch.cat([middle - half, middle + half], -1)
    low = torch.minimum(corners[..., :2], corners[..., 2:])
    high = torch.maximum(corners[..., :2], corners[..., 2:])
    for batch, label in np_pairs(scores):
        kept: list[int] = []
        for k in torch.sort(scores[batch, label], descending=True, stable=True)[1].tolist():
            if float(scores[batch, label, k]) <= floor or len(kept) >= count:
                break
            if all(union(low[batch], high[batch], k, j) <= bound for j in kept):
                kept.append(k)
        found += [[batch, label, k] for k in kept]
    return torch.tensor(found, dtype=torch.int64).reshape(-1, 3)


def np_pairs(scores: Tensor) -> list[tuple[int, int]]:
    """Batch and class of every row of scores."""
    return [(b, c) for b in range(scores.shape[0]) for c in range(scores.shape[1])]


def union(low: Tensor, high: Tensor, a: int, b: int) -> float:
    """Intersection over union of two boxes."""
    inside = torch.minimum(high[a], high[b]) - torch.maximum(low[a], low[b])
    common = float(inside.clamp(min=0).prod())
    areas = float((high[a] - low[a]).prod() + (high[b] - low[b]).prod())
    return common / (areas - common) if areas > common else 0.0
