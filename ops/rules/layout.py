"""Operators that move entries without changing them: reshapes, permutations, slices."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ...jacobians import (
    Diagonal,
    Identity,
    Jacobian,
    Permutation,
    Reshape,
    Shape,
    Slice,
    broadcast,
    dtype_of,
    shape_of,
    slab,
)
from ...jacobians.symint import same
from ..node import Node
from ..numbers.layout import equal_parts, span
from ..registry import Blocks, jacobian

PIXELS = ("DCR", "CRD")
"""The orders of channels and blocks."""


@jacobian("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(op: Any, node: Node) -> Blocks:
    """y = x in another shape."""
    if same(node.x_shape, node.y_shape):
        return {(0, 0): Identity(node.y_shape, node.dtype)}
    return {(0, 0): Reshape(node.y_shape, node.x_shape, node.dtype)}


@jacobian("Transpose")
def transpose(op: Any, node: Node) -> Blocks:
    """y = x with its axes permuted, by default reversed."""
    perm = node.perm or tuple(reversed(range(len(node.x_shape))))
    return {(0, 0): Permutation(tuple(perm), node.x_shape, node.dtype)}


@jacobian("Expand", grows=True)
def expand(op: Any, node: Node) -> Blocks:
    """y = x repeated along axes of length 1."""
    return {(0, 0): broadcast(node.x_shape, node.y_shape, node.dtype)}


@jacobian("Tile", grows=True)
def tile(op: Any, node: Node) -> Blocks:
    """y = x repeated as a whole: along every axis (n,) -> (1, n) -> (r, n) -> (r n,)."""
    repeats = node.ints(1) or ()
    single = tuple(n for axis in node.x_shape for n in (1, axis))
    tiled = tuple(n for pair in zip(repeats, node.x_shape, strict=True) for n in pair)
    return {
        (0, 0): Reshape(node.y_shape, tiled, node.dtype)
        @ broadcast(single, tiled, node.dtype)
        @ Reshape(single, node.x_shape, node.dtype)
    }


@jacobian("Concat")
def concat(op: Any, node: Node) -> Blocks:
    """Each input is a slab of the output."""
    ends = accumulate((shape_of(x)[node.axis] for x in node.inputs), initial=0)
    return {
        (0, i): slab(node.y_shape, node.axis, start, stop, node.dtype).T
        for i, (start, stop) in enumerate(pairwise(ends))
        if node.wants(i)
    }


@jacobian("Split")
def split(op: Any, node: Node) -> Blocks:
    """Each output is a slab of the input."""
    n = node.x_shape[node.axis]
    ends = accumulate(node.ints(1) or equal_parts(n, len(node.step.outputs)), initial=0)
    return {
        (o, 0): slab(node.x_shape, node.axis, start, stop, dtype_of(node.x))
        for o, (start, stop) in enumerate(pairwise(ends))
        if node.wants(0, o)
    }


@jacobian("Slice")
def slice_(op: Any, node: Node) -> Blocks:
    """y = x[start:end:step] along the given axes."""
    starts, ends = node.ints(1) or (), node.ints(2) or ()
    axes = node.ints(3) or tuple(range(len(starts)))
    steps = node.ints(4) or (1,) * len(starts)
    spans = [(0, 1, n) for n in node.x_shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        spans[axis] = span(start, end, step, node.x_shape[axis])
    return {(0, 0): Slice(tuple(spans), node.x_shape, node.dtype)}


@jacobian("DepthToSpace", mode=PIXELS)
def depth_to_space(op: Any, node: Node) -> Blocks:
    """Channels become blocks of pixels: a permutation between two reshapes."""
    return {(0, 0): pixels(node.x_shape, node.blocksize, node.mode, node.dtype)}


@jacobian("SpaceToDepth", mode=PIXELS)
def space_to_depth(op: Any, node: Node) -> Blocks:
    """Blocks of pixels become channels: the transpose of DepthToSpace."""
    return {(0, 0): pixels(node.y_shape, node.blocksize, node.mode or "DCR", node.dtype).T}


def pixels(shape: Shape, b: int, mode: str, dtype: Any) -> Jacobian:
    """(N, C b², H, W) -> (N, C, H b, W b), the blocks first (DCR) or the channels first (CRD)."""
    n, channels, height, width = shape
    c = channels // b**2
    split = (n, b, b, c, height, width) if mode == "DCR" else (n, c, b, b, height, width)
    perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    moved = Permutation(perm, split, dtype) @ Reshape(split, shape, dtype)
    return Reshape((n, c, height * b, width * b), moved.out_shape, dtype) @ moved


@jacobian("Trilu")
def trilu(op: Any, node: Node) -> Blocks:
    """y = x above or below a diagonal, else 0."""
    (k,) = node.ints(1) or (0,)
    ones = op.Expand(np.ones((), node.dtype), node.x_shape[-2:])
    mask = op.Trilu(ones, k, upper=1 if node.upper is None else node.upper)
    return {(0, 0): Diagonal(mask, node.y_shape, chooses=True)}
