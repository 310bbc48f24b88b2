"""Tensor: an array of symbolic numbers, which knows its reading."""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy as sp

from ...jacobians import Op, Shape, reading
from ..node import AT


class Tensor:
    """Entries that are expressions; to rules and operators an array of float64."""

    dtype = np.dtype(np.float64)
    const_value = None

    def __init__(self, entries: np.ndarray, op: Op) -> None:
        self.entries, self.op = entries, op

    @property
    def shape(self) -> Shape:
        return self.entries.shape

    @property
    def meta(self) -> dict[str, np.ndarray]:
        """The numbers at the point, as `Node.number` asks for them."""
        return {AT: self.values}

    @property
    def exprs(self) -> np.ndarray:
        """The expressions alone, as an object array."""
        return each(lambda number: number.expr, self.entries)

    @property
    def values(self) -> np.ndarray:
        """The numbers at the point, in double precision."""
        return self.entries.astype(np.float64)

    def __repr__(self) -> str:
        return str(self.entries.tolist())


def each(function: Any, entries: np.ndarray) -> np.ndarray:
    """An object array of the function's results."""
    made = np.empty(entries.shape, object)
    for place, entry in np.ndenumerate(entries):
        made[place] = function(entry)
    return made


def symbol(name: str, place: tuple[int, ...], **assumptions: Any) -> sp.Symbol:
    """The entry of a tensor at a place.

    >>> symbol("x", (1, 2)), symbol("x", ())
    (x_12, x)
    """
    index = ("," if any(k > 9 for k in place) else "").join(map(str, place))
    return sp.Symbol(f"{name}_{index}" if place else name, real=True, **assumptions)


@reading.register(Tensor)
def _reading(tensor: Tensor) -> Op:
    return tensor.op
