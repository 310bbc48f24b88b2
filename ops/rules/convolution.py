"""Conv and ConvTranspose: one trilinear form, read from two sides; and the windows of pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import (
    Array,
    Diagonal,
    Embed,
    Geometry,
    Identity,
    Jacobian,
    Reshape,
    Shape,
    broadcast,
    convolution_of,
    shape_of,
    size,
    take_flat,
)
from ...jacobians.symint import agree, is_symbolic, largest, same, smallest
from ..conventions import FIRST, ORDER, convention, kinks, tied
from ..node import Node
from ..numbers.pooling import members
from ..numbers.table import lowest
from ..numbers.windows import (
    AUTO_PADS,
    CROPPING,
    GEOMETRY,
    Windows,
    padded,
    said,
    transposed_windows,
    whole,
    windows,
)
from ..registry import Blocks, Count, jacobian, says
from .layout import in_front


@jacobian("Conv", auto_pad=AUTO_PADS, grows=True)
def conv(op: Any, node: Node) -> Blocks:
    """∂/∂x is a convolution with a fixed kernel, ∂/∂w one with a fixed signal."""
    x, w = node.inputs[:2]
    grid = whole(windows_of(node, shape_of(w)[2:]))
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
def conv_transpose(op: Any, node: Node) -> Blocks:
    """The adjoint of a convolution of y: the input x plays the role of the cotangent."""
    x, w = node.inputs[:2]
    grid = transposed_windows_of(node, shape_of(w)[2:])
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


def windows_of(node: Node, kernel: Shape) -> Windows:
    """The windows of a convolution or a pool over its first input."""
    grid = windows(node.x_shape[2:], kernel, **said(node.step.attrs, *GEOMETRY))
    return settled(node, grid, "count")


def transposed_windows_of(node: Node, kernel: Shape) -> Windows:
    """The windows of a transposed convolution over its output."""
    attributes = said(node.step.attrs, *GEOMETRY, *CROPPING)
    grid = transposed_windows(node.x_shape[2:], kernel, **attributes)
    return settled(node, grid, "space")


def settled(node: Node, grid: Windows, what: str) -> Windows:
    """The windows; raises `ValueError` if they imply another output shape than the value has."""
    lengths = getattr(grid, what)
    if not agree(lengths, node.y_shape[2:]):
        raise ValueError(f"its attributes lead to an output of lengths {lengths}, and its value "
                         f"has the lengths {node.y_shape[2:]}; try engine='numpy'")  # fmt: skip
    return grid


def in_margin(shape: Shape, pads: Shape, dtype: Any) -> tuple[Jacobian, Shape]:
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
    grid = windows(node.x_shape[2:], kernel, **said(node.step.attrs, *GEOMETRY))
    return size((*node.x_shape[:2], *grid.framed)) * int(node.x.itemsize)


def spread_bytes(node: Node) -> int:
    """Bytes of the output of a transposed convolution before cropping."""
    w, attributes = shape_of(node.inputs[1]), said(node.step.attrs, *GEOMETRY, *CROPPING)
    grid = transposed_windows(node.x_shape[2:], w[2:], **attributes)
    return size((node.x_shape[0], w[1] * node.group, *grid.framed)) * int(node.x.itemsize)


says("Conv", "ConvInteger", memory=framed_bytes)
says("QLinearConv", "com.microsoft::QLinearConv", "onnxjac.straight_through::QLinearConv",
     grows=True, memory=lambda node: framed_bytes(node, 3))  # fmt: skip
says("ConvTranspose", memory=spread_bytes)
says("MaxPool", "AveragePool", "LpPool", memory=lambda node: framed_bytes(node, None))


@jacobian("MaxPool", auto_pad=AUTO_PADS, grows=True)
def max_pool(op: Any, node: Node) -> Blocks:
    """y = the maximum of each window, taken at its first occurrence."""
    grid = windows_of(node, node.kernel_shape)
    if not is_symbolic(grid.space) and not members(grid, False).all():
        raise ValueError(f"some windows {grid.kernel} of {grid.space} with the pads "
                         f"{(*grid.begins, *grid.ends)} have nothing but padding")  # fmt: skip
    at, planes = max_positions(op, node, grid), node.x_shape[:2]
    return {(0, 0): take_flat(at, node.x_shape, node.dtype, planes, grid.apart)}


def max_positions(op: Any, node: Node, grid: Windows) -> Array:
    """The row-major position in x of every entry of y: the operator's own second output."""
    indices = node.output(1)
    if indices is not None and not node.storage_order:
        return indices
    how: dict[str, Any] = {"ceil_mode": 1} if node.ceil_mode else {}
    how["pads"] = (*grid.begins, *grid.ends)
    if node.ceil_mode and grid.drops:
        how = {"pads": tuple(np.transpose(grid.frame).ravel().tolist())}
    if is_symbolic(how["pads"]):
        how = {"auto_pad": node.auto_pad}
    _, positions = op.MaxPool(
        node.x, kernel_shape=grid.kernel, strides=grid.strides, dilations=grid.dilations,
        outputs=2, **how,
    )  # fmt: skip
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
def average_pool(op: Any, node: Node) -> Blocks:
    """y = window sums divided by the number of entries that count in each window."""
    grid = windows_of(node, node.kernel_shape)
    sums = window_sums(node, grid)
    return {(0, 0): Diagonal(inverse_counts(op, node, grid, sums), node.y_shape) @ sums}


def inverse_counts(op: Any, node: Node, grid: Windows, sums: Jacobian) -> Array:
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
def lrn(op: Any, node: Node) -> Blocks:
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
