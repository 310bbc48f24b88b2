"""Operators that put entries of x at other places: unpool, fold, crop, reverse, cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Diagonal,
    Embed,
    Geometry,
    Identity,
    Jacobian,
    Reshape,
    Scatter,
    Slice,
    Take,
    convolution_of,
    dtype_of,
    shape_of,
    size,
)
from ..node import Node
from ..numbers.windows import GEOMETRY, transposed_windows, whole, windows
from ..registry import Blocks, choices, jacobian
from .windows import said


@jacobian("MaxUnpool")
def max_unpool(op: Any, node: Node) -> Blocks:
    """y[index] = x, zero elsewhere; of several entries at one place the last one stays."""
    index = np.ravel(np.asarray(node.ints(1), np.int64))
    shape = unpooled_shape(node)
    flat = Reshape((index.size,), node.x_shape, node.dtype)
    J: Jacobian = Scatter(index, 0, (size(shape),), node.dtype) @ last_of_each(node, index) @ flat
    spans = tuple((0, 1, n) for n in shape)
    J = Reshape(shape, J.out_shape, node.dtype) @ J
    return {(0, 0): J if shape == node.y_shape else Embed(spans, node.y_shape, node.dtype) @ J}


def unpooled_shape(node: Node) -> tuple[int, ...]:
    """The shape that the attributes imply, in which the indices count."""
    grid = transposed_windows(node.x_shape[2:], node.kernel_shape, **said(node, "pads", "strides"))
    return (*node.x_shape[:2], *grid.space)


def last_of_each(node: Node, index: np.ndarray) -> Jacobian:
    """Keeps the entries that no later one overwrites."""
    count = index.size
    last = count - 1 - np.unique(index[::-1], return_index=True)[1]
    if last.size == count:
        return Identity((count,), node.dtype)
    return Diagonal(np.isin(np.arange(count), last).astype(node.dtype))


@jacobian("Col2Im")
def col2im(op: Any, node: Node) -> Blocks:
    """Blocks added up where they overlap: a transposed convolution with unit kernels."""
    image, block = node.ints(1) or (), node.ints(2) or ()
    n, columns, count = node.x_shape
    grid, taps = whole(windows(image, block, **said(node, *GEOMETRY))), size(block)
    units = np.eye(taps, dtype=node.dtype).reshape(taps, 1, *block)
    images = n * (columns // taps)
    g = Geometry(
        (images, 1, *image), units.shape, (images, taps, *grid.count), grid.strides,
        grid.dilations, (*grid.begins, *grid.ends), 1,
    )  # fmt: skip
    fold = convolution_of(units, "u", "x", g)
    J = fold @ Reshape(g.u, (n, columns, count), node.dtype)
    return {(0, 0): Reshape(node.y_shape, g.x, node.dtype) @ J}


@jacobian("CenterCropPad")
def center_crop_pad(op: Any, node: Node) -> Blocks:
    """The middle of x, or x in the middle of zeros, along each axis."""
    spans = [middle(n, m) for n, m in zip(node.x_shape, node.y_shape, strict=True)]
    cut = Slice(tuple(source for source, _ in spans), node.x_shape, node.dtype)
    return {(0, 0): Embed(tuple(target for _, target in spans), node.y_shape, node.dtype) @ cut}


def middle(n: int, m: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Which entries of an axis of length n go where on one of length m.

    >>> middle(5, 2), middle(2, 5)
    (((1, 1, 2), (0, 1, 2)), ((0, 1, 2), (1, 1, 2)))
    """
    return (max((n - m) // 2, 0), 1, min(n, m)), (max((m - n) // 2, 0), 1, min(n, m))


@jacobian("ReverseSequence")
def reverse_sequence(op: Any, node: Node) -> Blocks:
    """y[t, b] = x[length_b - 1 - t, b] for t < length_b, else x[t, b]."""
    first, second, *rest = node.x_shape
    lengths = np.asarray(node.ints(1), np.int64)
    if lengths.min(initial=0) < 0 or lengths.max(initial=0) > node.x_shape[node.time_axis]:
        raise ValueError(f"sequences of lengths {lengths.tolist()} do not fit the time axis")
    t = np.arange(node.x_shape[node.time_axis])[:, None]
    times = np.where(t < lengths, lengths - 1 - t, t)
    batches = np.arange(len(lengths))
    index = times * second + batches if node.time_axis == 0 else (batches * second + times).T
    rows = (first * second, *rest)
    split = Reshape(rows, node.x_shape, node.dtype)
    return {(0, 0): split.T @ Take(index.ravel(), 0, rows, node.dtype) @ split}


choices("TensorScatter", mode=("linear", "circular"))


@jacobian("TensorScatter")
def tensor_scatter(op: Any, node: Node) -> Blocks:
    """The update takes the place of what the cache held from `write_indices` on."""
    shape, update = node.x_shape, shape_of(node.inputs[1])
    axis = node.axis % len(shape)
    batch, between, n, count = shape[0], size(shape[1:axis]), shape[axis], update[axis]
    starts = np.asarray(node.ints(2) or (0,) * batch).reshape(-1, 1, 1)
    at = starts + np.arange(count)
    at = at % n if node.mode == "circular" else at
    index = (np.arange(batch * between).reshape(batch, between, 1) * n + at).ravel()
    rows = (batch * between * n, size(shape[axis + 1 :]))
    place, split = Scatter(index, 0, rows, node.dtype), Reshape(rows, shape, node.dtype)
    kept = np.ones((rows[0], 1), dtype_of(node.x))
    kept[index] = 0
    return {
        (0, 0): split.T @ Diagonal(kept, rows) @ split,
        (0, 1): split.T @ place @ Reshape(place.in_shape, update, node.dtype),
    }
