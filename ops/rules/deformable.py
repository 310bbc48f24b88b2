"""DeformConv: a convolution in which every tap has a sampling position of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Contraction,
    Diagonal,
    Jacobian,
    Permutation,
    Reshape,
    Shape,
    broadcast,
    dtype_of,
    reading,
    shape_of,
    size,
)
from ..conventions import BETWEEN, LINE, ON_LINE, crossed, kinks, marked
from ..node import Node, node_of
from ..numbers import numbers, table
from ..numbers.windows import filled
from ..registry import Blocks, Count, jacobian, says
from .convolution import with_bias
from .indexing import counted
from .sampling import Samples, line

X, W, OFFSET, BIAS, MASK = range(5)


@jacobian("DeformConv", grows=True)
def deform_conv(op: Any, node: Node) -> Blocks:
    """y = W · (mask ∘ sample(x, positions + offset)) + b: the product rule over its factors."""
    d = Deformed(op, node)
    outer = d.contraction("value")
    blocks: dict[tuple[int, int], Jacobian] = {
        (0, X): outer @ d.masked(d.samples.in_rows()) @ d.image_rows(),
        (0, W): d.contraction("weight"),
    }
    if node.wants(OFFSET):
        ones = [np.ones((), node.dtype)] * len(d.kernel)
        moved = d.samples.in_positions(ones, range(len(ones)))
        blocks[0, OFFSET] = outer @ d.masked(moved) @ d.offset_points()
    if node.input(MASK) is not None and node.wants(MASK):
        taps = (*d.points, 1)
        lift = broadcast(taps, d.samples.shape, node.dtype)
        given = Reshape(taps, shape_of(node.inputs[MASK]), node.dtype)
        blocks[0, MASK] = outer @ Diagonal(d.samples.value) @ lift @ given
    return with_bias(node, blocks, BIAS)


class Deformed:
    """The samples of a deformable convolution, (N, offset groups, taps, positions)."""

    def __init__(self, op: Any, node: Node) -> None:
        self.op, self.node, self.dtype = op, node, dtype_of(node.x)
        self.out = shape_of(node.inputs[OFFSET])[2:]
        self.kernel = shape_of(node.inputs[W])[2:]
        self.taps, self.groups, self.group = size(self.kernel), node.offset_group, node.group
        n, c, *space = node.x_shape
        self.points = (n, self.groups, self.taps, size(self.out))
        self.split = (n, self.groups, c // self.groups, size(tuple(space)))
        rows = op.Transpose(op.Reshape(node.x, self.split), perm=(0, 1, 3, 2))
        rows = op.Reshape(rows, (n * self.groups * self.split[3], self.split[2]))
        images = op.Reshape(counted(op, n * self.groups), (n, self.groups, 1, 1))
        lines = [line(op, self.position(k), m, "linear") for k, m in enumerate(space)]
        self.samples = Samples(op, rows, lines, op.Mul(images, self.split[3]))
        given = node.input(MASK)
        self.mask = None if given is None else op.Reshape(given, (*self.points, 1))

    def position(self, k: int) -> Array:
        """The sampling positions of all taps along spatial axis k."""
        op, node, d = self.op, self.node, len(self.kernel)
        strides, dilations = filled(node.strides, 1, d), filled(node.dilations, 1, d)
        begin = filled(node.pads, 0, 2 * d)[k]
        taps = op.Reshape(op.Mul(coordinate(op, self.kernel, k), dilations[k]), (-1, 1))
        home = op.Add(taps, op.Sub(op.Mul(coordinate(op, self.out, k), strides[k]), begin))
        split = (*self.points[:3], len(self.kernel), self.points[3])
        moved = op.Gather(op.Reshape(self.node.inputs[OFFSET], split), k, axis=3)
        return op.Add(moved, op.CastLike(home, moved))

    def masked(self, J: Jacobian) -> Jacobian:
        """J with the mask applied to its output, the samples."""
        return J if self.mask is None else Diagonal(self.mask, self.samples.shape) @ J

    def value(self) -> Array:
        """The masked samples in a convolution's layout: (N, groups, channels, taps, positions)."""
        value = self.samples.value
        value = value if self.mask is None else self.op.Mul(value, self.mask)
        return self.columns()._apply(self.op, value)

    def columns(self) -> Jacobian:
        """From channels last, by offset group, to (N, groups, channels, taps, positions)."""
        n, c = self.node.x_shape[:2]
        turned = Permutation((0, 1, 4, 2, 3), self.samples.shape, self.dtype)
        shape = (n, self.group, c // self.group, self.taps, self.points[3])
        return Reshape(shape, turned.out_shape, self.dtype) @ turned

    def weight(self) -> Array:
        """The kernel as (groups, channels out, channels in, taps)."""
        m, c = shape_of(self.node.inputs[W])[:2]
        return self.op.Reshape(self.node.inputs[W], (self.group, m // self.group, c, self.taps))

    def contraction(self, source: str) -> Jacobian:
        """y[ngmp] = Σ weight[gmck] value[ngckp], as a function of the samples or of the kernel."""
        n, group = self.node.x_shape[0], self.group
        m, c = shape_of(self.node.inputs[W])[:2]
        lengths = (n, group, m // group, c, self.taps, self.points[3])
        sizes = dict(zip("ngmckp", lengths, strict=True))
        shape: Shape = (n, m, *self.out)
        if source == "value":
            J: Jacobian = Contraction(((self.weight(), "gmck"),), "ngckp", "ngmp", sizes)
            before = self.columns()
        else:
            J = Contraction(((self.value(), "ngckp"),), "gmck", "ngmp", sizes)
            before = Reshape(J.in_shape, shape_of(self.node.inputs[W]), self.dtype)
        return Reshape(shape, J.out_shape, self.dtype) @ J @ before

    def image_rows(self) -> Jacobian:
        """(N, C, *S) -> the rows that are sampled."""
        turned = Permutation((0, 1, 3, 2), self.split, self.dtype)
        split = Reshape(self.split, self.node.x_shape, self.dtype)
        return Reshape(shape_of(self.samples.rows), turned.out_shape, self.dtype) @ turned @ split

    def offset_points(self) -> Jacobian:
        """The offsets as (*points, axes)."""
        split = (*self.points[:3], len(self.kernel), self.points[3])
        given = Reshape(split, shape_of(self.node.inputs[OFFSET]), self.dtype)
        return Permutation((0, 1, 2, 4, 3), split, self.dtype) @ given


def coordinate(op: Any, shape: Shape, k: int) -> Array:
    """The index along axis k of every position in a tensor of the given shape, row-major."""
    line = op.Reshape(counted(op, shape[k]), (-1, *(1,) * (len(shape) - 1 - k)))
    return op.Reshape(op.Expand(line, shape), (size(shape),))


@table.kernel("DeformConv")
def deformed(
    x: Array, w: Array, offset: Array, b: Any = None, mask: Any = None, *, dilations: Any = None,
    group: int = 1, kernel_shape: Any = None, offset_group: int = 1, pads: Any = None,
    strides: Any = None,
) -> Array:  # fmt: skip
    """The kernel applied to samples at displaced positions."""
    steps = {"dilations": dilations, "group": group, "offset_group": offset_group, "pads": pads,
             "strides": strides}  # fmt: skip
    deformed = Deformed(reading(x), node_of("DeformConv", (x, w, offset, b, mask), steps))
    y = deformed.contraction("weight")._apply(reading(x), w)
    return y if b is None else y + b.reshape(-1, *(1,) * (x.ndim - 2))


says("DeformConv", by_hand=BETWEEN)


@kinks("DeformConv", where=ON_LINE, given=LINE, moves=(OFFSET,))
def taps_on_lines(node: Node) -> Count:
    """Taps of a deformed convolution."""
    deformed = Deformed(numbers, node)
    if not node.wants(OFFSET):
        return 0, int(np.prod(deformed.points))
    axes = enumerate(node.x_shape[2:])
    return marked(crossed((deformed.position(k), -1.0, n) for k, n in axes))
