"""DFT and STFT: linear in the signal, with complex numbers as pairs on the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jacobians import Diagonal, Fourier, Jacobian, Reshape, Shape, Take, broadcast, shape_of
from ...jacobians.errors import OnnxJacError
from ...jacobians.symint import Number, largest, same, smallest
from ..node import Node
from ..registry import Blocks, jacobian, says
from .indexing import counted
from .layout import in_front

SIGNAL, WINDOW = 0, 2


@jacobian("DFT", grows=True)
def dft(op: Any, node: Node) -> Blocks:
    """truncation · transform · truncation or zero-padding to the transform's length."""
    shape = node.x_shape
    check_parts(node)
    axis = (node.ints(2) or (-2,))[0] % len(shape)
    half, given = bool(node.onesided and node.inverse), (node.ints(1) or (0,))[0]
    n = (2 * (shape[axis] - 1) if half else shape[axis]) if same(given, 0) else given
    J = complex_of_length(shape, axis, n // 2 + 1 if half else n, node.dtype)
    if half:
        J = mirrored(op, J.out_shape, axis, n, node.dtype) @ J
    J = Fourier(axis, J.out_shape, node.dtype, inverse=bool(node.inverse)) @ J
    return {(0, 0): in_front(node.y_shape, J.out_shape, node.dtype).T @ J}


def check_parts(node: Node) -> None:
    """Raises `OnnxJacError` unless the last axis holds (re, im) pairs, or real parts only."""
    if node.x_shape[-1] not in (1, 2):
        raise OnnxJacError(
            f"{node.step} takes numbers as pairs on the last axis, not {signal_text(node)}"
        )


def signal_text(node: Node) -> str:
    """The name and shape of the signal."""
    return f"{node.step.inputs[SIGNAL]} {list(node.x_shape)}"


def complex_of_length(shape: Shape, axis: int, n: Number, dtype: Any) -> Jacobian:
    """Truncation or zero-padding to n entries, with zero imaginary parts for real signals."""
    cut = tuple(smallest(m, n) if k == axis else m for k, m in enumerate(shape))
    full = (*(n if k == axis else m for k, m in enumerate(shape[:-1])), 2)
    return in_front(cut, full, dtype) @ in_front(cut, shape, dtype).T


def mirrored(op: Any, shape: Shape, axis: int, n: Number, dtype: Any) -> Jacobian:
    """Half a spectrum embedded in a whole one, for transforms of which only the real part is used.

    Entries with a mirror image count twice.
    """
    j = counted(op, shape[axis])
    single = op.Or(op.Equal(j, 0), op.Equal(op.Mul(j, 2), n))
    weight = op.Where(single, *(np.full((), c, dtype) for c in (1, 2)))
    column = op.Reshape(weight, (-1, *(1,) * (len(shape) - 1 - axis)))
    full = tuple(n if k == axis else m for k, m in enumerate(shape))
    return in_front(shape, full, dtype) @ Diagonal(column, shape)


says("STFT", by_hand="its factors cos(2π k t / n) have indices as numbers")


@jacobian("STFT", grows=True)
def stft(op: Any, node: Node) -> Blocks:
    """transform · diag(window) · framing in the signal; transform · diag(frames) in the window."""
    if len(node.x_shape) != 3:
        raise OnnxJacError(f"{node.step} takes [batch, length, parts], not {signal_text(node)}")
    check_parts(node)
    window, frames, n = node.input(WINDOW), node.y_shape[1], frame_length(node)
    (step,) = node.ints(1) or (1,)
    starts = op.Reshape(op.Mul(counted(op, frames), step), (frames, 1))
    at = op.Add(starts, counted(op, n))
    cut = Take(at, 1, node.x_shape, node.dtype)
    framed = cut.out_shape
    spectrum = transformed(node, framed)
    if window is None:
        return {(0, SIGNAL): spectrum @ cut}
    column = op.Reshape(window, (n, 1))
    blocks = {(0, SIGNAL): spectrum @ Diagonal(column, framed) @ cut}
    if node.wants(WINDOW):
        lift = broadcast((n, 1), framed, node.dtype) @ Reshape((n, 1), (n,), node.dtype)
        blocks[0, WINDOW] = spectrum @ Diagonal(cut._apply(op, node.x)) @ lift
    return blocks


def transformed(node: Node, framed: Shape) -> Jacobian:
    """The transform of every frame, (batch, frames, n, parts), truncated to half if onesided."""
    whole = complex_of_length(framed, 2, framed[2], node.dtype)
    spectrum = Fourier(2, whole.out_shape, node.dtype)
    return in_front(node.y_shape, spectrum.out_shape, node.dtype).T @ spectrum @ whole


def frame_length(node: Node) -> Number:
    """The length of the window, else as given, else the length of the signal."""
    window, given = node.input(WINDOW), node.ints(3)
    if window is not None:
        return shape_of(window)[0]
    return largest(given[0], 0) if given else node.x_shape[1]
