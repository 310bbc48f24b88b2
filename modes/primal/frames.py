"""Frames: the room that windows need around a tensor, which may be far more than comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...ops.node import Step
from ...ops.numbers.windows import CROPPING, GEOMETRY, transposed_windows, windows

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
        said = {name: attrs[name] for name in (*GEOMETRY, *CROPPING) if name in attrs}
        transposed = step.op_type == "ConvTranspose"
        grid = (transposed_windows if transposed else windows)(x.shape[2:], kernel, **said)
        channels = inputs[1].shape[1] * attrs.get("group", 1) if transposed else x.shape[1]
        return int(x.shape[0] * channels * math.prod(grid.framed) * x.itemsize)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError):
        return 0  # the kernel will say what is wrong
