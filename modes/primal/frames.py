"""Frames: the room that windows need around a tensor, and products on their way to a sum.

Both may be far more than comes out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...jacobians import label_sizes
from ...ops.node import Step
from ...ops.numbers.matmul import contraction_order
from ...ops.numbers.windows import CROPPING, GEOMETRY, transposed_windows, windows
from ...ops.rules.einsum import expand_equation

WEIGHTS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}
"""The operators with a kernel of numbers, and which input it is."""

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def frame_bytes(step: Step, inputs: Sequence[Any]) -> int:
    """Bytes of the tensor with its padding, or, for a transposed convolution, before it is cropped.

    Of an Einsum the bytes of the largest product of some operands. 0 for other operators, and where
    the attributes fit no tensor.
    """
    if step.op_type == "Einsum":
        return product_bytes(step, inputs, left_to_right=False)
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


def product_bytes(step: Step, inputs: Sequence[Any], *, left_to_right: bool) -> int:
    """Bytes of the largest product of some operands of an Einsum, in the order of NumPy or as they
    are written; 0 where they do not fit.
    """
    try:
        equation, shapes = step.attrs["equation"], tuple(x.shape for x in inputs)
        order = [(0, 1), *((0, n) for n in range(len(shapes) - 2, 0, -1))]
        if not left_to_right:
            order = (contraction_order(equation, *shapes) or [])[1:]
        return int(largest(equation, shapes, order) * inputs[0].itemsize)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, ArithmeticError):
        return 0  # the kernel will say what is wrong


def largest(
    equation: str, shapes: tuple[tuple[int, ...], ...], order: Iterable[tuple[int, ...]]
) -> int:
    """Elements of the largest product on the way, each put behind the operands that are left.

    Of three operands or more at once every term is counted, which a loop goes through.

    >>> largest("a,b,ab->", ((2,), (3,), (2, 3)), [(0, 1), (0, 1)])
    6
    """
    terms, out = expand_equation(equation, tuple(map(len, shapes)))
    sizes, most = label_sizes(shapes, terms), 0
    left = [set(term) for term in terms]
    for group in order:
        met = set[str]().union(*(left[k] for k in group))
        left = [labels for k, labels in enumerate(left) if k not in group]
        left.append(met & set(out).union(*left))
        held = left[-1] if len(group) < 3 else met
        most = max(most, math.prod(sizes[label] for label in held))
    return most
