"""Instruction: one call of a function on arrays whose places are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .places import Buffer, Place, Role

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
    """y ← x, converted where the dtypes differ."""
    np.copyto(y, x, casting="unsafe")
