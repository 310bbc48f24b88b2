"""Gather and scatter: entries taken from, or added to, the places that a known index names."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir

from ....ops.numbers.scatter import from_start, rows_at, selection
from .assemble import Assembler, assembles, attributes, by_kernel
from .instruction import copy
from .places import Place, Role, new


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
    """y ← x[…, index, …]; the index is known to be good, and checking it would cost a copy.

    So would an x that is not contiguous.
    """
    np.take(x, index, axis, y, mode="clip")


@assembles("ScatterND")
def scatter_nd(asm: Assembler, node: ir.Node) -> None:
    """y = zeros, with the slices of x added at the places of the index."""
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
    """Each place is written once: what is zero in between stays so."""
    shape = asm.target(node).shape
    kept = new(shape, updates.dtype, Role.KEPT)
    rows = kept.moved(np.reshape, (-1, updates.shape[1]))
    asm.emit(partial(assigned, places), updates, rows)
    asm.emit(copy, kept, asm.place(node.outputs[0]))


def assigned(places: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """y[places] ← x."""
    y[places] = x
