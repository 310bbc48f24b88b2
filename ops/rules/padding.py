"""Pad: constant padding embeds x in zeros, the other modes repeat entries of x."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Embed,
    Jacobian,
    Slice,
    Take,
    broadcast,
    shape_of,
)
from ...jacobians.symint import Number, largest
from ..node import Node
from ..registry import Blocks, jacobian
from .indexing import counted

Pads = list[tuple[int, int]]
"""The numbers of entries added before and after each axis; negative ones remove entries."""


@jacobian("Pad", mode=("constant", "reflect", "edge", "wrap"))
def pad(op: Any, node: Node) -> Blocks:
    """y = x with a margin; in constant mode, ∂y/∂constant_value is 1 in the margin, 0 elsewhere."""
    pads = margins_of(node)
    if node.mode != "constant":
        return {(0, 0): repeated(op, node, pads)}
    grow = embedding(node, pads)
    blocks = {(0, 0): grow @ cutting(node, pads)}
    if node.input(2) is not None and node.wants(2):
        inside = grow._apply(op, op.Expand(np.ones((), node.dtype), grow.in_shape))
        lift = broadcast(shape_of(node.inputs[2]), node.y_shape, node.dtype)
        blocks[0, 2] = Diagonal(op.Sub(1.0, inside), node.y_shape, chooses=True) @ lift
    return blocks


def margins_of(node: Node) -> Pads:
    rank = len(node.x_shape)
    axes = node.ints(3) or tuple(range(rank))
    flat, pads = node.ints(1) or (), [(0, 0)] * rank
    for k, axis in enumerate(axes):
        pads[axis] = flat[k], flat[k + len(axes)]
    return pads


def cutting(node: Node, pads: Pads) -> Jacobian:
    """The part of x that remains after negative pads."""
    spans = tuple(
        (largest(-a, 0), 1, n - largest(-a, 0) - largest(-b, 0))
        for n, (a, b) in zip(node.x_shape, pads, strict=True)
    )
    return Slice(spans, node.x_shape, node.dtype)


def embedding(node: Node, pads: Pads) -> Jacobian:
    """The embedding of the remaining part of x in y."""
    spans = tuple(
        (largest(a, 0), 1, n - largest(a, 0) - largest(b, 0))
        for n, (a, b) in zip(node.y_shape, pads, strict=True)
    )
    return Embed(spans, node.y_shape, node.dtype)


def repeated(op: Any, node: Node, pads: Pads) -> Jacobian:
    """One selection per padded axis, after negative pads."""
    J = cutting(node, pads)
    for axis, (before, after) in enumerate(pads):
        if before > 0 or after > 0:
            margin = largest(before, 0), largest(after, 0)
            index = source_positions(op, J.out_shape[axis], *margin, node.mode)
            J = Take(index, axis, J.out_shape, node.dtype) @ J
    return J


def source_positions(op: Any, n: Number, before: Number, after: Number, mode: str) -> Array:
    """The index, on an axis of length n, that each entry of the padded axis repeats.

    >>> from onnxjac.ops import numbers
    >>> source_positions(numbers, 4, 2, 1, "reflect").tolist()
    [2, 1, 0, 1, 2, 3, 2]
    """
    at = op.Sub(counted(op, before + n + after), before)
    if mode == "edge":
        return op.Min(op.Max(at, 0), n - 1)
    if mode == "wrap":
        return op.Mod(at, n)
    period = largest(2 * (n - 1), 1)
    folded = op.Mod(at, period)
    return op.Min(folded, op.Sub(period, folded))
