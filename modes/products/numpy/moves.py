"""Operators that move entries: views where possible, else copies.

Padded operands are written inside a persistent frame of zeros. Constant indices of Gather and
ScatterND are resolved in advance.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx_ir as ir

from ....jacobians import dtype_of, shape_of
from ....ops.numbers import numbers
from ....ops.numbers.indexing import from_start, rows_at, selection
from ....ops.numbers.layout import pad_widths
from ...flow.steps import python_of
from ..record import Recording
from .assemble import Assembler, arguments, assembles, attributes, by_kernel
from .destinations import Destinations, Want, asks_for, operand, parts
from .places import Place, Role, new
from .program import copy


@assembles("Identity", "Transpose", "Slice", "Squeeze", "Unsqueeze", "Expand")
def view(asm: Assembler, node: ir.Node) -> None:
    """The view that the operator's NumPy kernel returns."""
    kernel = getattr(numbers, node.op_type)
    x = asm.place(operand(node))
    moved = x.moved(kernel, *arguments(asm, node), **attributes(node))
    asm.put(node.outputs[0], moved)


@assembles("Split")
def split(asm: Assembler, node: ir.Node) -> None:
    """Slabs along an axis."""
    x, count = asm.place(operand(node)), len(node.outputs)
    views = numbers.Split(x.view, *arguments(asm, node), **attributes(node), outputs=count)
    for value, slab in zip(node.outputs, views, strict=True):
        asm.put(value, Place(x.buffer, slab))


@assembles("Reshape", "Flatten")
def reshape(asm: Assembler, node: ir.Node) -> None:
    """The entries in row-major order: copied where they lie in another order."""
    x, shape = asm.place(operand(node)), shape_of(node.outputs[0])
    if found := x.reshaped(shape):
        asm.put(node.outputs[0], found)
        return
    y = asm.target(node)
    if back := y.reshaped(x.shape):
        asm.emit(copy, x, back)
    else:
        asm.emit(copy, asm.contiguous(x, shape), y)


@assembles("Concat")
def concat(asm: Assembler, node: ir.Node) -> None:
    """The operands joined; those that their producers did not write in place are copied."""
    y = asm.target(node)
    for value, part in parts(node, y):
        x = asm.place(value)
        if part.view.size and not x.same(part):
            asm.emit(copy, x, part)


@assembles("Cast")
def cast(asm: Assembler, node: ir.Node) -> None:
    """x in another floating dtype."""
    asm.emit(copy, asm.place(operand(node)), asm.target(node))


@assembles("Gather")
def gather(asm: Assembler, node: ir.Node) -> None:
    """y = x[…, index, …]."""
    x, index = asm.operands(node)
    axis = attributes(node).get("axis", 0)
    if index.constant is None:
        by_kernel(asm, node)
        return
    places = from_start(index.constant, x.shape[axis])
    x = x if x.view.flags.c_contiguous else asm.contiguous(x)
    asm.emit(partial(taken, places, axis), x, asm.target(node))


def taken(index: np.ndarray, axis: int, x: np.ndarray, y: np.ndarray) -> None:
    """y ← x[…, index, …]; the index is known to be valid, and checking it would cost a copy.

    A non-contiguous x would cost a copy, too.
    """
    np.take(x, index, axis, y, mode="clip")


@assembles("ScatterND")
def scatter_nd(asm: Assembler, node: ir.Node) -> None:
    """y = zeros, with the slices of x added at the positions in the index."""
    zeros, index, x = asm.operands(node)
    adds = attributes(node).get("reduction") == "add"
    if not adds or zeros.constant is None or index.constant is None or zeros.constant.any():
        by_kernel(asm, node)
        return
    depth = index.shape[-1]
    places = rows_at(index.constant, zeros.shape[:depth])
    rows, width = (int(np.prod(part)) for part in (zeros.shape[:depth], zeros.shape[depth:]))
    updates = asm.contiguous(x, (len(places), width))
    if len(np.unique(places)) == len(places):
        write(asm, node, places, updates)
    else:
        matrix = selection(places, rows, x.dtype).tocsr()
        asm.emit(lambda x, y: copy((matrix @ x).reshape(y.shape), y), updates, asm.target(node))


def write(asm: Assembler, node: ir.Node, places: np.ndarray, updates: Place) -> None:
    """Writes updates to places that are all different; the zeros in between persist."""
    shape = asm.target(node).shape
    kept = new(shape, updates.dtype, Role.KEPT)
    rows = kept.moved(np.reshape, (-1, updates.shape[1]))
    asm.emit(partial(assigned, places), updates, rows)
    asm.emit(copy, kept, asm.place(node.outputs[0]))


def assigned(places: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """y[places] ← x."""
    y[places] = x


Widths = list[tuple[int, int]]


def frame(recording: Recording, node: ir.Node) -> Widths | None:
    """The widths of a frame of zeros; None for any other padding."""
    x, pads, value, axes = (*node.inputs, None, None)[:4]
    assert x is not None
    mode = node.attributes.get("mode")
    known = [None if v is None else recording.array(v) for v in (pads, value, axes)]
    if (mode is not None and python_of(mode) != "constant") or known[0] is None:
        return None
    if value is not None and (known[1] is None or np.any(known[1])):
        return None
    shape = shape_of(x)
    along = range(len(shape)) if known[2] is None else known[2].tolist()
    widths = pad_widths(np.broadcast_to(np.zeros(()), shape), tuple(known[0].tolist()), along)
    return widths if all(min(pair) >= 0 for pair in widths) else None


def inside(view: np.ndarray, widths: Widths) -> np.ndarray:
    """The part inside the frame."""
    cut = (slice(a, n - b) for n, (a, b) in zip(view.shape, widths, strict=True))
    return view[tuple(cut)]


def margins(view: np.ndarray, widths: Widths) -> Iterator[np.ndarray]:
    """The slabs that make up the frame."""
    for axis, (a, b) in enumerate(widths):
        for cut in (slice(0, a), slice(view.shape[axis] - b, None)):
            slab = view[(slice(None),) * axis + (cut,)]
            if slab.size:
                yield slab
        view = view[(slice(None),) * axis + (slice(a, view.shape[axis] - b),)]


@asks_for("Pad")
def _inside_the_frame(
    asked: Destinations, node: ir.Node, place: Place | None
) -> Iterator[Want]:
    widths, y = frame(asked.recording, node), node.outputs[0]
    if widths is not None:
        place = place or new(shape_of(y), dtype_of(y), Role.KEPT)
        yield y, place
        yield operand(node), Place(place.buffer, inside(place.view, widths))


@assembles("Pad")
def pad(asm: Assembler, node: ir.Node) -> None:
    """y = x inside a frame of zeros."""
    widths = frame(asm.recording, node)
    if widths is None:
        by_kernel(asm, node)
        return
    x, y = asm.place(operand(node)), asm.target(node)
    kept = y.buffer.role is Role.KEPT and y.shape == y.buffer.ghost.shape
    for slab in () if kept else margins(y.view, widths):
        asm.emit(clear, Place(y.buffer, slab))
    core = Place(y.buffer, inside(y.view, widths))
    if not x.same(core):
        asm.emit(copy, x, core)


def clear(y: np.ndarray) -> None:
    """y ← 0."""
    y.fill(0)
