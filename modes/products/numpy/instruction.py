"""Instruction: one call of a function on arrays whose places are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import gcd
from sys import maxsize
from typing import Any

import numpy as np

from .places import Buffer, Place, Role

LINE, SETS, WAYS = 64, 64, 8
"""Bytes of a line of memory; sets of the first cache, and how many lines each holds, on most
machines: lines that are `SETS` apart share a set.
"""

Memory = Mapping[Buffer, np.ndarray]
Action = Callable[[], Any]


@dataclass(frozen=True)
class Instruction:
    """`function(*arrays)`, which writes into the last of them."""

    function: Callable[..., Any]
    places: tuple[Place, ...]

    def bound(self, memory: Memory) -> Action:
        """The call, ready to be made; where v or y takes part, the arrays are found each time."""
        bindings = [place.binding() for place in self.places]
        if any(place.buffer.role in (Role.INPUT, Role.OUTPUT) for place in self.places):
            return partial(late, self.function, bindings, memory)
        return partial(self.function, *(binding(memory) for binding in bindings))


def late(function: Callable[..., Any], bindings: list[Any], memory: Memory) -> None:
    """A call whose arrays are found when it is made."""
    function(*[binding(memory) for binding in bindings])


def copy(x: np.ndarray, y: np.ndarray) -> None:
    """y ← x, converted where the dtypes differ.

    What is to be side by side in y is read from places far apart in x, and what is beside these
    next time. So few are copied at a time that the cache holds their lines until then.
    """
    many = together(x.strides[-1]) if x.ndim else 1
    if not x.ndim or x.shape[-1] <= many:
        np.copyto(y, x, casting="unsafe")
        return
    for start in range(0, x.shape[-1], many):
        part = ..., slice(start, start + many)
        np.copyto(y[part], x[part], casting="unsafe")


def together(stride: int) -> int:
    """How many lines of memory so many bytes apart the first cache holds at once.

    >>> together(4096), together(2048), together(2048 + 64)
    (8, 16, 512)
    """
    lines, rest = divmod(abs(stride), LINE)
    return maxsize if rest or not lines else WAYS * SETS // gcd(SETS, lines)
