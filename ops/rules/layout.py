"""Operators that move entries or put zeros between them: reshape, slice, pad, fold, crop."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Embed,
    Geometry,
    Identity,
    Jacobian,
    Op,
    Reshape,
    Scatter,
    Shape,
    Slice,
    Take,
    broadcast,
    convolution_of,
    dtype_of,
    shape_of,
    size,
    slab,
)
from ...jacobians.layout import Span
from ...jacobians.symint import Number, largest, same
from ..indexed import declare_indexed
from ..indices import count_up
from ..node import Node
from ..numbers.layout import equal_parts, pad_widths, span
from ..numbers.windows import (
    GEOMETRY,
    given_attributes,
    transposed_windows,
    windows,
    within_padding,
)
from ..registry import Blocks, jacobian
from .indexing import last_of_each, scale_by_diagonal, scatter_blocks

for _name in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
    declare_indexed(_name, "y[:] = x[:]")


def axes_text(rank: int) -> list[str]:
    """The names of the indices of a tensor."""
    return [f"i{k}" for k in range(rank)]


def permuted_text(perm: tuple[int, ...]) -> str:
    """The axes in another order."""
    axes = axes_text(len(perm))
    if not axes:
        return "y = x"
    return f"y[{', '.join(axes[k] for k in perm)}] = x[{', '.join(axes)}]"


declare_indexed(
    "Transpose",
    permuted_text,
    shown=(1, 0),
    by=lambda node: tuple(node.perm or reversed(range(len(node.x_shape)))),
)


def tiled_text(rank: int) -> str:
    """x repeated as a whole along every axis."""
    axes = axes_text(rank)
    if not axes:
        return "y = x"
    return f"y[{', '.join(f'(r{k}, {i})' for k, i in enumerate(axes))},] = x[{', '.join(axes)}]"


declare_indexed(
    "Tile",
    tiled_text,
    shown=2,
    grows=True,
    by=lambda node: len(node.x_shape),
    sizes=lambda node: {f"r{k}": n for k, n in enumerate(node.ints(1) or ())},
)


@jacobian("Concat")
def concat(op: Op, node: Node) -> Blocks:
    """Each input is a slab of the output."""
    ends = accumulate((shape_of(x)[node.axis] for x in node.inputs), initial=0)
    return {
        (0, i): slab(node.y_shape, node.axis, start, stop, node.dtype).T
        for i, (start, stop) in enumerate(pairwise(ends))
        if node.wants(i)
    }


@jacobian("Split")
def split(op: Op, node: Node) -> Blocks:
    """Each output is a slab of the input."""
    n = node.x_shape[node.axis]
    ends = accumulate(node.ints(1) or equal_parts(n, len(node.step.outputs)), initial=0)
    return {
        (o, 0): slab(node.x_shape, node.axis, start, stop, dtype_of(node.x))
        for o, (start, stop) in enumerate(pairwise(ends))
        if node.wants(0, o)
    }


@jacobian("Slice")
def slice_(op: Op, node: Node) -> Blocks:
    """y = x[start:end:step] along the given axes."""
    starts, ends = node.ints(1) or (), node.ints(2) or ()
    axes = node.ints(3) or tuple(range(len(starts)))
    steps = node.ints(4) or (1,) * len(starts)
    spans = [(0, 1, n) for n in node.x_shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        spans[axis] = span(start, end, step, node.x_shape[axis])
    return {(0, 0): Slice(tuple(spans), node.x_shape, node.dtype)}


BLOCKS = {"DCR": "[n, (i, j, c), h, w]", "CRD": "[n, (c, i, j), h, w]"}
"""Channels that hold blocks of pixels, by the order of channels and blocks."""

declare_indexed(
    "DepthToSpace",
    {mode: f"y[n, c, (h, i), (w, j)] = x{x}" for mode, x in BLOCKS.items()},
    by=lambda node: node.mode or "DCR",
    values={"mode": tuple(BLOCKS)},
    sizes=lambda node: dict.fromkeys("ij", node.blocksize),
)
declare_indexed(
    "SpaceToDepth",
    {mode: f"y{y} = x[n, c, (h, i), (w, j)]" for mode, y in BLOCKS.items()},
    by=lambda node: node.mode or "DCR",
    values={"mode": tuple(BLOCKS)},
    sizes=lambda node: dict.fromkeys("ij", node.blocksize),
)


declare_indexed(
    "Trilu",
    "y[*n, i, j] = x[*n, i, j] if kept[i, j] > 0 else 0",
    inputs="x",
    numbers=lambda op, node: {"kept": keep_triangle(op, node)},
)


def keep_triangle(op: Op, node: Node) -> Array:
    """1 above or below a diagonal, else 0."""
    ones = op.Expand(np.ones((), node.dtype), node.x_shape[-2:])
    upper = 1 if node.upper is None else node.upper
    return op.Trilu(ones, (node.ints(1) or (0,))[0], upper=upper)


Pads = list[tuple[int, int]]
"""The numbers of entries added before and after each axis; negative ones remove entries."""


@jacobian("Pad", mode=("constant", "reflect", "edge", "wrap"), grows=True)
def pad(op: Op, node: Node) -> Blocks:
    """y = x with a margin; in constant mode, ∂y/∂constant_value is 1 in the margin, 0 elsewhere."""
    pads = pad_widths(node.x, node.ints(1) or (), node.ints(3) or range(len(node.x_shape)))
    if node.mode != "constant":
        return {(0, 0): repeat_pads(op, node, pads)}
    grow = Embed(inner_spans(node.y_shape, pads), node.y_shape, node.dtype)
    blocks = {(0, 0): grow @ cutting(node, pads)}
    if node.input(2) is not None and node.wants(2):
        inside = grow._apply(op, op.Expand(np.ones((), node.dtype), grow.in_shape))
        lift = broadcast(shape_of(node.inputs[2]), node.y_shape, node.dtype)
        blocks[0, 2] = Diagonal(op.Sub(1.0, inside), node.y_shape, chooses=True) @ lift
    return blocks


def cutting(node: Node, pads: Pads) -> Jacobian:
    """The part of x that remains after negative pads."""
    spans, shape = inner_spans(node.x_shape, [(-a, -b) for a, b in pads]), node.x_shape
    whole = same(tuple(count for *_, count in spans), shape)
    return Identity(shape, node.dtype) if whole else Slice(spans, shape, node.dtype)


def inner_spans(shape: Shape, ends: Pads) -> tuple[Span, ...]:
    """The spans of all axes without their ends; a negative length cuts off nothing."""
    kept = ((n, largest(a, 0), largest(b, 0)) for n, (a, b) in zip(shape, ends, strict=True))
    return tuple((a, 1, n - a - b) for n, a, b in kept)


def in_front(shape: Shape, full: Shape, dtype: np.dtype) -> Jacobian:
    """The embedding of a tensor as the first entries, along every axis, of a full one."""
    spans = tuple((0, 1, n) for n in shape)
    return Identity(shape, dtype) if same(shape, full) else Embed(spans, full, dtype)


def repeat_pads(op: Op, node: Node, pads: Pads) -> Jacobian:
    """One selection per padded axis, after negative pads."""
    J = cutting(node, pads)
    for axis, (before, after) in enumerate(pads):
        if before > 0 or after > 0:
            margin = largest(before, 0), largest(after, 0)
            index = source_positions(op, J.out_shape[axis], *margin, node.mode)
            J = Take(index, axis, J.out_shape, node.dtype) @ J
    return J


def source_positions(op: Op, n: Number, before: Number, after: Number, mode: str) -> Array:
    """The index, on an axis of length n, that each entry of the padded axis repeats.

    >>> from onnxjac.ops import numbers
    >>> source_positions(numbers, 4, 2, 1, "reflect").tolist()
    [2, 1, 0, 1, 2, 3, 2]
    """
    at = op.Sub(count_up(op, before + n + after), before)
    if mode == "edge":
        return op.Min(op.Max(at, 0), n - 1)
    if mode == "wrap":
        return op.Mod(at, n)
    period = largest(2 * (n - 1), 1)
    folded = op.Mod(at, period)
    return op.Min(folded, op.Sub(period, folded))


@jacobian("MaxUnpool", grows=True)
def max_unpool(op: Op, node: Node) -> Blocks:
    """y[index] = x, zero elsewhere; where indices repeat, the last entry counts."""
    how = given_attributes(node.step.attrs, "pads", "strides")
    grid = transposed_windows(node.x_shape[2:], node.kernel_shape, **how)
    shape, count = (*node.x_shape[:2], *grid.space), size(node.x_shape)
    index = op.Reshape(node.inputs[1], (count,))
    last = last_of_each(op, op.Reshape(index, (count, 1)), size(shape))
    kept = None if last is None else op.Reshape(op.CastLike(last, node.x), (count,))
    entries = scale_by_diagonal(kept, Reshape((count,), node.x_shape, node.dtype), chooses=True)
    J = Scatter(index, 0, (size(shape),), node.dtype) @ entries
    J = Reshape(shape, J.out_shape, node.dtype) @ J
    return {(0, 0): in_front(shape, node.y_shape, node.dtype) @ J}


@jacobian("Col2Im", grows=True)
def col2im(op: Op, node: Node) -> Blocks:
    """Blocks added up where they overlap: a transposed convolution with unit kernels."""
    image, block = node.ints(1) or (), node.ints(2) or ()
    n, columns, count = node.x_shape
    grid, taps = (
        within_padding(windows(image, block, **given_attributes(node.step.attrs, *GEOMETRY))),
        size(block),
    )
    units = np.eye(taps, dtype=node.dtype).reshape(taps, 1, *block)
    images = n * (columns // taps)
    g = Geometry(
        (images, 1, *image), units.shape, (images, taps, *grid.count), grid.strides,
        grid.dilations, (*grid.begins, *grid.ends), 1,
    )  # fmt: skip
    fold = convolution_of(units, "u", "x", g)
    J = fold @ Reshape(g.u, (n, columns, count), node.dtype)
    return {(0, 0): Reshape(node.y_shape, g.x, node.dtype) @ J}


@jacobian("ReverseSequence", time_axis=(0, 1), batch_axis=(0, 1))
def reverse_sequence(op: Op, node: Node) -> Blocks:
    """y[t, b] = x[length_b - 1 - t, b] for t < length_b, else x[t, b]."""
    first, second, *rest = node.x_shape
    n, lengths = node.x_shape[node.time_axis], op.CastLike(node.inputs[1], np.zeros((), np.int64))
    if isinstance(lengths, np.ndarray) and not np.all((lengths >= 0) & (lengths <= n)):
        raise ValueError(f"sequences of lengths {lengths.tolist()} do not fit the time axis")
    t = op.Reshape(count_up(op, n), (n, 1))
    times = op.Where(op.Less(t, lengths), op.Sub(op.Sub(lengths, 1), t), t)
    batches = count_up(op, shape_of(lengths)[0])
    if node.time_axis:
        index = op.Transpose(op.Add(op.Mul(batches, second), times), perm=(1, 0))
    else:
        index = op.Add(op.Mul(times, second), batches)
    rows = (first * second, *rest)
    split = Reshape(rows, node.x_shape, node.dtype)
    return {(0, 0): split.T @ Take(op.Reshape(index, (rows[0],)), 0, rows, node.dtype) @ split}


@jacobian("TensorScatter", mode=("linear", "circular"))
def tensor_scatter(op: Op, node: Node) -> Blocks:
    """The update overwrites the cache from `write_indices` on."""
    shape, update = node.x_shape, shape_of(node.inputs[1])
    axis = node.axis % len(shape)
    batch, between, n, count = shape[0], size(shape[1:axis]), shape[axis], update[axis]
    starts = np.zeros(1, np.int64) if node.input(2) is None else node.inputs[2]
    at = op.Add(op.Reshape(starts, (-1, 1, 1)), count_up(op, count))
    at = op.Mod(at, n) if node.mode == "circular" else at
    first = op.Mul(op.Reshape(count_up(op, batch * between), (batch, between, 1)), n)
    index = op.Reshape(op.Add(first, at), (batch * between * count,))
    rows = (batch * between * n, size(shape[axis + 1 :]))
    return scatter_blocks(op, node, index, rows, updates=1)
