"""Sums over axes."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from ....jacobians import Shape
from .assemble import Assembler, arguments, assembles, attributes
from .matmul import is_matrix
from .places import Place, constant, reshaped
from .wants import operand


@assembles("ReduceSum")
def reduce_sum(asm: Assembler, node: ir.Node) -> None:
    """y = Σ x over some axes."""
    x, attrs = asm.place(operand(node)), attributes(node)
    (given,) = arguments(asm, node) or [None]
    axes = () if given is None else tuple(int(axis) % x.view.ndim for axis in given)
    if not axes and attrs.get("noop_with_empty_axes", 0):
        asm.put(node.outputs[0], x)
        return
    axes = axes or tuple(range(x.view.ndim))
    y, keepdims = asm.target(node), bool(attrs.get("keepdims", 1))
    matrix = as_matrix(x, axes)
    rows = reshaped(y.view, (-1, 1)) if y.view.size else None
    if matrix is None or rows is None:
        asm.emit(partial(summed, axes, keepdims), x, y)
    else:
        ones = constant(np.ones((matrix.shape[1], 1), x.dtype))
        asm.emit(np.matmul, matrix, ones, Place(y.buffer, rows))


def as_matrix(x: Place, axes: Shape) -> Place | None:
    """x with what remains as rows and what is summed as columns, if BLAS can sum it."""
    if not x.view.size or x.dtype.kind != "f" or x.dtype.itemsize < 4:
        return None
    kept = [k for k in range(x.view.ndim) if k not in axes]
    turned = x.view.transpose(*kept, *axes)
    rows = int(np.prod([x.shape[k] for k in kept]))
    view = reshaped(turned, (rows, -1))
    return Place(x.buffer, view) if view is not None and is_matrix(view) else None


def summed(axes: Shape, keepdims: bool, x: np.ndarray, y: np.ndarray) -> None:
    """y ← Σ x."""
    np.add.reduce(x, axis=axes, out=y, keepdims=keepdims)
