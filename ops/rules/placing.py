"""Operators that move entries of x to other positions: unpool, fold, crop, reverse, cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Embed,
    Geometry,
    Reshape,
    Scatter,
    Slice,
    Take,
    convolution_of,
    shape_of,
    size,
)
from ...jacobians.selection import Span
from ...jacobians.symint import Number, largest, smallest
from ..node import Node
from ..numbers.windows import GEOMETRY, said, transposed_windows, whole, windows
from ..registry import Blocks, jacobian
from .indexing import counted, last_of_each
from .padding import in_front
from .scattering import diagonal, scattered


@jacobian("MaxUnpool", grows=True)
def max_unpool(op: Any, node: Node) -> Blocks:
    """y[index] = x, zero elsewhere; where indices repeat, the last entry counts."""
    how = said(node.step.attrs, "pads", "strides")
    grid = transposed_windows(node.x_shape[2:], node.kernel_shape, **how)
    shape, count = (*node.x_shape[:2], *grid.space), size(node.x_shape)
    index = op.Reshape(node.inputs[1], (count,))
    last = last_of_each(op, op.Reshape(index, (count, 1)), size(shape))
    kept = None if last is None else op.Reshape(op.CastLike(last, node.x), (count,))
    entries = diagonal(kept, Reshape((count,), node.x_shape, node.dtype), chooses=True)
    J = Scatter(index, 0, (size(shape),), node.dtype) @ entries
    J = Reshape(shape, J.out_shape, node.dtype) @ J
    return {(0, 0): in_front(shape, node.y_shape, node.dtype) @ J}


@jacobian("Col2Im", grows=True)
def col2im(op: Any, node: Node) -> Blocks:
    """Blocks added up where they overlap: a transposed convolution with unit kernels."""
    image, block = node.ints(1) or (), node.ints(2) or ()
    n, columns, count = node.x_shape
    grid, taps = whole(windows(image, block, **said(node.step.attrs, *GEOMETRY))), size(block)
    units = np.eye(taps, dtype=node.dtype).reshape(taps, 1, *block)
    images = n * (columns // taps)
    g = Geometry(
        (images, 1, *image), units.shape, (images, taps, *grid.count), grid.strides,
        grid.dilations, (*grid.begins, *grid.ends), 1,
    )  # fmt: skip
    fold = convolution_of(units, "u", "x", g)
    J = fold @ Reshape(g.u, (n, columns, count), node.dtype)
    return {(0, 0): Reshape(node.y_shape, g.x, node.dtype) @ J}


@jacobian("CenterCropPad", grows=True)
def center_crop_pad(op: Any, node: Node) -> Blocks:
    """The middle of x, or x in the middle of zeros, along each axis."""
    spans = [middle(n, m) for n, m in zip(node.x_shape, node.y_shape, strict=True)]
    cut = Slice(tuple(source for source, _ in spans), node.x_shape, node.dtype)
    return {(0, 0): Embed(tuple(target for _, target in spans), node.y_shape, node.dtype) @ cut}


def middle(n: Number, m: Number) -> tuple[Span, Span]:
    """The spans of equal length in the middle of an axis of length n and of one of length m.

    >>> middle(5, 2), middle(2, 5)
    (((1, 1, 2), (0, 1, 2)), ((0, 1, 2), (1, 1, 2)))
    """
    count = smallest(n, m)
    return (largest((n - m) // 2, 0), 1, count), (largest((m - n) // 2, 0), 1, count)


@jacobian("ReverseSequence", time_axis=(0, 1), batch_axis=(0, 1))
def reverse_sequence(op: Any, node: Node) -> Blocks:
    """y[t, b] = x[length_b - 1 - t, b] for t < length_b, else x[t, b]."""
    first, second, *rest = node.x_shape
    n, lengths = node.x_shape[node.time_axis], op.CastLike(node.inputs[1], np.zeros((), np.int64))
    if isinstance(lengths, np.ndarray) and not np.all((lengths >= 0) & (lengths <= n)):
        raise ValueError(f"sequences of lengths {lengths.tolist()} do not fit the time axis")
    t = op.Reshape(counted(op, n), (n, 1))
    times = op.Where(op.Less(t, lengths), op.Sub(op.Sub(lengths, 1), t), t)
    batches = counted(op, shape_of(lengths)[0])
    if node.time_axis:
        index = op.Transpose(op.Add(op.Mul(batches, second), times), perm=(1, 0))
    else:
        index = op.Add(op.Mul(times, second), batches)
    rows = (first * second, *rest)
    split = Reshape(rows, node.x_shape, node.dtype)
    return {(0, 0): split.T @ Take(op.Reshape(index, (rows[0],)), 0, rows, node.dtype) @ split}


@jacobian("TensorScatter", mode=("linear", "circular"))
def tensor_scatter(op: Any, node: Node) -> Blocks:
    """The update overwrites the cache from `write_indices` on."""
    shape, update = node.x_shape, shape_of(node.inputs[1])
    axis = node.axis % len(shape)
    batch, between, n, count = shape[0], size(shape[1:axis]), shape[axis], update[axis]
    starts = np.zeros(1, np.int64) if node.input(2) is None else node.inputs[2]
    at = op.Add(op.Reshape(starts, (-1, 1, 1)), counted(op, count))
    at = op.Mod(at, n) if node.mode == "circular" else at
    first = op.Mul(op.Reshape(counted(op, batch * between), (batch, between, 1)), n)
    index = op.Reshape(op.Add(first, at), (batch * between * count,))
    rows = (batch * between * n, size(shape[axis + 1 :]))
    return scattered(op, node, index, rows, updates=1)
