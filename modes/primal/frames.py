"""Frames: the room that windows need around a tensor, which may be far more than comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ops.node import Step
from ...ops.numbers.windows import Windows, filled, windows

GEOMETRY = ("auto_pad", "ceil_mode", "dilations", "pads", "strides")
"""The attributes that say where windows lie."""

WEIGHTS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}
"""The operators with a kernel of numbers, and which input it is."""

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def frame_bytes(step: Step, inputs: Sequence[Any]) -> int:
    """Bytes of the tensor with its padding, or, for a transposed convolution, before it is cropped.

    0 where the operator slides no window, or the attributes fit no tensor.
    """
    if step.op_type not in POOLS and step.op_type not in WEIGHTS:
        return 0
    try:
        x, attrs = inputs[0], step.attrs
        at = WEIGHTS.get(step.op_type)
        kernel = tuple(attrs["kernel_shape"]) if at is None else inputs[at].shape[2:]
        transposed = step.op_type == "ConvTranspose"
        lengths = (uncropped if transposed else framed)(x.shape[2:], kernel, attrs)
        channels = inputs[1].shape[1] * attrs.get("group", 1) if transposed else x.shape[1]
        return int(x.shape[0] * channels * math.prod(lengths) * x.itemsize)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError):
        return 0  # the kernel will say what is wrong


def framed(space: Sequence[int], kernel: Sequence[int], attrs: Any) -> list[int]:
    """The lengths of the axes with their padding."""
    grid = windows(space, kernel, **{name: attrs[name] for name in GEOMETRY if name in attrs})
    return [a + n + b for n, (a, b) in zip(space, grid.frame, strict=True)]


def uncropped(space: Sequence[int], kernel: Sequence[int], attrs: Any) -> list[int]:
    """The lengths of the axes of a transposed convolution before pads are taken away."""
    rank = len(space)
    strides, dilations = (filled(attrs.get(name), 1, rank) for name in ("strides", "dilations"))
    grid = Windows(tuple(space), tuple(kernel), strides, dilations, (), (), tuple(space))
    extra = filled(attrs.get("output_padding"), 0, rank)
    lengths = [grid.covered(axis, n) + extra[axis] for axis, n in enumerate(space)]
    given = filled(attrs.get("output_shape"), 0, rank)
    return np.maximum(lengths, given[-rank:] if rank else []).tolist()
