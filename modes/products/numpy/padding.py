"""Pad: what is padded is written inside a frame that stays from product to product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from ....jacobians import dtype_of, shape_of
from ....ops.numbers.layout import pad_widths
from ...flow.steps import python_of
from ..record import Recording
from .assemble import Assembler, assembles, by_kernel
from .instruction import copy
from .places import Place, Role, new
from .wants import Want, Wants, asks_for, operand, wants_for

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
    """What is inside the frame."""
    cut = (slice(a, n - b) for n, (a, b) in zip(view.shape, widths, strict=True))
    return view[tuple(cut)]


def margins(view: np.ndarray, widths: Widths) -> Iterator[np.ndarray]:
    """The slabs that the frame is made of."""
    for axis, (a, b) in enumerate(widths):
        for cut in (slice(0, a), slice(view.shape[axis] - b, None)):
            slab = view[(slice(None),) * axis + (cut,)]
            if slab.size:
                yield slab
        view = view[(slice(None),) * axis + (slice(a, view.shape[axis] - b),)]


@wants_for("Pad")
def _inside_the_frame(wants: Wants, node: ir.Node, place: Place) -> Iterator[Want]:
    widths = frame(wants.recording, node)
    if widths is not None:
        yield operand(node), Place(place.buffer, inside(place.view, widths))


@asks_for("Pad")
def _kept_frame(wants: Wants, node: ir.Node) -> Iterator[Want]:
    if frame(wants.recording, node) is not None:
        y = node.outputs[0]
        yield y, new(shape_of(y), dtype_of(y), Role.KEPT)


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
