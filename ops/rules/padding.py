"""Pad: constant padding embeds x in zeros, the other modes repeat entries of x."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Embed,
    Identity,
    Jacobian,
    Shape,
    Slice,
    Take,
    broadcast,
    shape_of,
)
from ...jacobians.selection import Span
from ...jacobians.symint import Number, largest, same
from ..node import Node
from ..numbers.layout import pad_widths
from ..registry import Blocks, jacobian
from .indexing import counted

Pads = list[tuple[int, int]]
"""The numbers of entries added before and after each axis; negative ones remove entries."""


@jacobian("Pad", mode=("constant", "reflect", "edge", "wrap"), grows=True)
def pad(op: Any, node: Node) -> Blocks:
    """y = x with a margin; in constant mode, ∂y/∂constant_value is 1 in the margin, 0 elsewhere."""
    pads = pad_widths(node.x, node.ints(1) or (), node.ints(3) or range(len(node.x_shape)))
    if node.mode != "constant":
        return {(0, 0): repeated(op, node, pads)}
    grow = Embed(middle(node.y_shape, pads), node.y_shape, node.dtype)
    blocks = {(0, 0): grow @ cutting(node, pads)}
    if node.input(2) is not None and node.wants(2):
        inside = grow._apply(op, op.Expand(np.ones((), node.dtype), grow.in_shape))
        lift = broadcast(shape_of(node.inputs[2]), node.y_shape, node.dtype)
        blocks[0, 2] = Diagonal(op.Sub(1.0, inside), node.y_shape, chooses=True) @ lift
    return blocks


def cutting(node: Node, pads: Pads) -> Jacobian:
    """The part of x that remains after negative pads."""
    spans, shape = middle(node.x_shape, [(-a, -b) for a, b in pads]), node.x_shape
    whole = same(tuple(count for *_, count in spans), shape)
    return Identity(shape, node.dtype) if whole else Slice(spans, shape, node.dtype)


def middle(shape: Shape, ends: Pads) -> tuple[Span, ...]:
    """The spans of all axes without their ends; a negative length cuts off nothing."""
    kept = ((n, largest(a, 0), largest(b, 0)) for n, (a, b) in zip(shape, ends, strict=True))
    return tuple((a, 1, n - a - b) for n, a, b in kept)


def in_front(shape: Shape, full: Shape, dtype: Any) -> Jacobian:
    """The embedding of a tensor as the first entries, along every axis, of a full one."""
    spans = tuple((0, 1, n) for n in shape)
    return Identity(shape, dtype) if same(shape, full) else Embed(spans, full, dtype)


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
