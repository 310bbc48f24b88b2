"""Conv and ConvTranspose: blocks of patches are gathered, and multiplied while they are in cache.

Signals are stored with the channels first, (C, N, *space), whatever the order of their axes: one
matrix product then serves all images of a block, and writes its result in place. A transposed
convolution adds products at the positions of the taps, with the samples last, (C, *space, N), so
that the additions are contiguous; it is computed as a convolution if that is less work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape, dtype_of, shape_of
from ....jacobians.convolution import MANY
from ....ops.numbers.convolution import BLOCK, blocks
from ....ops.numbers.windows import Windows, patches, transposed_windows, windows
from .assemble import Assembler, assembles, attributes, by_kernel
from .destinations import Destinations, Want, asks_for, operand
from .matmul import multiply
from .moves import Widths, clear, inside
from .places import Buffer, Place, Role, ghost, new
from .program import copy

TAPS = 2**12
"""The most taps that get one call each, or one row each in a matrix of patches."""

PRODUCT = 1 / 20
"""The cost of a multiplication in a matrix product, relative to moving a number."""

KNOWN = {"kernel_shape", "strides", "dilations", "pads", "group", "output_padding"}


def grid_of(node: ir.Node) -> Windows:
    """The windows of a convolution."""
    attrs = attributes(node)
    x, w = (shape_of(v) for v in node.inputs[:2] if v is not None)
    return windows(
        x[2:], w[2:], strides=attrs.get("strides"), dilations=attrs.get("dilations"),
        pads=attrs.get("pads"),
    )  # fmt: skip


def channels_first(shape: Shape, dtype: Any, role: Role = Role.WORK) -> Place:
    """A new signal (N, C, *space), stored as (C, N, *space)."""
    n, c, *space = shape
    view = ghost((c, n, *space), dtype).swapaxes(0, 1)
    return Place(Buffer(view, role), view)


def widths_of(grid: Windows) -> Widths:
    """The widths of the frame around a signal (N, C, *space)."""
    return [(0, 0), (0, 0), *grid.frame]


def frame_around(shape: Shape, dtype: Any, grid: Windows) -> tuple[Place, Place]:
    """Memory for a signal inside a persistent frame of zeros: (frame, inside)."""
    widths = widths_of(grid)
    larger = tuple(n + a + b for n, (a, b) in zip(shape, widths, strict=True))
    frame = channels_first(larger, dtype, Role.KEPT)
    frame.buffer.core = inside(frame.view, widths)
    return frame, Place(frame.buffer, frame.buffer.core)


def framed(asm: Assembler, x: Place, grid: Windows) -> Place:
    """A signal inside its frame: in place if it is there already, else a copy."""
    if not any(map(any, grid.frame)):
        return x
    around, owned = Place(x.buffer, x.buffer.ghost), x.buffer.core
    deep = owned is not None and x.same(Place(x.buffer, owned))
    if deep and x.same(Place(x.buffer, inside(around.view, widths_of(grid)))):
        return around
    frame, core = frame_around(x.shape, x.dtype, grid)
    asm.emit(copy, x, core)
    return frame


@assembles("Conv")
def conv(asm: Assembler, node: ir.Node) -> None:
    """y = conv(x, w)."""
    if not is_plain(node) or math.prod(shape_of(operand(node, 1))[2:]) > TAPS:
        by_kernel(asm, node)
        return
    x, w = asm.operands(node)
    y = signal_target(asm, node)
    convolve(asm, x, w, y, grid_of(node), attributes(node).get("group", 1))


def is_plain(node: ir.Node) -> bool:
    """Whether a convolution has the form of recorded products, in a dtype that BLAS supports."""
    known = {"kernel_shape", "strides", "dilations", "pads", "group"}
    return len(node.inputs) == 2 and known >= {*node.attributes} and is_wide(node)


def is_wide(node: ir.Node) -> bool:
    """Whether BLAS supports the dtype of the result."""
    return dtype_of(node.outputs[0]) in (np.float32, np.float64)


def signal_target(asm: Assembler, node: ir.Node) -> Place:
    """The place where a signal is wanted, or a new one."""
    value = node.outputs[0]
    y = asm.wanted.get(value) or channels_first(shape_of(value), dtype_of(value))
    asm.put(value, y)
    return y


def convolve(asm: Assembler, x: Place, w: Place, y: Place, grid: Windows, group: int) -> None:
    """y ← conv(x, w), by the method that suits the shapes."""
    if w.shape[1] == 1 and len(y.view[0]) == group and math.prod(w.shape[2:]) <= TAPS:
        by_taps(asm, framed(asm, x, grid), w, y, grid)
    elif is_short(w.shape, y.shape):
        by_patches_of_all(asm, x, w, y, grid, group)
    else:
        by_patches(asm, framed(asm, x, grid), w, y, grid, group)


def by_taps(asm: Assembler, x: Place, w: Place, y: Place, grid: Windows) -> None:
    """One channel in and out per group: y ← Σ over the taps of w[tap] times x at the tap."""
    term, first = channels_first(y.shape, y.dtype), True
    for tap, reach in grid.taps():
        weight = w.moved(lambda v, tap=tap: v[(..., *tap)].reshape(-1, *(1,) * len(tap)))
        if weight.constant is not None and not weight.constant.any():
            continue
        asm.emit(np.multiply, x[(..., *reach)], weight, y if first else term)
        if not first:
            asm.emit(np.add, y, term, y)
        first = False
    if first:
        asm.emit(clear, y)


def by_patches(asm: Assembler, x: Place, w: Place, y: Place, grid: Windows, group: int) -> None:
    """y ← W · patches, block by block."""
    weights = matrices(asm, w, group)
    view = Place(x.buffer, patches(x.view, grid))
    row = math.prod(grid.count[1:]) * w.view[0].size * group * x.dtype.itemsize
    for images, rows in blocks(len(x.view), grid.count[0], row, w.view.nbytes):
        part = columns(asm, view[images, :, rows], group, len(grid.count))
        onto(asm, weights, part, y[images, :, rows], group)


def is_short(w: Shape, y: Shape) -> bool:
    """Whether rows are shorter than the batch, and patches so large that moving samples pays."""
    return len(y) > 2 and y[0] > y[-1] and math.prod(w[1:]) >= MANY * w[0]


def by_patches_of_all(
    asm: Assembler, x: Place, w: Place, y: Place, grid: Windows, group: int
) -> None:
    """y ← W · patches of many samples at once, stored side by side, (C, *space, N)."""
    weights, view = matrices(asm, w, group), patched(asm, x, grid)
    row = math.prod((*grid.count[1:], *w.shape[1:])) * group * x.dtype.itemsize
    for images, rows in bands(len(x.view), grid.count[0], row, w.view.nbytes):
        part = columns(asm, view[images, :, rows], group, len(grid.count), last=True)
        made = new((group, weights.shape[1], part.shape[2]), y.dtype)
        multiply(asm, weights, part, made)
        there = y[images, :, rows].moved(np.moveaxis, 0, -1)
        asm.emit(copy, made.moved(np.reshape, there.shape), there)


def patched(asm: Assembler, x: Place, grid: Windows) -> Place:
    """The patches of a copy of x inside its frame, stored with the samples last."""
    larger = np.add(x.shape, np.sum(widths_of(grid), axis=1))
    role = Role.KEPT if any(map(any, grid.frame)) else Role.WORK
    frame = samples_last(tuple(larger), x.dtype, role)
    asm.emit(copy, x, Place(frame.buffer, inside(frame.view, widths_of(grid))))
    return Place(frame.buffer, patches(frame.view, grid))


def bands(images: int, rows: int, row: int, least: int = 0) -> Iterator[tuple[slice, slice]]:
    """Blocks of rows of all images, or of as many images as fill `BLOCK` bytes with one row each.

    >>> [(i.start, i.stop, r.start) for i, r in bands(3, 2, BLOCK // 2)]
    [(0, 2, 0), (0, 2, 1), (2, 3, 0)]
    """
    many = max(max(BLOCK, least) // max(row, 1), 1)
    for n in range(0, images, many):
        part = slice(n, min(n + many, images))
        for _, rows_of in blocks(1, rows, row * (part.stop - part.start), least):
            yield part, rows_of


def samples_last(shape: Shape, dtype: Any, role: Role = Role.WORK) -> Place:
    """A new signal (N, C, *space), stored as (C, *space, N)."""
    n, *rest = shape
    view = np.moveaxis(ghost((*rest, n), dtype), -1, 0)
    return Place(Buffer(view, role), view)


def matrices(asm: Assembler, w: Place, group: int) -> Place:
    """The weights as one matrix per group."""
    return asm.reshaped(w, (group, len(w.view) // group, math.prod(w.shape[1:])))


def columns(asm: Assembler, part: Place, group: int, rank: int, *, last: bool = False) -> Place:
    """Patches (n, c, *count, *kernel) as matrices (group, c / group · kernel, n · count).

    With `last`, the columns are count · n.
    """
    n, c, *rest = part.shape
    count, taps = tuple(range(3, 3 + rank)), tuple(range(3 + rank, 3 + 2 * rank))
    split = part.moved(np.reshape, (n, group, c // group, *rest))
    order = (*count, 0) if last else (0, *count)
    turned = split.moved(np.transpose, (1, 2, *taps, *order))
    shape = (group, c // group * math.prod(rest[rank:]), n * math.prod(rest[:rank]))
    return asm.reshaped(turned, shape)


def onto(asm: Assembler, weights: Place, part: Place, y: Place, group: int) -> None:
    """y (n, m, *count) ← the products (group, m / group, n · count)."""
    n, m, *count = y.shape
    turned = y.moved(np.swapaxes, 0, 1)
    shape = (group, m // group, n * math.prod(count))
    if found := turned.reshaped(shape):
        multiply(asm, weights, part, found)
        return
    made = new(shape, y.dtype)
    multiply(asm, weights, part, made)
    asm.emit(copy, made.moved(np.reshape, turned.shape), turned)


@asks_for("Conv")
def _inside_the_frame(
    asked: Destinations, node: ir.Node, place: Place | None
) -> Iterator[Want]:
    """Asks that a signal without other readers be written inside the frame directly."""
    x, grid = operand(node), grid_of(node)
    short = is_short(shape_of(operand(node, 1)), shape_of(node.outputs[0]))
    if asked.uses[x] == 1 and any(map(any, grid.frame)) and is_plain(node) and not short:
        yield x, frame_around(shape_of(x), dtype_of(x), grid)[1]


@assembles("ConvTranspose")
def conv_transpose(asm: Assembler, node: ir.Node) -> None:
    """y = convᵀ(x, w)."""
    plain = len(node.inputs) == 2 and {*node.attributes} <= KNOWN and is_wide(node)
    if not plain or math.prod(shape_of(operand(node, 1))[2:]) > TAPS:
        by_kernel(asm, node)
        return
    (x, w), group = asm.operands(node), attributes(node).get("group", 1)
    grid, y = transposed_grid_of(node), signal_target(asm, node)
    mirror = mirrored(grid)
    if mirror is not None and not is_dearer(mirror, grid, x.shape[1], y.shape[1]):
        convolve(asm, x, flipped(asm, w, group), y, mirror, group)
    else:
        spread(asm, x, w, y, grid, group)


def is_dearer(mirror: Windows, grid: Windows, c: int, m: int) -> bool:
    """Whether gathering c channels per position of y takes longer than adding m per position of x.

    Both also take c · m multiplications per position.
    """
    gathers, adds = math.prod(mirror.count), math.prod(grid.count)
    return gathers * (c + PRODUCT * c * m) > adds * (m + PRODUCT * c * m)


def transposed_grid_of(node: ir.Node) -> Windows:
    """The windows over y, one for each entry of x."""
    x, w = (shape_of(v) for v in node.inputs[:2] if v is not None)
    said = {k: v for k, v in attributes(node).items() if k not in ("group", "kernel_shape")}
    return transposed_windows(x[2:], w[2:], **said)


def mirrored(grid: Windows) -> Windows | None:
    """The windows of the convolution over x that gives y; None with strides or a negative frame."""
    reach = [d * (k - 1) for d, k in zip(grid.dilations, grid.kernel, strict=True)]
    before = tuple(r - b for r, b in zip(reach, grid.begins, strict=True))
    if max(grid.strides, default=1) > 1 or min(before, default=0) < 0:
        return None
    return replace(grid, space=grid.count, begins=before, ends=before, count=grid.space)


def flipped(asm: Assembler, w: Place, group: int) -> Place:
    """w[c, m, t] as the kernel of a convolution, w[m, c, −t]."""
    c, m, *taps = w.shape
    split = w.moved(np.reshape, (group, c // group, m, *taps))
    axes = tuple(range(3, 3 + len(taps)))
    turned = split.moved(np.swapaxes, 1, 2).moved(np.flip, axes)
    return asm.contiguous(turned, (group * m, c // group, *taps))


def spread(asm: Assembler, x: Place, w: Place, y: Place, grid: Windows, group: int) -> None:
    """y ← Σ over the taps of w[tap]ᵀ x, added at the position of the tap, block by block."""
    full = samples_last((*y.shape[:2], *grid.framed), y.dtype)
    asm.emit(clear, full)
    weights = matrices(asm, w, group).moved(np.swapaxes, 1, 2)
    row = y.shape[1] * math.prod(grid.kernel + grid.count[1:]) * x.dtype.itemsize
    for images, rows in bands(len(x.view), grid.count[0], row):
        lower = full[images, :, rows.start * grid.strides[0] :]
        stamp(asm, weights, x[images, :, rows], lower, grid, group)
    cut = tuple(slice(a, a + n) for a, n in zip(grid.begins, grid.space, strict=True))
    asm.emit(copy, full[(..., *cut)], y)


def stamp(asm: Assembler, weights: Place, x: Place, y: Place, grid: Windows, group: int) -> None:
    """y += the products with x, each tap at its position."""
    n, m, *count = x.shape
    shape = (group, m // group, n * math.prod(count))
    part = asm.reshaped(x.moved(np.moveaxis, 0, -1), shape)
    made = new((group, weights.shape[1], shape[2]), y.dtype)
    multiply(asm, weights, part, made)
    taps = made.moved(np.reshape, (y.shape[1], *grid.kernel, *count, n))
    onto = y.moved(np.moveaxis, 0, -1)
    for tap, reach in replace(grid, count=tuple(count)).taps():
        there = onto[(slice(None), *reach)]
        asm.emit(np.add, there, taps[(slice(None), *tap)], there)
