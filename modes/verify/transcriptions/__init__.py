"""Transcriptions: the specification of each operator, in loops over indices and sums of products.

Transcriptions are written from the text of the specification alone, or run ONNX's reference
implementation, and share no code with what they verify: the kernels of the numbers reading and the
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

Transcription = Callable[..., Any]
Index = tuple[int, ...]

TRANSCRIPTIONS: dict[str, Transcription] = {}
"""domain::op_type -> a function of object arrays and attributes."""


def transcription(name: str) -> Callable[[Transcription], Transcription]:
    """Register a function as the transcription of an operator."""

    def enter(function: Transcription) -> Transcription:
        TRANSCRIPTIONS[name] = function
        return function

    return enter


def tabulate(shape: Iterable[int], entry: Callable[[Index], Any]) -> np.ndarray:
    """y[index] = entry(index), for every index of the shape.

    >>> tabulate((2, 2), lambda index: 10 * index[0] + index[1]).tolist()
    [[0, 1], [10, 11]]
    """
    y = np.empty(tuple(shape), object)
    for index in np.ndindex(*y.shape):
        y[index] = entry(index)
    return y


def replaced(index: Index, axis: int, *others: int) -> Index:
    """The index with the number of one axis replaced by other numbers, or removed.

    >>> replaced((1, 2, 3), 1, 7), replaced((1, 2, 3), -1)
    ((1, 7, 3), (1, 2))
    """
    axis %= len(index)
    return (*index[:axis], *others, *index[axis + 1 :])


def wrapped(i: Any, n: int) -> int:
    """An index of an axis of length n; a negative index counts from the end."""
    return int(i) + n if i < 0 else int(i)


REFERRED = (
    "BatchNormalization", "Compress", "Concat", "Conv", "DepthToSpace",
    "Expand", "Flatten", "Gather", "GatherND", "Gemm", "GlobalAveragePool", "Identity",
    "InstanceNormalization", "Max", "Min", "OneHot", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "Reshape", "ScatterElements", "ScatterND", "Shape", "Slice",
    "SpaceToDepth", "Split", "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where",
)  # fmt: skip
"""Operators that ONNX's reference implementation computes on arrays of any objects: they move
entries, or add, multiply and compare them.
"""


def refer(op_type: str) -> None:
    """Enter ONNX's reference implementation of an operator, in its newest version."""

    def apply(*inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
        names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
        given = {name: x for name, x in attrs.items() if x not in (None, ())}
        node = onnx.helper.make_node(op_type, names, [f"y{k}" for k in range(outputs)], **given)
        run = ReferenceEvaluator(node, opsets={"": onnx.defs.onnx_opset_version()}).run
        arrays = (np.asarray(x) if isinstance(x, tuple | int) else x for x in inputs)
        made = *run(None, {n: x for n, x in zip(names, arrays, strict=True) if n}),
        return made[0] if outputs == 1 else made

    transcription(op_type)(apply)


for _name in REFERRED:
    refer(_name)
