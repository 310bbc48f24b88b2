"""Transcriptions: the specification of each operator, in loops over indices and sums of products.

Transcriptions are written from the text of the specification alone, or run ONNX's reference
implementation, and share no code with what they verify: the kernels of the numbers reading and the
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ....ops.symbols import REFERRED, referred

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


for _name in REFERRED:
    transcription(_name)(referred(_name))
