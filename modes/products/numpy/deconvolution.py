"""ConvTranspose: a convolution where its stride is 1, else products added where the taps fall."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ....jacobians import shape_of
from ....ops.numbers.convolution import blocks
from ....ops.numbers.windows import Windows, filled, halves
from .assemble import Assembler, assembles, attributes, by_kernel
from .convolution import channels_first, columns, convolve, is_wide, matrices, signal_target
from .instruction import copy
from .matmul import multiply
from .padding import clear
from .places import Place, new

KNOWN = {"kernel_shape", "strides", "dilations", "pads", "group", "output_padding"}


@assembles("ConvTranspose")
def conv_transpose(asm: Assembler, node: ir.Node) -> None:
    """y = convᵀ(x, w)."""
    if len(node.inputs) > 2 or not {*node.attributes} <= KNOWN or not is_wide(node):
        by_kernel(asm, node)
        return
    (x, w), group = asm.operands(node), attributes(node).get("group", 1)
    grid, begins = grid_of(node)
    mirror = mirrored(grid, begins, shape_of(node.outputs[0])[2:])
    y = signal_target(asm, node)
    if mirror is not None:
        convolve(asm, x, flipped(asm, w, group), y, mirror, group)
    else:
        spread(asm, x, w, y, grid, begins, group)


def grid_of(node: ir.Node) -> tuple[Windows, tuple[int, ...]]:
    """How the windows lie over y, as many as x has entries; and where y begins."""
    attrs = attributes(node)
    x, w = (shape_of(v) for v in node.inputs[:2] if v is not None)
    rank = len(x) - 2
    strides, dilations = (filled(attrs.get(k), 1, rank) for k in ("strides", "dilations"))
    begins, _ = halves(attrs.get("pads"), rank)
    return Windows(x[2:], w[2:], strides, dilations, (), (), x[2:]), begins


def mirrored(
    grid: Windows, begins: tuple[int, ...], count: tuple[int, ...]
) -> Windows | None:
    """The convolution over x that gives y, where strides are 1 and the frame is not negative."""
    reach = [d * (k - 1) for d, k in zip(grid.dilations, grid.kernel, strict=True)]
    before = tuple(r - b for r, b in zip(reach, begins, strict=True))
    if max(grid.strides, default=1) > 1 or min(before, default=0) < 0:
        return None
    return replace(grid, begins=before, ends=before, count=count)


def flipped(asm: Assembler, w: Place, group: int) -> Place:
    """w[c, m, t] as the kernel of a convolution, w[m, c, −t]."""
    c, m, *taps = w.shape
    split = w.moved(np.reshape, (group, c // group, m, *taps))
    axes = tuple(range(3, 3 + len(taps)))
    turned = split.moved(np.swapaxes, 1, 2).moved(np.flip, axes)
    return asm.contiguous(turned, (group * m, c // group, *taps))


def spread(
    asm: Assembler, x: Place, w: Place, y: Place, grid: Windows, begins: tuple[int, ...], group: int
) -> None:
    """y ← Σ over the taps of w[tap]ᵀ x, added where the tap falls, block by block."""
    ends = [b + n for b, n in zip(begins, y.shape[2:], strict=True)]
    covered = [grid.covered(axis, n) for axis, n in enumerate(grid.count)]
    full = channels_first((*y.shape[:2], *map(max, covered, ends)), y.dtype)
    asm.emit(clear, full)
    weights = matrices(asm, w, group).moved(np.swapaxes, 1, 2)
    row = y.shape[1] * math.prod(grid.kernel + grid.count[1:]) * x.dtype.itemsize
    for images, rows in blocks(len(x.view), grid.count[0], row, w.view.nbytes):
        lower = full[images, :, rows.start * grid.strides[0] :]
        stamp(asm, weights, x[images, :, rows], lower, grid, group)
    cut = tuple(slice(b, e) for b, e in zip(begins, ends, strict=True))
    asm.emit(copy, full[(..., *cut)], y)


def stamp(
    asm: Assembler, weights: Place, x: Place, y: Place, grid: Windows, group: int
) -> None:
    """y += the products with x, each tap where it falls."""
    rank = len(grid.kernel)
    windows = x.moved(lambda view: view.reshape(*view.shape, *(1,) * rank))
    part = columns(asm, windows, group, rank)
    made = new((group, weights.shape[1], part.shape[2]), y.dtype)
    multiply(asm, weights, part, made)
    n, _, *count = x.shape
    taps = made.moved(np.reshape, (y.shape[1], *grid.kernel, n, *count))
    onto = y.moved(np.swapaxes, 0, 1)
    for tap, reach in replace(grid, count=tuple(count)).taps():
        there = onto[(..., *reach)]
        asm.emit(np.add, there, taps[(slice(None), *tap)], there)
