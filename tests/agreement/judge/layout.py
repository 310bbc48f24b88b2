"""Shapes: operators that move, repeat, join, slice or create tensors without arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor

from .elementwise import cast_to
from .graphs import Node, NoKernel, dtype_of, integers, kernel, value


def listed(node: Node, name: str, given: Tensor | None) -> list[int] | None:
    """Integers from an input or, in older opsets, from an attribute."""
    return integers(given) if given is not None else node[name]


@kernel("Reshape", strings=True)
def reshape(node: Node, x: Any, shape: Tensor | None = None) -> Any:
    sizes = listed(node, "shape", shape)
    if not node["allowzero"]:
        sizes = [x.shape[k] if n == 0 else n for k, n in enumerate(sizes)]
    return x.reshape(tuple(sizes))


@kernel("Transpose", strings=True)
def transpose(node: Node, x: Any) -> Any:
    perm = node["perm"] if "perm" in node else list(range(x.ndim))[::-1]
    return np.transpose(x, perm) if isinstance(x, np.ndarray) else x.permute(perm)


@kernel("Squeeze", strings=True)
def squeeze(node: Node, x: Any, axes: Tensor | None = None) -> Any:
    gone = listed(node, "axes", axes)
    gone = [k for k, n in enumerate(x.shape) if n == 1] if gone is None else gone
    gone = {k % x.ndim for k in gone}
    assert all(x.shape[k] == 1 for k in gone)
    return x.reshape(tuple(n for k, n in enumerate(x.shape) if k not in gone))


@kernel("Unsqueeze", strings=True)
def unsqueeze(node: Node, x: Any, axes: Tensor | None = None) -> Any:
    new = listed(node, "axes", axes)
    rank = x.ndim + len(new)
    new = {k % rank for k in new}
    sizes = iter(x.shape)
    return x.reshape(tuple(1 if k in new else next(sizes) for k in range(rank)))


@kernel("Flatten")
def flatten(node: Node, x: Tensor) -> Tensor:
    axis = node["axis"] if node["axis"] >= 0 else node["axis"] + x.ndim
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@kernel("Expand", strings=True)
def expand(node: Node, x: Any, shape: Tensor) -> Any:
    wide = np.broadcast_shapes(tuple(x.shape), tuple(integers(shape)))
    return np.broadcast_to(x, wide) if isinstance(x, np.ndarray) else x.expand(wide)


@kernel("Tile")
def tile(node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    return x.repeat(integers(repeats)) if x.ndim else x


@kernel("Concat", strings=True)
def concat(node: Node, *xs: Any) -> Any:
    if isinstance(xs[0], np.ndarray):
        return np.concatenate(xs, node["axis"])
    return torch.cat(xs, node["axis"])


@kernel("Split")
def split(node: Node, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis, parts = node["axis"], listed(node, "split", sizes)
    if parts is None:
        count = node["num_outputs"] or node.outputs
        size = math.ceil(x.shape[axis] / count)
        parts = [min(size, max(x.shape[axis] - k * size, 0)) for k in range(count)]
    return torch.split(x, parts, axis)


def taken(x: Any, axis: int, where: list[int]) -> Any:
    """The entries at the given positions of an axis."""
    if isinstance(x, np.ndarray):
        return np.take(x, where, axis)
    return x.index_select(axis, torch.tensor(where, dtype=torch.int64))


@kernel("Slice", strings=True)
def slice_(
    node: Node, x: Any, starts: Tensor | None = None, ends: Tensor | None = None,
    axes: Tensor | None = None, steps: Tensor | None = None,
) -> Any:
    first, last = listed(node, "starts", starts), listed(node, "ends", ends)
    along = listed(node, "axes", axes) or range(len(first))
    by = integers(steps) or [1] * len(first)
    for start, end, axis, step in zip(first, last, along, by, strict=True):
        size = x.shape[axis]
        if step > 0:
            where = range(size)[start:end:step]
        else:  # the end may be before entry 0, which no slice can say: its -1 is the last entry
            start = max(min(start + size if start < 0 else start, size - 1), -1)
            end = max(min(end + size if end < 0 else end, size - 1), -1)
            where = range(start, end, step)
        x = taken(x, axis % x.ndim, list(where))
    return x


@kernel("Pad")
def pad(
    node: Node, x: Tensor, pads: Tensor | None = None, constant: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    widths = listed(node, "pads", pads)
    along = range(x.ndim) if axes is None else integers(axes)
    if constant is None:
        constant = torch.tensor(node["value"] or 0, dtype=x.dtype)
    for axis, before, after in zip(along, widths, widths[len(widths) // 2 :], strict=False):
        x = padded(x, axis % x.ndim, before, after, node["mode"], constant.reshape(()))
    return x


def padded(
    x: Tensor, axis: int, before: int, after: int, mode: str, constant: Tensor
) -> Tensor:
    """x with one axis padded at both ends, or cropped where a width is negative."""
    size = x.shape[axis]
    places = range(-before, size + after)
    if mode == "constant":
        inner = x.narrow(axis, max(-before, 0), size + min(before, 0) + min(after, 0))
        parts = [inner]
        for k, width in enumerate((before, after)):
            if width > 0:
                sizes = [width if a == axis else n for a, n in enumerate(inner.shape)]
                parts.insert(k * len(parts), constant.to(x.dtype).expand(sizes))
        return torch.cat(parts, axis)
    if mode == "edge":
        return taken(x, axis, [min(max(k, 0), size - 1) for k in places])
    if mode == "wrap":
        return taken(x, axis, [k % size for k in places])
    if mode == "reflect":
        period = max(2 * (size - 1), 1)
        return taken(x, axis, [min(k % period, (period - k) % period) for k in places])
    raise NoKernel(f"Pad of mode {mode}")


@kernel("DepthToSpace")
def depth_to_space(node: Node, x: Tensor) -> Tensor:
    size, (n, c, h, w) = node["blocksize"], x.shape
    deep = c // size**2
    if (node["mode"] or "DCR") == "DCR":
        y = x.reshape(n, size, size, deep, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, deep, size, size, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, deep, h * size, w * size)


@kernel("SpaceToDepth")
def space_to_depth(node: Node, x: Tensor) -> Tensor:
    size, (n, c, h, w) = node["blocksize"], x.shape
    if (node["mode"] or "DCR") != "DCR":
        y = x.reshape(n, c, h // size, size, w // size, size).permute(0, 1, 3, 5, 2, 4)
    else:
        y = x.reshape(n, c, h // size, size, w // size, size).permute(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * size**2, h // size, w // size)


@kernel("Shape", strings=True)
def shape(node: Node, x: Any) -> Tensor:
    start, end = node["start"] or 0, node["end"]
    return torch.tensor(tuple(x.shape)[start:end], dtype=torch.int64)


@kernel("Size", strings=True)
def size(node: Node, x: Any) -> Tensor:
    return torch.tensor(math.prod(x.shape), dtype=torch.int64)


@kernel("Constant")
def constant(node: Node) -> Any:
    for name in ("value", "sparse_value"):
        if name in node:
            return value(node[name])
    for name, dtype in (("value_float", torch.float64), ("value_int", torch.int64)):
        for given in (name, name + "s"):
            if given in node:
                return torch.tensor(node[given], dtype=dtype)
    given = node["value_strings"] if "value_strings" in node else node["value_string"]
    return np.asarray(given, dtype=object)


@kernel("ConstantOfShape")
def constant_of_shape(node: Node, shape: Tensor) -> Tensor:
    fill = value(node["value"]) if "value" in node else torch.zeros(1, dtype=torch.float64)
    return fill.reshape(()).expand(integers(shape)).clone()


@kernel("Range")
def range_(node: Node, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    start, limit, delta = (x.reshape(()) for x in (start, limit, delta))
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    return (start + torch.arange(count, dtype=start.dtype) * delta).to(start.dtype)


@kernel("EyeLike")
def eye_like(node: Node, x: Tensor) -> Tensor:
    dtype = dtype_of(node["dtype"]) if "dtype" in node else x.dtype
    return torch.from_numpy(np.eye(*x.shape, k=node["k"])).to(dtype)


@kernel("Trilu")
def trilu(node: Node, x: Tensor, k: Tensor | None = None) -> Tensor:
    diagonal = 0 if k is None else int(k)
    return x.triu(diagonal) if node["upper"] else x.tril(diagonal)


@kernel("CenterCropPad")
def center_crop_pad(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    along = node["axes"] if "axes" in node else range(x.ndim)
    for axis, wide in zip(along, integers(shape), strict=True):
        more = wide - x.shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        x = padded(x, axis % x.ndim, before, more - before, "constant", torch.zeros(()))
    return x


@kernel("HannWindow", "HammingWindow", "BlackmanWindow")
def window(node: Node, size: Tensor) -> Tensor:
    n = int(size)
    count = n if node["periodic"] else n - 1
    t = 2 * math.pi * torch.arange(n, dtype=torch.float64) / count
    terms = {
        "HannWindow": (0.5, -0.5),
        "HammingWindow": (25 / 46, -21 / 46),
        "BlackmanWindow": (0.42, -0.5, 0.08),
    }[node.op_type]
    y = sum(a * torch.cos(k * t) for k, a in enumerate(terms))
    return cast_to(y, node["output_datatype"] or TensorProto.FLOAT)
