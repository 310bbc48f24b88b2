"""ConvTranspose: products added where the taps fall; a convolution where that is less work.

The products lie with the samples last, (C, *space, N), so that what is added is contiguous.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from ....jacobians import shape_of
from ....ops.numbers.windows import Windows, transposed_windows
from .assemble import Assembler, assembles, attributes, by_kernel
from .convolution import TAPS, bands, convolve, is_wide, matrices, samples_last, signal_target
from .instruction import copy
from .matmul import multiply
from .padding import clear
from .places import Place, new, reshaped
from .wants import operand

PRODUCT = 1 / 20
"""How long a multiplication in a product of matrices takes, beside moving a number."""

KNOWN = {"kernel_shape", "strides", "dilations", "pads", "group", "output_padding"}


@assembles("ConvTranspose")
def conv_transpose(asm: Assembler, node: ir.Node) -> None:
    """y = convᵀ(x, w)."""
    plain = len(node.inputs) == 2 and {*node.attributes} <= KNOWN and is_wide(node)
    if not plain or math.prod(shape_of(operand(node, 1))[2:]) > TAPS:
        by_kernel(asm, node)
        return
    (x, w), group = asm.operands(node), attributes(node).get("group", 1)
    grid, y = grid_of(node), signal_target(asm, node)
    mirror = mirrored(grid)
    if mirror is not None and not is_dearer(mirror, grid, x.shape[1], y.shape[1]):
        convolve(asm, x, flipped(asm, w, group), y, mirror, group)
    else:
        spread(asm, x, w, y, grid, group)


def is_dearer(mirror: Windows, grid: Windows, c: int, m: int) -> bool:
    """Whether gathering c channels for each position of y is more work than adding m for each of x.

    Either also multiplies c with m.
    """
    gathers, adds = math.prod(mirror.count), math.prod(grid.count)
    return gathers * (c + PRODUCT * c * m) > adds * (m + PRODUCT * c * m)


def grid_of(node: ir.Node) -> Windows:
    """How the windows lie over y, as many as x has entries."""
    x, w = (shape_of(v) for v in node.inputs[:2] if v is not None)
    said = {k: v for k, v in attributes(node).items() if k not in ("group", "kernel_shape")}
    return transposed_windows(x[2:], w[2:], **said)


def mirrored(grid: Windows) -> Windows | None:
    """The convolution over x that gives y, where strides are 1 and the frame is not negative."""
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
    """y ← Σ over the taps of w[tap]ᵀ x, added where the tap falls, block by block."""
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
    """y += the products with x, each tap where it falls."""
    n, m, *count = x.shape
    last = x.moved(np.moveaxis, 0, -1)
    shape = (group, m // group, n * math.prod(count))
    view = reshaped(last.view, shape)
    part = asm.contiguous(last, shape) if view is None else Place(x.buffer, view)
    made = new((group, weights.shape[1], shape[2]), y.dtype)
    multiply(asm, weights, part, made)
    taps = made.moved(np.reshape, (y.shape[1], *grid.kernel, *count, n))
    onto = y.moved(np.moveaxis, 0, -1)
    for tap, reach in replace(grid, count=tuple(count)).taps():
        there = onto[(slice(None), *reach)]
        asm.emit(np.add, there, taps[(slice(None), *tap)], there)
