"""Indices: gather, scatter, sort, count, select."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .elementwise import counted
from .graphs import Node, integers, kernel


def wrapped(index: Tensor, size: int) -> Tensor:
    """Negative indices, as indices from the beginning."""
    index = index.to(torch.int64)
    return torch.where(index < 0, index + size, index)


@kernel("Gather", strings=True)
def gather(node: Node, x: Any, index: Tensor) -> Any:
    axis = node["axis"] % x.ndim
    index = wrapped(index, x.shape[axis])
    if isinstance(x, np.ndarray):
        return np.take(x, index.numpy(), axis)
    y = x.index_select(axis, index.reshape(-1))
    return y.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


@kernel("GatherElements")
def gather_elements(node: Node, x: Tensor, index: Tensor) -> Tensor:
    axis = node["axis"] % x.ndim
    return torch.gather(x, axis, wrapped(index, x.shape[axis]))


@kernel("GatherND")
def gather_nd(node: Node, x: Tensor, index: Tensor) -> Tensor:
    batch = node["batch_dims"] or 0
    lead, between, depth = x.shape[:batch], index.shape[batch:-1], index.shape[-1]
    count = math.prod(lead)
    flat = x.reshape(count, *x.shape[batch:])
    index = index.reshape(count, -1, depth)
    places = [wrapped(index[..., k], flat.shape[k + 1]) for k in range(depth)]
    first = torch.arange(count).reshape(-1, 1)
    y = flat[(first.expand(index.shape[:2]), *places)]
    return y.reshape((*lead, *between, *x.shape[batch + depth :]))


COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "none": lambda old, new: new,
    "add": torch.add,
    "mul": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}


def scattered(x: Tensor, index: Tensor, updates: Tensor, reduction: str) -> Tensor:
    """Rows of x at an index, replaced by or combined with updates.

    Duplicate indices are applied in order, so that the last one counts.
    """
    combine = COMBINE[reduction]
    waiting = np.arange(len(index))
    numbers = index.numpy()
    while waiting.size:
        _, first = np.unique(numbers[waiting], return_index=True)
        turn = torch.from_numpy(waiting[np.sort(first)])
        rows = index[turn]
        x = x.index_put((rows,), counted(combine)(x[rows], updates[turn]))
        waiting = np.delete(waiting, first)
    return x


@kernel("ScatterElements", "Scatter")
def scatter_elements(node: Node, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    axis = node["axis"] % x.ndim
    index = wrapped(index, x.shape[axis])
    places = np.indices(tuple(index.shape))
    places[axis] = index.numpy()
    flat = torch.from_numpy(np.ravel_multi_index(tuple(places), tuple(x.shape)).reshape(-1))
    y = scattered(x.reshape(-1), flat, updates.reshape(-1), node["reduction"] or "none")
    return y.reshape(x.shape)


@kernel("ScatterND")
def scatter_nd(node: Node, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    depth = index.shape[-1]
    places = index.reshape(-1, depth)
    columns = [wrapped(places[:, k], x.shape[k]) for k in range(depth)]
    flat = torch.zeros(len(places), dtype=torch.int64)
    for k, column in enumerate(columns):
        flat = flat * x.shape[k] + column
    rows = x.reshape(math.prod(x.shape[:depth]), -1)
    new = updates.reshape(len(places), rows.shape[1])
    return scattered(rows, flat, new, node["reduction"] or "none").reshape(x.shape)


@kernel("TensorScatter")
def tensor_scatter(
    node: Node, past: Tensor, update: Tensor, starts: Tensor | None = None
) -> Tensor:
    axis = node["axis"] % past.ndim
    size, width = past.shape[axis], update.shape[axis]
    first = [0] * len(past) if starts is None else integers(starts)
    results = []
    for old, new, start in zip(past, update, first, strict=True):
        places = start + torch.arange(width)
        places = places % size if node["mode"] == "circular" else places
        rows, fresh = old.movedim(axis - 1, 0), new.movedim(axis - 1, 0)
        results.append(scattered(rows, places, fresh, "none").movedim(0, axis - 1))
    return torch.stack(results)


@kernel("TopK")
def top_k(node: Node, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, Tensor]:
    count = node["k"] if k is None else integers(k)[0]
    largest = True if node["largest"] is None else bool(node["largest"])
    _, order = torch.sort(x.detach(), dim=node["axis"], descending=largest, stable=True)
    order = order.narrow(node["axis"], 0, count)
    return torch.gather(x, node["axis"], order), order


@kernel("Unique")
def unique(node: Node, x: Tensor) -> tuple[Tensor, ...]:
    axis = node["axis"]
    values = x if axis is not None else x.reshape(-1)
    along = 0 if axis is None else axis % x.ndim
    _, first, inverse, counts = np.unique(
        values.detach().numpy(), True, True, True, axis=axis if axis is None else along
    )
    inverse = inverse.reshape(-1)
    if not node["sorted"]:
        order = np.argsort(first)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    first, inverse, counts = (torch.from_numpy(np.asarray(a)) for a in (first, inverse, counts))
    return values.index_select(along, first), first, inverse, counts


@kernel("NonZero")
def non_zero(node: Node, x: Tensor) -> Tensor:
    return torch.nonzero(x).T if x.ndim else torch.zeros(0, int(x != 0), dtype=torch.int64)


@kernel("Compress")
def compress(node: Node, x: Tensor, condition: Tensor) -> Tensor:
    axis = node["axis"]
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    return x.index_select(axis, torch.nonzero(condition).reshape(-1))


@kernel("OneHot")
def one_hot(node: Node, index: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    count = int(depth.reshape(()))
    axis = node["axis"] % (index.ndim + 1)
    hot = wrapped(index, count).unsqueeze(-1) == torch.arange(count)
    return torch.where(hot.movedim(-1, axis), values[1], values[0])


@kernel("ReverseSequence")
def reverse_sequence(node: Node, x: Tensor, lengths: Tensor) -> Tensor:
    batch, time = node["batch_axis"], node["time_axis"]
    y = x.movedim((batch, time), (0, 1))
    rows = []
    for row, length in zip(y, integers(lengths), strict=True):
        order = [*reversed(range(length)), *range(length, len(row))]
        rows.append(row.index_select(0, torch.tensor(order, dtype=torch.int64)))
    return torch.stack(rows).movedim((0, 1), (batch, time))


@kernel("CumSum", "CumProd")
def cumulative(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    along = int(axis.reshape(())) % x.ndim
    x = x.flip(along) if node["reverse"] else x
    start = 0 if node.op_type == "CumSum" else 1
    f = torch.cumsum if node.op_type == "CumSum" else torch.cumprod
    if node["exclusive"]:
        first = torch.full_like(x.narrow(along, 0, 1), start).detach()
        x = torch.cat([first, x.narrow(along, 0, x.shape[along] - 1)], along)
    y = counted(lambda x: f(x, along, dtype=x.dtype))(x)
    return y.flip(along) if node["reverse"] else y


@kernel("Hardmax")
def hardmax(node: Node, x: Tensor) -> Tensor:
    shape, axis = x.shape, node["axis"]
    if node.opset < 13:
        axis = axis % x.ndim
        x, axis = x.reshape(math.prod(shape[:axis]), -1), 1
    top = x.detach().argmax(axis, keepdim=True)
    return torch.zeros_like(x).scatter(axis, top, 1.0).reshape(shape)


@kernel("Col2Im")
def col2im(node: Node, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    sizes, kernel_sizes = integers(image), integers(block)
    rank = len(sizes)
    pads = node["pads"] or [0] * (2 * rank)
    steps, gaps = (node[name] or [1] * rank for name in ("strides", "dilations"))
    wide = [n + pads[k] + pads[k + rank] for k, n in enumerate(sizes)]
    place = torch.zeros((), dtype=torch.int64)
    for k in range(rank):  # the position of each column entry in the padded image
        count = (wide[k] - gaps[k] * (kernel_sizes[k] - 1) - 1) // steps[k] + 1
        at = gaps[k] * torch.arange(kernel_sizes[k]).unsqueeze(1) + steps[k] * torch.arange(count)
        shape = [1] * (2 * rank)
        shape[k], shape[k + rank] = at.shape
        place = place * wide[k] + at.reshape(shape)
    n, channels = x.shape[0], x.shape[1] // math.prod(kernel_sizes)
    flat = torch.zeros(math.prod(wide), n, channels, dtype=x.dtype)
    columns = x.reshape(n, channels, -1).movedim(-1, 0)
    y = flat.index_add(0, place.reshape(-1), columns).movedim(0, -1).reshape(n, channels, *wide)
    for k in range(rank):
        y = y.narrow(k + 2, pads[k], sizes[k])
    return y
