"""What moves entries: views of where they lie, copies only where no view can say it."""

from __future__ import annotations

import onnx_ir as ir

from ....jacobians import shape_of
from ....ops.numbers import numbers
from .assemble import Assembler, arguments, assembles, attributes
from .instruction import copy
from .places import Place, reshaped
from .wants import operand, parts


@assembles("Identity", "Transpose", "Slice", "Squeeze", "Unsqueeze", "Expand")
def view(asm: Assembler, node: ir.Node) -> None:
    """The kernel of the numbers reading, which gives a view."""
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
    """The same entries in row-major order: copied where they are in another."""
    x, shape = asm.place(operand(node)), shape_of(node.outputs[0])
    found = reshaped(x.view, shape)
    if found is not None:
        asm.put(node.outputs[0], Place(x.buffer, found))
        return
    y = asm.target(node)
    back = reshaped(y.view, x.shape)
    if back is None:
        asm.emit(copy, asm.contiguous(x, shape), y)
    else:
        asm.emit(copy, x, Place(y.buffer, back))


@assembles("Concat")
def concat(asm: Assembler, node: ir.Node) -> None:
    """One behind the other: what is not written there by its producer is copied."""
    y = asm.target(node)
    for value, part in parts(node, y):
        x = asm.place(value)
        if part.view.size and not x.same(part):
            asm.emit(copy, x, part)


@assembles("Cast")
def cast(asm: Assembler, node: ir.Node) -> None:
    """Another floating type."""
    asm.emit(copy, asm.place(operand(node)), asm.target(node))
