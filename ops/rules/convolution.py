"""Convolutions, read from two sides; pooling; and DeformConv, whose taps have positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...jacobians import (
    Array,
    Contraction,
    Diagonal,
    Embed,
    Geometry,
    Identity,
    Jacobian,
    Op,
    Permutation,
    Reshape,
    Shape,
    broadcast,
    convolution_of,
    dtype_of,
    reading,
    shape_of,
    size,
    take_flat,
)
from ...jacobians.symint import agree, is_symbolic, largest, same, smallest
from ..conventions import FIRST, LINE, ON_LINE, ORDER, convention, crossed, kinks, marked, tied
from ..indices import count_up
from ..node import Node, node_of
from ..numbers import numbers, table
from ..numbers.convolution import members
from ..numbers.table import lowest
from ..numbers.windows import (
    AUTO_PADS,
    CROPPING,
    GEOMETRY,
    Windows,
    given_attributes,
    padded,
    per_axis,
    transposed_windows,
    windows,
    within_padding,
)
from ..registry import Blocks, Count, jacobian, says
from .layout import in_front
from .sampling import Samples, sample_line


@jacobian("Conv", auto_pad=AUTO_PADS, grows=True)
def conv(op: Op, node: Node) -> Blocks:
    """∂/∂x is a convolution with a fixed kernel, ∂/∂w one with a fixed signal."""
    x, w = node.inputs[:2]
    grid = within_padding(windows_of(node, shape_of(w)[2:]))
    margin, pads = in_margin(node.x_shape, (*grid.begins, *grid.ends), node.dtype)
    g = Geometry(
        margin.out_shape, shape_of(w), node.y_shape, grid.strides, grid.dilations, pads, node.group
    )
    check_channels(g)
    blocks: dict[tuple[int, int], Jacobian] = {
        (0, 0): convolution_of(w, "x", "u", g) @ margin,
        (0, 1): convolution_of(margin._apply(op, x), "w", "u", g),
    }
    return with_bias(node, blocks)


@jacobian("ConvTranspose", auto_pad=AUTO_PADS, grows=True)
def conv_transpose(op: Op, node: Node) -> Blocks:
    """The adjoint of a convolution of y: the input x plays the role of the cotangent."""
    x, w = node.inputs[:2]
    grid = windows_of(node, shape_of(w)[2:], transposed=True)
    full = (grid.covered(axis, n) for axis, n in enumerate(grid.count))
    ends = [f - a - n for f, a, n in zip(full, grid.begins, grid.space, strict=True)]
    inside = (n + smallest(e, 0) for n, e in zip(grid.space, ends, strict=True))
    reached, pads = (*node.y_shape[:2], *inside), (*grid.begins, *(largest(e, 0) for e in ends))
    g = Geometry(reached, shape_of(w), node.x_shape, grid.strides, grid.dilations, pads, node.group)
    check_channels(g)
    rest = in_front(reached, node.y_shape, node.dtype)
    blocks = {
        (0, 0): rest @ convolution_of(w, "u", "x", g),
        (0, 1): rest @ convolution_of(x, "w", "x", g),
    }
    return with_bias(node, blocks)


def check_channels(g: Geometry) -> None:
    """Raises `ValueError` for shapes that do not fit, which engines would accept."""
    if len(g.x) < 3:
        raise ValueError(f"a signal of shape {g.x} has no axis that a kernel moves along")
    if g.group < 1 or g.w[0] % g.group or (g.x[1], g.u[1]) != (g.w[1] * g.group, g.w[0]):
        raise ValueError(f"a kernel of shape {g.w} in {g.group} groups joins no {g.x} with {g.u}")


def with_bias(node: Node, blocks: dict[tuple[int, int], Jacobian], i: int = 2) -> Blocks:
    """Adds ∂y/∂b, the broadcast of a bias per channel, input i."""
    if node.input(i) is not None:
        channels = shape_of(node.inputs[i])
        gain = (1, *channels, *(1,) * (len(node.y_shape) - 2))
        lift = broadcast(gain, node.y_shape, node.dtype)
        blocks[0, i] = lift @ Reshape(gain, channels, node.dtype)
    return blocks


def windows_of(node: Node, kernel: Shape, *, transposed: bool = False) -> Windows:
    """The windows of a convolution or a pool over its first input, or of a transposed convolution
    over its output. Raises `ValueError` if the value has another shape than they imply.
    """
    make, names = (transposed_windows, (*GEOMETRY, *CROPPING)) if transposed else (
        windows, GEOMETRY)  # fmt: skip
    grid = make(node.x_shape[2:], kernel, **given_attributes(node.step.attrs, *names))
    lengths = grid.space if transposed else grid.count
    if not agree(lengths, node.y_shape[2:]):
        raise ValueError(f"its attributes lead to an output of lengths {lengths}, and its value "
                         f"has the lengths {node.y_shape[2:]}; try engine='numpy'")  # fmt: skip
    return grid


def in_margin(shape: Shape, pads: Shape, dtype: np.dtype) -> tuple[Jacobian, Shape]:
    """The embedding of the signal in zeros for symbolic pads, which no attribute can hold; and the
    pads that remain.
    """
    if not is_symbolic(pads):
        return Identity(shape, dtype), pads
    d = len(pads) // 2
    inside = [(a, 1, n) for a, n in zip(pads[:d], shape[2:], strict=True)]
    full = (a + n + b for (a, _, n), b in zip(inside, pads[d:], strict=True))
    whole = tuple((0, 1, n) for n in shape[:2])
    return Embed((*whole, *inside), (*shape[:2], *full), dtype), (0,) * len(pads)


def framed_bytes(node: Node, weight: int | None = 1) -> int:
    """Bytes of the padded input of a convolution, or without weights of a pool."""
    kernel = node.kernel_shape if weight is None else shape_of(node.inputs[weight])[2:]
    grid = windows(node.x_shape[2:], kernel, **given_attributes(node.step.attrs, *GEOMETRY))
    return size((*node.x_shape[:2], *grid.framed)) * int(node.x.itemsize)


def spread_bytes(node: Node) -> int:
    """Bytes of the output of a transposed convolution before cropping."""
    w, attributes = (
        shape_of(node.inputs[1]),
        given_attributes(node.step.attrs, *GEOMETRY, *CROPPING),
    )
    grid = transposed_windows(node.x_shape[2:], w[2:], **attributes)
    return size((node.x_shape[0], w[1] * node.group, *grid.framed)) * int(node.x.itemsize)


says("Conv", "ConvInteger", memory=framed_bytes)
says("QLinearConv", "com.microsoft::QLinearConv", "onnxjac.straight_through::QLinearConv",
     grows=True, memory=lambda node: framed_bytes(node, 3))  # fmt: skip
says("ConvTranspose", memory=spread_bytes)
says("MaxPool", "AveragePool", "LpPool", memory=lambda node: framed_bytes(node, None))


# -- pooling: a selection for the maximum, a convolution with ones for the average -----------------


@jacobian("MaxPool", auto_pad=AUTO_PADS, grows=True)
def max_pool(op: Op, node: Node) -> Blocks:
    """y = the maximum of each window, taken at its first occurrence."""
    grid = windows_of(node, node.kernel_shape)
    if not is_symbolic(grid.space) and not members(grid, False).all():
        raise ValueError(f"some windows {grid.kernel} of {grid.space} with the pads "
                         f"{(*grid.begins, *grid.ends)} have nothing but padding")  # fmt: skip
    at, planes = max_positions(op, node, grid), node.x_shape[:2]
    return {(0, 0): take_flat(at, node.x_shape, node.dtype, planes, grid.apart)}


def max_positions(op: Op, node: Node, grid: Windows) -> Array:
    """The row-major position in x of every entry of y: the operator's own second output."""
    indices = node.output(1)
    if indices is not None and not node.storage_order:
        return indices
    how = {**node.step.attrs, **({"storage_order": 0} if node.storage_order else {})}
    if node.ceil_mode and grid.drops:
        pads = tuple(np.transpose(grid.frame).ravel().tolist())
        fit = {"auto_pad": node.auto_pad} if is_symbolic(pads) else {"pads": pads}
        how = {"kernel_shape": grid.kernel, "strides": grid.strides, "dilations": grid.dilations}
        how |= fit
    _, positions = op.MaxPool(node.x, outputs=2, **how)  # the node itself, where it is recorded
    return positions


@kinks("MaxPool", where=ORDER, given=FIRST)
def ties_of_windows(node: Node) -> Count:
    """Results that more than one entry of their window attains."""
    grid = windows_of(node, node.kernel_shape)
    framed = padded(node.x, grid, lowest(node.x.dtype))
    return tied(sum((framed[(..., *reach)] == node.y).astype(np.int64) for _, reach in grid.taps()))


convention("MaxPool", "max pool [1, 1]", ([[[1.0, 1.0]]],), ([[[1.0, 0.0]]],), FIRST,
           "lambda x: F.max_pool1d(x, 2, 1)", attrs={"kernel_shape": [2]})  # fmt: skip


@jacobian("AveragePool", auto_pad=AUTO_PADS, grows=True)
def average_pool(op: Op, node: Node) -> Blocks:
    """y = window sums divided by the number of entries that count in each window."""
    grid = windows_of(node, node.kernel_shape)
    sums = window_sums(node, grid)
    return {(0, 0): Diagonal(inverse_counts(op, node, grid, sums), node.y_shape) @ sums}


def inverse_counts(op: Op, node: Node, grid: Windows, sums: Jacobian) -> Array:
    """1 / the number of entries that count in each window."""
    if not is_symbolic(grid.space):
        counts = np.maximum(members(grid, node.count_include_pad), 1)
        return (1 / counts).astype(node.dtype)
    one, pads = np.ones((), node.dtype), (*grid.begins, *grid.ends)
    if not node.ceil_mode and (node.count_include_pad or same(pads, (0,) * len(pads))):
        return one / size(grid.kernel)
    if node.count_include_pad:  # but not the entries beyond the padding
        space = tuple(map(sum, zip(grid.space, grid.begins, grid.ends, strict=True)))
        beyond = (largest(b - a, 0) for (_, b), a in zip(grid.frame, grid.ends, strict=True))
        sums = sums_over(node, grid, space, (*(0 for _ in space), *beyond))
    return op.Div(one, op.Max(sums._apply(op, op.Expand(one, sums.in_shape)), one))


def window_sums(node: Node, grid: Windows) -> Jacobian:
    """Σ over each window."""
    begins, ends = grid.begins, grid.ends
    if node.ceil_mode or not is_symbolic(grid.space):  # else all windows lie in the padded signal
        begins, ends = zip(*grid.frame, strict=True)
    return sums_over(node, grid, grid.space, (*begins, *ends))


def sums_over(node: Node, grid: Windows, space: Shape, pads: Shape) -> Jacobian:
    """Σ over each window of images of shape `space`: a convolution with ones per channel."""
    ones, images = np.ones((1, 1, *grid.kernel), node.dtype), (size(node.x_shape[:2]), 1)
    split = Reshape((*images, *space), (*node.x_shape[:2], *space), node.dtype)
    margin, pads = in_margin(split.out_shape, pads, node.dtype)
    g = Geometry(
        margin.out_shape, ones.shape, (*images, *grid.count), grid.strides, grid.dilations, pads, 1
    )
    sums = convolution_of(ones, "x", "u", g) @ margin @ split
    return Reshape(node.y_shape, g.u, node.dtype) @ sums


@jacobian("LRN")
def lrn(op: Op, node: Node) -> Blocks:
    """y = x / s^β with s = bias + α/size W x², W the window sum over channels:
    J = diag(s^-β) - 2 α β / size · diag(x s^(-β-1)) W diag(x).
    """
    window, x = channel_window(node), node.x
    rate = node.alpha / node.size
    s = op.Add(op.Mul(window._apply(op, op.Mul(x, x)), rate), node.bias)
    power = op.Pow(s, op.CastLike(-node.beta, x))
    slope = op.Mul(op.Div(op.Mul(x, power), s), -2 * rate * node.beta)
    return {(0, 0): Diagonal(power) + Diagonal(slope) @ window @ Diagonal(x)}


def channel_window(node: Node) -> Jacobian:
    """Sums over `size` neighbouring channels."""
    n, c, *rest = node.x_shape
    before, after = (node.size - 1) // 2, node.size // 2
    pixels = size(tuple(rest))
    ones = np.ones((1, 1, node.size, 1), node.dtype)
    image = (n, 1, c, pixels)
    g = Geometry(image, ones.shape, image, (1, 1), (1, 1), (before, 0, after, 0), 1)
    split = Reshape(image, node.x_shape, node.dtype)
    return split.T @ convolution_of(ones, "x", "u", g) @ split


X, W, OFFSET, BIAS, MASK = range(5)


# -- DeformConv: every tap has a sampling position of its own --------------------------------------


@jacobian("DeformConv", grows=True)
def deform_conv(op: Op, node: Node) -> Blocks:
    """y = W · (mask ∘ sample(x, positions + offset)) + b: the product rule over its factors."""
    d = Deformed(op, node)
    outer = d.contraction("value")
    blocks: dict[tuple[int, int], Jacobian] = {
        (0, X): outer @ d.masked(d.samples.in_rows()) @ d.rows_of_images,
        (0, W): d.contraction("weight"),
    }
    if node.wants(OFFSET):
        ones = [np.ones((), node.dtype)] * len(d.kernel)
        moved = d.samples.in_positions(ones, range(len(ones)))
        split = (*d.points[:3], len(ones), d.points[3])
        points = Permutation((0, 1, 2, 4, 3), split, node.dtype) @ Reshape(
            split, shape_of(node.inputs[OFFSET]), node.dtype)  # fmt: skip
        blocks[0, OFFSET] = outer @ d.masked(moved) @ points
    if node.input(MASK) is not None and node.wants(MASK):
        taps = (*d.points, 1)
        lift = broadcast(taps, d.samples.shape, node.dtype)
        given = Reshape(taps, shape_of(node.inputs[MASK]), node.dtype)
        blocks[0, MASK] = outer @ Diagonal(d.samples.value) @ lift @ given
    return with_bias(node, blocks, BIAS)


class Deformed:
    """The samples of a deformable convolution, (N, offset groups, taps, positions)."""

    def __init__(self, op: Op, node: Node) -> None:
        self.op, self.node, self.dtype = op, node, dtype_of(node.x)
        self.out = shape_of(node.inputs[OFFSET])[2:]
        self.kernel = shape_of(node.inputs[W])[2:]
        self.taps, self.groups, self.group = size(self.kernel), node.offset_group, node.group
        n, c, *space = node.x_shape
        self.points = (n, self.groups, self.taps, size(self.out))
        self.split = (n, self.groups, c // self.groups, size(tuple(space)))
        turned = Permutation((0, 1, 3, 2), self.split, self.dtype)
        flat = (n * self.groups * self.split[3], self.split[2])
        self.rows_of_images = Reshape(flat, turned.out_shape, self.dtype) @ turned @ Reshape(
            self.split, node.x_shape, self.dtype)  # fmt: skip
        rows = self.rows_of_images._apply(op, node.x)
        images = op.Reshape(count_up(op, n * self.groups), (n, self.groups, 1, 1))
        lines = [sample_line(op, self.position(k), m, "linear") for k, m in enumerate(space)]
        self.samples = Samples(op, rows, lines, op.Mul(images, self.split[3]))
        given = node.input(MASK)
        self.mask = None if given is None else op.Reshape(given, (*self.points, 1))

    def position(self, k: int) -> Array:
        """The sampling positions of all taps along spatial axis k."""
        op, node, d = self.op, self.node, len(self.kernel)
        strides, dilations = per_axis(node.strides, 1, d), per_axis(node.dilations, 1, d)
        begin = per_axis(node.pads, 0, 2 * d)[k]
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


def coordinate(op: Op, shape: Shape, k: int) -> Array:
    """The index along axis k of every position in a tensor of the given shape, row-major."""
    line = op.Reshape(count_up(op, shape[k]), (-1, *(1,) * (len(shape) - 1 - k)))
    return op.Reshape(op.Expand(line, shape), (size(shape),))


@table.kernel("DeformConv", tensors=True)
def deformed(
    x: Array, w: Array, offset: Array, b: Array | None = None, mask: Array | None = None, *,
    dilations: Sequence[int] | None = None, group: int = 1,
    kernel_shape: Sequence[int] | None = None, offset_group: int = 1,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Array:  # fmt: skip
    """The kernel applied to samples at displaced positions."""
    steps = {"dilations": dilations, "group": group, "offset_group": offset_group, "pads": pads,
             "strides": strides}  # fmt: skip
    deformed = Deformed(reading(x), node_of("DeformConv", (x, w, offset, b, mask), steps))
    y = deformed.contraction("weight")._apply(reading(x), w)
    return y if b is None else y + b.reshape(-1, *(1,) * (x.ndim - 2))


@kinks("DeformConv", where=ON_LINE, given=LINE, moves=(OFFSET,))
def taps_on_lines(node: Node) -> Count:
    """Taps of a deformed convolution."""
    deformed = Deformed(numbers, node)
    if not node.wants(OFFSET):
        return 0, int(np.prod(deformed.points))
    axes = enumerate(node.x_shape[2:])
    return marked(crossed((deformed.position(k), -1.0, n) for k, n in axes))
