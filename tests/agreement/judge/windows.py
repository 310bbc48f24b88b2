"""Windows over space: convolutions and pools."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .graphs import Node, NoKernel, integers, kernel
from .layout import padded

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class Windows(NamedTuple):
    """The geometry of windows along the spatial axes; `ends` may be less than requested."""

    sizes: list[int]
    steps: list[int]
    gaps: list[int]
    begins: list[int]
    ends: list[int]
    counts: list[int]


def windows_of(node: Node, space: Any, kernel_shape: Any) -> Windows:
    """The geometry of a node's windows."""
    rank, sizes = len(space), list(kernel_shape)
    steps, gaps = (node[name] or [1] * rank for name in ("strides", "dilations"))
    pads = node["pads"] or [0] * (2 * rank)
    auto, up = node["auto_pad"] or "NOTSET", bool(node["ceil_mode"])
    begins, ends, counts = [], [], []
    for k, n in enumerate(space):
        reach = (sizes[k] - 1) * gaps[k] + 1
        if auto.startswith("SAME"):
            count = math.ceil(n / steps[k])
            more = max((count - 1) * steps[k] + reach - n, 0)
            begin = more // 2 if auto == "SAME_UPPER" else more - more // 2
            end = more - begin
        else:
            begin, end = (0, 0) if auto == "VALID" else (pads[k], pads[k + rank])
            free = n + begin + end - reach
            count = (math.ceil if up else math.trunc)(free / steps[k]) + 1  # truncated
            if up and (count - 1) * steps[k] >= n + begin:
                count -= 1  # a window that would start in the padding at the end
        begins.append(begin)
        ends.append(end)
        counts.append(count)
    return Windows(sizes, steps, gaps, begins, ends, counts)


def opened(x: Tensor, w: Windows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The entries of every window: (N, C, *counts, *sizes), with three tables beside it.

    The tables, (*counts, *sizes), are: whether the entry is inside x; whether it is not behind the
    padding at the end; its index in x, ravelled.
    """
    rank = len(w.sizes)
    inside, near, place = torch.tensor(True), torch.tensor(True), torch.tensor(0)
    for k in range(rank):
        n = x.shape[2 + k]
        start = torch.arange(w.counts[k]).unsqueeze(1) * w.steps[k] - w.begins[k]
        at = start + torch.arange(w.sizes[k]) * w.gaps[k]
        shape = [1] * (2 * rank)
        shape[k], shape[k + rank] = at.shape
        at = at.reshape(shape)
        inside = inside & (at >= 0) & (at < n)
        near = near & (at < n + w.ends[k])
        place = place * n + at.clamp(0, n - 1)
    entries = x.flatten(2).index_select(2, place.reshape(-1))
    return entries.reshape(*x.shape[:2], *place.shape), inside, near, place


@kernel("MaxPool")
def max_pool(node: Node, x: Tensor) -> tuple[Tensor, Tensor]:
    w = windows_of(node, x.shape[2:], node["kernel_shape"])
    entries, inside, _, place = opened(x, w)
    rank = len(w.sizes)
    low = -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    entries = torch.where(inside, entries, torch.tensor(low, dtype=x.dtype)).flatten(-rank)
    best = entries.detach().argmax(-1, keepdim=True)
    y = torch.gather(entries, -1, best).squeeze(-1)
    if node["storage_order"] and rank == 2:
        h, width = x.shape[2:]
        place = place % width * h + place // width
    where = place.flatten(-rank).expand(entries.shape)
    where = torch.gather(where, -1, best).squeeze(-1)
    image = torch.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * rank)
    return y, where + image * math.prod(x.shape[2:])


@kernel("AveragePool")
def average_pool(node: Node, x: Tensor) -> Tensor:
    w = windows_of(node, x.shape[2:], node["kernel_shape"])
    entries, inside, near, _ = opened(x, w)
    axes = tuple(range(-len(w.sizes), 0))
    counted = near if node["count_include_pad"] else inside
    zeros = torch.zeros_like(entries)
    return torch.where(inside, entries, zeros).sum(axes) / counted.sum(axes)


@kernel("LpPool")
def lp_pool(node: Node, x: Tensor) -> Tensor:
    w = windows_of(node, x.shape[2:], node["kernel_shape"])
    entries, inside, _, _ = opened(x, w)
    axes = tuple(range(-len(w.sizes), 0))
    return lp_norm(torch.where(inside, entries, torch.zeros_like(entries)), axes, node["p"])


def lp_norm(x: Tensor, axes: tuple[int, ...], p: int, keep: bool = False) -> Tensor:
    """(Σ ∣x∣ᵖ)^(1/p), with derivative 0 at 0."""
    powers = (x.abs() ** p).sum(axes, keep)
    zero = powers == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, powers) ** (1 / p))


@kernel("GlobalAveragePool")
def global_average_pool(node: Node, x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@kernel("GlobalMaxPool")
def global_max_pool(node: Node, x: Tensor) -> Tensor:
    top = x.flatten(2).detach().argmax(2, keepdim=True)
    return torch.gather(x.flatten(2), 2, top).reshape(*x.shape[:2], *[1] * (x.ndim - 2))


@kernel("GlobalLpPool")
def global_lp_pool(node: Node, x: Tensor) -> Tensor:
    return lp_norm(x, tuple(range(2, x.ndim)), node["p"], True)


@kernel("MaxUnpool")
def max_unpool(node: Node, x: Tensor, index: Tensor, shape: Tensor | None = None) -> Tensor:
    rank, sizes = x.ndim - 2, node["kernel_shape"]
    steps, pads = node["strides"] or [1] * rank, node["pads"] or [0] * (2 * rank)
    space = [
        (x.shape[2 + k] - 1) * steps[k] + sizes[k] - pads[k] - pads[k + rank] for k in range(rank)
    ]
    whole = [*x.shape[:2], *space]
    flat = torch.zeros(math.prod(whole), dtype=x.dtype)
    y = flat.index_put((index.reshape(-1),), x.reshape(-1)).reshape(whole)
    if shape is not None:
        for axis, n in enumerate(integers(shape)):
            y = padded(y, axis, 0, n - y.shape[axis], "constant", torch.zeros((), dtype=x.dtype))
    return y


def convolved(
    x: Tensor, weight: Tensor, bias: Tensor | None, w: Windows, group: int
) -> Tensor:
    """The convolution of an image after padding."""
    rank = len(w.sizes)
    if rank not in CONV:
        raise NoKernel(f"convolution in {rank} dimensions")
    for k in range(rank):
        zero = torch.zeros((), dtype=x.dtype)
        x = padded(x, k + 2, w.begins[k], w.ends[k], "constant", zero)
    return CONV[rank](x, weight, bias, w.steps, 0, w.gaps, group)


@kernel("Conv")
def conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    w = windows_of(node, x.shape[2:], weight.shape[2:])
    return convolved(x, weight, bias, w, node["group"])


@kernel("ConvInteger")
def conv_integer(
    node: Node, x: Tensor, weight: Tensor, zero_x: Tensor | None = None,
    zero_w: Tensor | None = None,
) -> Tensor:
    x, weight = x.double(), weight.double()
    x = x if zero_x is None else x - zero_x.double().reshape(())
    if zero_w is not None:
        weight = weight - zero_w.double().reshape(-1, *[1] * (weight.ndim - 1))
    y = convolved(x, weight, None, windows_of(node, x.shape[2:], weight.shape[2:]), node["group"])
    return torch.round(y).to(torch.int32)


@kernel("QLinearConv")
def qlinear_conv(
    node: Node, x: Tensor, scale_x: Tensor, zero_x: Tensor, weight: Tensor, scale_w: Tensor,
    zero_w: Tensor, scale_y: Tensor, zero_y: Tensor, bias: Tensor | None = None,
) -> Tensor:
    ones = [1] * (weight.ndim - 1)
    x, weight = x.double() - zero_x.double(), weight.double() - zero_w.double().reshape(-1, *ones)
    w = windows_of(node, x.shape[2:], weight.shape[2:])
    y = convolved(x, weight, None if bias is None else bias.double(), w, node["group"])
    y = y * (scale_x * scale_w / scale_y).reshape(-1, *ones[1:]) if scale_w.numel() > 1 else (
        y * (scale_x * scale_w / scale_y)
    )
    info = torch.iinfo(zero_y.dtype)
    return torch.clamp(torch.round(y) + zero_y.double(), info.min, info.max).to(zero_y.dtype)


@kernel("ConvTranspose")
def conv_transpose(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rank = x.ndim - 2
    if rank not in CONV_TRANSPOSE:
        raise NoKernel(f"transposed convolution in {rank} dimensions")
    steps, gaps = (node[name] or [1] * rank for name in ("strides", "dilations"))
    y = CONV_TRANSPOSE[rank](x, weight, None, steps, 0, 0, node["group"], gaps)
    more, pads = node["output_padding"] or [0] * rank, node["pads"] or [0] * (2 * rank)
    auto, wanted = node["auto_pad"] or "NOTSET", node["output_shape"]
    if wanted is not None:
        wanted = wanted[-rank:]
    elif auto.startswith("SAME"):
        wanted = [n * s for n, s in zip(x.shape[2:], steps, strict=True)]
    for k in range(rank):
        begin, end = (0, 0) if auto == "VALID" else (pads[k], pads[k + rank])
        if wanted is not None:
            total = y.shape[k + 2] + more[k] - wanted[k]
            begin = total // 2 if auto == "SAME_UPPER" else total - total // 2
            if total < 0:  # the output is larger than the extent of the windows
                begin = 0
            end = total - begin
        y = padded(y, k + 2, -begin, more[k] - end, "constant", torch.zeros((), dtype=x.dtype))
    return y if bias is None else y + bias.reshape(-1, *[1] * rank)
